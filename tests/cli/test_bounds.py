"""Test bounds and censored counts on the command line: fit, predict, evaluate, show and report, and what is refused."""

import re

import numpy as np
import polars as pl
import pytest
import torch
from typer.testing import CliRunner

from ddpn.cli import app
from ddpn.predictor import Predictor

ROWS = 260
SMALL = ["--epochs", "1", "--networks", "1", "--compare-with", "constant", "--likelihood", "poisson"]
CONFIG = 'hidden = [8]\nnumeric = "standard"\ndevice = "cpu"\n'


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A ward's occupied beds of those there are, and visits that are recorded up to "6 or more"."""
    folder = tmp_path_factory.mktemp("bounds")
    rng = np.random.default_rng(4)
    severity, beds = rng.normal(size=ROWS), rng.integers(2, 9, ROWS)
    patients = rng.binomial(beds, 1 / (1 + np.exp(-severity)))
    visits = np.clip(rng.poisson(np.exp(1 + 0.4 * severity)), 1, 9)
    columns = {"severity": severity, "ward": rng.choice(["A", "B"], ROWS), "beds": beds, "patients": patients}
    pl.DataFrame(columns).write_csv(folder / "beds.csv")
    columns = {"severity": severity, "visits": np.minimum(visits, 6), "more": np.where(visits >= 6, "yes", "no")}
    pl.DataFrame(columns).write_csv(folder / "visits.csv")
    (folder / "small.toml").write_text(CONFIG)
    return folder


@pytest.fixture(scope="module")
def run_successfully(folder):
    """Run a command that should succeed."""

    def run_command(*arguments: str) -> str:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            patch.setenv("COLUMNS", "200")
            result = CliRunner().invoke(app, list(arguments))
        assert result.exit_code == 0, result.output
        return result.stdout

    return run_command


@pytest.fixture(scope="module")
def model_of_beds(run_successfully) -> str:
    """A model of occupied beds, at most as many as the column says."""
    fit = ["fit", "beds.csv", "--target", "patients", "--upper-column", "beds", "--config", "small.toml"]
    run_successfully(*fit, *SMALL, "-o", "beds.model")
    return "beds.model"


@pytest.fixture(scope="module")
def model_of_visits(run_successfully) -> str:
    """A model of 1 to 9 visits, of which 6 stands for 6 or more."""
    bounds = ["--lower", "1", "--upper", "9", "--censored-above", "6", "--drop", "more"]
    run_successfully(
        "fit", "visits.csv", "--target", "visits", *bounds, "--config", "small.toml", *SMALL, "-o", "visits.model"
    )
    return "visits.model"


def test_predictions_stay_below_the_column(run_successfully, folder, model_of_beds):
    words = "--pmf 9 --coverage 0.99 --keep --quantiles 0.999"
    run_successfully("predict", model_of_beds, "beds.csv", "-o", "p.csv", *words.split())
    table = pl.read_csv(folder / "p.csv")
    for name in ("mean", "median", "mode", "upper", "q0.999"):
        assert (table[name] <= table["beds"]).all(), name
    for count in range(10):
        beyond = table.filter(pl.col("beds") < count)
        assert (beyond[f"p{count}"] == 0.0).all()
    np.testing.assert_allclose(table.select(pl.sum_horizontal(f"p{k}" for k in range(10))).to_series(), 1.0, rtol=1e-6)


def test_the_column_of_bounds_is_shown_and_needed(run_successfully, folder, model_of_beds):
    assert re.search(r"Possible counts +0 to the column beds", run_successfully("show", model_of_beds))
    assert "Scores on 52 test rows" in run_successfully("evaluate", model_of_beds, "beds.csv")
    pl.read_csv(folder / "beds.csv").drop("beds").write_csv(folder / "without.csv")
    result = CliRunner().invoke(app, ["predict", str(folder / model_of_beds), str(folder / "without.csv"), "-o", "-"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert "Error: No column named 'beds'" in result.stderr


def test_totals_are_upper_bounds_from_fit_to_report(run_successfully, folder):
    fit = ["fit", "beds.csv", "--target", "patients", "--upper-column", "beds", "--config", "small.toml"]
    run_successfully(*fit, *SMALL[:-1], "double_binomial", "-o", "totals.model")
    run_successfully("predict", "totals.model", "beds.csv", "-o", "totals.csv")
    table = pl.read_csv(folder / "beds.csv")["beds"], pl.read_csv(folder / "totals.csv")["upper"]
    assert (table[1] <= table[0]).all()
    run_successfully("report", "totals.model", "beds.csv", "-o", "totals.html")
    assert "Exposure" not in (folder / "totals.html").read_text(encoding="utf-8")


def test_no_mass_lies_outside_of_bounds(run_successfully, folder, model_of_visits):
    run_successfully("predict", model_of_visits, "visits.csv", "-o", "q.csv", "--pmf", "10")
    table = pl.read_csv(folder / "q.csv")
    assert (table["p0"] == 0.0).all()
    assert (table["p10"] == 0.0).all()
    assert (table["p7"] > 0.0).all()  # of the counts themselves, not of what is recorded
    assert table["lower"].min() >= 1
    assert table["upper"].max() <= 9
    assert "Scores on 52 test rows" in run_successfully("evaluate", model_of_visits, "visits.csv")
    shown = run_successfully("show", model_of_visits)
    assert re.search(r"Possible counts +1 to 9", shown)
    assert re.search(r"Censored +counts of 6 or more", shown)


def test_a_column_of_flags_may_do_what_a_limit_does(run_successfully, folder, model_of_visits):
    """Counts of 6 are flagged, and others are not: the two models have the same GLM."""
    fit = ["fit", "visits.csv", "--target", "visits", "--lower", "1", "--upper", "9", "--censored", "more"]
    run_successfully(*fit, "--config", "small.toml", *SMALL, "-o", "flags.model")
    assert re.search(r"Censored +by the column more", run_successfully("show", "flags.model"))
    means = []
    for path in (model_of_visits, "flags.model"):
        predictor = Predictor.load(folder / path)
        means.append(predictor.distribution(pl.DataFrame({"severity": [-1.0, 0.0, 2.0]}), member="glm").mean)
    torch.testing.assert_close(means[0], means[1], rtol=1e-4, atol=0.0)
