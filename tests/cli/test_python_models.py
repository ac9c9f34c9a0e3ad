"""Test commands on models saved in Python: the same numbers, and one sentence about what is missing."""

import json
import re

import numpy as np
import pandas as pd
import polars as pl
import pytest

from ddpn import CountGLM, CountRegressor, DDPNRegressor
from ddpn.cli.console import BAD_INPUT

COLUMNS = ["severity", "code", "urgent"]
SMALL = {"n_networks": 2, "hidden": (8,), "numeric": "standard", "epochs": 2, "random_state": 0, "device": "cpu"}


@pytest.fixture(scope="module")
def patients() -> pd.DataFrame:
    """Numbers, digits that are names, flags, exposures and counts."""
    rng = np.random.default_rng(3)
    n = 120
    frame = pd.DataFrame({"severity": rng.normal(size=n), "code": rng.choice(["007", "010"], n)})
    frame = frame.assign(urgent=rng.random(n) < 0.4, days=rng.uniform(0.5, 2.0, n))
    return frame.assign(visits=rng.poisson(frame["days"] * np.exp(1.0 + 0.5 * frame["severity"])))


@pytest.fixture(scope="module", params=["double_poisson", "gaussian", "glm"])
def model(request, patients):
    X, y = patients[COLUMNS], patients["visits"]
    if request.param == "glm":
        return CountGLM(likelihood="poisson").fit(X, y, exposure=patients["days"])
    networks = DDPNRegressor(likelihood=request.param, **SMALL).fit(X[:80], y[:80], exposure=patients["days"][:80])
    calibration_exposure = {"exposure": patients["days"][80:]}
    return networks.fit_intervals(X[80:], y[80:], **calibration_exposure).fit_ood(X[80:], alpha=0.1)


@pytest.fixture
def model_folder(model, patients, files) -> str:
    """The folder of the model, beside the table."""
    model.save("model")
    patients.to_csv("patients.csv", index=False)
    return "model"


def get_error(result) -> str:
    (error,) = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert result.exit_code == BAD_INPUT
    return error


def test_predictions_are_those_of_python(run_ddpn, model_folder, model, patients):
    options = ["--exposure", "days", "--coverage", "0.8", "--quantiles", "0.1,0.75", "--pmf", "2"]
    result = run_ddpn("predict", model_folder, "patients.csv", *options, "-o", "o.parquet")
    assert result.exit_code == 0, result.output
    table, X, exposure = pl.read_parquet("o.parquet"), patients[COLUMNS], patients["days"]
    for name in ("mean", "median", "mode"):
        np.testing.assert_allclose(table[name], model.predict(X, exposure, name), rtol=1e-9)
    assert table.select("lower", "upper").to_numpy().tolist() == model.predict_interval(X, 0.8, exposure).tolist()
    quantiles = model.predict_quantiles(X, [0.1, 0.75], exposure)
    np.testing.assert_allclose(table.select("q0.1", "q0.75"), quantiles, rtol=1e-9)
    prediction = model.predict_distribution(X, exposure)
    np.testing.assert_allclose(table.select("p0", "p1", "p2"), prediction.pmf(range(3)), rtol=1e-9)
    np.testing.assert_allclose(table["aleatoric"], prediction.aleatoric, rtol=1e-9)
    np.testing.assert_allclose(table["epistemic"], prediction.epistemic, rtol=1e-9)
    np.testing.assert_allclose(table["stddev"], prediction.std, rtol=1e-9)
    if isinstance(model, DDPNRegressor):
        assert table["ood_pvalue"].to_list() == model.ood_pvalue(X).tolist()


def test_scores_are_those_of_python_and_missing_columns_are_named(run_ddpn, model_folder, model, patients):
    columns = ["--target", "visits", "--exposure", "days"]
    result = run_ddpn("evaluate", model_folder, "patients.csv", *columns, "--json")
    assert result.exit_code == 0, result.output
    entries = {entry["name"]: entry for entry in json.loads(result.stdout)["entries"]}
    if model.likelihood != "gaussian":  # which is scored as rounded here
        crps = model.crps(patients[COLUMNS], patients["visits"], exposure=patients["days"])
        assert entries["mixture"]["crps"] == pytest.approx(crps, rel=1e-9)
    assert "Name it with --target" in get_error(
        run_ddpn("evaluate", model_folder, "patients.csv", "--exposure", "days")
    )
    for command in (["evaluate"], ["predict", "-o", "o.csv"], ["report", "-o", "r.html"]):
        result = run_ddpn(command[0], model_folder, "patients.csv", *command[1:])
        assert "was fitted with exposures. Name their column with --exposure" in get_error(result)
    patients.drop(columns="code").to_csv("less.csv")
    assert "No column named 'code'" in get_error(run_ddpn("evaluate", model_folder, "less.csv", *columns))


