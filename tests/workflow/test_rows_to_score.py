"""Test that rows of long tables are read in blocks, and that a draw of them is scored, explained and compared."""

import numpy as np
import polars as pl
import pytest

from ddpn.runtime.errors import InputError
from ddpn.tables import blocks as table_blocks
from ddpn.tables.table import Table
from ddpn.workflow.examining import collect_report_arguments, evaluate, explain_rows, explain_table, monitor
from ddpn.workflow.rows_to_score import choose_rows_to_score


@pytest.fixture(scope="module")
def folder(patients_fit):
    return patients_fit.folder


@pytest.fixture(scope="module")
def new(table) -> pl.DataFrame:
    """300 rows that the model was not fitted to, of which some have no count or no weight."""
    return table.with_columns(
        severity=pl.col("severity") + 0.01,
        visits=pl.when(pl.int_range(300) % 50 != 7).then("visits"),
        weight=pl.when(pl.int_range(300) % 30 == 0).then(0).otherwise("weight"),
    )


@pytest.fixture
def make_long_table(tmp_path, monkeypatch):
    """Write a frame to a file that is read in blocks of 64 rows."""
    monkeypatch.setattr(table_blocks, "BLOCK_ROWS", 64)

    def write(frame: pl.DataFrame) -> Table:
        frame.write_parquet(tmp_path / "long.parquet")
        return Table([str(tmp_path / "long.parquet")])

    return write


def test_a_long_table_is_scored_as_a_frame_is(folder, new, make_long_table):
    assert len(make_long_table(new).list_blocks()) == 5
    rows, expected = choose_rows_to_score(folder, make_long_table(new)), choose_rows_to_score(folder, new)
    assert rows.sample.compute_digest() == expected.sample.compute_digest()
    assert rows.sample.labels.tolist() == expected.sample.labels.tolist()
    assert rows.note == expected.note == "6 rows without a value of 'visits' were left out."
    assert rows.frame.equals(expected.frame)
    assert evaluate(folder, make_long_table(new)) == evaluate(folder, new)


def test_the_table_of_the_fit_is_recognised_in_blocks(folder, table, new, make_long_table):
    rows = choose_rows_to_score(folder, make_long_table(table))
    assert rows.note == "The model was fitted to this table, so only its 60 test rows are scored."
    both = choose_rows_to_score(folder, make_long_table(pl.concat([new, table], how="vertical_relaxed")))
    assert "240 of " in both.note
    assert both.sample.labels.max() > 300


def test_of_more_rows_some_are_drawn_and_that_is_said_everywhere(folder, new, make_long_table):
    rows, total = choose_rows_to_score(folder, make_long_table(new), 90), choose_rows_to_score(folder, new).total
    assert (len(rows.sample), rows.total) == (90, total)
    every = choose_rows_to_score(folder, new).sample
    assert rows.sample.weight.sum() == pytest.approx(every.weight.sum())
    assert rows.frame["visits"].to_list() == rows.sample.y.tolist()
    assert new["severity"].to_numpy()[rows.sample.labels - 1].tolist() == rows.frame["severity"].to_list()
    drawn = f"90 of {total} "
    scores = evaluate(folder, make_long_table(new), 90)
    assert drawn in scores["title"]
    assert scores["draw"] == {"rows": 90, "of": total, "seed": 0}
    assert collect_report_arguments(folder, make_long_table(new), 90)["total"] == total
    explanation = explain_table(folder, make_long_table(new), max_rows=90)[0]
    assert explanation.drawn_rows_note.count(drawn) == 2
    assert explanation.to_dict()["draw"]["importance"] == {"rows": 90, "of": total, "seed": 0, "scored_rows": 90}
    monitoring = monitor(folder, make_long_table(new), max_rows=90)
    assert (monitoring.rows, monitoring.total, monitoring.rows_with_counts, monitoring.total_with_counts) == (
        90,
        300,
        90,
        total,
    )
    assert monitoring.drawn_rows_note.count(" drawn at random (seed 0).") == 2
    assert not any("draw" in sentence for sentence in monitoring.not_compared)
    assert monitor(folder, new, max_rows=None).drawn_rows_note == ""


def test_without_the_target_rows_are_drawn_as_well(folder, new, make_long_table):
    explanation, note = explain_table(folder, make_long_table(new.drop("visits")), max_rows=90)
    assert note == "Without the target, importance is not measured."
    assert (explanation.effects.rows, explanation.effects.total) == (90, 300)
    assert explanation.drawn_rows_note == "Effects are measured on 90 of 300 rows, drawn at random (seed 0)."


def test_rows_of_a_long_table_are_explained_by_their_numbers(folder, new, make_long_table):
    some, whole = (explain_rows(folder, source, [290, 3]) for source in (make_long_table(new), new))
    assert some.prediction.tolist() == whole.prediction.tolist()
    assert some.cells[0] == whole.cells[0]
    expected = f"Rows are compared with {some.starts} rows, evenly spaced by predicted mean among 300 rows."
    assert some.drawn_rows_note == expected


def test_errors_in_later_blocks_name_the_row_of_the_file(folder, new, make_long_table):
    bad = new.with_columns(visits=pl.when(pl.int_range(300) == 200).then(-1).otherwise("visits"))
    with pytest.raises(InputError, match="got -1 at row 201"):
        evaluate(folder, make_long_table(bad))
    with pytest.raises(InputError, match="zero weights only"):
        evaluate(folder, make_long_table(new.with_columns(weight=pl.lit(0))))
    with pytest.raises(InputError, match="missing values only"):
        evaluate(folder, make_long_table(new.with_columns(visits=pl.lit(None, pl.Int64))))


def test_rows_of_a_table_are_taken_by_their_numbers(new, make_long_table):
    numbers = np.array([0, 63, 64, 250, 299])
    assert make_long_table(new).take_rows(numbers).equals(new[numbers])
