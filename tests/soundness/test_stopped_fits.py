"""A fit that Ctrl-C ends in any phase leaves a model that predicts, names what is missing, and can be continued."""

import json
import re
import signal
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from ddpn.cli import app
from ddpn.workflow.model_folder import describe

pytestmark = pytest.mark.last
CALIBRATION, SCORES = "Calibrating on rows", "Scoring the test rows"


QUICK = ("--only", "glm", "--compare-with", "poisson_glm,constant")


@pytest.fixture
def table(tmp_path) -> Path:
    """A table of which calibration and scores take some tenths of a second."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1500, 3))
    y = rng.negative_binomial(2, 2 / (2 + np.exp(2.0 + x[:, 0])))
    pl.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "y": y}).write_csv(tmp_path / "t.csv")
    return tmp_path


@pytest.fixture
def ddpn(table, monkeypatch):
    """Run a command in this process and in the folder of the table."""
    monkeypatch.chdir(table)

    def run(*words):
        found = CliRunner().invoke(app, list(words))
        assert found.exit_code == 0, found.output
        return found

    return run


def scores(model: Path) -> dict[str, tuple]:
    entries = describe(model)["task"]["test"]["entries"]
    return {entry["name"]: (entry["crps"], entry["coverage"], entry["weight"]) for entry in entries}


def interrupted(program, table, step, *words, times=1):
    """Send SIGINT, once or more often, as soon as the program says that it begins a step."""
    process = program("fit", "t.csv", "--target", "y", "-o", "m", *QUICK, *words, folder=table)
    while step not in process.err.read_text() and process.poll() is None:
        time.sleep(0.002)
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        time.sleep(0.01)
    return process.wait(120.0), process.out.read_text(), process.err.read_text()


@pytest.mark.parametrize(
    ("step", "missing", "words"),
    [
        (CALIBRATION, ["calibration", "scores"], "not calibrated, not scored"),
        (SCORES, ["scores"], "not scored"),
    ],
)
def test_the_model_is_saved_and_the_same_command_continues(program, ddpn, table, step, missing, words):
    code, printed, told = interrupted(program, table, step)
    assert code == 130, told
    assert "Traceback" not in told
    task = describe(table / "m")["task"]
    assert (task["missing"], "test" in task) == (missing, False)
    assert re.search(rf"Stopped\. The fitted model is saved in m, {words}; the same command with --overwrite ", told)
    assert "Saved in m." in printed
    assert {path.name for path in table.iterdir()} == {"t.csv", "m"}
    assert f"yes, by Ctrl-C: {words}" in ddpn("show", "m").stdout
    assert ("not calibrated" in ddpn("predict", "m", "t.csv", "-o", "p.csv").stderr) == ("calibration" in missing)
    assert pl.read_csv(table / "p.csv").height == 1500

    again = ddpn("fit", "t.csv", "--target", "y", "-o", "m", *QUICK, "--overwrite")
    assert ("Continuing with the members that were fitted" in again.stderr) == (missing == ["scores"])
    task = describe(table / "m")["task"]
    assert (task["missing"], task["interrupted"], task["warnings"]) == ([], False, [])
    ddpn("fit", "t.csv", "--target", "y", "-o", "whole", *QUICK)
    assert scores(table / "m") == scores(table / "whole")


def test_ctrl_c_three_times_still_saves_and_json_names_what_is_missing(program, table):
    code, printed, told = interrupted(program, table, CALIBRATION, "--json", times=3)
    assert code == 130, told
    assert describe(table / "m")["task"]["missing"] == ["calibration", "scores"]
    assert json.loads(printed)["missing"] == ["calibration", "scores"]
