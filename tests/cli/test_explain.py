"""The command explain: what it prints, writes and refuses."""

import json

import polars as pl
import pytest


def test_the_model_as_a_whole(ddpn, files, fit):
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
    done = ddpn("explain", str(fit.model), "new.csv", "--rows", "1,3-4", "--json", "-o", "rows.json")
    found = json.loads(done.stdout)
    assert found == {"model": str(fit.model), "data": "new.csv", **json.loads((files / "rows.json").read_text())}
    assert sorted(found["prediction"]) == ["1", "3", "4"]
    added = sum(v for row, v in zip(found["table"]["row"], found["table"]["contribution"], strict=True) if row == 3)
    assert found["base"] + added == pytest.approx(found["prediction"]["3"], abs=1e-9)
    shown = ddpn("explain", str(fit.model), "new.csv", "--rows", "2", "--of", "spread")
    assert shown.exit_code == 0, shown.output
    assert "Row 2: variance / mean" in shown.stdout
    whole = ddpn("explain", str(fit.model), "new.csv", "--json")
    assert "importance" not in json.loads(whole.stdout)


def test_an_image(ddpn, files, fit):
    pytest.importorskip("matplotlib")
    done = ddpn("explain", str(fit.model), "visits.csv", "--rows", "5", "-o", "row.png")
    assert done.exit_code == 0, done.output
    assert (files / "row.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--rows", "0"], 1, "rows must be numbers from 1 to 260, got 0"),
        (["--rows", "a"], 2, "rows must be numbers such as 3, 1,5,7 or 1-10"),
        (["--of", "variance"], 2, "of must be 'mean' or 'spread'"),
        (["--target", "visit"], 0, "importance is not measured"),
    ],
)
def test_errors(ddpn, files, fit, options, code, words):
    done = ddpn("explain", str(fit.model), "visits.csv", *options)
    assert done.exit_code == code
    assert words in done.output
