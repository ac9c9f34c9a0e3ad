"""Test out-of-distribution flags: the share alpha of ordinary rows is flagged, however few rows there are."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from ddpn import CountRegressor
from ddpn.calibration.feature_profile import FeatureProfile
from ddpn.calibration.ood import OODScores
from ddpn.rows.splits import assign_folds

ALPHA = 0.05
TABLES = 40


def draw_rows(rng: np.random.Generator, n: int, kind: str):
    """Draw inputs: independent Normals, or a Normal, a heavy tail, a level and a missing value now and then."""
    if kind == "numbers":
        return rng.normal(size=(n, 4))
    return pd.DataFrame(
        {
            "age": rng.normal(45, 12, n).round(),
            "income": np.where(rng.uniform(size=n) < 0.1, np.nan, rng.lognormal(10, 1, n)),
            "plan": rng.choice(["basic", "plus", "gold"], n, p=[0.6, 0.3, 0.1]),
        }
    )


def fit_constant(rng: np.random.Generator, n: int, kind: str) -> CountRegressor:
    """Fit the cheapest model: flags depend on the inputs alone."""
    X = draw_rows(rng, n, kind)
    return CountRegressor(members=["constant"], random_state=0).fit(X, rng.poisson(3.0, n))


def flag_ordinary_rows(rng: np.random.Generator, n: int, kind: str) -> float:
    """Return the share of 500 ordinary rows that flags from n rows in five folds, as in a fit, are raised for."""
    fold = rng.permutation(np.arange(n) % 5)
    profile, scores = FeatureProfile.cross_fit(draw_rows(rng, n, kind), None, fold)
    ood = OODScores.fit(scores, ALPHA)
    return float(ood.is_ood(ood.pvalue(profile.measure(draw_rows(rng, 500, kind)).score)).mean())


@pytest.mark.parametrize("kind", ["numbers", "mixed"])
@pytest.mark.parametrize("n", [20, 30, 50, 100, 300])
def test_ordinary_rows_are_flagged_at_the_documented_rate(n, kind):
    """The share of one table varies like that of n exchangeable rows, by a Beta distribution."""
    shares = [flag_ordinary_rows(np.random.default_rng([seed, n]), n, kind) for seed in range(TABLES)]
    error = np.std(shares) / np.sqrt(TABLES)
    assert np.mean(shares) <= ALPHA + 3.0 * error
    if n >= 50:
        assert np.mean(shares) >= ALPHA - 0.03
    first = int(ALPHA * (n + 1))
    assert np.max(shares) <= stats.beta.ppf(1.0 - 1e-5, first, n + 1 - first)


def test_the_default_of_a_fit_is_the_documented_alpha():
    shares = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        model = fit_constant(rng, 50, "numbers")
        assert (len(model.predictor_.calibration.ood.scores), model.predictor_.calibration.ood.alpha) == (50, ALPHA)
        shares.append(model.is_ood(draw_rows(rng, 500, "numbers")).mean())
    assert np.mean(shares) <= ALPHA + 3.0 * np.std(shares) / np.sqrt(8)


@pytest.mark.parametrize("n", [20, 50, 300])
def test_strange_rows_are_flagged(n):
    rng = np.random.default_rng(n)
    model = fit_constant(rng, n, "numbers")
    assert model.is_ood([[60.0, 0.0, 0.0, 0.0], [None, 0.0, 0.0, 0.0]]).all()


def test_too_few_rows_for_a_flag_are_said():
    rng = np.random.default_rng(0)
    model = fit_constant(rng, 12, "numbers")
    with pytest.warns(UserWarning, match="with 12 calibration rows the smallest p-value is 0.077"):
        assert not model.is_ood(rng.normal(50, 1, (9, 4))).any()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.is_ood(rng.normal(50, 1, (9, 4)), alpha=0.1).all()
        assert model.ood_reasons([[60.0, 0.0, 0.0, 0.0]]) != [[]]


def test_rows_of_a_group_do_not_calibrate_each_other():
    """Rows of one person are nearly equal, so whole persons are left out, as new persons will be unseen."""
    shares, person = [], np.repeat(np.arange(40), 6)

    def draw_people(rng, n):
        return np.repeat(rng.normal(size=(n, 3)), 6, axis=0) + 0.01 * rng.normal(size=(6 * n, 3))

    for seed in range(TABLES):
        rng = np.random.default_rng(seed)
        profile, scores = FeatureProfile.cross_fit(draw_people(rng, 40), None, assign_folds(240, 5, seed, person))
        ood = OODScores.fit(scores, ALPHA)
        shares.append(ood.is_ood(ood.pvalue(profile.measure(draw_people(rng, 100)).score)).mean())
    assert np.mean(shares) <= ALPHA + 3.0 * np.std(shares) / np.sqrt(TABLES)
