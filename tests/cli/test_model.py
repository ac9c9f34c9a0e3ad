"""Test fit, predict, evaluate, show and report, as a user calls them."""

import json
import re
import shlex
from html import unescape
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest

from ddpn.workflow.fitting import Fitted
from ddpn.workflow.model_folder import SavedModel

COMPARED = ("constant", "poisson_glm", "trees")
#: A fit that takes half a second.
SMALL = ["--config", "quick.toml", "--networks", "1", "--epochs", "1", "--mix-with", "", "--compare-with", "constant"]


def list_names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


# Fit -----------------------------------------------------------------------------------------------------------------


def test_fit_shows_columns_rows_the_leaderboard_and_the_verdict(fit):
    shown = fit.printed.stdout
    assert re.search(r"patient .* category .* 260 .* left out: nearly every value is different", shown)
    assert re.search(r"severity .* number .* 260", shown)
    assert re.search(r"visits .* target", shown)
    assert "Rows: 182 training rows, 26 validation rows; 52 test rows; split at random by seed 0" in shown
    board = SavedModel(fit.model).task["scores"]
    assert f"{board['title']} (smaller CRPS" in shown
    assert {entry["name"] for entry in board["entries"]} == {"mixture", "networks", "glm", *COMPARED}
    for entry in board["entries"]:
        weight = "" if entry["weight"] is None else f"{entry['weight']:.0%}" if entry["weight"] else "-"
        cells = rf"│ {re.escape(entry['label'])} +│ +{weight} │ +\d.* {100 * entry['coverage']:.1f}% .* \d+\.\d │"
        assert re.search(cells, shown), entry
    assert " ".join(board["verdict"]["sentences"]) in shown
    assert "Saved in model. Next: ddpn predict model" in shown
    assert list_names(fit.model.parent) == {"visits.csv", "quick.toml", "model"}


def test_progress_goes_to_standard_error(fit):
    steps = [line for line in fit.printed.stderr.splitlines() if line.endswith(" ...")]
    assert steps[0] == "Training ..."
    assert sum(step.startswith("Fitting for comparison: ") for step in steps) == len(COMPARED)
    assert steps[-1] == "Scoring the test rows ..."
    assert "..." not in fit.printed.stdout


def test_options_of_the_command_take_precedence_over_the_file(run_ddpn, files):
    (files / "more.toml").write_text((files / "quick.toml").read_text() + "\n[training_options]\nlr = 0.01\n")
    options = ["--config", "more.toml", "--networks", "1", "--seed", "5", "--likelihood", "poisson", "--epochs", "1"]
    members = ["--mix-with", "glm,constant", "--compare-with", "poisson_glm", "--drop", "ward", "--use", "patient"]
    result = run_ddpn("fit", "visits.csv", *options, *members, "--json", "-o", "model")
    document = json.loads(result.stdout)
    assert (document["model"], document["plan"]["seed"]) == ("model", 5)
    model = document["plan"]
    assert (model["n_networks"], model["likelihood"], model["training_options"]) == (1, "poisson", {"lr": 0.01})
    left_out = {column["name"]: column["left_out"] for column in document["roles"]["columns"]}
    assert left_out == {"patient": "", "severity": "", "ward": "dropped as requested"}
    members = {entry["name"] for entry in document["scores"]["entries"]}
    assert members == {"mixture", "networks", "glm", "constant", "poisson_glm"}
    assert "Rows: " in result.stderr


@pytest.mark.parametrize(
    ("missing", "can_continue", "words"),
    [
        (["training"], True, "The best epochs so far are saved in model; the same command with --overwrite continues."),
        (
            ["scores"],
            False,
            "The fitted model is saved in model, not scored; the same command with --overwrite starts again.",
        ),
    ],
)
def test_after_ctrl_c_the_last_line_says_what_is_kept(run_ddpn, files, monkeypatch, missing, can_continue, words):
    """Fits are stopped in tests/workflow/test_fitting.py and tests/soundness/test_stopped_fits.py."""
    folder = SimpleNamespace(task={"missing": missing})
    monkeypatch.setattr("ddpn.workflow.fitting.fit_into", lambda *_, **__: Fitted(folder, can_continue))
    result = run_ddpn("fit", "visits.csv", *SMALL, "-o", "model")
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (130, f"Stopped. {words}")


# A column that determines the target ---------------------------------------------------------------------------------


