"""Test fits: calibrated on validation rows, scored on test rows, and continued after an interruption."""

import errno
import re
import signal
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from ddpn.analysis.leaderboard import leaderboard
from ddpn.calibration.calibrate import PRIOR_ROWS
from ddpn.calibration.intervals import IntervalLevels, score_blocks
from ddpn.members.folds import get_fold_copies
from ddpn.members.glm import PoissonGLM
from ddpn.networks.heads import PoissonHead
from ddpn.predictor import MIXTURE
from ddpn.runtime.errors import InputError
from ddpn.tables.row_draw import draw_sample
from ddpn.workflow import fitting, preparing
from ddpn.workflow.fitting import fit, fit_into
from ddpn.workflow.model_folder import CHECKPOINT, load
from ddpn.workflow.preparing import compute_identity, prepare

#: Batches of 70 in 210 training rows.
STEPS = 3


def test_the_task_has_all_about_the_fit(patients_fit, patients):
    task = patients_fit.folder.task
    assert task["identity"] == compute_identity(patients)
    assert task["split"] == {
        "how": "at random by seed 0",
        "meaning": "",
        "rows": {"train": 210, "validation": 30, "test": 60},
    }
    assert (task["data"], task["command"], task["interrupted"]) == ("patients.csv", "ddpn fit", False)
    assert (task["leaks"], task["warnings"]) == ([], list(patients.warnings))
    assert set(task["versions"]) == {"python", "ddpn", "torch", "scikit-learn", "numpy", "polars"}
    assert patients_fit.folder.model.history_.epochs[0]["score"], "validation rows were not used"


def test_the_leaderboard_is_that_of_the_test_rows(patients_fit, patients):
    task, predictor = patients_fit.folder.task["scores"], patients_fit.folder.model.predictor_
    assert task == leaderboard(predictor, patients.test).to_dict()
    weights = {entry["name"]: entry["weight"] for entry in task["entries"]}
    assert weights == {MIXTURE: None, **predictor.weights}
    assert weights["networks"] + weights["glm"] == pytest.approx(1.0)
    assert (weights["constant"], weights["poisson_glm"]) == (0.0, 0.0)
    assert all(entry["seconds"] > 0 for entry in task["entries"])


# Calibration ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [MIXTURE, "networks", "glm", "constant", "poisson_glm"])
def test_intervals_of_every_member_are_calibrated_on_validation_rows(patients_fit, patients, name):
    predictor = patients_fit.folder.model.predictor_
    # In the order of the parts that they are divided into: each row has quantiles of its own.
    rows = predictor.predict_held_out(patients.validation, patients.plan.seed).rows
    levels = predictor.calibration.intervals[name]
    assert levels.rows.tolist() == [30]
    dist = predictor.distribution(rows.X, rows.exposure, member=name)
    scores = score_blocks([(slice(None), dist)], rows.y)
    assert levels.at(0.9) == IntervalLevels.from_scores(scores, rows.weight, PRIOR_ROWS).at(0.9)


def change_test_rows(table, prepared):
    """Return the table with other values in its test rows."""
    rows = np.zeros(table.height, dtype=bool)
    rows[prepared.split.rows.test] = True
    return table.with_columns(
        severity=pl.when(pl.Series(rows)).then(40.0).otherwise(pl.col("severity")),
        visits=pl.when(pl.Series(rows)).then(500).otherwise(pl.col("visits")),
    )


def has_same_calibration(one, other):
    assert one.weights == other.weights
    assert one.calibration.ood.scores.tolist() == other.calibration.ood.scores.tolist()
    for name, levels in one.calibration.intervals.items():
        assert all((new == old).all() for new, old in zip(other.calibration.intervals[name], levels, strict=True)), name
    return True


def test_test_rows_touch_neither_calibration_nor_weights(patients_fit, patients, table):
    changed = fit(prepare(change_test_rows(table, patients), patients.plan), {}).folder.model.predictor_
    usual = patients_fit.folder.model.predictor_
    assert has_same_calibration(usual, changed)
    assert len(usual.calibration.ood.scores) == 30


