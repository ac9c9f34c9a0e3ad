"""Test what is known about possible counts: every message, and the way from a sample back to a user's arguments."""

import numpy as np
import pytest

from ddpn.rows.count_range import CountRange
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.errors import ConfigError, InputError

Y = np.array([1.0, 3.0, 5.0])
LABELS = np.array(["ann", "bob", "cy"])


def make_sample(y=Y, **parts) -> CountRows:
    return CountRows(np.zeros((len(y), 1)), y, labels=LABELS, **parts)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"lower": 5, "upper": 4}, "upper must be an integer above `lower=5`, got 4"),
        ({"lower": 3, "upper": 3}, "upper must be an integer above `lower=3`"),
        ({"upper": 2.5}, "upper must be an integer above `lower=0`, got 2.5"),
        ({"lower": -1}, "lower must be an integer of at least 0, got -1"),
        ({"lower": None}, "lower must be an integer of at least 0, got None. The default is 0"),
        ({"lower": 0.5}, "lower must be an integer"),
        ({"lower": 2, "censored_above": 2}, "censored_above must be an integer above `lower=2`, got 2"),
        ({"upper": 5, "censored_above": 6}, "censored_above must be at most `upper=5`, got 6"),
        ({"upper": 5, "upper_per_row": True}, "one number for all rows or one per row, got both"),
    ],
)
def test_a_range_without_sense_is_refused(arguments, words):
    with pytest.raises(ConfigError, match=words):
        CountRange(**arguments)


@pytest.mark.parametrize(
    ("arguments", "columns", "words"),
    [
        ({"lower": 2}, {}, "y must be at least `lower=2`, got 1 at row ann"),
        ({"upper": 4}, {}, "y must be at most `upper=4`, got 5 at row cy"),
        ({"upper_per_row": True}, {"upper": [9, 2, 9]}, "at most the upper bound of its row, got 3 at row bob"),
        ({"upper_per_row": True}, {"upper": [9, 3.5, 9]}, "upper must hold integers of at least 0, got 3.5 at row bob"),
        ({"lower": 1, "upper_per_row": True}, {"upper": [0, 3, 9]}, "integers of at least 1, got 0 at row ann"),
        ({"upper_per_row": True, "upper_is_total": True}, {"upper": [9, 9, 0]}, "at least 1, got 0 at row cy"),
        (
            {"upper_per_row": True},
            {"upper": [9, np.nan, 9]},
            "upper must be finite and not negative, got nan at row bob",
        ),
        ({"upper_per_row": True}, {"upper": [9, 9]}, r"upper must have one value per row of X, got shape \(2,\) for 3"),
        ({"upper_per_row": True}, {"upper": ["a", "b", "c"]}, "upper must hold numbers"),
        ({"upper_per_row": True}, {}, "upper is missing: .* Pass upper"),
        ({}, {"upper": [9, 9, 9]}, "upper must not be given: the model was fitted without"),
        ({}, {"censored": [0, 2, 1]}, "censored must hold True or False, got 2 at row bob"),
        ({}, {"censored": ["no", "no", "yes"]}, "censored must hold True or False, got 'no' at rows ann"),
        ({}, {"censored": [True]}, r"censored must have one value per row of X, got shape \(1,\) for 3 rows"),
    ],
)
def test_counts_outside_of_a_range_are_named_by_their_rows(arguments, columns, words):
    with pytest.raises(InputError, match=words):
        CountRange(**arguments).apply(make_sample(**columns))


@pytest.mark.parametrize(
    ("arguments", "weight", "flags"),
    [({}, [1.0, 1, 1], [True] * 3), ({"censored_above": 1}, [1.0, 1, 1], None), ({}, [0.0, 1, 1], [False, True, True])],
    ids=["flags", "limit", "rows with a weight"],
)
def test_a_fit_needs_a_count_that_is_known_exactly(arguments, weight, flags):
    counts = CountRange(**arguments)
    result = counts.apply(make_sample(weight=np.array(weight), censored=flags))  # such rows can be scored
    with pytest.raises(InputError, match="known exactly, got censored counts only"):
        counts.check_not_all_censored(result)


def test_one_row_with_a_weight_is_enough():
    result = CountRange().apply(make_sample(weight=np.array([1.0, 1, 0]), censored=[False, True, True]))
    CountRange().check_not_all_censored(result)
    assert result.limit[0] == np.inf


def test_totals_are_exposures():
    result = CountRange(upper=5, upper_is_total=True).apply(make_sample())
    np.testing.assert_array_equal(result.exposure, [5, 5, 5])
    with pytest.raises(InputError, match="exposure must not be given: the upper bound is the total"):
        CountRange(upper=5, upper_is_total=True).apply(make_sample(exposure=np.ones(3)))


def test_limits_and_flags_may_be_combined():
    result = CountRange(censored_above=4).apply(make_sample(censored=[True, False, False]))
    np.testing.assert_array_equal(result.y, [1, 3, 4])
    np.testing.assert_array_equal(result.limit, [1, 4, 4])


def test_bounds_of_predictions_are_one_per_row():
    assert CountRange().bounds(2) == (None, None)
    low, high = CountRange(lower=1, upper=5).bounds(2)
    np.testing.assert_array_equal([low, high], [[1, 1], [5, 5]])
    for upper in (0, [0, 0], 7):  # a single number serves all rows; a room without beds is no error
        _, high = CountRange(upper_per_row=True).bounds(2, upper)
        np.testing.assert_array_equal(high, np.broadcast_to(upper, 2))


@pytest.mark.parametrize(
    ("arguments", "columns"),
    [
        ({}, {}),
        ({"lower": 1, "upper": 5}, {}),
        ({"upper_per_row": True}, {"upper": [1, 4, 9]}),
        ({"censored_above": 3}, {}),
        ({}, {"censored": [False, True, False]}),
        ({"censored_above": 4}, {"censored": [True, False, False]}),
        ({"upper_per_row": True, "censored_above": 4}, {"upper": [4, 4, 9], "censored": [1, 0, 0]}),
        ({"upper_per_row": True, "upper_is_total": True}, {"upper": [1, 4, 9]}),
    ],
)
def test_a_sample_gives_back_the_arguments_that_made_it(arguments, columns):
    counts = CountRange(**arguments)
    first = counts.apply(make_sample(**columns))
    inverted = counts.to_arguments(first)
    again = counts.apply(make_sample(first.y, **inverted))
    for name in ("y", "exposure", "lower", "upper", "limit"):
        np.testing.assert_array_equal(getattr(first, name), getattr(again, name))
    assert CountRange(**counts.as_dict()) == counts
    assert counts.is_unrestricted == (not arguments)
    assert counts.is_bounded == bool({"lower", "upper", "upper_per_row"} & set(arguments))
