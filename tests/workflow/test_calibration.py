"""Recalibration and groups of intervals from a table to predictions, a saved folder and a report."""

import numpy as np
import polars as pl
import pytest

from ddpn.distributions import Recalibrated
from ddpn.errors import ConfigError, InputError
from ddpn.report import write_report
from ddpn.workflow.fitting import fit
from ddpn.workflow.model_folder import describe, load
from ddpn.workflow.plan import Plan, plan_of
from ddpn.workflow.prediction import predict, report_parts
from ddpn.workflow.preparing import prepare
from ddpn.workflow.requests import Request

RNG = np.random.default_rng(5)
X = RNG.normal(size=1200)
SHOP = RNG.choice(["a", "b"], 1200)
#: Half of the counts are 0, which a Poisson cannot express.
TABLE = pl.DataFrame({"x": X, "shop": SHOP, "y": (RNG.random(1200) < 0.5) * RNG.poisson(np.exp(1.5 + 0.3 * X))})


@pytest.fixture(scope="module")
def folder():
    options = {
        "likelihood": "poisson",
        "members": 1,
        "hidden": (4,),
        "numeric": "standard",
        "epochs": 5,
        "device": "cpu",
    }
    plan = Plan(target="y", drop=("shop",), interval_groups="shop", compare_with=("constant",), model=options)
    return fit(prepare(TABLE, plan), {}).folder


def test_a_poisson_of_many_zeros_is_recalibrated_before_its_intervals(folder):
    predictor = folder.model.predictor_
    assert predictor.recalibration.is_used
    assert predictor.groups.rows.keys() == {"a", "b"}
    rows = predictor.distribution(TABLE.select("x"))
    assert isinstance(rows, Recalibrated)
    entries = {entry["name"]: entry for entry in folder.task["test"]["entries"]}
    assert entries["mixture"]["crps"] < 0.97 * entries["networks"]["crps"]
    assert entries["mixture"]["coverage"] == pytest.approx(0.9, abs=0.06)


def test_a_saved_folder_predicts_the_same_and_reports_groups_that_are_unknown(folder, tmp_path):
    new, found = TABLE.head(40).with_columns(shop=pl.Series(["c"] * 3 + ["a"] * 37)), []
    whole = predict(folder, new, Request())
    folder.save(tmp_path / "model")
    again = predict(load(tmp_path / "model", mixed_only=True), new, Request(), on_finding=found.append)
    assert again.equals(whole)
    assert found[0].startswith("3 of 40 rows have a shop that the calibration rows did not have ('c')")
    about = describe(tmp_path / "model")
    assert (about["recalibration"]["is_used"], about["groups"]["by"]) == (True, "shop")
    with pytest.raises(InputError, match=r"No column named 'shop'"):
        predict(folder, new.drop("shop"), Request())


def test_the_report_has_the_pit_before_and_after_and_the_coverage_by_group(folder, tmp_path):
    text = write_report(tmp_path / "report.html", **report_parts(folder, TABLE)).read_text(encoding="utf-8")
    for words in ("PIT histogram before recalibration", "Coverage by shop", "recalibrated by a monotone map"):
        assert words in text


def test_wrong_settings_are_reported():
    assert plan_of({"target": "y", "interval_groups": "5"}).interval_groups == 5
    for given, words in (
        ({"recalibrate": "on"}, "recalibrate must be 'auto' or 'off'"),
        ({"interval_groups": "y"}, "must not be the target"),
        ({"interval_groups": "1"}, "a number of at least 2 ranges"),
    ):
        with pytest.raises(ConfigError, match=words):
            plan_of({"target": "y", **given})
    with pytest.raises(InputError, match="No column named 'shp'"):
        prepare(TABLE, Plan(target="y", interval_groups="shp"))
