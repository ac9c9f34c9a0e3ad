"""The commands diagnose, likelihoods and explain: what they print, write and refuse."""

import json

import polars as pl
import pytest

from ddpn.networks.heads import SHIPPED


def test_a_diagnosis_in_sentences(ddpn, files):
    done = ddpn("diagnose", "visits.csv", "--target", "visits", "--mean-model", "glm")
    assert done.exit_code == 0, done.output
    assert "consistent with a Poisson" in done.stdout
    assert "variance / mean" in done.stdout
    assert "Recommendation: --likelihood poisson" in done.stdout
    assert "Fitting a Poisson GLM" in done.stderr


def test_a_diagnosis_as_json(ddpn, files):
    done = ddpn("diagnose", "visits.csv", "--target", "visits", "--drop", "ward", "--mean-model", "constant", "--json")
    found = json.loads(done.stdout)
    assert found["dispersion"]["direction"] == "over"
    assert found["summary"]["rows"] == 260
    assert [each["check"] for each in found["findings"]] == ["dispersion", "zeros", "ceiling", "heaping", "tail"]


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        (["--upper-column", "beds"], "--likelihood double_binomial --upper-column beds"),
        (["--censored-above", "6"], "--likelihood mixed --censored-above 6"),
    ],
)
def test_known_bounds_and_limits_are_left_to_the_fit(ddpn, files, table, options, arguments):
    table.with_columns(beds=60 + pl.int_range(pl.len()) % 7).write_csv("beds.csv")
    done = ddpn("diagnose", "beds.csv", "--target", "visits", "--mean-model", "glm", *options)
    assert done.exit_code == 0, done.output
    assert f"Recommendation: {arguments}" in done.stdout
    assert "known bounds or limits are not tested" in done.stdout


def test_likelihoods_are_listed(ddpn):
    shown = ddpn("likelihoods").stdout
    assert all(name in shown for name in SHIPPED)
    assert "mixed (default)" in shown
    described = json.loads(ddpn("likelihoods", "--json").stdout)
    assert list(described) == ["mixed", *(name for name in SHIPPED if name != "mixed")]
    assert described["double_binomial"].startswith("Double Binomial: counts of a known total")


def test_the_model_as_a_whole_is_explained(ddpn, files, fit):
    done = ddpn("explain", str(fit.model), "visits.csv", "-o", "effects.csv")
    assert done.exit_code == 0, done.output
    assert "The model was fitted to this table: only its 52 test rows are used." in done.stdout
    assert "severity" in done.stdout
    assert "variance / mean" in done.stdout
    assert "shuffled: by how much the CRPS" in done.stdout
    assert "effect: from the smallest to the largest level" in done.stdout
    assert "Shuffling columns: 2 of 2" in done.stderr
    table = pl.read_csv("effects.csv")
    assert set(table["column"]) == {"severity", "ward"}
    assert table.filter(pl.col("column") == "ward")["value"].sort().to_list() == ["A", "B", "C"]
    assert {"mean", "mean_low", "mean_high", "spread", "share"} <= set(table.columns)
    again = ddpn("explain", str(fit.model), "visits.csv", "-o", "effects.csv")
    assert again.exit_code == 1
    assert "--overwrite" in again.stderr


def test_rows_and_json_and_a_table_without_the_target(ddpn, files, fit, table):
    table.drop("visits").write_csv("new.csv")
    done = ddpn("explain", str(fit.model), "new.csv", "--rows", "1,3-4", "--json", "-o", "rows.csv")
    found = json.loads(done.stdout)
    assert (found["model"], found["data"]) == (str(fit.model), "new.csv")
    assert pl.read_csv("rows.csv")["contribution"].to_list() == pytest.approx(found["table"]["contribution"])
    assert sorted(found["prediction"]) == ["1", "3", "4"]
    added = sum(v for row, v in zip(found["table"]["row"], found["table"]["contribution"], strict=True) if row == 3)
    assert found["base"] + added == pytest.approx(found["prediction"]["3"], abs=1e-9)
    shown = ddpn("explain", str(fit.model), "new.csv", "--rows", "2", "--of", "spread")
    assert shown.exit_code == 0, shown.output
    assert "Row 2: variance / mean" in shown.stdout
    whole = ddpn("explain", str(fit.model), "new.csv", "--json")
    assert "importance" not in json.loads(whole.stdout)


def test_an_explanation_as_an_image(ddpn, files, fit):
    pytest.importorskip("matplotlib")
    done = ddpn("explain", str(fit.model), "visits.csv", "--rows", "5", "-o", "row.png")
    assert done.exit_code == 0, done.output
    assert (files / "row.png").read_bytes().startswith(b"\x89PNG")
