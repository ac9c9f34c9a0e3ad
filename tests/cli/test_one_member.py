"""Test fit --only and predict --member: the advice of a verdict can be followed."""

import re
import shlex
import sys

import numpy as np
import polars as pl
import pytest

from ddpn.members.glm import GLM
from ddpn.predictor import MIXTURE
from ddpn.workflow.model_folder import SavedModel, load


def test_every_member_of_the_leaderboard_predicts_alone(run_ddpn, fit, table, files):
    predictor = load(fit.model).model.predictor_
    entries = SavedModel(fit.model).task["scores"]["entries"]
    assert len(entries) >= 5
    for entry in entries:
        for name in {entry["name"], entry["label"]}:
            words = ("--member", name, "--coverage", "0.8", "--overwrite")
            result = run_ddpn("predict", str(fit.model), "visits.csv", "-o", "p.csv", *words)
            assert result.exit_code == 0, result.output
            predicted = pl.read_csv(files / "p.csv")
            dist = predictor.distribution(table.select("severity", "ward"), member=entry["name"])
            assert predicted["mean"].to_numpy() == pytest.approx(dist.mean.numpy(), rel=1e-5)
            low, high, _ = predictor.wrap(dist, entry["name"]).interval_with_probability(0.8)
            assert (predicted["lower"].to_numpy() == low.numpy()).all()
            assert (predicted["upper"].to_numpy() == high.numpy()).all()


@pytest.mark.parametrize("name", ["glm", "Boosted trees"])
def test_one_member_is_fitted_alone_and_calibrated(run_ddpn, files, name):
    words = ("--compare-with", "constant,poisson_glm")
    result = run_ddpn("fit", "visits.csv", "--config", "quick.toml", "-o", "m", "--only", name, *words)
    assert result.exit_code == 0, result.output
    predictor, name = load(files / "m").model.predictor_, "trees" if name == "Boosted trees" else name
    assert {key: weight for key, weight in predictor.weights.items() if weight} == {name: 1.0}
    assert set(predictor.members) == {name, "constant", "poisson_glm"}
    assert {MIXTURE, name} <= set(predictor.calibration.intervals)
    entries = {entry["name"]: entry for entry in SavedModel(files / "m").task["scores"]["entries"]}
    assert entries[MIXTURE]["coverage"] >= 0.85  # 260 out-of-fold rows


def test_the_next_step_is_a_command_of_the_program_that_the_user_ran(run_ddpn, files, monkeypatch):
    words = ["fit", "visits.csv", "--config", "quick.toml", "-o", "m", "--only", "constant"]
    monkeypatch.setattr(sys, "argv", ["my scripts/my_ddpn.py", *words])
    assert "Next: python 'my scripts/my_ddpn.py' predict m NEW.csv" in run_ddpn(*words).stdout
    assert SavedModel(files / "m").task["command"] == shlex.join(["python", "my scripts/my_ddpn.py", *words])


def test_the_advice_of_a_verdict_is_followed(run_ddpn, files, monkeypatch):
    """Where counts follow no column, one step leads from a GLM to the simplest model, which has no further advice."""
    rng = np.random.default_rng(1)
    pl.DataFrame({"x": rng.normal(size=2000), "visits": rng.poisson(3.0, 2000)}).write_csv(files / "line data.csv")
    words = ["fit", "line data.csv", "--target", "visits", "--compare-with", "poisson_glm,constant", "-o", "m"]
    words += ["--only", "glm"]
    monkeypatch.setattr(sys, "argv", ["ddpn", *words])
    result = run_ddpn(*words)
    name = SavedModel(files / "m").task["scores"]["verdict"]["prefer"]
    assert name == "constant", result.stdout
    again = re.search(r"To fit constant alone, add these options to ddpn fit: (.*)", result.stdout)[1]
    predicted = re.search(r"To predict with constant alone: ddpn (.*)", result.stdout)[1]
    assert predicted == "predict m NEW.csv --member constant -o predictions.csv"
    assert run_ddpn(*shlex.split(predicted.replace("NEW.csv", "'line data.csv'"))).exit_code == 0
    again_result = run_ddpn(*words[:-2], *shlex.split(again))
    assert again_result.exit_code == 0, again_result.output
    assert load(files / "m").model.predictor_.weights["constant"] == 1.0
    assert SavedModel(files / "m").task["scores"]["verdict"]["prefer"] is None
    assert "To fit" not in run_ddpn("show", "m").stdout


def test_left_out_members_are_printed_and_kept_with_the_model(run_ddpn, files, monkeypatch):
    monkeypatch.setattr(GLM, "max_columns", 2)
    words = ("--target", "visits", "--epochs", "2", "--compare-with", "constant")
    result = run_ddpn("fit", "visits.csv", "-o", "m", *words)
    assert result.exit_code == 0, result.output
    sentence = "The mixture is fitted without GLM, because it has 4 inputs, but a GLM is fitted to at most 2."
    assert result.stderr.count(sentence) == 1
    assert set(load(files / "m").model.predictor_.members) == {"constant", "trees", "networks"}
    assert sentence in SavedModel(files / "m").task["warnings"]
    assert sentence in run_ddpn("show", "m").stderr
