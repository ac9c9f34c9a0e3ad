"""Test how unusual single values are: ranks, tails, levels, missing values."""

import numpy as np
import pytest
from scipy.stats import norm

from ddpn.calibration.columns import (
    ABOVE,
    BELOW,
    MISSING,
    NEVER_MISSING,
    NEW_LEVEL,
    UNPRECEDENTED,
    UNSEEN,
    USUAL,
    fit_column,
)
from ddpn.calibration.upper_tails import UpperTail, measure_mean_excess  # fmt: skip
from ddpn.tables.columns import Column, Kind, Levels


def fit_profile(values, kind="number", levels=()):
    return fit_column(Column("c", Kind(kind), np.asarray(values), Levels(levels)))


def measure_values(profile, values, levels=()):
    return profile.score(Column("c", profile.kind, np.asarray(values), Levels(levels)))


def compute_shares(values) -> float:
    return np.exp(-np.asarray(values))


@pytest.mark.parametrize("draw", ["normal", "standard_cauchy", "exponential"])
def test_surprises_of_new_numbers_are_tail_probabilities_whatever_the_tail(draw):
    rng = np.random.default_rng(0)
    profile = fit_profile(getattr(rng, draw)(size=20_000))
    surprise = measure_values(profile, getattr(rng, draw)(size=20_000)).surprise
    for level in (0.5, 0.1, 0.01):
        assert np.mean(compute_shares(surprise) <= level) == pytest.approx(level, rel=0.25)


@pytest.mark.parametrize(("sign", "state"), [(1.0, ABOVE), (-1.0, BELOW)])
def test_the_surprise_grows_beyond_the_training_range(sign, state):
    x = np.random.default_rng(1).normal(size=1000)
    edge = (sign * x).max()
    surprise, states, _ = measure_values(fit_profile(x), sign * (edge + np.array([-1e-9, 0.1, 1.0, 10.0, 1e300])))
    assert states.tolist() == [USUAL, state, state, state, state]
    assert (np.diff(surprise) > 0).all()
    assert surprise[1] >= np.log(1001 / 2)
    assert surprise[3] > surprise[0] + 15.0
    assert np.isfinite(surprise).all()


def test_a_value_at_which_many_rows_lie_is_ordinary_and_one_beyond_is_not():
    x = np.r_[np.zeros(600), np.random.default_rng(2).exponential(size=400)]
    surprise, states, _ = measure_values(fit_profile(x), [0.0, -0.5])
    assert (surprise[0], states[0]) == (0.0, USUAL)
    assert (surprise[1] > np.log(500), states[1]) == (True, BELOW)


def test_few_values_are_levels():
    profile = fit_profile(np.r_[np.zeros(300), np.ones(95), np.full(5, 2.0)])
    surprise, states, _ = measure_values(profile, [0.0, 1.0, 2.0, 0.5, -0.0, 40.0])
    assert compute_shares(surprise[:3]) == pytest.approx([1.0, 0.25, 0.0125])
    assert states.tolist() == [USUAL, USUAL, USUAL, UNSEEN, USUAL, ABOVE]
    assert surprise[3] == pytest.approx(-np.log(0.5 / 401) + UNPRECEDENTED)
    assert surprise[5] >= surprise[3]


@pytest.mark.parametrize("kind", [Kind.NUMBER, Kind.BOOLEAN])
def test_a_constant_column_has_one_usual_value(kind):
    surprise, states, _ = measure_values(fit_profile(np.zeros(50), kind), [0.0, 1.0])
    assert (surprise[0], states[0], states[1]) == (0.0, USUAL, ABOVE)
    assert surprise[1] > UNPRECEDENTED


