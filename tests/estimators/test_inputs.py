"""Counts, weights and exposures at the door."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from ddpn.estimators.inputs import Targets, collapsed, counts, row_count, vector

from ddpn import ConfigError, InputError


@pytest.mark.parametrize(
    "y",
    [
        [0, 1, 2],
        (0, 1, 2),
        np.array([0, 1, 2], dtype=np.uint8),
        np.array([[0.0], [1.0], [2.0]]),
        np.array([0, 1.0, 2], dtype=object),
        pd.Series([0, 1, 2], index=[7, 8, 9]),
        pd.Series([0, 1, 2], dtype="Int64"),
        pl.Series([0, 1, 2]),
    ],
    ids=lambda y: f"{type(y).__module__}-{getattr(y, 'dtype', '')}-{np.ndim(y)}d",
)
@pytest.mark.filterwarnings("ignore:A column-vector y:sklearn.exceptions.DataConversionWarning")
def test_counts_come_in_many_dresses(y):
    found = counts(y, 3)
    assert found.dtype == np.float64
    assert found.tolist() == [0.0, 1.0, 2.0]


def test_booleans_are_counts():
    assert counts(np.array([True, False]), 2).tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    ("y", "sentence"),
    [
        ([0, -2, 1, -1], r"y must hold non-negative integers, got -2 at row 1 \(2 negative in all\)\. Recode"),
        ([0, 1.5, 1, 0], r'got 1\.5 at row 1 \(1 fractional in all\)\. Recode those rows, or pass fractional="round"'),
        ([0, 1, np.nan, 0], r"y must be finite, got nan at row 2\. Input y contains NaN\. Drop such rows"),
        ([0, 1, np.inf, 0], r"y must be finite, got inf at row 2"),
        (["1", "2", "3", "4"], r"y must hold numbers, got '1' at row 0\. Give counts 0, 1, 2"),
        (np.array([0, 1, None, 2], dtype=object), r"y must hold numbers, got None at row 2"),
        (np.array([0, 1j, 0, 0]), r"y must hold numbers, got dtype complex128"),
        ([0, 1, 2], r"y must have one count a row of X, got 3 counts and 4 rows.*Align the two"),
        (None, r"y must be given.*Pass one count a row"),
    ],
    ids=["negative", "fractional", "NaN", "infinite", "text", "None among them", "complex", "length", "none at all"],
)
def test_what_is_no_count_is_told(y, sentence):
    with pytest.raises(InputError, match=sentence):
        counts(y, 4)


def test_no_rows_are_told():
    with pytest.raises(InputError, match=r"y must hold at least one count, got 0 sample\(s\)\. Give it rows\."):
        counts([], 0)


def test_fractions_are_rounded_on_request():
    assert counts([0.4, 1.6, 2.0], 3, "round").tolist() == [0.0, 2.0, 2.0]
    with pytest.raises(InputError, match=r"got -0\.4 at row 0"):
        counts([-0.4, 1.0], 2, "round")
    with pytest.raises(ConfigError, match=r'fractional must be "error" or "round", got \'floor\'\. Choose'):
        counts([0.4], 1, "floor")


def test_a_number_serves_all_rows():
    assert vector("exposure", 2, 3, zero=False).tolist() == [2.0, 2.0, 2.0]
    assert vector("exposure", None, 3, zero=False) is None
    assert vector("sample_weight", pl.Series([0.0, 1.0]), 2, zero=True).tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("values", "zero", "sentence"),
    [
        ([1.0, 0.0], False, "exposure must be finite and positive, got 0 at row 1. Recode or drop such rows."),
        ([1.0, -1.0], False, "exposure must be finite and positive, got -1 at row 1"),
        ([1.0, np.nan], False, "exposure must be finite and positive, got nan at row 1"),
        ([1.0, np.inf], True, "exposure must be finite and not negative, got inf at row 1"),
        ([1.0, -1.0], True, "exposure must be finite and not negative, got -1 at row 1"),
        ([0.0, 0.0], True, "exposure must be positive for some row, got zero weights only. Use None for equal weights"),
        ([1.0], False, r"exposure must have one value a row of X, got shape \(1,\) for 2 rows. Align them."),
        ([[1.0], [1.0]], False, r"got shape \(2, 1\) for 2 rows"),
        (["a", "b"], False, "exposure must hold numbers, got dtype <U1. Pass one number a row."),
    ],
)
def test_what_is_no_weight_or_exposure_is_told(values, zero, sentence):
    with pytest.raises(InputError, match=sentence):
        vector("exposure", values, 2, zero=zero)


@pytest.mark.parametrize("X", [np.zeros((4, 2)), [[0, 1]] * 4, pd.DataFrame({"a": range(4)})])
def test_rows_of_any_table_are_counted(X):
    assert row_count(X) == 4


def test_what_has_no_rows_is_told():
    with pytest.raises(InputError, match=r"X must be a table with rows, got int\. Pass an array"):
        row_count(7)


def test_collapsing_adds_weights_and_forgets_order():
    X = np.array([[2.0], [1.0], [2.0], [2.0], [3.0]])
    y, exposure = np.array([5.0, 1.0, 5.0, 6.0, 9.0]), np.ones(5)
    table, found = collapsed(X, Targets(y, np.array([1.0, 2.0, 3.0, 1.0, 0.0]), exposure))
    assert table.ravel().tolist() == [1.0, 2.0, 2.0]
    assert found.y.tolist() == [1.0, 5.0, 6.0]
    assert found.weight.tolist() == [2.0, 4.0, 1.0]
    again, same = collapsed(X[::-1], Targets(y[::-1], np.array([0.0, 1.0, 3.0, 2.0, 1.0]), exposure))
    assert (again == table).all()
    assert (same.weight == found.weight).all()


def test_equal_rows_of_other_exposures_stay_apart():
    X, y = np.ones((2, 1)), np.ones(2)
    _, found = collapsed(X, Targets(y, None, np.array([1.0, 2.0])))
    assert found.exposure.tolist() == [1.0, 2.0]


def test_only_numbers_in_arrays_are_collapsed():
    frame = pd.DataFrame({"a": [1.0, 1.0]})
    found = Targets(np.ones(2), None, None)
    assert collapsed(frame, found) == (frame, found)
    missing = np.array([[np.nan], [np.nan]])
    assert collapsed(missing, found)[0] is missing
