"""Test one pipeline: what `CountRegressor.fit` and `ddpn fit` do alike, in which order, and what Ctrl-C leaves."""

import numpy as np
import polars as pl
import pytest

import ddpn.pipeline as module
from ddpn.estimators import CountRegressor
from ddpn.members import MEMBERS
from ddpn.members.constant import Constant
from ddpn.members.folds import Folds
from ddpn.members.glm import PoissonGLM
from ddpn.members.member import MemberSpec, Task
from ddpn.networks.heads import make_head
from ddpn.networks.training import batches
from ddpn.pipeline import FitPlan, PipelineOptions, fit_pipeline
from ddpn.rows import count_rows
from ddpn.rows.count_range import CountRange
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.deadlines import NO_LIMIT, Clock
from ddpn.runtime.time_plan import STEPS, Schedule
from ddpn.workflow.config import FitConfig
from ddpn.workflow.fitting import fit
from ddpn.workflow.preparing import prepare

HEAD = make_head("poisson")


@pytest.fixture(scope="module")
def rows() -> CountRows:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 2))
    return CountRows(X, rng.poisson(np.exp(1.0 + 0.5 * X[:, 0])).astype(float))


def run_pipeline(rows: CountRows, clock: Clock = NO_LIMIT, steps: tuple[str, ...] = tuple(STEPS), **options):
    """Fit a Poisson GLM by the whole pipeline, and a constant for comparison."""
    plan = FitPlan(Folds.from_rows(rows, None, 0), [MemberSpec("poisson_glm", PoissonGLM, {"head": HEAD})], 0)
    lines: list[str] = []
    chosen = PipelineOptions(**{"compare_with": ["constant"]} | options)
    return fit_pipeline(plan, HEAD, CountRange(), chosen, Schedule(clock, lines.append, steps=steps)), lines


def test_members_comparisons_and_calibration_come_one_after_the_other(rows):
    fitted, lines = run_pipeline(rows)
    assert [line.split(":")[0] for line in lines] == [
        "Fitting Poisson GLM",
        "Fitting for comparison",
        "Calibrating on rows that were not trained on",
    ]
    assert fitted.predictor.weights == {"poisson_glm": 1.0, "constant": 0.0}
    assert len(fitted.held_out) == len(rows)
    assert (fitted.missing, fitted.notes, fitted.left_out) == ([], [], {})


def test_steps_that_are_not_asked_for_are_not_done(rows, monkeypatch):
    monkeypatch.setattr(module, "calibrate", lambda *_: pytest.fail("it was calibrated"))
    fitted, lines = run_pipeline(rows, steps=("members",))
    assert (list(fitted.predictor.members), lines) == (["poisson_glm"], ["Fitting Poisson GLM"])
    assert fitted.held_out is None
    uncalibrated, _ = run_pipeline(rows, calibration=None)
    assert uncalibrated.predictor.calibration.profile is not None


@pytest.mark.parametrize(
    ("step", "missing"), [("comparisons", ["comparisons"]), ("calibration", ["calibration"])], ids=["fit", "calibrate"]
)
def test_ctrl_c_in_a_step_keeps_what_was_fitted(rows, monkeypatch, step, missing):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    if step == "comparisons":
        monkeypatch.setattr(Constant, "fit", interrupt)
    else:
        monkeypatch.setattr(module, "calibrate", interrupt)
    fitted, _ = run_pipeline(rows)
    assert fitted.missing == missing
    assert fitted.predictor.weights["poisson_glm"] == 1.0
    assert (fitted.held_out is None) == (step == "calibration")
    assert [note for note in fitted.notes if "not calibrated" in note] == (
        ["The model is not calibrated, because the fit was stopped."] if step == "calibration" else []
    )


def test_without_time_comparisons_are_named_instead_of_fitted(rows, monkeypatch):
    monkeypatch.setattr(module, "MIN_SECONDS_TO_COMPARE", 1000.0)
    fitted, _ = run_pipeline(rows, Clock(600.0))
    assert "Not compared with constant distribution, because the time budget ran out." in fitted.notes
    assert "constant" not in fitted.predictor.members


def test_the_estimator_and_the_command_fit_the_same_model(rows):
    """With the same rows and seed, members, their weights and intervals agree to the last digit."""
    x = pl.DataFrame(rows.X, schema=["a", "b"])
    config = FitConfig(target="y", only="glm", likelihood="poisson", compare_with=(), seed=3)
    folder = fit(prepare(x.with_columns(y=rows.y.astype(int)), config), {}).folder
    model = CountRegressor(members=("glm",), likelihood="poisson", random_state=3).fit(x, rows.y)
    assert folder.model.predictor_.weights == model.predictor_.weights
    for coverage in (0.5, 0.9):
        by_command, by_estimator = (one.predict_interval(x, coverage) for one in (folder.model, model))
        np.testing.assert_array_equal(by_command, by_estimator)


def test_options_of_every_member_are_chosen_once(rows, monkeypatch):
    made: list[str] = []
    for name in ("constant", "glm", "poisson_glm"):
        kind = MEMBERS[name]

        def choose_options(cls, task: Task, name: str = name, original=kind.choose_options.__func__):
            made.append(name)
            return original(cls, task)

        monkeypatch.setattr(kind, "choose_options", classmethod(choose_options))
    CountRegressor(members=("constant", "glm", "poisson_glm"), likelihood="poisson", random_state=0).fit(rows.X, rows.y)
    assert sorted(made) == ["constant", "glm", "poisson_glm"]


@pytest.mark.parametrize("has_validation", [False, True], ids=["folds", "validation rows"])
def test_counts_are_checked_once_and_held_out_rows_are_predicted_once_per_member(rows, monkeypatch, has_validation):
    """The fit has weights, recalibration, levels and a leaderboard without test rows, baselines included."""
    names, checked = ("constant", "glm", "poisson_glm", "trees", "networks"), list[int]()
    predicted: dict[str, list[int]] = {name: [] for name in names}
    for module_of_checks in (count_rows, batches):
        original = module_of_checks.check_counts
        monkeypatch.setattr(
            module_of_checks,
            "check_counts",
            lambda y, *arguments, original=original, **more: checked.append(len(y)) or original(y, *arguments, **more),
        )
    for name, original in {name: MEMBERS[name].predict_components for name in names}.items():

        def predict_components(self, X, exposure=None, name: str = name, original=original):
            predicted[name].append(len(X.columns[0].values))
            return original(self, X, exposure)

        monkeypatch.setattr(MEMBERS[name], "predict_components", predict_components)
    X, y, later = rows.X[:120], rows.y[:120], rows.rows(slice(120, None))
    options = {"training_options": {"batch_size": 64}, "epochs": 2, "hidden": (8,)}
    model = CountRegressor(members="auto", mix_with=["poisson_glm"], likelihood="poisson", random_state=0, **options)
    model.fit(X, y, validation=later if has_validation else None)
    assert checked == [120]
    held_out = 30 if has_validation else 120
    if not has_validation:
        assert model.leaderboard().rows == 120
    assert {name: sum(sizes) for name, sizes in predicted.items() if sizes} == dict.fromkeys(predicted, held_out)