def test_levels_are_usual_by_frequency_and_unseen_ones_by_good_turing():
    codes = np.repeat([0, 1, 2, 3], [60, 38, 1, 1])
    surprise, states, _ = measure_values(
        fit_profile(codes, "category", ("a", "b", "c", "d")), [0, 1, 2, 3, 4], ("x", "b", "a", "c", "d")
    )
    assert states.tolist() == [UNSEEN, USUAL, USUAL, USUAL, USUAL]
    assert compute_shares(surprise[1:]) == pytest.approx([0.4, 1.0, 0.02, 0.02])
    # Two of a hundred rows were alone with their level, so about as many later rows will have a new one.
    assert surprise[0] == pytest.approx(-np.log(2.5 / 101) + NEW_LEVEL)


def test_a_column_of_names_has_unseen_levels_all_the_time():
    levels = tuple(map(str, range(200)))
    surprise = measure_values(fit_profile(np.arange(200), "category", levels), [0], ("new",)).surprise
    assert surprise[0] == pytest.approx(NEW_LEVEL, abs=0.01)


def test_missing_values_are_as_usual_as_their_share():
    rare = fit_profile(np.r_[np.full(10, np.nan), np.arange(90.0)])
    surprise, states, _ = measure_values(rare, [np.nan, 45.0])
    assert compute_shares(surprise[0]) == pytest.approx(0.1)
    assert (states.tolist(), surprise[1] < 0.2) == ([MISSING, USUAL], True)
    often = measure_values(fit_profile(np.r_[np.full(90, np.nan), np.arange(10.0)]), [np.nan, 4.0]).surprise
    assert (often[0], compute_shares(often[1]) <= 0.1) == (0.0, True)
    surprise, states, _ = measure_values(fit_profile(np.arange(100.0)), [np.nan])
    assert (states[0], surprise[0]) == (NEVER_MISSING, pytest.approx(np.log(101) + UNPRECEDENTED))


@pytest.mark.parametrize(
    ("values", "kind", "new"), [([np.nan] * 5, "number", [np.nan, 3.0]), ([-1] * 5, "category", [-1, 0])]
)
def test_a_column_without_values_is_usual_when_missing(values, kind, new):
    surprise, _, _ = measure_values(fit_profile(values, kind), new, ("a",))
    assert (surprise[0], surprise[1] > UNPRECEDENTED) == (0.0, True)


def test_the_tail_of_a_score_is_its_surprise():
    scores = np.random.default_rng(5).exponential(size=5000)
    tail = UpperTail.fit(scores)
    assert tail.measure_surprise(np.array([1.0, 3.0, 6.0])) == pytest.approx([1.0, 3.0, 6.0], rel=0.15)
    assert tail.measure_surprise(np.array([20.0]))[0] == pytest.approx(20.0, rel=0.3)
    assert measure_mean_excess(np.array([-1e308, 0.0, 1e308]), np.ones(3)) < np.inf


@pytest.mark.parametrize("seed", range(5))
def test_missing_rows_say_nothing_about_numbers_beyond_the_range(seed):
    """Beyond n numbers the surprise begins at 1 in (n + 1) / 2, however many rows have no value."""
    x = np.random.default_rng(seed).normal(size=200)

    def surprise_beyond(values) -> float:
        profile = fit_profile(values)
        return measure_values(profile, [x.max() + 0.5]).surprise[0] - profile.absent[1]

    assert surprise_beyond(np.r_[x, np.full(300, np.nan)]) == pytest.approx(surprise_beyond(x))
    assert surprise_beyond(x) >= np.log(201 / 2)


def test_the_scale_of_a_tail_does_not_depend_on_where_it_lies():
    """Most values are equal, so the scale is a share of the range."""
    values, counts = np.array([0.0, 1.0]), np.array([5, 100])
    assert measure_mean_excess(values + 1000.0, counts) == pytest.approx(measure_mean_excess(values, counts), rel=1e-9)


@pytest.mark.parametrize("scale", [0.5, 3.0])
def test_the_scale_of_an_exponential_tail_is_its_mean(scale):
    values = np.sort(np.random.default_rng(0).exponential(scale, 50_000))
    assert measure_mean_excess(values, np.ones(50_000)) == pytest.approx(scale, rel=0.1)