# Members -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "members"),
    [
        ({"model": {"likelihood": "poisson", "mix_with": ("constant",)}}, ["networks", "constant", "poisson_glm"]),
        ({"model": {"likelihood": "gaussian"}, "compare_with": ("constant",)}, ["networks", "constant"]),
    ],
    ids=["counts, mixed with a constant", "Normals, which have no GLM of counts"],
)
def test_a_plan_decides_which_members_are_fitted(table, plan, options, members):
    options["model"] |= {"n_networks": 1, "epochs": 1}
    steps = []
    folder = fit(prepare(table, plan(**options)), {}, on_step=steps.append).folder
    assert list(folder.model.predictor_.members) == members
    assert folder.model.head_.name == options["model"]["likelihood"]
    crps = {entry["name"]: entry["crps"] for entry in folder.task["scores"]["entries"]}
    assert 0 < crps[MIXTURE] < table["visits"].mean()
    assert steps[0] == "Training"
    assert steps[1] == "Fitting networks"
    assert any(step.startswith("Fitting for comparison: ") for step in steps)
    assert steps[-1] == "Scoring the test rows"


def test_a_comparison_that_is_not_applicable_is_left_out_with_a_warning(table, plan):
    model = {"likelihood": "faithful_gaussian", "n_networks": 1, "epochs": 1}
    with pytest.warns(UserWarning, match=r"Not compared with GLM: .*no exact GLM"):
        fitted = fit(prepare(table, plan(compare_with=("glm",), model=model)), {})
    assert list(fitted.folder.model.predictor_.members) == ["networks"]
    assert fitted.folder.task["warnings"][-1].startswith("Not compared with GLM: "), "the warning stays with the model"


# Verdicts of whole fits ----------------------------------------------------------------------------------------------

X = np.random.default_rng(0).normal(size=(320, 2))
COUNTS = {
    "noise": np.random.default_rng(1).poisson(3.0, 320),
    "equal": np.full(320, 5),
    "an outlier": np.where(np.arange(320) == 11, 10**12, np.random.default_rng(2).poisson(np.exp(1 + X[:, 0]))),
}


@pytest.mark.parametrize("kind", COUNTS)
def test_where_nothing_can_be_predicted_no_verdict_is_positive(plan, kind):
    frame = pl.DataFrame({"a": X[:, 0], "b": X[:, 1], "visits": COUNTS[kind]})
    options = {"exposure": None, "weight": None, "compare_with": ("constant",)}
    small = plan(**options, model={"n_networks": 1, "epochs": 2, "mix_with": (), "likelihood": "mixed"})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        task = fit(prepare(frame, small), {}).folder.task
    assert any("depend on such rare rows" in str(warning.message) for warning in caught) == (kind == "an outlier")
    assert any("depend on such rare rows" in warning for warning in task["warnings"]) == (kind == "an outlier")
    verdict = task["scores"]["verdict"]
    assert verdict["level"] != "better", verdict
    assert (kind == "equal") == (verdict["sentences"][0].startswith("All 64 test rows have the count 5"))


def test_rows_that_are_scored_in_short_time_are_drawn_as_those_of_every_command(table, plan, monkeypatch):
    rows = table.with_columns(part=pl.Series((["train"] * 7 + ["validation"] + ["test"] * 2) * 30))
    labels = lambda predictor, test, *_, total: SimpleNamespace(
        rows=len(test), to_dict=lambda: {"rows": test.labels.tolist(), "of": total}
    )
    monkeypatch.setattr(fitting, "leaderboard", labels)
    monkeypatch.setattr(fitting, "run_with_rows", lambda clock, number, work: work(10))

    def list_scored_rows(seed: int) -> tuple[list[int], list[int]]:
        prepared = prepare(
            rows, plan(seed=seed, split_column="part", compare_with=(), model={"n_networks": 1, "epochs": 1})
        )
        with pytest.warns(UserWarning, match="scored on 10 of 60 test rows"):
            task = fit(prepared, {}).folder.task
        assert task["warnings"][-1].startswith("The model is scored on 10"), "the warning stays with the model"
        assert task["scores"]["of"] == 60
        return task["scores"]["rows"], prepared.test.labels[draw_sample(prepared.test, 10).positions].tolist()

    chosen, drawn = list_scored_rows(0)
    assert chosen == drawn == list_scored_rows(1)[0], "the seed of the fit does not change which rows are looked at"


