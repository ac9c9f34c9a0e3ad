"""Test that the seed decides which rows are drawn at random."""

import numpy as np
import pytest

from ddpn.calibration.recalibration import Recalibration
from ddpn.members.glm import GLM, PoissonGLM
from ddpn.predictor import Predictor
from ddpn.rows.count_rows import CountRows


def test_the_rows_of_a_glm_follow_the_seed(monkeypatch):
    monkeypatch.setattr(GLM, "max_rows", 100)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 1))
    sample = CountRows(X, rng.poisson(np.exp(0.5 * X[:, 0])).astype(float))
    first, again, other = (GLM.fit(sample, None, seed=seed).linear.base for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_the_parts_of_a_recalibration_follow_the_seed():
    y = np.random.default_rng(0).negative_binomial(2, 0.4, 300).astype(float)
    sample = CountRows(np.zeros((300, 1)), y)
    predictor = Predictor({"glm": PoissonGLM.fit(sample, None, seed=0)})  # too narrow
    recalibrations = [Recalibration.fit(predictor.predict_held_out(sample, seed))[0] for seed in (1, 1, 2)]
    assert recalibrations[0].gain == recalibrations[1].gain
    assert recalibrations[0].gain != recalibrations[2].gain
    assert recalibrations[2].gain == pytest.approx(recalibrations[0].gain, rel=0.2)  # chance, not another result
    np.testing.assert_allclose(
        recalibrations[0].value, recalibrations[2].value, rtol=1e-6
    )  # the map itself is fitted to all rows