def test_the_scale_of_equal_values_is_a_share_of_them():
    """The scale of values below 1 is that of 1: a later 0.001 beside zeros is no surprise."""
    scales = [measure_mean_excess(np.array([value]), np.ones(1)) for value in (0.001, 1.0, 5.0, -500.0)]
    np.testing.assert_allclose(scales, np.array([1.0, 1.0, 5.0, 500.0]) * scales[1], rtol=1e-12)


def measure_left_out_rows(column: Column) -> tuple[np.ndarray, np.ndarray]:
    """Return surprises of training cells as if left out, and by brute force: by a summary of all other rows."""
    rows = np.arange(len(column.values))
    brute = [
        fit_column(column._replace(values=column.values[rows != row]))
        .score(column._replace(values=column.values[[row]]))
        .surprise[0]
        for row in rows
    ]
    return fit_column(column).measure_left_out(column, rows), np.array(brute)


@pytest.mark.parametrize(
    "column",
    [
        Column("x", Kind.NUMBER, np.random.default_rng(0).normal(size=120), ()),
        Column("x", Kind.NUMBER, np.r_[np.random.default_rng(1).exponential(size=100), np.full(20, np.nan)], ()),
        Column("x", Kind.NUMBER, np.r_[np.zeros(70), np.ones(36), np.full(10, 2.0), np.full(4, np.nan)], ()),
        Column("x", Kind.CATEGORY, np.repeat(np.arange(5), [60, 30, 16, 10, 4]), Levels("abcde")),
        Column("x", Kind.CATEGORY, np.random.default_rng(3).integers(0, 5000, 120), Levels(map(str, range(5000)))),
    ],
    ids=["numbers", "missing numbers", "few values", "levels", "names"],
)
def test_surprises_as_if_left_out_are_those_of_a_summary_of_the_other_rows(column):
    ours, brute = measure_left_out_rows(column)
    # Ranks next to the largest numbers lie between those of the two summaries.
    np.testing.assert_allclose(ours, brute, rtol=0.1, atol=0.7)
    assert np.mean(np.isclose(ours, brute, rtol=0.1, atol=0.1)) > 0.98


@pytest.mark.parametrize("n_missing", [0, 30, 400], ids=["none missing", "few missing", "most missing"])
def test_a_row_that_is_left_out_is_as_unusual_as_a_later_row_with_as_many_like_it(n_missing):
    """Names that occur twice in training, and later names that occur once, have exactly the same surprise.

    Where most values are missing, any name is unusual already, by the share of rows that have one.
    """
    codes = np.r_[np.repeat(np.arange(50), 2), np.arange(50, 100), np.full(n_missing, -1)]
    column = Column("x", Kind.CATEGORY, codes, Levels(map(str, range(200))))
    profile = fit_column(column)
    ours = profile.measure_left_out(column, np.arange(len(codes)))
    once, unseen = profile.score(column._replace(values=np.array([60, 150]))).surprise
    assert set(ours[:100]) == {once}
    assert set(ours[100:150]) == {unseen}
    rarity = -np.log(150 / len(codes)) if n_missing > 150 else 0.0
    assert once == pytest.approx(rarity - np.log(50 / 150))


# Exactly, by counting -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "x",
    [
        np.random.default_rng(0).normal(size=1000),
        np.random.default_rng(1).exponential(size=37),
        np.random.default_rng(2).integers(0, 300, 500).astype(float),
        np.array([1.0, 2.0]),
    ],
    ids=["numbers", "few rows", "ties", "two rows"],
)
def test_kept_quantiles_have_the_surprise_and_the_normal_score_of_their_ranks(x):
    profile = fit_profile(x)
    n, edges = len(x), profile.edges
    upto = np.array([(x <= edge).sum() for edge in edges])
    least = np.array([(x < edge).sum() for edge in edges])
    rarer = np.minimum(upto, n - least) / (n + 1.0)
    np.testing.assert_allclose(profile.surprise, np.maximum(-np.log(2.0 * rarer), 0.0), rtol=1e-12)
    np.testing.assert_allclose(profile.normal, norm.ppf(0.5 * (upto + least) / n), rtol=1e-9, atol=1e-9)
    assert (edges[0], edges[-1]) == (x.min(), x.max())


