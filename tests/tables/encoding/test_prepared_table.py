"""A table that is read already: members take it as they take a data frame."""

import numpy as np
import polars as pl
import pytest

from ddpn import CountGLM, InputError
from ddpn.members.member import TableReader
from ddpn.sample import Sample
from ddpn.tables.encoding.table import PreparedTable, read_table


@pytest.fixture(scope="module")
def frame() -> pl.DataFrame:
    rng = np.random.default_rng(0)
    age = [None if rng.random() < 0.1 else float(v) for v in rng.normal(50, 9, 90)]
    columns = {"age": age, "ward": rng.choice(["A", "B"], 90), "urgent": rng.random(90) < 0.5}
    return pl.DataFrame(columns)


def test_predictions_are_those_of_the_data_frame(frame):
    frame = frame.with_columns(age=pl.col("age").fill_null(50.0))
    model = CountGLM(likelihood="poisson")
    model.fit(frame, np.random.default_rng(1).poisson(np.where(frame["ward"] == "A", 9.0, 2.0)))
    prepared = PreparedTable(read_table(model, frame, reset=False))
    assert prepared.shape == (90, 3)
    found, expected = (model.predictor_.distribution(X).mean for X in (prepared, frame))
    assert found.tolist() == expected.tolist()
    some = prepared.rows(np.array([3, 1]))
    assert model.predictor_.distribution(some).mean.tolist() == pytest.approx(expected[[3, 1]].tolist())


def test_parts_are_fitted_as_if_they_had_been_read_alone(frame):
    frame = frame.with_columns(ward=pl.Series(["A", "B", "C"] * 30))
    rows = np.flatnonzero(frame["ward"].to_numpy() != "B")
    part = PreparedTable.of_all(frame)[0].rows(rows)
    alone, prepared = TableReader(), TableReader()
    expected, found = alone.fit(frame[rows]), prepared.fit(part)
    assert prepared.as_dict() == alone.as_dict()
    for column, same in zip(found, expected, strict=True):
        assert (column.name, column.kind, set(column.levels)) == (same.name, same.kind, set(same.levels))
    levels = [[None if code < 0 else c.levels[code] for code in c.values] for c in (found[1], expected[1])]
    assert levels[0] == levels[1]
    assert "B" not in levels[0]


def test_other_tables_have_the_columns_of_the_first(frame):
    first, second = PreparedTable.of_all(frame, frame.select(reversed(frame.columns)))
    assert [column.name for column in second.columns] == [column.name for column in first.columns]
    with pytest.raises(InputError, match="no 'age'"):
        PreparedTable.of_all(frame, frame.drop("age"))


def test_samples_of_equal_tables_have_equal_digests(frame):
    y = np.arange(90.0)
    digests = [Sample(PreparedTable.of_all(frame)[0], y).digest() for _ in range(2)]
    assert digests[0] == digests[1]
    assert digests[0] != Sample(PreparedTable.of_all(frame.with_columns(age=pl.lit(1.0)))[0], y).digest()