def test_a_leak_is_reported_everywhere_and_forbids_a_positive_verdict(run_ddpn, files, table):
    date = "Column day is a date"
    days = pl.date_range(pl.date(2024, 1, 1), pl.date(2024, 9, 16), "1d", eager=True)
    table.with_columns(paid=pl.col("visits") * 20 + 1, day=days).write_csv(files / "leaky.csv")
    leak = "Column paid is the target times a factor plus a constant."
    fitted = run_ddpn("fit", "leaky.csv", *SMALL, "-o", "model")
    assert fitted.exit_code == 0, fitted.output
    shown, scored = run_ddpn("show", "model"), run_ddpn("evaluate", "model", "leaky.csv")
    for result in (fitted, shown, scored):
        assert f"Warning: {leak}" in result.stderr
        assert f"Warning: {date}" in result.stderr
        assert "These scores cannot be trusted" in result.stdout
        assert leak in result.stdout
    kept = run_ddpn("fit", "leaky.csv", *SMALL, "--use", "paid", "-o", "kept")
    assert "cannot be trusted" not in kept.stdout


def test_hints_can_be_copied_and_names_may_contain_commas(run_ddpn, files, table):
    days = pl.date_range(pl.date(2024, 1, 1), pl.date(2024, 9, 16), "1d", eager=True)
    names = {"paid": "paid, in total", "day": "first day"}
    frame = table.with_columns(paid=pl.col("visits") * 20 + 1, day=days).rename(names)
    frame.write_csv(files / "odd.csv")
    warned = run_ddpn("fit", "odd.csv", *SMALL, "-o", "model").stderr
    drop = re.search(r"Leave it out with (--drop .*?);", warned)[1]
    time = re.search(r"Then split by time with (--time .*)[.]", warned)[1]
    resolve_links = run_ddpn(
        "fit", "odd.csv", *SMALL, *shlex.split(f"{drop} {time}"), "--drop", "patient,ward", "-o", "next", "--json"
    )
    assert resolve_links.exit_code == 0, resolve_links.output
    document = json.loads(resolve_links.stdout)
    left_out = {
        column["name"] for column in document["roles"]["columns"] if column["left_out"] == "dropped as requested"
    }
    assert left_out == {"paid, in total", "patient", "ward"}
    assert document["plan"]["time"] == "first day"
    refused = run_ddpn("fit", "odd.csv", *SMALL, "--drop", "paid,in total", "-o", "other")
    assert refused.exit_code == 1
    assert "give --drop once for each such name" in refused.stderr


# Predict -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["out.csv", "out.tsv", "out.parquet", "out.csv.gz"])
def test_predict_writes_by_the_ending(run_ddpn, files, model_path, name):
    options = ["--coverage", "0.8", "--quantiles", "0.1,0.9", "--pmf", "1", "--prob-above", "0,200"]
    result = run_ddpn("predict", str(model_path), "visits.csv", "-o", name, *options)
    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    assert f"260 predictions written to {name}" in result.stderr
    readers = {"t": lambda path: pl.read_csv(path, separator="\t"), "p": pl.read_parquet, "c": pl.read_csv}
    frame = readers[name.split(".")[1][0]](files / name)
    columns = "mean median mode lower upper interval_probability aleatoric epistemic stddev q0.1 q0.9 p0 p1"
    assert frame.columns == [*columns.split(), "prob_above_0", "prob_above_200", "ood_pvalue"]
    assert (frame["prob_above_0"] + frame["p0"] - 1).abs().max() < 1e-12
    assert frame.height == 260
    assert (frame["lower"] <= frame["median"]).all()


def test_predict_reads_standard_input_and_writes_standard_output(run_ddpn, model_path, table):
    rows = table.head(5).drop("visits").write_csv()
    result = run_ddpn("predict", str(model_path), "-", "-o", "-", "--keep", "--ood", "0.05", input=rows)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    columns = "mean,median,mode,lower,upper,interval_probability,aleatoric,epistemic,stddev,ood_pvalue,ood,ood_reason"
    assert lines[0] == f"patient,severity,ward,{columns}"
    assert len(lines) == 6
    assert lines[1].startswith("p0,")
    assert "5 predictions written to standard output" in result.stderr