def test_show_and_report_take_the_model(run_ddpn, model_folder, model):
    result = run_ddpn("show", model_folder)
    assert result.exit_code == 0, result.output
    assert re.search(r"Columns needed +severity, code, urgent", result.stdout)
    assert re.search(r"Saved +in Python, by ddpn", result.stdout)
    assert json.loads(run_ddpn("show", model_folder, "--json").stdout)["ood"] == isinstance(model, DDPNRegressor)
    if isinstance(model, CountGLM):  # the others differ by the numbers alone
        report = run_ddpn(
            "report", model_folder, "patients.csv", "--target", "visits", "--exposure", "days", "-o", "r.html"
        )
        assert report.exit_code == 0, report.output


def test_a_model_of_an_array_knows_no_columns(run_ddpn, files, patients):
    CountGLM(likelihood="poisson").fit(patients[["severity"]].to_numpy(), patients["visits"]).save("model")
    for command in (["show", "model"], ["predict", "model", "visits.csv", "-o", "o.csv"]):
        assert "fitted to an array, without column names" in get_error(run_ddpn(*command))


def test_a_copy_that_python_saves_predicts_the_same(run_ddpn, files, fit, tmp_path):
    DDPNRegressor.load(fit.model, mixed_only=True).save(tmp_path / "copy")
    copied = run_ddpn("predict", "copy", "visits.csv", "-o", "copy.csv")
    assert copied.exit_code == 0, copied.output
    run_ddpn("predict", str(fit.model), "visits.csv", "-o", "own.csv")
    assert (tmp_path / "copy.csv").read_text() == (tmp_path / "own.csv").read_text()


def test_a_leak_that_the_command_found_makes_the_verdict_in_python_unusable(run_ddpn, files, table):
    table.with_columns(twice=2 * pl.col("visits")).write_csv("leak.csv")
    result = run_ddpn("fit", "leak.csv", "--target", "visits", "--only", "constant", "-o", "m")
    assert result.exit_code == 0, result.output
    verdict = CountRegressor.load("m").verdict(pl.read_csv("leak.csv"), table["visits"])
    assert verdict.level == "unusable"
    assert "Column twice is the target times" in str(verdict)


@pytest.fixture(scope="module")
def wards() -> pd.DataFrame:
    """Counts of three countries, one of which is called NA, and of calm and wild wards."""
    rng = np.random.default_rng(4)
    frame = pd.DataFrame({"country": rng.choice(["NA", "DE", "FR"], 900), "ward": rng.choice(["calm", "wild"], 900)})
    mean = frame["country"].map({"NA": 1.0, "DE": 4.0, "FR": 12.0}) * np.where(
        frame["ward"] == "wild", rng.gamma(0.5, 2.0, 900), 1.0
    )
    return frame.assign(visits=rng.poisson(mean))


@pytest.mark.filterwarnings("ignore:The counts are over-dispersed")
@pytest.mark.parametrize("extension", ["csv", "parquet"])
def test_levels_and_groups_of_intervals_are_those_of_python(run_ddpn, wards, extension, files):
    X, y = wards[["country", "ward"]], wards["visits"]
    model = CountGLM(likelihood="poisson").fit(X[:400], y[:400])
    model.fit_intervals(X[400:], y[400:], groups="ward", group_rows=0).save("wards.model")
    table = pl.from_pandas(wards)
    table.write_csv("wards.csv") if extension == "csv" else table.write_parquet("wards.parquet")
    result = run_ddpn("predict", "wards.model", f"wards.{extension}", "-o", "o.parquet")
    assert result.exit_code == 0, result.output
    predicted = pl.read_parquet("o.parquet")
    np.testing.assert_allclose(predicted["mean"], model.predict(X), rtol=1e-9)
    assert predicted.select("lower", "upper").to_numpy().tolist() == model.predict_interval(X).tolist()
    scored = run_ddpn("evaluate", "wards.model", f"wards.{extension}", "--target", "visits", "--json")
    entry = next(entry for entry in json.loads(scored.stdout)["entries"] if entry["name"] == "mixture")
    assert entry["width"] == pytest.approx(np.diff(model.predict_interval(X)).mean())
    table.drop("ward").write_csv("short.csv")
    assert "ward" in get_error(run_ddpn("predict", "wards.model", "short.csv", "-o", "p.csv"))
