"""Rows taken and columns shuffled, whatever holds them; cells as words; fingerprints."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse

from ddpn.datasets import Table
from ddpn.features.table import Column
from ddpn.report.tables import columns_of, fingerprint, in_fitted_order, native, shuffled, taken, value_of

ROWS = {"a": [1.0, 2.0, 3.0, 4.0], "b": ["x", "y", None, "z"]}
ORDER = np.array([2, 0, 1])


class Fitted:
    feature_names_in_ = np.array(["a", "b"], dtype=object)


@pytest.mark.parametrize("frame", [pd.DataFrame(ROWS, index=[9, 9, 3, 1]), pl.DataFrame(ROWS), pa.table(ROWS)])
def test_a_frame_keeps_its_kind_and_all_other_columns(frame):
    other_way = frame[["b", "a"]] if not isinstance(frame, pa.Table) else frame.select(["b", "a"])
    part = taken(in_fitted_order(Fitted, other_way), np.array([3, 1, 0]))
    out = native(shuffled(part, 0, ORDER))
    assert type(out) is type(frame)
    read = pd.DataFrame({name: list(np.asarray(out[name])) for name in ("a", "b")})
    assert read["a"].tolist() == [1.0, 4.0, 2.0]
    assert read["b"].tolist() == ["z", "y", "x"]
    assert native(part)["a"].to_numpy().tolist() == [4.0, 2.0, 1.0], "the rows themselves are left alone"


@pytest.mark.parametrize(
    "given",
    [np.arange(8.0).reshape(4, 2), sparse.csc_matrix(np.arange(8.0).reshape(4, 2)),
     np.arange(8.0).reshape(4, 2).tolist(), Table({"a": np.arange(0.0, 8, 2), "b": np.arange(1.0, 8, 2)})],
    ids=["array", "sparse", "lists", "table"],
)  # fmt: skip
def test_a_matrix_is_shuffled_in_one_column(given):
    part = taken(in_fitted_order(object(), given), np.array([1, 2, 3]))
    assert shuffled(part, 1, ORDER).tolist() == [[2.0, 7.0], [4.0, 3.0], [6.0, 5.0]]


def test_a_table_keeps_its_names(quick):
    table = Table({"age": np.linspace(0, 1, 40), "weight": np.linspace(1, 0, 40)})
    model = quick(epochs=1).fit(table, np.arange(40) % 3)
    assert [column.name for column in columns_of(model, table)] == ["age", "weight"]


def test_mixed_lists_keep_their_numbers():
    rows = in_fitted_order(object(), [[1.5, "x"], [2.5, "y"]])
    assert rows.tolist() == [[1.5, "x"], [2.5, "y"]]


CELLS = [
    (Column("n", "number", np.array([0.1 + 0.2, np.nan])), ["0.3", "missing"]),
    (Column("f", "flag", np.array([1.0, np.nan])), ["yes", "missing"]),
    (Column("c", "category", np.array([1, -1]), ("p", "q")), ["q", "missing"]),
]


@pytest.mark.parametrize(("column", "words"), CELLS)
def test_cells_are_told_in_words(column, words):
    assert [value_of(column, row) for row in (0, 1)] == words


def test_a_fingerprint_is_that_of_the_data_not_of_its_coding():
    y = np.array([1.0, 2.0])
    one = Column("c", "category", np.array([0, 1]), ("p", "q"))
    same = Column("c", "category", np.array([1, 0]), ("q", "p"))
    assert fingerprint([one], y) == fingerprint([same], y)
    assert fingerprint([one], y) != fingerprint([one._replace(values=np.array([1, 1]))], y)
    assert fingerprint([one], y) != fingerprint([one], y + 1)
