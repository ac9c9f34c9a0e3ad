"""Test rows in which the cells of some columns are those of other rows."""

from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from scipy import sparse

from ddpn.analysis.explanations import Inputs
from ddpn.calibration.feature_profile import FeatureProfile
from ddpn.members.constant import Constant
from ddpn.networks.heads import make_head
from ddpn.predictor import Predictor
from ddpn.tables.columns import ColumnTable

CONSTANT = Constant(make_head("poisson"), torch.zeros(1, dtype=torch.float64), 1.0)
ROWS = {"a": [1.0, 2.0, 3.0, 4.0], "b": ["x", "y", None, "z"]}


def list_cells(table: ColumnTable) -> list[list[object]]:
    return [column.cells().tolist() for column in table]


@pytest.mark.parametrize("frame", [pd.DataFrame(ROWS, index=[9, 9, 3, 1]), pl.DataFrame(ROWS), pa.table(ROWS)])
def test_cells_of_some_columns_are_those_of_other_rows(formula, frame):
    inputs = Inputs(formula(lambda c: c["a"]), frame).rows(np.array([3, 1, 0]))
    table = inputs.table(np.array([0, 1, 2, 0]), {0: np.array([2, 0, 1, 1])})
    assert isinstance(table, ColumnTable)
    assert list_cells(table) == [[1.0, 4.0, 2.0, 2.0], ["z", "y", "x", "z"]]
    assert inputs.columns[0].values.tolist() == [4.0, 2.0, 1.0], "the original rows are unchanged"


@pytest.mark.parametrize(
    "make_rows", [np.asarray, sparse.csc_matrix, np.ndarray.tolist], ids=["array", "sparse", "lists"]
)
def test_cells_of_arrays_and_lists_are_those_of_other_rows(formula, make_rows):
    inputs = Inputs(formula(lambda c: c["x0"]), make_rows(np.arange(8.0).reshape(4, 2)))
    table = inputs.table(np.array([1, 2, 3]), {1: np.array([3, 1, 2])})
    assert list_cells(table) == [[2.0, 4.0, 6.0], [7.0, 3.0, 5.0]]
    mixed = Inputs(formula(lambda c: c["x0"]), [[1.5, "x"], [2.5, "y"]])
    assert list_cells(mixed.table(np.array([1, 0]))) == [[2.5, 1.5], ["y", "x"]]


def test_columns_are_in_the_order_of_fit():
    predictor, frame = Predictor({"one": CONSTANT}), pd.DataFrame(ROWS)
    predictor.calibration = replace(predictor.calibration, profile=FeatureProfile.fit(frame))
    for same in (frame, frame[["b", "a"]]):
        table = Inputs(predictor, same).table(np.array([2, 0]), {0: np.array([0, 0])})
        assert [column.values.tolist() for column in table.columns] == [[1.0, 1.0], [-1, 0]]


def test_a_predictor_that_keeps_no_columns_takes_them_as_they_are():
    frame = pd.DataFrame(ROWS)[["b", "a"]]
    assert Inputs(Predictor({"one": CONSTANT}), frame).table(np.array([2, 0])).names == ["b", "a"]
