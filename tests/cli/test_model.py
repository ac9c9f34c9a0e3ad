"""Fit, predict, evaluate, show, report, as a user calls them."""

import errno
import gzip
import json
import os
import re
import signal
import time
from pathlib import Path

import polars as pl
import pytest
from ddpn.workflow.boosting import BoostedTrees


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def without_traceback(found) -> bool:
    return found.exception is None or isinstance(found.exception, SystemExit)


# Fit -------------------------------------------------------------------------------------------------------------


def test_fit_tells_columns_rows_scores_and_whether_it_was_worth_it(ddpn, files):
    found = ddpn("fit", "visits.csv", "--config", "quick.toml", "-o", "model")
    assert found.exit_code == 0, found.output
    told = found.stdout
    assert re.search(r"patient .* category .* 240 .* left out: nearly every value is different", told)
    assert re.search(r"severity .* number .* 240", told)
    assert re.search(r"visits .* target", told)
    assert "Rows: 192 train, 0 validation, 48 test; at random by seed 0" in told
    for model in ("this model (DDPN)", "a constant law", "a Poisson GLM", "Poisson gradient boosting"):
        assert re.search(rf"{re.escape(model)} .* \d.* \d.* \d+\.\d% .* \d", told)
    assert re.search(r"^(Worth it|Not clearly worth it|Not worth it): its CRPS is ", told, re.MULTILINE)
    assert "Saved in model. Next: ddpn predict model" in told
    assert "Training" in found.stderr
    assert names(files) == {"visits.csv", "quick.toml", "model"}


def test_options_of_the_command_have_the_last_word(ddpn, files):
    arguments = ["--config", "quick.toml", "--members", "1", "--seed", "5", "--likelihood", "poisson", "--json"]
    found = ddpn("fit", "visits.csv", *arguments, "--drop", "ward", "--use", "patient", "-o", "model")
    task = json.loads(found.stdout)
    assert task["plan"]["model"]["members"] == 1
    assert task["plan"]["model"]["likelihood"] == "poisson"
    assert task["plan"]["seed"] == 5
    assert {c["name"]: c["left_out"] for c in task["roles"]["columns"]} == {
        "patient": "", "severity": "", "ward": "as asked"
    }  # fmt: skip


@pytest.mark.parametrize("name", ["visits.csv.gz", "visits.parquet", "visits.tsv", "visits.feather"])
def test_every_format_gives_the_same_model(ddpn, files, table, saved, name):
    if name.endswith(".gz"):
        (files / name).write_bytes(gzip.compress((files / "visits.csv").read_bytes()))
    elif name.endswith(".tsv"):
        table.write_csv(files / name, separator="\t")
    else:
        getattr(table, "write_parquet" if "parquet" in name else "write_ipc")(files / name)
    found = ddpn("fit", name, "--config", "quick.toml", "--json", "-o", "model")
    test = json.loads((saved / "task.json").read_text())["test"]
    assert json.loads(found.stdout)["test"]["scores"] == test["scores"]


def test_a_column_that_gives_the_target_away_is_told(ddpn, files, table):
    table.with_columns(paid=pl.col("visits") * 20 + 1).write_csv(files / "leaky.csv")
    found = ddpn("fit", "leaky.csv", "--config", "quick.toml", "-o", "model")
    assert "Warning: column paid nearly gives the target away (correlation 1.00)." in found.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["visits.csv", "--target", "vists"], 1, "target must name a column, got 'vists', .* Did you mean 'visits'?"),
        (["none.csv", "--target", "visits"], 1, "a table must be a file, got none.csv, which is not there."),
        (["visits.xlsx", "--target", "visits"], 1, "a table must be a file with an ending of"),
        (["visits.csv", "--target", "severity"], 1, "got negative numbers in rows .* Recode or drop these rows."),
        (["visits.csv", "--target", "ward"], 1, "target 'ward' must hold numbers, got"),
        (["visits.csv"], 2, "target must be given, got none."),
        (["visits.csv", "--target", "visits", "--config", "bad.toml"], 2, "keys in bad.toml must be among .* Did you"),
        (["visits.csv", "--target", "visits", "--likelihood", "poison"], 2, "likelihood must be one of"),
        (["visits.csv", "--target", "visits", "--members", "0"], 2, "members must be a whole number"),
        (["visits.csv", "--target", "visits", "--time", "a", "--split-column", "b"], 2, "must not both be given"),
        (["visits.csv", "--target", "visits", "--device", "abacus"], 2, "device must be one torch knows"),
    ],
)
def test_what_is_wrong_is_one_sentence_and_leaves_nothing(ddpn, files, arguments, code, sentence):
    (files / "bad.toml").write_text("member = 3")
    before = names(files)
    found = ddpn("fit", *arguments, "-o", "model")
    assert found.exit_code == code, found.output
    assert without_traceback(found)
    (error,) = [line for line in found.stderr.splitlines() if line.startswith("Error: ")]
    assert re.search(sentence, error)
    assert names(files) == before


