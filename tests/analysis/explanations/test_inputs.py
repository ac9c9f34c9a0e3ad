"""Rows in which the cells of some columns are those of other rows, as each member wants its table."""

from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse

from ddpn.analysis.explanations import Inputs
from ddpn.calibration.ood import FeatureProfile
from ddpn.members.glm import Constant
from ddpn.predictor import Predictor
from ddpn.tables.encoding.table import PreparedTable

ROWS = {"a": [1.0, 2.0, 3.0, 4.0], "b": ["x", "y", None, "z"]}


@pytest.mark.parametrize("frame", [pd.DataFrame(ROWS, index=[9, 9, 3, 1]), pl.DataFrame(ROWS), pa.table(ROWS)])
def test_a_member_that_reads_tables_itself_gets_a_data_frame_of_the_same_library(formula, frame):
    inputs = Inputs(formula(lambda c: c["a"]), frame).rows(np.array([3, 1, 0]))
    found = inputs.table(np.array([0, 1, 2, 0]), {0: np.array([2, 0, 1, 1])})
    assert type(found) is type(frame)
    read = pd.DataFrame({name: list(np.asarray(found[name])) for name in ("a", "b")})
    assert read["a"].tolist() == [1.0, 4.0, 2.0, 2.0]
    assert read["b"].tolist() == ["z", "y", "x", "z"]
    assert inputs.columns[0].values.tolist() == [4.0, 2.0, 1.0], "the original rows are unchanged"


@pytest.mark.parametrize("given", [np.asarray, sparse.csc_matrix, np.ndarray.tolist], ids=["array", "sparse", "lists"])
def test_or_an_array(formula, given):
    inputs = Inputs(formula(lambda c: c["x0"]), given(np.arange(8.0).reshape(4, 2)))
    found = inputs.table(np.array([1, 2, 3]), {1: np.array([3, 1, 2])})
    assert found.tolist() == [[2.0, 7.0], [4.0, 3.0], [6.0, 5.0]]
    mixed = Inputs(formula(lambda c: c["x0"]), [[1.5, "x"], [2.5, "y"]])
    assert mixed.table(np.array([1, 0])).tolist() == [[2.5, "y"], [1.5, "x"]]


def test_members_of_the_package_need_not_read_the_table_again():
    predictor, frame = Predictor({"one": Constant()}), pd.DataFrame(ROWS)
    predictor.calibration = replace(predictor.calibration, profile=FeatureProfile.fit(frame))
    for same in (frame, frame[["b", "a"]]):
        found = Inputs(predictor, same).table(np.array([2, 0]), {0: np.array([0, 0])})
        assert isinstance(found, PreparedTable)
        assert [column.values.tolist() for column in found.columns] == [[1.0, 1.0], [-1, 0]]


def test_a_predictor_without_a_profile_lets_its_members_look_at_the_columns():
    frame = pd.DataFrame(ROWS)[["b", "a"]]
    found = Inputs(Predictor({"one": Constant()}), frame).table(np.array([2, 0]))
    assert list(found.columns) == ["b", "a"]
