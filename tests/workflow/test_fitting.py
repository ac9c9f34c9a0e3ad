"""From a table to a judged model, stopped and taken up again."""

import numpy as np
import polars as pl
import pytest
import torch
from ddpn.workflow.intervals import LAW_ROWS

from ddpn.calibration.intervals import Levels, level_expected, level_needed
from ddpn.errors import InputError
from ddpn.training.loop import Training
from ddpn.workflow.fitting import checkpoint_of, fit, fit_into, identity, judge, prepare
from ddpn.workflow.model_folder import CHECKPOINT, load


def test_a_prepared_table(prepared, table):
    assert prepared.counts == {"train": 210, "validation": 30, "test": 60}
    assert prepared.train.y.tolist() == table["visits"].to_numpy()[prepared.divided.rows.train].tolist()
    assert prepared.sample.X.columns == [
        "severity", "ward", "smokes", "age", "admitted day", "admitted month", "admitted weekday"
    ]  # fmt: skip


def test_a_date_in_a_random_split_is_told(prepared, table, plan):
    (told,) = prepared.warnings
    assert told.startswith("column admitted is a date, and rows are split at random")
    assert told.endswith("--time admitted.")
    assert prepare(table, plan(time="admitted")).warnings == ()


def test_rows_of_no_weight_are_left_out_and_told(table, plan):
    some = table.with_columns(weight=pl.Series(np.arange(300) % 3))
    found = prepare(some, plan())
    assert len(found.sample) == 200
    assert found.warnings[0] == "100 rows of weight 0 are left out."
    with pytest.raises(InputError, match="weight 'weight' must be positive in some row, got zeros only"):
        prepare(table.with_columns(weight=pl.lit(0)), plan())


def test_a_target_of_zeros(table, plan):
    with pytest.raises(InputError, match="target 'visits' must be above 0 in some training row, got zeros only"):
        prepare(table.with_columns(visits=pl.lit(0)), plan())


def test_fractions_are_rounded_where_the_plan_says_so(table, plan):
    halves = table.with_columns(visits=pl.col("visits") + 0.25)
    with pytest.raises(InputError, match="got fractions in rows 1, 2"):
        prepare(halves, plan())
    found = prepare(halves, plan(model={"fractional": "round"}))
    assert found.sample.y.tolist() == table["visits"].to_list()


def test_the_task_tells_all(fitted, prepared):
    task = fitted.folder.task
    assert task["split"] == {"how": "at random by seed 0", "rows": {"train": 210, "validation": 30, "test": 60}}
    assert (task["data"], task["command"], task["interrupted"]) == ("patients.csv", "ddpn fit", False)
    assert set(task["test"]["scores"]) == {"ddpn", "constant", "poisson_glm", "poisson_boosting"}
    assert set(task["versions"]) == {"python", "ddpn", "torch", "scikit-learn", "numpy", "polars"}
    assert fitted.folder.model.history_.epochs[0]["score"], "validation rows were not used"


def test_scores_are_weighted_means_on_the_test_rows(fitted, prepared):
    test, model = prepared.test, fitted.folder.model
    found = judge(model, fitted.folder.baselines, fitted.folder.levels, test)["scores"]["ddpn"]
    low, high = model.predict_interval(test.X, 0.9, test.exposure, kind="calibrated").T
    assert found["crps"] == pytest.approx(model.crps(test.X, test.y, test.weight, test.exposure))
    assert found["coverage"] == pytest.approx(np.average((low <= test.y) & (test.y <= high), weights=test.weight))
    assert found["width"] == pytest.approx(np.average(high - low, weights=test.weight))


def test_intervals_are_learnt_from_the_validation_rows(fitted, prepared):
    rows, model = prepared.validation, fitted.folder.model
    low, high = model.predict_interval(rows.X, 0.9, rows.exposure, kind="calibrated").T
    assert model.interval_levels_.rows.tolist() == [len(rows)] == [30]
    assert model.interval_levels_.weight.sum() == pytest.approx(30 + LAW_ROWS)
    law = model.predict_distribution(rows.X, rows.exposure)
    needed, expected = level_needed(law, torch.from_numpy(rows.y)).numpy(), level_expected(law, 30).numpy()
    assert model.interval_level(0.9) == Levels.of(needed, rows.weight, expected, LAW_ROWS).at(0.9)
    assert (np.stack(law.interval(model.interval_level(0.9)), 1) == np.stack([low, high], 1)).all()


