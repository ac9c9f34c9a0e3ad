"""Test medians of weighted rows against numpy's medians of repeated rows."""

import numpy as np
import pytest
import torch

from ddpn import Poisson
from ddpn.metrics import median_precision
from ddpn.metrics.predictive import median


def test_the_median_of_an_even_number_of_rows_lies_halfway():
    mu = np.array([1.0, 2.0, 5.0, 9.0])
    assert median_precision(Poisson(torch.from_numpy(mu))) == pytest.approx(np.median(1 / mu))


@pytest.mark.parametrize("rows", range(2, 40, 2))
def test_rounding_of_weights_does_not_move_the_median(rows):
    """Sums of so many tenths are not exact."""
    values, weight = torch.arange(float(rows)), torch.full((rows,), 0.1, dtype=torch.float64)
    assert median(values, weight).item() == np.median(values.numpy())


@pytest.mark.parametrize("seed", range(5))
def test_a_weight_is_a_repeated_row(seed):
    rng = np.random.default_rng(seed)
    values, weight = rng.normal(size=20), rng.integers(0, 4, 20)
    weighted = median(torch.from_numpy(values), torch.from_numpy(weight).double())
    assert weighted.item() == pytest.approx(np.median(np.repeat(values, weight)))