@pytest.mark.parametrize("n", [10, 100, 5000])
def test_ranks_of_kept_quantiles_grow_by_a_cube_root_of_two_towards_the_middle(n):
    """With distinct numbers all ranks up to three are kept, and gaps between ranks are 26% at most, from both ends."""
    edges = fit_profile(np.arange(n) / 7.0).edges * 7.0
    ranks = np.rint(edges).astype(int) + 1
    assert (ranks[0], ranks[-1]) == (1, n)
    lower = ranks[ranks <= n / 2]
    assert {1, 2, 3} <= set(lower) if n > 10 else {1, 2} <= set(lower)
    assert (lower[1:] <= np.floor(lower[:-1] * 2.0 ** (1 / 3) + 2.0)).all()
    assert len(lower) <= 3.0 * np.log2(n / 2.0) + 2.0
    mirrored = fit_profile(-np.arange(n) / 7.0)
    assert len(mirrored.edges) == pytest.approx(len(edges), abs=2)


@pytest.mark.parametrize(
    ("values", "counts", "scale"),
    [
        (np.arange(100.0), np.ones(100), 4.5),  # of 90 to 99
        (np.arange(1000.0), np.ones(1000), 9.5),  # 2% of the rows
        (np.arange(8.0), np.ones(8), 0.5),  # a quarter of few rows
        (np.array([0.0, 1.0, 3.0]), np.array([90, 6, 4]), 0.8),  # 4 of 10 lie 2 above the first
        (np.array([0.0, 5.0]), np.array([1, 99]), 0.005),  # equal values: a thousandth of the range
    ],
)
def test_the_scale_of_a_tail_is_the_mean_excess_of_its_values(values, counts, scale):
    assert measure_mean_excess(values, counts) == pytest.approx(scale, rel=1e-9)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_numbers_outside_the_range_have_an_exponential_tail(sign):
    x = sign * np.r_[np.arange(100.0), np.full(25, np.nan)]
    surprise, states, _ = measure_values(fit_profile(x), sign * np.array([99.0 + 9.0, 99.0 + 18.0]))
    present = 0.0  # more than half of the rows have a number
    assert surprise == pytest.approx(np.log(101 / 2) + np.array([2.0, 4.0]) + present)
    assert set(states) == {ABOVE if sign > 0 else BELOW}


def test_levels_are_as_rare_as_all_levels_that_occur_no_more_often():
    counts = [50, 20, 20, 7, 3]
    codes = np.repeat(np.arange(5), counts)
    surprise = measure_values(fit_profile(codes, "category", tuple("edcba")), np.arange(5), tuple("edcba")).surprise
    assert compute_shares(surprise) == pytest.approx([1.0, 0.5, 0.5, 0.1, 0.03])
    # No row was alone with its level, so no new level is expected.
    profile = fit_profile(codes, "category", tuple("edcba"))
    assert profile.unseen == pytest.approx([-np.log(0.5 / 101) + UNPRECEDENTED, 0.5 / 101])


def test_inputs_of_levels_and_of_missing_values_are_standardised_indicators():
    codes = np.random.default_rng(0).permutation(np.repeat([0, 1, 2, 3, -1], [600, 300, 95, 5, 100]))
    profile = fit_profile(codes, "category", tuple("abcd"))
    inputs = measure_values(profile, codes, tuple("abcd")).inputs
    present = codes >= 0
    assert profile.width == 4  # three levels, as the fourth is rare, and whether it is missing
    assert inputs[present, :3].mean(0) == pytest.approx(np.zeros(3), abs=1e-12)
    assert inputs[present, :3].std(0) == pytest.approx(np.ones(3))
    assert (inputs[~present, :3] == 0.0).all()
    assert (inputs[:, 3].mean(), inputs[:, 3].std()) == (pytest.approx(0.0, abs=1e-12), pytest.approx(1.0))
    # The largest value of each input is that of its own level.
    assert {codes[inputs[:, j] == inputs[:, j].max()].tolist()[0] for j in range(3)} == {0, 1, 2}


