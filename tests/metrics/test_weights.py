"""A weight is a number of copies."""

import math

import numpy as np
import pytest
import torch

from ddpn.metrics.weights import checked_weight, mean, median
from ddpn.runtime.errors import InputError


@pytest.mark.parametrize("seed", range(20))
def test_whole_weights_repeat_rows(seed):
    rng = np.random.default_rng(seed)
    n = rng.integers(1, 9)
    x, copies = rng.integers(0, 5, n).astype(float), rng.integers(0, 4, n)
    copies[0] += 1
    for scale in (1.0, 0.1, 7e-5):
        w = checked_weight(copies * scale, torch.from_numpy(x))
        assert mean(torch.from_numpy(x), w).item() == pytest.approx(np.repeat(x, copies).mean(), abs=1e-12)
        assert median(torch.from_numpy(x), w).item() == np.median(np.repeat(x, copies))


def test_infinite_values_have_a_median():
    x = torch.tensor([1.0, math.inf, math.inf])
    assert median(x, checked_weight(None, x)).item() == math.inf


def test_one_weight_for_all_and_means_of_columns():
    x = torch.tensor([[1.0, 2.0], [3.0, 6.0]])
    w = checked_weight(torch.tensor(2.0), x[:, 0])
    assert mean(x, w).tolist() == [2.0, 4.0]
    assert mean(x, w).dtype == torch.float64


@pytest.mark.parametrize("bad", [[0.0, 0.0], [1.0, math.nan], [1.0, math.inf], [2.0, -1.0]])
def test_bad_weights_raise(bad):
    with pytest.raises(InputError, match="weight must be finite, not negative and not all 0"):
        checked_weight(bad, torch.zeros(2))


def test_weights_of_another_shape_raise():
    with pytest.raises(InputError, match=r"one entry per row, got shape \(3,\) for \(2,\)"):
        checked_weight([1.0, 1.0, 1.0], torch.zeros(2))