def test_an_output_that_exists_is_told_before_the_work(ddpn, files, saved):
    (files / "model").mkdir()
    found = ddpn("fit", "visits.csv", "--target", "visits", "-o", "model")
    assert found.exit_code == 1
    assert found.stderr == "Error: output must be free, got model, which exists. Add --overwrite or name another.\n"
    assert found.stdout == ""


def test_a_full_disk_is_one_sentence(ddpn, files, monkeypatch):
    def full(self, folder):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(BoostedTrees, "save", full)
    found = ddpn("fit", "visits.csv", "--config", "quick.toml", "-o", "model")
    assert found.exit_code == 1
    assert without_traceback(found)
    assert found.stderr.splitlines()[-1].startswith("Error: the disk must have room for the output, got a full one.")
    assert names(files) == {"visits.csv", "quick.toml"}


def test_a_real_ctrl_c_saves_the_best_so_far_and_the_same_command_goes_on(program, files):
    arguments = ["fit", "visits.csv", "--config", "quick.toml", "--epochs", "1000000", "-o", "model"]
    with program(*arguments) as running:
        told = ""
        for line in running.stderr:  # the last line before the bar
            told += line
            if line.startswith("Training"):
                break
        time.sleep(3)
        running.send_signal(signal.SIGINT)
        shown, rest = running.communicate(timeout=60)
    assert running.returncode == 130, told + rest
    assert "Traceback" not in rest
    stopped = "Stopped. The best epochs so far are saved in model; the same command with --overwrite goes on."
    assert rest.splitlines()[-1] == stopped
    assert "this model (DDPN)" in shown
    assert names(files) == {"visits.csv", "quick.toml", "model"}
    assert json.loads((files / "model" / "task.json").read_text())["interrupted"]
    assert (files / "model" / "checkpoint.safetensors").is_file()


# Predict ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["out.csv", "out.tsv", "out.parquet", "out.csv.gz"])
def test_predict_writes_by_the_ending(ddpn, files, saved, name):
    found = ddpn(
        "predict", str(saved), "visits.csv", "-o", name, "--coverage", "0.8", "--quantiles", "0.1,0.9", "--pmf", "1"
    )
    assert found.exit_code == 0, found.output
    assert found.stdout == ""
    read = {"t": lambda path: pl.read_csv(path, separator="\t"), "p": pl.read_parquet, "c": pl.read_csv}
    frame = read[name.split(".")[1][0]](files / name)
    columns = "mean median mode lower upper aleatoric epistemic stddev q0.1 q0.9 p0 p1 ood_pvalue"
    assert frame.columns == columns.split()
    assert frame.height == 240
    assert (frame["lower"] == frame["q0.1"]).all()


def test_standard_input_and_output_in_a_real_pipe(program, files, saved, table):
    model = str(saved)
    with program("predict", model, "-", "-o", "-", "--keep", "--ood", "0.05") as running:
        shown, told = running.communicate(table.head(5).drop("visits").write_csv(), timeout=120)
    assert running.returncode == 0, told
    lines = shown.splitlines()
    assert lines[0] == ("patient,severity,ward,mean,median,mode,lower,upper,aleatoric,epistemic,stddev,ood_pvalue,ood")
    assert len(lines) == 6
    assert lines[1].startswith("p0,")
    assert "5 predictions written to standard output" in told


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["none", "visits.csv", "-o", "o.csv"], 1, "MODEL must be a folder, got none, which is not there"),
        ([".", "visits.csv", "-o", "o.csv"], 1, "MODEL must be a folder that `ddpn fit` wrote"),
        (["MODEL", "none.csv", "-o", "o.csv"], 1, "which is not there"),
        (["MODEL", "visits.csv", "-o", "quick.toml"], 1, "with an ending of"),
        (["MODEL", "visits.csv", "-o", "visits.csv"], 1, "output must be free, got visits.csv, which exists"),
        (["MODEL", "visits.csv", "-o", "o.csv", "--coverage", "2"], 2, "coverage must lie between 0 and 1"),
        (["MODEL", "visits.csv", "-o", "o.csv", "--quantiles", "a"], 2, "quantiles must be numbers with commas"),
        (["MODEL", "less.csv", "-o", "o.csv"], 1, "must have the columns of fit, got no 'ward'"),
    ],
)
def test_predictions_that_cannot_be_are_one_sentence(ddpn, files, saved, table, arguments, code, sentence):
    table.drop("ward").write_csv(files / "less.csv")
    before = names(files)
    found = ddpn("predict", *(str(saved) if word == "MODEL" else word for word in arguments))
    assert found.exit_code == code, found.output
    assert without_traceback(found)
    assert re.search(f"^Error: .*{sentence}", found.stderr, re.MULTILINE)
    assert names(files) == before


