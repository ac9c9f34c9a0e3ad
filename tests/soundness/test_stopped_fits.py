"""A fit that Ctrl-C ends in any phase leaves a model that predicts, names what is missing, and can be continued."""

import json
import re
import signal
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from ddpn.workflow.model_folder import describe

CALIBRATION, SCORES = "Calibrating on rows", "Scoring the test rows"


@pytest.fixture
def table(tmp_path) -> Path:
    """A table of which calibration and scores take some tenths of a second."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1500, 3))
    y = rng.negative_binomial(2, 2 / (2 + np.exp(2.0 + x[:, 0])))
    pl.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "y": y}).write_csv(tmp_path / "t.csv")
    return tmp_path


def stopped(program, table, step, *words):
    """Send SIGINT as soon as the program says that it begins a step."""
    process = program("fit", "t.csv", "--target", "y", "-o", "m", *words, folder=table)
    end = time.monotonic() + 300.0
    while step not in process.err.read_text() and process.exitcode is None and time.monotonic() < end:
        time.sleep(0.002)
    process.send_signal(signal.SIGINT)
    return process.wait(), process.out.read_text(), process.err.read_text()


QUICK = ("--only", "glm", "--compare-with", "poisson_glm,constant")


@pytest.mark.parametrize(
    ("step", "missing", "words"),
    [
        (CALIBRATION, ["calibration", "scores"], "not calibrated, not scored"),
        (SCORES, ["scores"], "not scored"),
    ],
)
def test_the_model_is_saved_and_the_same_command_continues(program, table, step, missing, words):
    code, printed, told = stopped(program, table, step, *QUICK)
    assert code == 130, told
    assert "Traceback" not in told
    task = describe(table / "m")["task"]
    assert (task["missing"], "test" in task) == (missing, False)
    assert re.search(rf"Stopped\. The fitted model is saved in m, {words}; the same command with --overwrite ", told)
    assert "Saved in m." in printed
    assert {path.name for path in table.iterdir()} == {"t.csv", "m"}
    shown = program("show", "m", folder=table)
    assert shown.wait() == 0
    assert f"yes, by Ctrl-C: {words}" in shown.out.read_text()
    predicted = program("predict", "m", "t.csv", "-o", "p.csv", folder=table)
    assert predicted.wait() == 0
    assert ("not calibrated" in predicted.err.read_text()) == ("calibration" in missing)
    assert pl.read_csv(table / "p.csv").height == 1500

    again = program("fit", "t.csv", "--target", "y", "-o", "m", *QUICK, "--overwrite", folder=table)
    assert again.wait() == 0, again.err.read_text()
    assert ("Continuing with the members that were fitted" in again.err.read_text()) == (missing == ["scores"])
    task = describe(table / "m")["task"]
    assert (task["missing"], task["interrupted"], task["warnings"]) == ([], False, [])
    whole = program("fit", "t.csv", "--target", "y", "-o", "whole", *QUICK, folder=table)
    assert whole.wait() == 0
    assert scores(table / "m") == scores(table / "whole")


def scores(model: Path) -> dict[str, tuple]:
    entries = describe(model)["task"]["test"]["entries"]
    return {entry["name"]: (entry["crps"], entry["coverage"], entry["weight"]) for entry in entries}


def test_ctrl_c_twice_in_a_row_still_saves(program, table):
    process = program("fit", "t.csv", "--target", "y", "-o", "m", *QUICK, folder=table)
    end = time.monotonic() + 300.0
    while CALIBRATION not in process.err.read_text() and process.exitcode is None and time.monotonic() < end:
        time.sleep(0.002)
    for _ in range(3):
        process.send_signal(signal.SIGINT)
        time.sleep(0.01)
    assert process.wait() == 130
    assert describe(table / "m")["task"]["missing"] == ["calibration", "scores"]


def test_json_names_what_is_missing(program, table):
    _, printed, _ = stopped(program, table, SCORES, *QUICK, "--json")
    assert json.loads(printed)["missing"] == ["scores"]