def test_a_small_table_has_no_flags_and_keeps_digits_as_categories(run_ddpn, files, table):
    codes = table.head(120).with_columns(ward=pl.col("ward").replace_strict({"A": "007", "B": "010", "C": "x1"}))
    codes.write_csv(files / "codes.csv")
    codes.filter(pl.col("ward") != "x1").write_csv(files / "digits.csv")
    fitted = run_ddpn("fit", "codes.csv", *SMALL, "-o", "model")
    assert "Rows: 96 training rows; 24 test rows" in fitted.stdout
    assert "Too few rows for a verdict" in fitted.stdout
    run_ddpn("predict", "model", "codes.csv", "-o", "all.csv", "--keep")
    result = run_ddpn("predict", "model", "digits.csv", "-o", "some.csv", "--keep")
    assert result.exit_code == 0, result.output
    some = pl.read_csv(files / "some.csv")
    assert "ood_pvalue" not in some.columns
    every = pl.read_csv(files / "all.csv").filter(pl.col("ward") != "x1")
    assert some["mean"].to_list() == pytest.approx(every["mean"].to_list())
    refused = run_ddpn("predict", "model", "digits.csv", "-o", "flags.csv", "--ood", "0.05")
    assert refused.exit_code == 1
    assert "--ood needs a model with calibrated out-of-distribution scores. This one had too few rows" in refused.stderr


# Evaluate, show, report ----------------------------------------------------------------------------------------------


def test_evaluate_scores_new_rows_and_the_test_rows_of_fit(run_ddpn, files, model_path, table):
    new = table.head(100).with_columns(severity=pl.col("severity") + 0.01)
    new.write_csv(files / "new.csv")
    result = run_ddpn("evaluate", str(model_path), "new.csv")
    assert result.exit_code == 0, result.output
    assert "Scores on 100 test rows" in result.stdout
    pl.concat([new, table.sort("visits")]).write_parquet(files / "mixed.parquet")
    mixed = run_ddpn("evaluate", str(model_path), "mixed.parquet")
    assert "208 of 360 rows were used to fit the model and are left out of the scores." in mixed.stdout
    assert "Scores on 152 test rows" in mixed.stdout
    same = json.loads(run_ddpn("evaluate", str(model_path), "visits.csv", "--json").stdout)
    assert same["note"] == "The model was fitted to this table, so only its 52 test rows are scored."
    assert same["entries"] == SavedModel(model_path).task["scores"]["entries"]


def test_show_prints_columns_members_and_scores(run_ddpn, model_path, fit):
    result = run_ddpn("show", str(model_path))
    assert result.exit_code == 0, result.output
    assert re.search(r"Columns needed +severity, ward *\n", result.stdout)
    assert re.search(r"Member glm +\d+% of the mixture; likelihood double_poisson", result.stdout)
    assert re.search(rf"Compared with +.*{', '.join(COMPARED)}", result.stdout)
    board = result.stdout[result.stdout.index("Scores on") :]
    assert board.partition("To predict")[0].strip() in fit.printed.stdout
    about = json.loads(run_ddpn("show", str(model_path), "--json").stdout)
    assert about["members"]["networks"]["facts"]["networks"] == 2
    assert about["task"]["roles"]["target"] == "visits"


def test_a_report_is_one_html_file(run_ddpn, files, model_path):
    (files / "report.html").write_text("an older report")
    result = run_ddpn("report", str(model_path), "visits.csv", "-o", "report.html", "--overwrite")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.splitlines()[-1] == "Report written to report.html"
    html = (files / "report.html").read_text()
    assert html.lstrip().lower().startswith("<!doctype html")
    verdict = SavedModel(model_path).task["scores"]["verdict"]["sentences"]
    assert verdict[0] in unescape(html)
    (interval,) = re.findall(r"95% interval ([^)]*)\)", verdict[0])
    sentences = re.findall(r"CRPS is [^<]*? 95% interval ([^,)]*)", html)
    assert len(sentences) == 1, "the headline"
    assert {words.strip() for words in sentences} == {interval}, "one computation"
    assert len(re.findall(r"<th[^>]*>CRPS</th>", html)) == 1, "one table of scores"
    tested = {row: f"p{row - 1}" for row in range(1, 261)}
    rows = re.findall(r"<h4>Row (\d+), patient (p\d+)</h4>", html)
    assert len(rows) == 6
    assert all(tested[int(row)] == patient for row, patient in rows)
    assert "Rows are numbered as in the file: the first below the header is 1." in html
