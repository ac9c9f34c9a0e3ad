"""Test the commands diagnose, likelihoods and explain: what they print, write and refuse."""

import json

import polars as pl
import pytest

from ddpn.networks.heads import SHIPPED


def test_a_diagnosis_is_printed_in_sentences(run_ddpn, files):
    done = run_ddpn("diagnose", "visits.csv", "--target", "visits", "--mean-model", "glm")
    assert done.exit_code == 0, done.output
    assert "consistent with a Poisson" in done.stdout
    assert "variance / mean" in done.stdout
    assert "Recommendation: --likelihood poisson" in done.stdout
    assert "Fitting a Poisson GLM" in done.stderr


def test_a_diagnosis_is_printed_as_json(run_ddpn, files):
    done = run_ddpn(
        "diagnose", "visits.csv", "--target", "visits", "--drop", "ward", "--mean-model", "constant", "--json"
    )
    document = json.loads(done.stdout)
    assert document["dispersion"]["direction"] == "over"
    assert document["summary"]["rows"] == 260
    assert [finding["check"] for finding in document["findings"]] == [
        "dispersion",
        "zeros",
        "ceiling",
        "heaping",
        "tail",
    ]


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        (["--upper-column", "beds"], "--likelihood double_binomial --upper-column beds"),
        (["--censored-above", "6"], "--likelihood mixed --censored-above 6"),
    ],
)
def test_known_bounds_and_limits_are_left_to_the_fit(run_ddpn, files, table, options, arguments):
    table.with_columns(beds=60 + pl.int_range(pl.len()) % 7).write_csv("beds.csv")
    done = run_ddpn("diagnose", "beds.csv", "--target", "visits", "--mean-model", "glm", *options)
    assert done.exit_code == 0, done.output
    assert f"Recommendation: {arguments}" in done.stdout
    assert "known bounds or limits are not tested" in done.stdout


def test_likelihoods_are_listed(run_ddpn):
    shown = run_ddpn("likelihoods").stdout
    assert all(name in shown for name in SHIPPED)
    assert "mixed (default)" in shown
    described = json.loads(run_ddpn("likelihoods", "--json").stdout)
    assert list(described) == ["mixed", *(name for name in SHIPPED if name != "mixed")]
    assert described["double_binomial"].startswith('The Double Binomial likelihood: counts "k of n" with a known total')


def test_the_model_as_a_whole_is_explained(run_ddpn, files, fit):
    done = run_ddpn("explain", str(fit.model), "visits.csv", "-o", "effects.csv")
    assert done.exit_code == 0, done.output
    assert "The model was fitted to this table, so only its 52 test rows are used." in done.stdout
    assert "severity" in done.stdout
    assert "variance / mean" in done.stdout
    assert "shuffled: the change of the CRPS" in done.stdout
    assert "effect: the lowest and the highest prediction" in done.stdout
    assert "Shuffling columns: 2 of 2" in done.stderr
    table = pl.read_csv("effects.csv")
    assert set(table["column"]) == {"severity", "ward"}
    assert table.filter(pl.col("column") == "ward")["value"].sort().to_list() == ["A", "B", "C"]
    assert {"mean", "mean_low", "mean_high", "spread", "share"} <= set(table.columns)
    again = run_ddpn("explain", str(fit.model), "visits.csv", "-o", "effects.csv")
    assert again.exit_code == 1
    assert "--overwrite" in again.stderr


def test_rows_of_a_table_without_the_target_are_explained_as_json(run_ddpn, files, fit, table):
    table.drop("visits").write_csv("new.csv")
    done = run_ddpn("explain", str(fit.model), "new.csv", "--rows", "1,3-4", "--json", "-o", "rows.csv")
    document = json.loads(done.stdout)
    assert (document["model"], document["data"]) == (str(fit.model), "new.csv")
    assert pl.read_csv("rows.csv")["contribution"].to_list() == pytest.approx(document["table"]["contribution"])
    assert pl.read_csv("rows.csv")["row"].to_list() == document["table"]["row"]
    assert sorted(document["prediction"]) == ["1", "3", "4"]
    added = sum(
        v for row, v in zip(document["table"]["row"], document["table"]["contribution"], strict=True) if row == 3
    )
    assert document["base"] + added == pytest.approx(document["prediction"]["3"], abs=1e-9)
    shown = run_ddpn("explain", str(fit.model), "new.csv", "--rows", "2", "--of", "spread")
    assert shown.exit_code == 0, shown.output
    assert "Row 2: variance / mean" in shown.stdout
    whole = run_ddpn("explain", str(fit.model), "new.csv", "--json")
    assert "importance" not in json.loads(whole.stdout)


def test_an_explanation_is_written_as_an_image(run_ddpn, files, fit):
    pytest.importorskip("matplotlib")
    done = run_ddpn("explain", str(fit.model), "visits.csv", "--rows", "5", "-o", "row.png")
    assert done.exit_code == 0, done.output
    assert (files / "row.png").read_bytes().startswith(b"\x89PNG")
