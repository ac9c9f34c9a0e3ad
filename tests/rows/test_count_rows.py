"""Test `CountRows` and what it accepts: counts, weights and exposures of many types; messages name the row."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy import sparse

from ddpn.rows.checks import RowError, check_counts, check_vector, get_row_count, get_row_labels, label_row_errors
from ddpn.rows.count_rows import BLOCK, CountRows, take_rows
from ddpn.runtime.errors import ConfigError, InputError

ONE = CountRows(
    pl.DataFrame({"a": [1, 2, 3], "b": ["x", None, "z"]}),
    np.arange(3.0),
    np.array([1.0, 0.0, 2.0]),
    labels=np.array([7, 8, 9]),
)


# Rows ------------------------------------------------------------------------------------------------------------


def test_rows_keep_together():
    two = ONE.rows(np.array([2, 0]))
    assert two.X.rows() == [(3, "z"), (1, "x")]
    assert (two.y.tolist(), two.exposure, two.weight.tolist()) == ([2, 0], None, [2, 1])
    assert two.labels.tolist() == [9, 7]
    assert len(ONE.rows(ONE.has_weight)) == 2
    assert len(ONE.rows(slice(1, 2))) == 1


def test_weights_have_a_default():
    assert ONE.has_weight.tolist() == [True, False, True]
    plain = ONE.replace(weight=None)
    assert plain.has_weight.all()
    assert plain.weight_or_ones.tolist() == [1.0, 1.0, 1.0]
    assert ONE.weight_or_ones is ONE.weight


def test_blocks_are_all_rows():
    blocks = list(ONE.blocks(2))
    assert [len(block) for block in blocks] == [2, 1]
    assert blocks[1].X.rows() == [(3, "z")]
    assert len(list(ONE.blocks())) == 1 < BLOCK


def test_map_changes_what_is_there():
    tensors = CountRows(torch.zeros(2, 1), torch.ones(2), exposure=torch.ones(2)).map(lambda part: part.double())
    assert {tensors.X.dtype, tensors.y.dtype, tensors.exposure.dtype} == {torch.float64}
    assert tensors.weight is None


PLAIN = [[1, 10], [2, 20], [3, 30], [4, 40]]
TABLES = {
    "list": PLAIN,
    "array": np.array(PLAIN),
    "tensor": torch.tensor(PLAIN),
    "pandas": pd.DataFrame(PLAIN, index=list("wxyz")),
    "polars": pl.DataFrame(PLAIN, orient="row"),
    "csr": sparse.csr_matrix(PLAIN),
    "coo": sparse.coo_array(PLAIN),
    "sample": CountRows(np.array(PLAIN), np.zeros(4)),
}


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("index", [slice(1, 3), np.array([1, 2]), np.array([False, True, True, False])])
def test_rows_are_taken_from_every_kind_of_table(kind, index):
    table = TABLES[kind]
    assert kind == "sample" or get_row_count(table) == 4
    result = take_rows(table, index)
    result = result.X if kind == "sample" else result.toarray() if sparse.issparse(result) else result
    assert np.asarray(result).tolist() == PLAIN[1:3]


def test_lists_of_mixed_rows_keep_their_numbers():
    assert take_rows([["a", 1.5], ["b", 2.5]], slice(1, 2)).tolist() == [["b", 2.5]]


@pytest.mark.parametrize("X", [7, None, (row for row in PLAIN)])
def test_objects_without_rows_are_reported(X):
    with pytest.raises(InputError, match="X must be an array or a data frame, got"):
        get_row_count(X)


# Counts ----------------------------------------------------------------------------------------------------------


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
        torch.tensor([0, 1, 2]),
    ],
    ids=lambda y: f"{type(y).__module__}-{getattr(y, 'dtype', '')}-{np.ndim(y)}d",
)
@pytest.mark.filterwarnings("ignore:A column-vector y:sklearn.exceptions.DataConversionWarning")
def test_counts_of_many_types_are_accepted(y):
    result = check_counts(y, 3)
    assert result.dtype == np.float64
    assert result.tolist() == [0.0, 1.0, 2.0]


def test_booleans_are_counts_and_fractions_are_rounded_on_request():
    assert check_counts(np.array([True, False]), 2).tolist() == [1.0, 0.0]
    assert check_counts([0.4, 1.6, 2.0], 3, "round").tolist() == [0.0, 2.0, 2.0]


def test_a_number_serves_all_rows():
    assert check_vector("exposure", 2, 3, allow_zero=False).tolist() == [2.0, 2.0, 2.0]
    assert check_vector("exposure", None, 3, allow_zero=False) is None
    assert check_vector("sample_weight", pl.Series([0.0, 1.0]), 2, allow_zero=True).tolist() == [0.0, 1.0]


#: Arguments of `CountRows` for four rows, and key words; {1} and {3} stand for the labels of these rows.
BAD = {
    "negative": ({"y": [0, -2, 1, -1]}, "y must hold non-negative integers, got -2 at rows {1}, {3}. If negative"),
    "mean": ({"y": [0, 1.5, 1, 0]}, "non-negative integers, got 1.5 at row {1}. Halves and quarters look like means"),
    "rate": ({"y": [0, 1.5, 0.37, 0]}, "Values with many decimals look like weights"),
    "rounding": ({"y": [0, 1.5, 1, 0]}, 'if you have them. Use `fractional="round"`'),
    "negative, rounded": ({"y": [0, -0.4, 0, 0], "fractional": "round"}, "got -0.4 at row {1}"),
    "NaN": ({"y": [0, np.nan, 1, 0]}, "y must be finite, got nan at row {1}. Input y contains NaN"),
    "infinite": ({"y": [0, np.inf, 1, 0]}, "y must be finite, got inf at row {1}. Input y contains infinity"),
    "text": ({"y": np.array([0, "two", 1, 0], dtype=object)}, "y must hold numbers, got 'two' at row {1}"),
    "None among them": ({"y": np.array([0, None, 1, 0], dtype=object)}, "y must hold numbers, got None at row {1}"),
    "complex": ({"y": np.array([0, 1j, 0, 0])}, "y must hold numbers, got dtype complex128"),
    "dates": ({"y": np.zeros(4, dtype="M8[D]")}, "y must hold numbers, got dtype datetime64"),
    "length": ({"y": [0, 1, 2]}, "y must have one count per row of X, got 3 for 4 rows"),
    "text and length": ({"y": ["1"] * 5}, "y must hold numbers, got '1' at rows"),
    "no y": ({"y": None}, "y is missing"),
    "no rows": ({"X": np.zeros((0, 1)), "y": []}, r"y must hold at least one count, got 0 sample\(s\)"),
    "zero exposure": ({"exposure": [1, 0, 1, 1]}, "exposure must be finite and positive, got 0 at row {1}"),
    "negative exposure": ({"exposure": [1, -1, 1, -2]}, "finite and positive, got -1 at rows {1}, {3}"),
    "missing exposure": ({"exposure": [1, np.nan, 1, 1]}, "exposure must be finite and positive, got nan at row {1}"),
    "short exposure": ({"exposure": [1.0] * 3}, r"exposure must have one value per row of X, got shape \(3,\) for 4"),
    "2-d exposure": ({"exposure": [[1.0]] * 4}, r"got shape \(4, 1\) for 4 rows"),
    "text for exposure": ({"exposure": list("abcd")}, "exposure must hold numbers, got dtype <U1"),
    "infinite weight": ({"weight": [1, np.inf, 1, 1]}, "must be finite and not negative, got inf at row {1}"),
    "negative weight": ({"weight": [1, -1, 1, 1]}, "weight must be finite and not negative, got -1 at row {1}"),
    "no weight": ({"weight": [0.0] * 4}, "weight must be positive in some row, got zero weights only"),
    "short weight": ({"weight": [1.0] * 3}, r"weight must have one value per row of X, got shape \(3,\) for 4"),
}  # fmt: skip


@pytest.mark.parametrize("labels", ["positions", "index of X", "index of y", "given"])
@pytest.mark.parametrize("case", BAD)
def test_bad_values_are_reported_with_their_rows(case, labels):
    arguments, words = BAD[case]
    arguments = {"X": np.zeros((4, 1)), "y": [0, 1, 2, 3], **arguments}
    shown = [0, 1, 2, 3] if labels == "positions" else list("pqrs")
    if len(arguments["X"]):
        if labels == "index of X":
            arguments["X"] = pd.DataFrame(arguments["X"], index=shown)
        elif labels == "index of y" and arguments["y"] is not None and len(arguments["y"]) == 4:
            arguments["y"] = pd.Series(arguments["y"], index=shown)
        elif labels == "given":
            arguments["labels"] = np.array(shown)
        else:
            shown = [0, 1, 2, 3]
    with pytest.raises(InputError, match=words.replace("{1}", str(shown[1])).replace("{3}", str(shown[3]))):
        CountRows(**arguments)


def test_arguments_are_named_as_the_user_knows_them():
    X = np.zeros((2, 1))
    for name, arguments in {
        "y": {"y": [1, -1]},
        "sample_weight": {"y": [1, 1], "sample_weight": -1.0},
        "exposure": {"y": [1, 1], "exposure": 0.0},
        "groups": {"y": [1, 1], "groups": ["a"]},
        "censored": {"y": [1, 1], "censored": [0.5, 1]},
    }.items():
        with pytest.raises(InputError, match=f"^{name} must"):
            CountRows.from_arguments(X, **arguments)
    with pytest.raises(ConfigError, match="fractional must be 'error' or 'round', got 'floor'"):
        CountRows(X, [1, 1], fractional="floor")


def test_checked_rows_hold_vectors_and_labels():
    X = pd.DataFrame({"a": [1, 2]}, index=["p", "q"])
    result = CountRows(X, [1, 2], 3, pd.Series([0.5, 1.5]))
    assert result.X is X
    assert (result.weight.tolist(), result.exposure.tolist()) == ([3.0, 3.0], [0.5, 1.5])
    assert result.labels.tolist() == ["p", "q"]
    assert get_row_labels([1, 2], np.ones(2), pl.Series([1])) is None


def test_vectors_of_every_type_belong_to_their_rows():
    """A shuffled index of a series must not select by label."""
    index = [2, 0, 1]
    group = pd.Series(["a", "b", "b"], index=index)
    limit, labels = pd.Series([np.inf, 4.0, 9.0], index=index), pd.Series(["p", "q", "r"], index=index)
    wards = pd.Series(["A", "B", "C"], index=index)
    result = CountRows(np.eye(3), [1, 4, 2], group=group, limit=limit, labels=labels, interval_groups=wards)
    last = result.rows(np.array([2, 1]))
    assert last.group[0] == last.group[1] != result.group[0]
    assert last.limit.tolist() == [9.0, 4.0]
    assert last.labels.tolist() == ["r", "q"]
    assert last.interval_groups.tolist() == ["C", "B"]
    missing = CountRows(np.eye(3), [1, 4, 2], group=[None, None, "a"])
    assert len(set(missing.group.tolist())) == 3, "rows without a label are groups of their own"


@pytest.mark.parametrize("name", ["group", "limit", "labels", "interval_groups"])
def test_vectors_have_one_value_per_row(name):
    with pytest.raises(InputError, match=rf"^{name} must have one .* per row of X, got shape \(2,\) for 3 rows"):
        CountRows(np.eye(3), [1, 2, 3], **{name: [5, 6]})


@pytest.mark.parametrize("limit", [[1.0, -2.0, 3.0], [1.0, np.nan, 3.0]])
def test_recording_limits_are_not_negative(limit):
    with pytest.raises(InputError, match=r"^limit must be 0 or larger, got .* at row 1"):
        CountRows(np.eye(3), [1, 0, 3], limit=limit)


def test_errors_about_rows_are_named_by_the_first_that_knows_them():
    bad = np.array([False, True, False])
    with pytest.raises(InputError, match=r"^x must be 1 at row 1\. Fix it\.$"), label_row_errors(None):
        raise RowError("x must be 1", bad, ". Fix it.")
    with (
        pytest.raises(InputError, match=r"at row q\.$"),
        label_row_errors([7, 8, 9]),
        label_row_errors(["p", "q", "r", "s"]),
    ):
        raise RowError("x must be 1", bad)