# Interruption --------------------------------------------------------------------------------------------------------


@pytest.fixture
def training_steps(monkeypatch):
    """The training steps of networks; `stop_at` a step raises KeyboardInterrupt, as Ctrl-C does."""
    usual = PoissonHead.loss

    class Steps:
        taken, stop_at = 0, None

    def count_step(head, raw, *options):
        if raw.dim() == 3:  # rows, networks, raw outputs
            if Steps.taken == Steps.stop_at:
                raise KeyboardInterrupt
            Steps.taken += 1
        return usual(head, raw, *options)

    monkeypatch.setattr(PoissonHead, "loss", count_step)
    return Steps


def test_an_interrupted_fit_is_saved_and_continues_to_the_same_model(patients_without_mixing, tmp_path, training_steps):
    whole = fit_into(tmp_path / "whole", patients_without_mixing, {})
    assert training_steps.taken == 3 * STEPS
    training_steps.taken, training_steps.stop_at = 0, 2 * STEPS + 1
    first = fit_into(tmp_path / "model", patients_without_mixing, {})
    assert (first.interrupted, first.can_continue) == (True, True)
    saved = load(tmp_path / "model")
    assert saved.task["interrupted"]
    assert len(saved.model.history_.epochs) == 2
    assert (tmp_path / "model" / CHECKPOINT).is_file()
    assert {path.name for path in tmp_path.iterdir()} == {"whole", "model"}
    training_steps.taken, training_steps.stop_at = 0, None
    second = fit_into(tmp_path / "model", patients_without_mixing, {}, overwrite=True)
    assert training_steps.taken == STEPS, "it did not continue at the last epoch"
    X, exposure = patients_without_mixing.test.X, patients_without_mixing.test.exposure
    assert (second.folder.model.predict(X, exposure) == whole.folder.model.predict(X, exposure)).all()
    assert (second.interrupted, second.can_continue) == (False, False)
    assert {path.name for path in tmp_path.iterdir()} == {"whole", "model"}
    assert not (tmp_path / "model" / CHECKPOINT).exists()


def test_interrupted_before_the_first_epoch_nothing_is_left(patients_without_mixing, tmp_path, training_steps):
    training_steps.stop_at = 1
    with pytest.raises(KeyboardInterrupt):
        fit_into(tmp_path / "model", patients_without_mixing, {})
    assert list(tmp_path.iterdir()) == []


def test_interrupted_while_comparisons_are_fitted_the_model_is_saved(table, plan, tmp_path, monkeypatch):
    def interrupt(train, validation, seed, clock):
        raise KeyboardInterrupt

    monkeypatch.setattr(PoissonGLM, "fit", interrupt)
    prepared = prepare(table, plan(compare_with=("constant", "poisson_glm", "glm"), model={"mix_with": ()}))
    fitted = fit_into(tmp_path / "model", prepared, {})
    assert fitted.interrupted
    again = load(tmp_path / "model")
    assert again.task["interrupted"]
    assert list(again.model.predictor_.members) == ["networks", "constant"]


@pytest.mark.parametrize("step", ["calibration", "scores"])
def test_interrupted_after_the_training_networks_are_not_trained_again(
    patients_without_mixing, tmp_path, training_steps, monkeypatch, step
):
    whole = fit_into(tmp_path / "whole", patients_without_mixing, {})
    with monkeypatch.context() as patch:
        name = {"calibration": "pipeline.calibrate", "scores": "workflow.fitting.leaderboard"}[step]
        patch.setattr(f"ddpn.{name}", lambda *_, **__: signal.raise_signal(signal.SIGINT))
        with pytest.warns(UserWarning, match="because the fit was stopped"):
            first = fit_into(tmp_path / "model", patients_without_mixing, {})
    assert (first.interrupted, first.can_continue) == (True, True)
    assert first.missing == (["calibration", "scores"] if step == "calibration" else ["scores"])
    kept = load(tmp_path / "model").model.predictor_
    assert (kept.calibration.intervals == {}, kept.calibration.ood is None) == (step == "calibration",) * 2
    training_steps.taken = 0
    second = fit_into(tmp_path / "model", patients_without_mixing, {}, overwrite=True)
    assert training_steps.taken == 0
    assert (second.interrupted, second.missing) == (False, [])
    X, exposure = patients_without_mixing.test.X, patients_without_mixing.test.exposure
    for model in (second.folder.model, load(tmp_path / "model").model):
        low, high = model.predict_interval(X, 0.9, exposure).T
        expected = whole.folder.model.predict_interval(X, 0.9, exposure).T
        assert (low == expected[0]).all()
        assert (high == expected[1]).all()
    crps = [[entry["crps"] for entry in fitted.folder.task["scores"]["entries"]] for fitted in (second, whole)]
    assert crps[0] == crps[1]


