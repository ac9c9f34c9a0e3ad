"""Where rows are drawn at random, the seed decides which."""

import numpy as np
import pytest
import torch

from ddpn.calibration.recalibration import Recalibration
from ddpn.distributions import Poisson
from ddpn.members.glm import GLM
from ddpn.sample import Sample


def test_the_rows_of_a_glm_follow_the_seed(monkeypatch):
    monkeypatch.setattr(GLM, "max_rows", 100)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 1))
    sample = Sample(X, rng.poisson(np.exp(0.5 * X[:, 0])).astype(float))
    first, again, other = (GLM().fit(sample, None, seed=seed).linear.base for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_the_folds_of_a_recalibration_follow_the_seed():
    y = np.random.default_rng(0).negative_binomial(2, 0.4, 300).astype(float)
    dist = Poisson(torch.full((300,), 3.0, dtype=torch.float64))
    first, again, other = (Recalibration.fit([dist], y, seed=seed) for seed in (1, 1, 2))
    assert first.gain == again.gain
    assert first.gain != other.gain
    assert other.gain == pytest.approx(first.gain, rel=0.2)  # chance, not another result
    np.testing.assert_array_equal(first.value, other.value)  # the map itself is fitted to all rows
