"""Fits without features: weighted rows and the search."""

import pytest
import torch

from ddpn.networks.heads.start import WeightedCounts, fit


def test_equal_counts_become_one_row():
    rows = WeightedCounts(torch.tensor([3, 0, 3, 3]), torch.tensor([1.0, 2.0, 0.5, 0.25]), None)
    assert rows.y.tolist() == [0.0, 3.0]
    assert rows.weight.tolist() == [2.0, 1.75]


def test_search_finds_the_minimum_within_bounds():
    target = torch.tensor([1.0, -3.0], dtype=torch.float64)
    guess = torch.zeros(2, dtype=torch.float64)

    def loss(raw):
        return (raw - target).square().sum() + (raw - target).pow(4).sum()

    free = fit(loss, guess, [(-5.0, 5.0)] * 2)
    assert free.tolist() == pytest.approx(target.tolist(), abs=1e-6)
    assert fit(loss, guess, [(-5.0, 5.0), (-2.0, 5.0)]).tolist() == pytest.approx([1.0, -2.0], abs=1e-6)
    assert fit(loss, guess, [(-5.0, 5.0), (0.0, 0.0)]).tolist() == pytest.approx([1.0, 0.0], abs=1e-6)