@pytest.mark.parametrize(
    ("counts", "width"),
    [
        ([100], 0),  # a constant says nothing
        ([99, 1], 2),  # one of a hundred
        ([995, 5], 1),  # less
        ([10] * 20, 20),
        ([10] * 5 + [30] * 25, 25),  # of more than 20, all that are as frequent as the twentieth
    ],
)
def test_levels_of_one_percent_of_the_rows_are_inputs(counts, width):
    codes = np.repeat(np.arange(len(counts)), counts)
    assert fit_profile(codes, "category", tuple(map(str, range(len(counts))))).width == width


def test_inputs_of_numbers_are_normal_scores():
    x = np.random.default_rng(0).exponential(size=4000)
    x[:400] = np.nan
    profile = fit_profile(x)
    inputs = measure_values(profile, x).inputs
    has_value = ~np.isnan(x)
    assert inputs.shape == (4000, 2)
    assert np.quantile(inputs[has_value, 0], [0.1, 0.5, 0.9]) == pytest.approx(norm.ppf([0.1, 0.5, 0.9]), abs=0.03)
    assert (inputs[~has_value, 0] == 0.0).all()
    assert inputs[:, 1].std() == pytest.approx(1.0)
    few = fit_profile(np.r_[np.full(3, np.nan), np.arange(997.0)])
    assert few.width == 1


def test_a_column_that_misses_half_of_its_values_is_usual_either_way():
    surprise = measure_values(fit_profile(np.r_[np.full(50, np.nan), np.arange(50.0)]), [np.nan, 25.0]).surprise
    assert surprise == pytest.approx([0.0, 0.0], abs=0.25)
    rare = measure_values(fit_profile(np.r_[np.full(80, np.nan), np.arange(20.0)]), [10.0]).surprise
    assert rare == pytest.approx([np.log(5.0)], abs=0.35)


def test_the_tail_of_a_score_counts_larger_scores():
    scores = np.random.default_rng(6).gamma(2.0, 1.0, 300)
    tail = UpperTail.fit(scores)
    expected = [-np.log((scores >= edge).sum() / 301.0) for edge in tail.edges]
    np.testing.assert_allclose(tail.surprise, expected, rtol=1e-12)
    np.testing.assert_allclose(tail.measure_surprise(tail.edges), expected, rtol=1e-12)
    top = np.sort(scores)[-10:]
    beyond = np.log(301.0) + 1.5 / (top - top[0]).mean()
    assert tail.measure_surprise(np.array([scores.max() + 1.5]))[0] == pytest.approx(beyond)
    wide = UpperTail.fit(scores, min_scale=10.0)
    assert wide.measure_surprise(np.array([scores.max() + 1.5]))[0] == pytest.approx(np.log(301.0) + 0.15)


@pytest.mark.parametrize(("kind", "folds"), [("numbers", 3), ("numbers", 12), ("levels", 12)])
def test_a_fold_that_is_left_out_is_measured_by_the_other_folds(kind, folds):
    """Where no other fold has missing values, they were never missing."""
    fold = np.arange(120) % folds
    if kind == "numbers":
        values = np.random.default_rng(4).normal(size=120)
        values[fold == 1] = np.nan
        column = Column("x", Kind.NUMBER, values, ())
    else:
        values = np.random.default_rng(5).integers(0, 4, 120)
        values[fold == 1] = -1
        column = Column("x", Kind.CATEGORY, values, Levels("abcd"))
    ours = fit_column(column).measure_left_out(column, fold)
    for number in range(folds):
        inside = fold == number
        brute = fit_column(column._replace(values=values[~inside])).score(column._replace(values=values[inside]))
        if number == 1:
            assert ours[inside] == pytest.approx(np.full(inside.sum(), np.log(121.0) + UNPRECEDENTED))
            assert brute.surprise.min() > UNPRECEDENTED
        else:
            np.testing.assert_allclose(ours[inside], brute.surprise, rtol=0.35, atol=0.7)
