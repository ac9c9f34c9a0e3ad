"""A saved model on another table."""

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from ddpn.errors import ConfigError, InputError
from ddpn.workflow import prediction as using
from ddpn.workflow.model_folder import save
from ddpn.workflow.prediction import Wanted, description, evaluate, levels, predict, report_parts, rows_to_judge

COLUMNS = ["mean", "median", "mode", "lower", "upper", "aleatoric", "epistemic", "stddev", "ood_pvalue"]


def test_columns_are_what_the_estimator_says(fitted, prepared, table):
    found = predict(fitted.folder, table, Wanted(coverage=0.8, quantiles=(0.1, 0.75), pmf=2, ood=0.05))
    assert found.columns == [*COLUMNS[:-1], "q0.1", "q0.75", "p0", "p1", "p2", "ood_pvalue", "ood"]
    model, X, exposure = fitted.folder.model, prepared.sample.X, prepared.sample.exposure
    assert found["mean"].to_numpy() == pytest.approx(model.predict(X, exposure))
    assert found["mode"].to_list() == model.predict(X, exposure, "mode").tolist()
    ends = model.predict_interval(X, 0.8, exposure, kind="calibrated")
    assert found.select("lower", "upper").to_numpy().tolist() == ends.tolist()
    assert (
        found.select("q0.1", "q0.75").to_numpy().tolist() == model.predict_quantiles(X, [0.1, 0.75], exposure).tolist()
    )
    assert found.select("p0", "p1", "p2").to_numpy() == pytest.approx(model.predict_proba_of(X, [0, 1, 2], exposure))
    parts = model.predict_uncertainty(X, exposure)
    assert found["epistemic"].to_numpy() == pytest.approx(parts["epistemic"])
    assert found["stddev"].to_numpy() == pytest.approx(np.sqrt(parts["total"]))
    assert found["ood"].to_list() == model.is_ood(X, 0.05, exposure).tolist()


def test_blocks_change_nothing(fitted, table, monkeypatch):
    whole = predict(fitted.folder, table, Wanted())
    monkeypatch.setattr(using, "BLOCK", 70)
    done = []
    parts = predict(fitted.folder, table, Wanted(), done.append)
    assert_frame_equal(parts, whole, rel_tol=1e-9)
    assert done == [70, 140, 210, 280, 300]


def test_kept_columns_come_first_and_keep_their_names(fitted, table):
    found = predict(fitted.folder, table.with_columns(mean=pl.lit("mine")), Wanted(keep=True))
    assert found.columns == [*table.columns, "mean", "predicted_mean", *COLUMNS[1:]]
    assert found["mean"][0] == "mine"


def test_a_table_needs_no_target_and_no_weight(fitted, table):
    assert predict(fitted.folder, table.drop("visits", "weight", "patient"), Wanted()).height == 300


def test_an_exposure_is_needed(fitted, table):
    with pytest.raises(InputError, match="exposure must name a column, got 'days'"):
        predict(fitted.folder, table.drop("days"), Wanted())


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"coverage": 1.5}, r"coverage must lie between 0 and 1, got 1\.5"),
        ({"quantiles": (0.5, 1.0)}, "quantiles must lie between 0 and 1, got 1"),
        ({"pmf": -1}, "pmf must be a count from 0 to 10000, got -1"),
    ],
)
def test_wishes_that_make_no_sense(options, sentence):
    with pytest.raises(ConfigError, match=sentence):
        Wanted(**options)


def test_a_level_of_strangeness_that_few_rows_cannot_tell(fitted, table):
    with pytest.raises(InputError, match="alpha must be at least"):
        predict(fitted.folder, table, Wanted(ood=1e-5))


def test_levels_that_are_no_numbers():
    with pytest.raises(ConfigError, match=r"quantiles must be numbers with commas between, got '0.1;0.5'"):
        levels("0.1;0.5")
    assert levels("") == ()


def test_the_table_of_fit_is_judged_by_its_test_rows(fitted, prepared, table):
    found = evaluate(fitted.folder, table)
    assert found["note"] == "The model was fitted to this table: only its 60 test rows are judged."
    assert {name: found[name] for name in found if name != "note"} == fitted.folder.task["test"]


def test_another_table_is_judged_by_all_rows(fitted, table):
    sample, note = rows_to_judge(fitted.folder, table.head(50))
    assert (len(sample), note) == (50, "")
    unweighted = rows_to_judge(fitted.folder, table.head(50).drop("weight")).sample
    assert unweighted.weight is None


def test_a_table_to_judge_by_needs_the_target_and_a_row_that_counts(fitted, table):
    with pytest.raises(InputError, match="target must name a column, got 'visits'"):
        evaluate(fitted.folder, table.drop("visits"))
    with pytest.raises(InputError, match="must have a row with a weight above 0"):
        evaluate(fitted.folder, table.with_columns(weight=pl.lit(0)))


def test_parts_of_a_report(fitted, table):
    parts = report_parts(fitted.folder, table.head(40))
    assert parts["model"] is fitted.folder.model
    assert parts["task"]["target"] == "visits"
    assert parts["levels"]["a Poisson GLM"] == fitted.folder.levels["poisson_glm"].at(0.9)
    assert parts["y"].shape == parts["exposure"].shape == parts["weight"].shape == (40,)
    assert {name: law.batch_shape[0] for name, law in parts["baselines"].items()} == {
        "a constant law": 40, "a Poisson GLM": 40, "Poisson gradient boosting": 40
    }  # fmt: skip


def test_a_description(fitted, tmp_path):
    save(fitted.folder, tmp_path / "model")
    found = description(tmp_path / "model")
    assert (found["likelihood"], found["members"], found["hidden"], found["epochs"]) == ("double_poisson", 2, [8], 3)
    assert found["task"] == fitted.folder.task
