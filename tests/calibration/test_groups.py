"""Intervals within groups cover what is asked in each of them; few rows and unknown groups take the level of all."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

from ddpn import ConfigError, CountGLM, InputError, Poisson
from ddpn.calibration.groups import IntervalGroups, grouping
from ddpn.calibration.intervals import IntervalLevels, NeededLevels, interval_at, level_needed
from ddpn.sample import Sample
from ddpn.tables.row_hashes import group_labels

RNG = np.random.default_rng(0)
N = 3000
MU = RNG.uniform(4.0, 12.0, N)
SHOP = RNG.choice(["calm", "wild"], N, p=[0.75, 0.25]).astype(object)
#: Poisson counts in one group; counts that vary far more in the other.
Y = np.where(SHOP == "calm", RNG.poisson(MU), RNG.negative_binomial(1.0, 1.0 / (1.0 + MU))).astype(float)
FRAME = pd.DataFrame({"x": np.log(MU), "shop": SHOP})
HALF = np.arange(N) < 1500


def poisson(mu) -> Poisson:
    return Poisson(torch.as_tensor(mu, dtype=torch.float64))


@pytest.fixture(scope="module")
def model():
    """A Poisson GLM of the first column, fitted to other rows."""
    mu = RNG.uniform(4.0, 12.0, 300)
    return CountGLM(likelihood="poisson").fit(np.log(mu)[:, None], RNG.poisson(mu))


def coverage(model, rows, **options) -> dict[str, float]:
    low, high = model.predict_interval(FRAME[["x"]].to_numpy()[rows], 0.9, **options).T
    inside = (low <= Y[rows]) & (Y[rows] <= high)
    return {name: float(inside[SHOP[rows] == name].mean()) for name in ("calm", "wild")}


def test_each_group_is_covered_as_asked(model):
    X = FRAME[["x"]].to_numpy()
    alone = coverage(model.fit_intervals(X[HALF], Y[HALF]), ~HALF)
    assert alone["wild"] < 0.8 < 0.93 < alone["calm"]
    model.fit_intervals(X[HALF], Y[HALF], groups=SHOP[HALF], group_rows=0.0)
    found = coverage(model, ~HALF, groups=SHOP[~HALF])
    # Four deviations of a share among about 375 rows with as many for calibration.
    assert found["calm"] == pytest.approx(0.9, abs=0.04)
    assert found["wild"] == pytest.approx(0.9, abs=4 * np.sqrt(0.09 * 2 / 375))


def test_the_level_of_a_group_is_that_of_its_own_rows():
    needed = level_needed(poisson(MU[HALF]), torch.from_numpy(Y[HALF])).numpy()
    whole = IntervalLevels.of(needed)
    groups, codes = grouping("shop", Sample(None, Y[HALF], interval_groups=SHOP[HALF]), (), 0.0)
    groups.add("mixture", NeededLevels(needed, None), codes, None)
    for code, name in enumerate(groups.names):
        alone = IntervalLevels.of(needed[SHOP[HALF] == name]).at(0.9)
        assert groups.at(0.9, "mixture", whole, np.array([code])).tolist() == [alone]
    assert groups.at(0.9, "mixture", whole, np.array([-1])).tolist() == [whole.at(0.9)]
    assert sum(groups.rows.values()) == 1500


def test_groups_of_few_rows_are_shrunk_towards_all_rows():
    needed = np.concatenate([np.linspace(0.0, 0.5, 1000), [0.99] * 2])
    codes = np.array([0] * 1000 + [1] * 2)
    whole = IntervalLevels.of(needed)
    # With 50 rows more, 0.9 of 53 rows must be inside: that is 47.7 of the 50.
    for prior, expected in ((0.0, 0.99), (1e4, whole.at(0.9)), (50.0, 0.5 * 47.7 / 50)):
        groups = IntervalGroups.by_labels("g", np.array(["a", "b"], dtype=object), prior)
        groups.add("m", NeededLevels(needed, None), codes, None)
        assert groups.at(0.9, "m", whole, np.array([1]))[0] == pytest.approx(expected, abs=0.01)


def test_ranges_of_the_predicted_mean(model):
    X = FRAME[["x"]].to_numpy()
    model.fit_intervals(X[HALF], Y[HALF], groups=4)
    groups = model.predictor_.groups
    assert list(groups.rows.values()) == [375] * 4
    assert groups.names[0].startswith("up to")
    mean = model.predict(X[~HALF])
    codes = groups.codes(None, mean)
    assert (np.diff(codes[np.argsort(mean)]) >= 0).all()
    levels = groups.at(0.9, "mixture", model.interval_levels_, codes)
    low, high = interval_at(model.predict_distribution(X[~HALF]), levels)
    assert model.predict_interval(X[~HALF]).tolist() == torch.stack([low, high], 1).long().tolist()


def test_a_column_of_the_table_and_a_group_that_is_unknown(tmp_path):
    model = CountGLM(likelihood="poisson").fit(FRAME[:300], Y[:300]).fit_intervals(FRAME[HALF], Y[HALF], groups="shop")
    own = model.predict_interval(FRAME[~HALF])
    assert (own == model.predict_interval(FRAME[~HALF], groups=SHOP[~HALF])).all()
    assert (own == model.predict_interval(pl.from_pandas(FRAME[~HALF]))).all()
    with pytest.warns(UserWarning, match=r"2 of 3 rows have a shop that the calibration rows did not have \('new'\)"):
        other = model.predict_interval(FRAME[:3], groups=["new", "calm", "new"])
    low, high = interval_at(model.predict_distribution(FRAME[:3]).distribution, model.interval_level(0.9))
    assert other[[0, 2]].tolist() == torch.stack([low, high], 1).long()[[0, 2]].tolist()
    model.save(tmp_path / "model")
    again = CountGLM.load(tmp_path / "model")
    assert (own == again.predict_interval(FRAME[~HALF])).all()
    assert again.predictor_.groups.rows == model.predictor_.groups.rows


def test_labels_have_one_form():
    forms = [1, 1.0, "1", " 1 ", np.float32(1.0), None, float("nan"), "a"]
    assert group_labels(forms).tolist() == ["1"] * 5 + ["missing"] * 2 + ["a"]
    assert group_labels(pl.Series([1, None])).tolist() == ["1", "missing"]


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"groups": "shop"}, InputError, "groups must be labels or a number where X is no data frame"),
        ({"groups": ["a"]}, InputError, "one label per row of X, got 1 for 1500"),
        ({"groups": 1}, InputError, "at least 2 ranges"),
        ({"groups": 3, "group_rows": -1.0}, ConfigError, "group_rows must be a finite number"),
    ],
)
def test_bad_groups_are_reported(model, options, error, words):
    with pytest.raises(error, match=words):
        model.fit_intervals(FRAME[["x"]].to_numpy()[HALF], Y[HALF], **options)


def test_predictions_need_the_groups_they_were_calibrated_by(model):
    X = FRAME[["x"]].to_numpy()
    model.fit_intervals(X[HALF], Y[HALF], groups=SHOP[HALF])
    with pytest.raises(InputError, match="groups is missing: intervals were calibrated by 'group'"):
        model.predict_interval(X[:3])
    model.fit_intervals(X[HALF], Y[HALF])
    with pytest.raises(InputError, match="was not given groups"):
        model.predict_interval(X[:3], groups=["a", "b", "c"])
