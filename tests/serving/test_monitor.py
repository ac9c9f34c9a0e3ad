"""Monitoring: false alarms are rare, shifts are found, differences that do not matter are none, and the exit code."""

import json

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from ddpn.analysis.monitoring import Check
from ddpn.analysis.monitoring.columns import column_checks
from ddpn.analysis.monitoring.result import decided
from ddpn.calibration.columns import fit_column
from ddpn.calibration.profile import with_absent
from ddpn.cli import app as program
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.tables.encoding.table import Column
from ddpn.workflow.monitoring import monitor


def numbers(values) -> Column:
    return Column("x", "number", np.asarray(values, dtype=float))


def levels(values) -> Column:
    names, codes = np.unique(values, return_inverse=True)
    return Column("x", "category", codes, tuple(map(str, names)))


def compared(before: Column, now: Column) -> dict[str, Check]:
    (profile,) = with_absent([fit_column(before, np.ones(len(before.values)))])
    return {check.kind: check for check in column_checks(profile, now)[0]}


SOURCES = {
    "continuous": lambda rng, n: numbers(rng.normal(size=n)),
    "skewed": lambda rng, n: numbers(rng.exponential(size=n) ** 3),
    "few values": lambda rng, n: numbers(rng.poisson(2.0, n)),
    "many values": lambda rng, n: numbers(rng.poisson(300.0, n)),
    "levels": lambda rng, n: levels(rng.choice(list("abcd"), n, p=[0.6, 0.25, 0.1, 0.05])),
    "rare levels": lambda rng, n: levels(rng.zipf(1.6, n) % 500),
    "missing": lambda rng, n: numbers(np.where(rng.random(n) < 0.05, np.nan, rng.normal(size=n))),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("size", [60, 1500])
def test_rows_like_the_training_rows_rarely_look_different(source, size):
    rng, small = np.random.default_rng(1), {"values": 0, "missing": 0}
    for _ in range(100):
        for kind, check in compared(SOURCES[source](rng, 400), SOURCES[source](rng, size)).items():
            small[kind] += check.p_value < 0.05
    # 100 draws with probability 0.05 are above 13 in one of two thousand cases.
    assert max(small.values()) <= 13


def test_shifts_are_found_with_their_size():
    rng = np.random.default_rng(2)
    found = compared(numbers(rng.normal(size=800)), numbers(rng.normal(1.0, 1.0, 400)))["values"]
    # The Kolmogorov distance of Normals one standard deviation apart is 0.38.
    assert found.effect == pytest.approx(0.38, abs=0.08)
    assert found.p_value < 1e-9
    found = compared(levels(rng.choice(list("ab"), 500)), levels(rng.choice(list("abz"), 500)))["values"]
    assert found.effect == pytest.approx(1 / 3, abs=0.05)
    assert found.p_value < 1e-9
    assert found.now.endswith("unseen")
    found = compared(numbers(rng.normal(size=500)), numbers([*rng.normal(size=400), *[np.nan] * 100]))["missing"]
    assert found.effect == pytest.approx(0.2)
    assert found.p_value < 1e-9


def test_a_new_level_in_a_constant_column_is_found():
    found = compared(levels(["a"] * 300), levels(["a"] * 200 + ["b"] * 100))["values"]
    assert found.effect == pytest.approx(1 / 3)
    assert found.p_value < 1e-9


def test_many_rows_make_small_differences_significant_but_not_drift():
    rng = np.random.default_rng(3)
    found = compared(numbers(rng.normal(size=100_000)), numbers(rng.normal(0.05, 1.0, 100_000)))["values"]
    (check,) = decided([found], 0.01, 0.1)
    assert check.adjusted < 1e-6
    assert not check.drift
    (check,) = decided([found], 0.01, 0.01)
    assert check.drift


def test_p_values_are_adjusted_for_all_checks():
    many = [Check("values", str(i), 0.5, p, "", "") for i, p in enumerate([0.001, 0.004, 0.03, 0.9])]
    found = {check.name: check for check in decided(many, 0.01, 0.1)}
    assert [found[str(i)].adjusted for i in range(4)] == pytest.approx([0.004, 0.012, 0.06, 0.9])
    assert [found[str(i)].drift for i in range(4)] == [True, False, False, False]


def test_columns_that_cannot_be_compared_are_named():
    (profile,) = with_absent([fit_column(numbers(np.arange(50.0)), np.ones(50))])
    checks, note = column_checks(profile, numbers([np.nan] * 30))
    assert [check.kind for check in checks] == ["missing"]
    assert note == "Values of 'x': all are missing now."


# A whole model ---------------------------------------------------------------------------------------------------


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
    assert "only its 80 test rows are scored" in " ".join(same.not_compared)
    found = monitor(folder, later, ignore=["zip"])
    drifted = {(check.kind, check.name) for check in found.checks if check.drift}
    assert {("values", "age"), ("values", "ward"), ("ood", "out-of-distribution rows")} <= drifted
    assert {("coverage", "coverage of 90% intervals"), ("pit", "PIT of the counts")} <= drifted
    assert ("values", "severity") not in drifted
    assert found.scores["mean_count"] > 2 * found.scores["mean_prediction"]
    assert any("unseen level of 'ward'" in sentence for sentence in found.findings)


def test_an_ignored_column_is_shown_and_does_not_count(folder, later):
    found = monitor(folder, later.drop("visits"), ignore=["age"])
    (age,) = [check for check in found.checks if (check.kind, check.name) == ("values", "age")]
    assert age.effect > 0.5
    assert not age.drift
    assert "Coverage and PIT: the table has no column 'visits'." in found.not_compared


def test_counts_that_have_arrived_are_scored(folder, later):
    some = later.with_row_index().with_columns(visits=pl.when(pl.col("index") < 50).then("visits")).drop("index")
    assert monitor(folder, some).counts == 50
    few = later.with_row_index().with_columns(visits=pl.when(pl.col("index") < 5).then("visits")).drop("index")
    assert "5 rows have a count so far" in " ".join(monitor(folder, few).not_compared)


def test_bad_arguments_are_refused(folder, table):
    with pytest.raises(InputError, match="at least 20 rows"):
        monitor(folder, table.head(5))
    with pytest.raises(ConfigError, match="alpha must lie between 0 and 1"):
        monitor(folder, table, alpha=0.0)
    with pytest.raises(InputError, match=r"No column named 'agee' .* Did you mean 'age'\?"):
        monitor(folder, table, ignore=["agee"])


def test_the_command_ends_with_a_code_and_writes_json_and_a_page(saved, later, table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    later.write_parquet("later.parquet")
    table.write_parquet("same.parquet")
    found = CliRunner().invoke(program, ["monitor", str(saved), "later.parquet", "--json", "-o", "page.html"])
    assert found.exit_code == 3
    assert json.loads(found.stdout)["drift"] is True
    page = (tmp_path / "page.html").read_text()
    assert "Drift in" in page
    assert "PIT histogram" in page
    found = CliRunner().invoke(program, ["monitor", str(saved), "same.parquet"])
    assert found.exit_code == 0
    assert "No drift" in found.output
    found = CliRunner().invoke(program, ["monitor", str(saved), "same.parquet", "--effect", "2"])
    assert found.exit_code == 2
    assert "--effect must lie between 0 and 1" in found.output