def test_usual_rows_are_learnt_from_rows_that_training_did_not_see(fitted, prepared):
    assert len(fitted.folder.model.ood_scores_) == 90


@pytest.mark.parametrize("likelihood", ["poisson", "gaussian"])
def test_laws_on_counts_and_on_the_line(table, plan, likelihood):
    small = {"numeric": "standard", "members": 1, "hidden": (4,), "epochs": 1, "device": "cpu"}
    found = fit(prepare(table, plan(model={**small, "likelihood": likelihood})), {})
    assert found.folder.model.head_.name == likelihood
    assert 0 < found.folder.task["test"]["scores"]["ddpn"]["crps"] < np.abs(table["visits"]).mean()


def test_few_rows_go_without_validation(table, plan):
    found = fit(prepare(table.head(60), plan(exposure=None, weight=None)), {})
    assert found.folder.task["split"]["rows"] == {"train": 48, "validation": 0, "test": 12}
    assert found.folder.model.interval_level(0.9) == 0.9
    assert found.folder.levels == {}


# Stopping and going on -------------------------------------------------------------------------------------------


@pytest.fixture
def stop(monkeypatch):
    """Ctrl-C at the begin of an epoch."""

    def at(epoch: int) -> None:
        run_epoch = Training.run_epoch

        def watched(training: Training) -> str:
            if training.epoch == epoch:
                raise KeyboardInterrupt
            return run_epoch(training)

        monkeypatch.setattr(Training, "run_epoch", watched)

    return at


def test_a_stopped_fit_saves_the_best_so_far_and_goes_on_to_the_same_model(prepared, tmp_path, stop, monkeypatch):
    whole = fit_into(tmp_path / "whole", prepared, {})
    with monkeypatch.context():
        stop(2)
        first = fit_into(tmp_path / "model", prepared, {})
    assert first.interrupted
    assert first.can_go_on
    saved = load(tmp_path / "model")
    assert saved.task["interrupted"]
    assert len(saved.model.history_.epochs) == 2
    assert (tmp_path / "model" / CHECKPOINT).is_file()
    assert {path.name for path in tmp_path.iterdir()} == {"whole", "model"}
    monkeypatch.undo()
    begun = []
    run_epoch = Training.run_epoch
    monkeypatch.setattr(Training, "run_epoch", lambda self: (begun.append(self.epoch), run_epoch(self))[1])
    second = fit_into(tmp_path / "model", prepared, {}, overwrite=True)
    assert begun == [2]
    X, exposure = prepared.test.X, prepared.test.exposure
    assert (second.folder.model.predict(X, exposure) == whole.folder.model.predict(X, exposure)).all()
    assert {path.name for path in tmp_path.iterdir()} == {"whole", "model"}
    assert not (tmp_path / "model" / CHECKPOINT).exists()


def test_stopped_before_the_first_epoch_nothing_is_left(prepared, tmp_path, stop):
    stop(0)
    with pytest.raises(KeyboardInterrupt):
        fit_into(tmp_path / "model", prepared, {})
    assert list(tmp_path.iterdir()) == []


def test_stopped_while_encodings_are_tried_the_trial_is_saved(table, plan, tmp_path, stop):
    stop(2)
    model = {"members": 3, "hidden": (4,), "epochs": 20, "device": "cpu"}
    found = fit_into(tmp_path / "model", prepare(table, plan(model=model)), {})
    assert (found.interrupted, found.can_go_on) == (True, False)
    assert load(tmp_path / "model").model.model_.members == 2


def test_another_fit_does_not_go_on(prepared, table, plan, tmp_path, stop, monkeypatch):
    stop(2)
    fit_into(tmp_path / "model", prepared, {})
    other = prepare(table, plan(seed=1))
    assert identity(other) != identity(prepared)
    assert not checkpoint_of(tmp_path / "model", other).exists()
    assert checkpoint_of(tmp_path / "model", prepared).exists()


def test_a_place_that_is_taken_is_told_before_the_work(prepared, tmp_path):
    (tmp_path / "model").mkdir()
    with pytest.raises(InputError, match="output must be free"):
        fit_into(tmp_path / "model", prepared, {})
