"""Test recalibration and groups of intervals from a table to predictions, a saved folder and a report."""

from copy import copy
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from ddpn.analysis.report import write_report
from ddpn.analysis.row_scores import score_rows
from ddpn.distributions import Recalibrated
from ddpn.prediction.spec import PredictionSpec
from ddpn.runtime.errors import InputError
from ddpn.workflow.config import FitConfig
from ddpn.workflow.examining import collect_report_arguments
from ddpn.workflow.fitting import fit
from ddpn.workflow.model_folder import SavedModel, load
from ddpn.workflow.prediction import predict
from ddpn.workflow.preparing import prepare


def simulate_half_zeros(rows: int, seed: int) -> pl.DataFrame:
    """Simulate counts half of which are 0, which a Poisson cannot express."""
    rng = np.random.default_rng(seed)
    x, shop = rng.normal(size=rows), rng.choice(["a", "b"], rows)
    return pl.DataFrame({"x": x, "shop": shop, "y": (rng.random(rows) < 0.5) * rng.poisson(np.exp(1.5 + 0.3 * x))})


TABLE = simulate_half_zeros(1200, seed=5)


OPTIONS = {
    "likelihood": "poisson", "n_networks": 1, "hidden": (4,), "numeric": "standard", "epochs": 5, "device": "cpu",
}  # fmt: skip
PLAN = FitConfig(target="y", drop=("shop",), interval_groups="shop", compare_with=("constant",), **OPTIONS)


@pytest.fixture(scope="module")
def folder():
    return fit(prepare(TABLE, PLAN), {}).folder


def test_a_poisson_of_many_zeros_is_recalibrated_before_its_intervals(folder):
    predictor = folder.model.predictor_
    assert predictor.calibration.recalibration.is_used
    assert predictor.calibration.groups.rows.keys() == {"a", "b"}
    rows = predictor.distribution(TABLE.select("x"))
    assert isinstance(rows, Recalibrated)
    entries = {entry["name"]: entry for entry in folder.task["scores"]["entries"]}
    assert entries["mixture"]["coverage"] == pytest.approx(0.9, abs=0.06)
    assert predictor.calibration.is_recalibrated("networks"), (
        "members are compared with the mixture after the same treatment"
    )


def test_recalibrated_distributions_of_fresh_rows_are_better(folder):
    fresh = prepare(simulate_half_zeros(4000, seed=6), PLAN).test
    plain = copy(folder.model.predictor_)
    plain.calibration = replace(plain.calibration, recalibrations={})
    for name in ("mixture", "networks"):
        before, after = (
            score_rows(predictor, fresh, name).crps.mean() for predictor in (plain, folder.model.predictor_)
        )
        assert after < 0.97 * before, name


def test_a_saved_folder_predicts_the_same_and_reports_groups_that_are_unknown(folder, tmp_path):
    new, findings = TABLE.head(40).with_columns(shop=pl.Series(["c"] * 3 + ["a"] * 37)), []
    whole = predict(folder, new, PredictionSpec())
    folder.save(tmp_path / "model")
    again = predict(load(tmp_path / "model", mixed_only=True), new, PredictionSpec(), on_finding=findings.append)
    assert again.equals(whole)
    assert findings[0].startswith("3 of 40 rows have a shop that no calibration row has ('c')")
    about = SavedModel(tmp_path / "model").describe()
    assert (about["recalibration"]["is_used"], about["groups"]["by"]) == (True, "shop")
    with pytest.raises(InputError, match=r"No column named 'shop'"):
        predict(folder, new.drop("shop"), PredictionSpec())


def test_the_report_has_the_recalibration_and_the_coverage_by_group(folder, tmp_path):
    text = write_report(tmp_path / "report.html", **collect_report_arguments(folder, TABLE)).read_text(encoding="utf-8")
    for words in ("Coverage by shop", "calibrated within these groups", "recalibrated by a monotone map"):
        assert words in text
