"""Out-of-distribution flags: ordinary rows are flagged as often as promised, unusual ones are found."""

import numpy as np
import pytest

from ddpn import ConfigError, CountGLM, InputError
from ddpn.calibration.ood import OODScores
from ddpn.predictor import Predictor


def share_flagged(scores: OODScores, x, alpha: float | None = None) -> float:
    return scores.is_ood(scores.pvalue(np.asarray(x, dtype=float)), alpha).mean()


@pytest.mark.parametrize(("n", "alpha", "share"), [(19, 0.05, 0.05), (19, 0.12, 0.1), (30, 0.2, 6 / 31)])
def test_ordinary_rows_are_flagged_as_often_as_promised(n, alpha, share):
    rng = np.random.default_rng(2)
    draws = [(OODScores.fit(rng.gamma(2.0, 1.0, n), alpha), rng.gamma(2.0, 1.0, 40)) for _ in range(400)]
    # Given the calibration rows the share is Beta distributed: its deviation, over 400 of them.
    tolerance = 4 * np.sqrt(alpha * (1 - alpha) / (n + 2) / 400)
    assert np.mean([share_flagged(*draw) for draw in draws]) == pytest.approx(share, abs=tolerance)
    assert share <= alpha


def test_equal_scores_are_never_flagged_too_often():
    rng = np.random.default_rng(3)
    draws = [(OODScores.fit(rng.integers(0, 4, 50), 0.05), rng.integers(0, 4, 40)) for _ in range(200)]
    assert np.mean([share_flagged(*draw, 0.3) for draw in draws]) <= 0.3
    assert share_flagged(OODScores.fit(np.full(50, 2.0), 0.05), np.full(9, 2.0)) == 0


def test_p_values_by_counting():
    found = OODScores.fit(np.array([9.0, 1.0, 4.0, 4.0]), alpha=0.5)
    assert found.scores.tolist() == [1.0, 4.0, 4.0, 9.0]
    pvalues = found.pvalue(np.array([0.5, 1.0, 4.0, 5.0, 9.0, 80.0, np.nan]))
    assert pvalues.tolist() == [1.0, 1.0, 0.8, 0.4, 0.4, 0.2, 0.2]
    assert found.is_ood(np.array([0.8, 0.4])).tolist() == [False, True]
    assert found.is_ood(np.array([0.4, 0.2]), alpha=0.2).tolist() == [False, True]


# In an estimator -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def calibrated(counts) -> CountGLM:
    rows = np.random.default_rng(8).normal(size=(99, 3))
    return CountGLM(likelihood="poisson").fit(*counts).fit_ood(rows, alpha=0.1)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda model, X: model.is_ood(X, alpha=0.009), InputError, "at least 1 / (n + 1) = 0.01 with n = 99"),
        (lambda model, X: model.fit_ood(X[:18]), InputError, "with n = 18 calibration rows"),
        *(
            (lambda model, X, alpha=alpha: model.is_ood(X, alpha=alpha), ConfigError, "lie between 0 and 1")
            for alpha in (0.0, 1.0, -0.1, 5, float("nan"), "0.05")
        ),
        (lambda model, X: model.fit_ood(X, alpha=2.0), ConfigError, "lie between 0 and 1"),
    ],
)
def test_bad_rates_are_refused_and_leave_the_calibration(calibrated, counts, call, error, words):
    with pytest.raises(error) as raised:
        call(calibrated, counts[0])
    assert raised.value.argument == "alpha"
    assert words in raised.value.must
    assert len(calibrated.predictor_.ood.scores) == 99


def test_the_smallest_rate_finds_rows_far_away(calibrated, counts):
    assert calibrated.is_ood(50.0 * counts[0], alpha=0.01).any()


def test_the_order_of_calls_is_reported(calibrated, counts):
    model = CountGLM(likelihood="poisson")
    with pytest.raises(ValueError, match="not fitted"):
        model.fit_ood(counts[0])
    model.fit(*counts)
    with pytest.raises(ValueError, match="0 sample"):
        model.fit_ood(counts[0][:0])
    model.fit_ood(counts[0]).fit(*counts)  # a new fit forgets the calibration
    for call in (model.ood_pvalue, model.is_ood):
        with pytest.raises(InputError, match="call fit_ood"):
            call(counts[0])
    bare = Predictor(calibrated.predictor_.members)
    with pytest.raises(InputError, match="no summary of its training rows"):
        bare.calibrate_ood(counts[0])
    assert bare.ood_reasons(counts[0][:2]) == [[], []]