# Where the model goes ------------------------------------------------------------------------------------------------


@pytest.fixture
def instant_fit(patients_fit, monkeypatch):
    """A fit that takes no time."""
    monkeypatch.setattr(fitting, "fit", lambda *_, **__: patients_fit)


@pytest.mark.parametrize("places", [1, 2, 3], ids=["the folder", "and the cache", "and all others"])
def test_a_model_that_cannot_be_saved_is_kept_elsewhere(instant_fit, patients, tmp_path, monkeypatch, places):
    folders = [tmp_path / name for name in ("work", "cache", "temporary")]
    monkeypatch.setenv("XDG_CACHE_HOME", str(folders[1]))
    monkeypatch.setattr("tempfile.tempdir", str(folders[2]))
    write, full = Path.write_bytes, folders[:places]

    def write_or_fail(path: Path, content: bytes) -> int:
        if path.name == "task.json" and any(folder in path.parents for folder in full):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, content)

    monkeypatch.setattr(Path, "write_bytes", write_or_fail)
    with pytest.raises(InputError, match=r"cannot be saved in .*work/model: No space left on device") as error:
        fit_into(tmp_path / "work" / "model", patients, {})
    assert list((tmp_path / "work").iterdir()) == []
    if places == 3:
        assert "so the model is lost" in str(error.value)
        return
    kept = Path(re.search(r"saved in (\S+) instead\. Use it there, or move", str(error.value))[1])
    assert folders[places] in kept.parents
    X, exposure = patients.test.X, patients.test.exposure
    assert load(kept).model.predict(X, exposure).shape == (len(patients.test),)


def test_checkpoints_of_other_folders_are_left_alone(instant_fit, patients, tmp_path):
    other = tmp_path / f".model.v2.{'0' * 16}.checkpoint"
    other.touch()
    fit_into(tmp_path / "model", patients, {})
    assert other.exists()


# Cross-fitting -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "most", "expected"),
    [
        ({}, 300, True),
        ({"test_size": 0.2}, 240, True),
        ({"test_size": 0.2}, 239, False),
        ({"time": "admitted"}, 240, False),
        ({"model": {"n_networks": 2}}, 240, False),
        ({"shares": (0.8, 0.0, 0.2)}, 100, True),
    ],
    ids=["all rows", "few rows and test rows", "more rows", "by time", "a number of networks", "no validation rows"],
)
def test_members_are_cross_fitted_where_validation_rows_are_few_and_like_the_others(
    table, plan, monkeypatch, options, most, expected
):
    monkeypatch.setattr(preparing, "SMALL_TABLE_ROWS", most)
    made = plan(**({"model": {"n_networks": "auto"}} | options))
    assert prepare(table, made).is_cross_fitted is expected


def test_cross_fitted_members_use_all_rows_but_those_of_the_test(table, plan):
    prepared = prepare(table, plan(only="glm", compare_with=("constant",), test_size=0.2, model={"n_networks": "auto"}))
    predictor = fit(prepared, {}).folder.model.predictor_
    assert {name: len(get_fold_copies(member)) for name, member in predictor.members.items()} == {
        "glm": 5,
        "constant": 5,
    }
    for name in (MIXTURE, "glm", "constant"):
        assert predictor.calibration.intervals[name].rows.tolist() == [240], name
    changed = fit(prepare(change_test_rows(table, prepared), prepared.plan), {}).folder.model.predictor_
    assert has_same_calibration(predictor, changed)