def test_a_full_disk_keeps_the_old_predictions(ddpn, files, saved, monkeypatch):
    (files / "o.csv").write_text("old")
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left")))
    found = ddpn("predict", str(saved), "visits.csv", "-o", "o.csv", "--overwrite")
    assert found.exit_code == 1
    assert "Error: the disk must have room for the output" in found.stderr
    assert (files / "o.csv").read_text() == "old"
    assert names(files) == {"visits.csv", "quick.toml", "o.csv"}


def test_digits_that_are_names_stay_names(ddpn, tmp_path, table):
    codes = table.with_columns(ward=pl.col("ward").replace_strict({"A": "007", "B": "010", "C": "x1"}))
    codes.write_csv(tmp_path / "codes.csv")
    codes.filter(pl.col("ward") != "x1").write_csv(tmp_path / "digits.csv")
    (tmp_path / "quick.toml").write_text(
        'members = 1\nhidden = [4]\nnumeric = "standard"\nepochs = 2\ndevice = "cpu"\n'
    )
    ddpn("fit", "codes.csv", "--target", "visits", "--config", "quick.toml", "-o", "model")
    ddpn("predict", "model", "codes.csv", "-o", "all.csv", "--keep")
    found = ddpn("predict", "model", "digits.csv", "-o", "some.csv", "--keep")
    assert found.exit_code == 0, found.output
    every = pl.read_csv(tmp_path / "all.csv").filter(pl.col("ward") != "x1")
    assert pl.read_csv(tmp_path / "some.csv")["mean"].to_list() == pytest.approx(every["mean"].to_list())


# Evaluate, show, report ------------------------------------------------------------------------------------------


def test_evaluate_on_new_rows_and_on_the_table_of_fit(ddpn, files, saved, table):
    table.head(100).write_csv(files / "new.csv")
    found = ddpn("evaluate", str(saved), "new.csv")
    assert found.exit_code == 0, found.output
    assert "Scores on 100 rows" in found.stdout
    same = json.loads(ddpn("evaluate", str(saved), "visits.csv", "--json").stdout)
    assert same["note"] == "The model was fitted to this table: only its 48 test rows are judged."
    assert same["scores"] == json.loads((saved / "task.json").read_text())["test"]["scores"]
    missing = ddpn("evaluate", str(saved), "-", input="severity,ward\n1,A\n")
    assert missing.exit_code == 1
    assert "Error: target must name a column, got 'visits'" in missing.stderr


def test_show(ddpn, saved):
    found = ddpn("show", str(saved))
    assert found.exit_code == 0, found.output
    assert re.search(r"Columns it wants +severity, ward *\n", found.stdout)
    assert re.search(r"Model +double_poisson, 2 members of widths \[8\]", found.stdout)
    assert re.search(r"Trained +3 epochs", found.stdout)
    about = json.loads(ddpn("show", str(saved), "--json").stdout)
    assert about["members"] == 2
    assert about["task"]["roles"]["target"] == "visits"


def test_report(ddpn, files, saved):
    found = ddpn("report", str(saved), "visits.csv", "-o", "report.html")
    assert found.exit_code == 0, found.output
    html = (files / "report.html").read_text()
    assert html.lstrip().lower().startswith("<!doctype html")
    assert "Poisson gradient boosting" in html
    stages = [line for line in found.stderr.splitlines() if line.endswith(" ...")]
    assert stages[0].startswith("Predicting")
    assert stages[-1] == "Drawing figures ..."
    again = ddpn("report", str(saved), "visits.csv", "-o", "report.html")
    assert again.exit_code == 1
    assert "output must be free, got report.html, which exists" in again.stderr
