"""Test that a fit which Ctrl-C ends in any phase leaves a model that predicts, names what is missing, and continues."""

import contextlib
import re
import signal
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from ddpn.cli import app
from ddpn.workflow.model_folder import SavedModel

pytestmark = pytest.mark.last


@pytest.fixture(scope="module")
def rows() -> pl.DataFrame:
    """A table of which calibration and scores take some tenths of a second."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1500, 3))
    y = rng.negative_binomial(2, 2 / (2 + np.exp(2.0 + x[:, 0])))
    return pl.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "y": y})


def run_command(folder: Path, *words: str):
    """Run a command in this process and in a folder."""
    with contextlib.chdir(folder):
        result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 0, result.output
    return result


FIT = ("fit", "t.csv", "--target", "y", "-o", "m", "--only", "glm", "--compare-with", "poisson_glm,constant")


@pytest.fixture(scope="module")
def scores_of_whole_fit(rows, tmp_path_factory) -> dict[str, tuple]:
    """The scores of a fit that nothing stops."""
    folder = tmp_path_factory.mktemp("whole")
    rows.write_csv(folder / "t.csv")
    run_command(folder, *FIT)
    return read_scores(folder / "m")


def read_scores(model: Path) -> dict[str, tuple]:
    entries = SavedModel(model).task["scores"]["entries"]
    return {entry["name"]: (entry["crps"], entry["coverage"], entry["weight"]) for entry in entries}


def interrupt_program(program, folder: Path, step: str, times: int):
    """Send SIGINT, once or more often, as soon as the program says that it begins a step."""
    process = program(*FIT, folder=folder)
    while step not in process.err.read_text() and process.poll() is None:
        time.sleep(0.002)
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        time.sleep(0.01)
    return process.wait(120.0), process.out.read_text(), process.err.read_text()


@pytest.mark.parametrize(
    ("step", "times", "missing", "words"),
    [
        ("Calibrating on rows", 3, ["calibration", "scores"], "not calibrated, not scored"),
        pytest.param("Scoring every row out of fold", 1, ["scores"], "not scored", marks=pytest.mark.slow),
    ],
)
def test_the_model_is_saved_and_the_same_command_continues(
    program, rows, scores_of_whole_fit, tmp_path, step, times, missing, words
):
    rows.write_csv(tmp_path / "t.csv")
    code, printed, told = interrupt_program(program, tmp_path, step, times)
    assert code == 130, told
    assert "Traceback" not in told
    task = SavedModel(tmp_path / "m").task
    assert (task["missing"], "scores" in task) == (missing, False)
    assert re.search(rf"Stopped\. The fitted model is saved in m, {words}; the same command with --overwrite ", told)
    assert "Saved in m." in printed
    assert {path.name for path in tmp_path.iterdir()} == {"t.csv", "m"}
    assert f"yes, by Ctrl-C: {words}" in run_command(tmp_path, "show", "m").stdout
    predicted = run_command(tmp_path, "predict", "m", "t.csv", "-o", "p.csv")
    assert ("not calibrated" in predicted.stderr) == ("calibration" in missing)
    assert pl.read_csv(tmp_path / "p.csv").height == 1500

    again = run_command(tmp_path, *FIT, "--overwrite")
    assert ("Continuing with the fitted members" in again.stderr) == (missing == ["scores"])
    task = SavedModel(tmp_path / "m").task
    assert (task["missing"], task["interrupted"], task["warnings"]) == ([], False, [])
    assert read_scores(tmp_path / "m") == scores_of_whole_fit
