"""Tables made of the cells of another one."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse

from ddpn.analysis.explanations.inputs import assembled, dense_rows, in_fit_order

ROWS = {"a": [1.0, 2.0, 3.0, 4.0], "b": ["x", "y", None, "z"]}
ORDER = np.array([2, 0, 1])


class Fitted:
    feature_names_in_ = np.array(["a", "b"], dtype=object)


@pytest.mark.parametrize("frame", [pd.DataFrame(ROWS, index=[9, 9, 3, 1]), pl.DataFrame(ROWS), pa.table(ROWS)])
def test_a_data_frame_keeps_its_type_and_all_other_columns(frame):
    other_way = frame[["b", "a"]] if not isinstance(frame, pa.Table) else frame.select(["b", "a"])
    part = dense_rows(in_fit_order(Fitted, other_way), np.array([3, 1, 0]))
    out = assembled(part, np.array([0, 1, 2, 0]), {0: np.array([2, 0, 1, 1])})
    assert type(out) is type(frame)
    read = pd.DataFrame({name: list(np.asarray(out[name])) for name in ("a", "b")})
    assert read["a"].tolist() == [1.0, 4.0, 2.0, 2.0]
    assert read["b"].tolist() == ["z", "y", "x", "z"]
    assert part["a"].to_numpy().tolist() == [4.0, 2.0, 1.0], "the original rows are unchanged"


@pytest.mark.parametrize(
    "given",
    [np.arange(8.0).reshape(4, 2), sparse.csc_matrix(np.arange(8.0).reshape(4, 2)),
     np.arange(8.0).reshape(4, 2).tolist()],
    ids=["array", "sparse", "lists"],
)  # fmt: skip
def test_a_matrix_is_changed_in_one_column(given):
    part = dense_rows(in_fit_order(object(), given), np.array([1, 2, 3]))
    assert assembled(part, np.arange(3), {1: ORDER}).tolist() == [[2.0, 7.0], [4.0, 3.0], [6.0, 5.0]]
    assert part.tolist() == [[2.0, 3.0], [4.0, 5.0], [6.0, 7.0]]


def test_mixed_lists_keep_their_numbers():
    rows = dense_rows(in_fit_order(object(), [[1.5, "x"], [2.5, "y"]]), np.array([1, 0]))
    assert rows.tolist() == [[2.5, "y"], [1.5, "x"]]
