"""Fits without features: weighted rows and the search."""

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from ddpn.networks.heads.start import Rows, fit


def test_rows_average_as_numpy_does():
    rng = np.random.default_rng(0)
    y, weight, exposure = rng.poisson(2.0, 40), rng.uniform(size=40), rng.uniform(1.0, 2.0, 40)
    expected = np.average(y.astype(float) ** 2, weights=weight)
    tensors = [torch.tensor(x) for x in (y, weight, exposure)]
    for rows in (Rows(tensors[0], tensors[1], None), Rows(*tensors)):
        assert rows.mean(rows.y**2).item() == pytest.approx(expected, rel=1e-12)
    assert Rows(*tensors).scale.tolist() == exposure.tolist()
    plain = Rows(tensors[0], None, None)
    assert plain.mean(plain.y).item() == pytest.approx(y.mean())
    assert plain.scale.tolist() == [1.0] * len(plain.y)


def test_equal_counts_become_one_row():
    rows = Rows(torch.tensor([3, 0, 3, 3]), torch.tensor([1.0, 2.0, 0.5, 0.25]), None)
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


def test_search_works_where_gradients_are_off():
    with torch.no_grad():
        found = fit(lambda raw: raw.square().sum(), torch.ones(1, dtype=torch.float64), [(-5.0, 5.0)])
    assert found.item() == pytest.approx(0.0, abs=1e-6)


def test_search_uses_one_thread_of_blas():
    used = set()

    def loss(raw):
        used.update(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")
        return raw.square().sum()

    with threadpool_limits(2, user_api="blas"):
        fit(loss, torch.ones(1, dtype=torch.float64), [(-5.0, 5.0)])
    assert used == {1}
