"""Test monitoring of a saved model: test rows show no drift, and shifted rows do; the command has an exit code."""

import json

import polars as pl
import pytest
from typer.testing import CliRunner

from ddpn.cli import app as program
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.workflow.examining import monitor


@pytest.fixture(scope="module")
def folder(patients_fit):
    return patients_fit.folder


@pytest.fixture(scope="module")
def later(table) -> pl.DataFrame:
    """Rows that are distributed otherwise: older, in other wards, with three times as many visits."""
    some = table.head(200)
    return some.with_columns(
        age=pl.col("age") + 30.0, ward=pl.lit("Z"), visits=3 * pl.col("visits") + 2, severity=pl.col("severity") + 1e-3
    )


def test_test_rows_show_no_drift_and_shifted_rows_do(folder, table, later):
    same = monitor(folder, table)
    assert not same.drift
    assert "only its 60 test rows are scored" in " ".join(same.not_compared)
    monitoring = monitor(folder, later, ignore=["smokes"])
    drifted = {(check.kind, check.name) for check in monitoring.checks if check.drift}
    assert {("values", "age"), ("values", "ward"), ("ood", "out-of-distribution rows")} <= drifted
    assert {("coverage", "coverage of 90% intervals"), ("pit", "PIT of the counts")} <= drifted
    assert ("values", "severity") not in drifted
    (ward,) = [check for check in monitoring.checks if check.name == "ward"]
    assert ward.now.endswith("100.0% unseen")


def test_an_ignored_column_is_shown_and_does_not_count(folder, later):
    monitoring = monitor(folder, later.drop("visits"), ignore=["age"])
    (age,) = [check for check in monitoring.checks if (check.kind, check.name) == ("values", "age")]
    assert age.effect > 0.5
    assert not age.drift
    assert "Coverage and PIT: the table has no column 'visits'." in monitoring.not_compared


def test_counts_that_have_arrived_are_scored(folder, later):
    some = later.with_row_index().with_columns(visits=pl.when(pl.col("index") < 50).then("visits")).drop("index")
    assert monitor(folder, some).rows_with_counts == 50
    few = later.with_row_index().with_columns(visits=pl.when(pl.col("index") < 5).then("visits")).drop("index")
    assert "only 5 of at least 20 rows have a count so far" in " ".join(monitor(folder, few).not_compared)


def test_bad_arguments_are_refused(folder, table):
    with pytest.raises(InputError, match="at least 20 rows"):
        monitor(folder, table.head(5))
    with pytest.raises(ConfigError, match="alpha must lie between 0 and 1"):
        monitor(folder, table, alpha=0.0)
    with pytest.raises(InputError, match=r"No column named 'agee' .* Did you mean 'age'\?"):
        monitor(folder, table, ignore=["agee"])


def test_the_command_ends_with_a_code_and_writes_json(folder, later, table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder.save(tmp_path / "patients.model")
    later.write_parquet("later.parquet")
    table.write_parquet("same.parquet")
    result = CliRunner().invoke(program, ["monitor", "patients.model", "later.parquet", "--json"])
    assert result.exit_code == 3
    assert json.loads(result.stdout)["drift"] is True
    result = CliRunner().invoke(program, ["monitor", "patients.model", "same.parquet"])
    assert result.exit_code == 0
    assert "No drift" in result.output
    result = CliRunner().invoke(program, ["monitor", "patients.model", "same.parquet", "--effect", "2"])
    assert result.exit_code == 2
    assert "--effect must lie between 0 and 1" in result.output
