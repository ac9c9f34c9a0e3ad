"""A saved model on another table: predictions and the table of them."""

import numpy as np
import polars as pl
import pytest
import torch
from polars.testing import assert_frame_equal

from ddpn.analysis.report.evidence import gather
from ddpn.distributions import discretize
from ddpn.members.folds import get_fold_copies
from ddpn.members.glm import Constant
from ddpn.prediction.spec import PredictionSpec
from ddpn.predictor import MIXTURE, Predictor
from ddpn.rows.checks import RowError, label_row_errors
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.workflow import prediction
from ddpn.workflow.examining import evaluate, explain_table, monitor, report_parts
from ddpn.workflow.fitting import fit
from ddpn.workflow.model_folder import ModelFolder, load, read_task
from ddpn.workflow.prediction import predict, predict_rows
from ddpn.workflow.preparing import prepare
from ddpn.workflow.rows_to_score import rows_to_score

COLUMNS = [
    "mean", "median", "mode", "lower", "upper", "interval_probability", "aleatoric", "epistemic", "stddev",
    "ood_pvalue",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(fitted) -> ModelFolder:
    return fitted.folder


@pytest.fixture(scope="module")
def new(table) -> pl.DataFrame:
    """50 rows that the model was not fitted to."""
    return table.head(50).with_columns(severity=pl.col("severity") + 0.01)


def test_columns_and_flags_are_those_of_the_estimator(folder, prepared, table):
    """tests/cli/test_python_models.py compares the numbers."""
    found = predict(folder, table, PredictionSpec(coverage=0.8, quantiles=(0.1, 0.75), pmf=2, ood=0.05))
    assert found.columns == [*COLUMNS[:-1], "q0.1", "q0.75", "p0", "p1", "p2", "ood_pvalue", "ood", "ood_reason"]
    model, X, exposure = folder.model, prepared.sample.X, prepared.sample.exposure
    assert found["mean"].to_numpy() == pytest.approx(model.predict(X, exposure))
    assert found["ood"].to_list() == model.is_ood(X, 0.05).tolist()
    both = zip(found["ood"], model.ood_reasons(X), strict=True)
    assert found["ood_reason"].to_list() == ["; ".join(each) if flag else None for flag, each in both]


def test_findings_about_an_unusual_table(folder, table):
    some = table.tail(200).with_columns(
        ward=pl.when(pl.int_range(200) < 30).then(pl.lit("Z")).otherwise("ward"),
        severity=pl.when(pl.int_range(200) == 150).then(None).otherwise("severity"),
    )
    findings = []
    found = predict(folder, some, PredictionSpec(ood=0.1), on_finding=findings.append)
    assert findings[:2] == [
        "30 rows have an unseen level of 'ward'.",
        "1 row has a missing 'severity', which was never missing in training.",
    ]
    share = f"{found['ood'].mean():.1%} of rows are flagged as out-of-distribution (10% expected of rows like"
    assert findings[-1].startswith(share)
    assert found["ood"][:30].all()
    assert found["ood_reason"][0].startswith("unseen level 'Z' of 'ward'")
    assert found["ood_reason"][150].startswith("missing 'severity'")
    predict(folder, some.head(3), PredictionSpec(ood=0.1), on_finding=findings.append)
    assert findings[-1].startswith("3 of 3 rows are flagged as out-of-distribution (10% expected")


def test_blocks_change_nothing(folder, table, monkeypatch):
    some = table.head(100)
    whole = predict(folder, some, PredictionSpec())
    monkeypatch.setattr(prediction, "BLOCK", 40)
    assert_frame_equal(predict(folder, some, PredictionSpec()), whole, rel_tol=1e-9)
    findings = {size: [] for size in (40, 100)}
    for size, found in findings.items():
        monkeypatch.setattr(prediction, "BLOCK", size)
        predict(folder, some.with_columns(ward=pl.lit("Z")), PredictionSpec(), on_finding=found.append)
    assert findings[40] == findings[100] != []


def test_kept_columns_come_first_and_keep_their_names(folder, table):
    some = table.head(3)
    found = predict(folder, some.with_columns(mean=pl.lit("mine")), PredictionSpec(keep=True))
    assert found.columns == [*table.columns, "mean", "predicted_mean", *COLUMNS[1:]]
    assert found["mean"][0] == "mine"
    twice = some.with_columns(mean=pl.lit("mine"), predicted_mean=pl.lit("mine too"))
    assert predict(folder, twice, PredictionSpec(keep=True)).columns[len(table.columns) :][:3] == [
        "mean", "predicted_mean", "predicted_predicted_mean"
    ]  # fmt: skip


def test_a_model_without_validation_rows_has_no_pvalues(table, plan):
    plain = {"exposure": None, "weight": None, "compare_with": (), "model": {"n_networks": 1, "epochs": 1}}
    small = fit(prepare(table.head(60), plan(**plain)), {}).folder
    assert small.task["split"]["rows"] == {"train": 48, "validation": 0, "test": 12}
    predictor = small.model.predictor_
    assert (predictor.weights, predictor.calibration.intervals, predictor.calibration.ood) == (
        {"networks": 1.0},
        {},
        None,
    )
    findings = []
    unseen = table.tail(3).with_columns(ward=pl.lit("Z"))
    assert predict(small, unseen, PredictionSpec(), on_finding=findings.append).columns == COLUMNS[:-1]
    assert "3 rows have an unseen level of 'ward'." in findings
    assert not any("flagged" in sentence for sentence in findings)
    with pytest.raises(InputError, match="ood needs a model that was fitted with validation rows"):
        predict(small, table.tail(3), PredictionSpec(ood=0.05))


# Scores --------------------------------------------------------------------------------------------------------------


def test_of_the_table_of_fit_only_test_rows_are_scored(folder, table):
    found = evaluate(folder, table)
    assert found.pop("note") == "The model was fitted to this table: only its 60 test rows are scored."
    assert found.pop("warnings") == folder.task["warnings"]
    assert found == folder.task["scores"]


def test_of_another_table_all_rows_are_scored(folder, new):
    found = rows_to_score(folder, new)
    assert (len(found.sample), found.note, found.folds) == (50, "", None)
    assert found.sample.labels.tolist() == list(range(1, 51))
    assert rows_to_score(folder, new.drop("weight")).sample.weight is None


@pytest.mark.parametrize("role", ["split_column", "time"])
def test_the_table_of_fit_without_the_column_that_splits_it(folder, table, new, role):
    marked = table.with_columns(part=pl.Series(["train", "test"] * 150))
    plan = folder.task["plan"] | {role: "part"}
    split = ModelFolder(folder.model, folder.task | {"plan": plan})
    with pytest.raises(InputError, match="No column named 'part', which says which rows are test rows"):
        evaluate(split, table)
    assert rows_to_score(split, new).note == ""
    if role == "split_column":
        assert len(rows_to_score(split, marked).sample) == 150


def test_rows_of_weight_zero_are_not_scored(folder, new):
    some = new.with_columns(weight=pl.Series([0, 1] * 25))
    assert rows_to_score(folder, some).sample.labels.tolist() == list(range(2, 51, 2))


def test_rows_without_a_target_are_not_scored_and_counted(folder, new, table):
    some = new.with_columns(visits=pl.when(pl.int_range(pl.len()) % 10 != 3).then("visits"))
    found = rows_to_score(folder, some)
    sample, note = found.sample, found.note
    assert note == "5 rows without a value of 'visits' were left out."
    assert (len(sample), 4 in sample.labels) == (45, False)
    assert evaluate(folder, some)["note"] == note
    mixed = pl.concat([table.head(1), some])
    assert rows_to_score(folder, mixed).note.startswith(note)


def test_rows_of_fit_are_recognised_in_any_order(folder, table, prepared, tmp_path):
    folder.save(tmp_path / "model")
    again = load(tmp_path / "model")
    order = np.random.default_rng(0).permutation(300)
    found = rows_to_score(again, table[order])
    assert found.note == "240 of 300 rows were used to fit the model and are left out of the scores."
    assert set(order[found.sample.labels - 1].tolist()) == set(prepared.split.rows.test.tolist())
    scores, usual = evaluate(again, table[order]), folder.task["scores"]
    assert scores["crps_gain"] == pytest.approx(usual["crps_gain"])
    assert scores["verdict"] == usual["verdict"]


# Scores out of fold, where all rows are fitted ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def crossed(table, plan):
    """Fitted to all 300 rows, with groups of intervals."""
    made = plan(only="glm", compare_with=("constant",), interval_groups="ward", model={"n_networks": "auto"})
    return fit(prepare(table, made), {}).folder


def test_a_table_that_was_fitted_as_a_whole_is_scored_out_of_fold(crossed, table, tmp_path):
    assert crossed.task["split"]["rows"] == {"train": 300, "validation": 0, "test": 0}
    assert crossed.task["scores"]["scored_on"] == "out-of-fold rows"
    crossed.save(tmp_path / "model")
    for folder in (crossed, load(tmp_path / "model")):
        found = evaluate(folder, table)
        assert found.pop("note") == "The model was fitted to all 300 rows of this table: they are scored out of fold."
        assert found.pop("warnings") == folder.task["warnings"]
        seconds = [entry.pop("seconds") for entry in found["entries"]]
        assert len(seconds) == 3
        for entry, usual in zip(found["entries"], folder.task["scores"]["entries"], strict=True):
            assert entry == pytest.approx({name: usual[name] for name in entry})
        assert found["verdict"] == folder.task["scores"]["verdict"]


def test_no_copy_that_scores_a_row_was_fitted_to_it(crossed, table):
    held_out = rows_to_score(crossed, table).predict_out_of_fold(crossed)
    rows = held_out.held_out.rows
    assert sorted(rows.labels.tolist()) == list(range(1, 301))
    assert len(held_out.parts) == 5
    for number, index, dist in held_out.held_out.blocks("glm"):
        assert (crossed.folds[rows.labels[index] - 1] == number).all()
        copy = get_fold_copies(crossed.model.predictor_.members["glm"])[number]
        assert torch.equal(dist.mean, copy.distribution(rows.rows(index).X, rows.exposure[index]).mean[:, 0])
        calibration = held_out.parts[number]
        assert calibration.intervals[MIXTURE].rows[0] == 300 - len(index), "levels are those of the other folds"
        assert sum(calibration.groups.rows.values()) == 300 - len(index)


def test_new_rows_beside_those_of_fit_are_scored_alone(crossed, table, new):
    found = rows_to_score(crossed, pl.concat([table, new]))
    assert found.note == "300 of 350 rows were used to fit the model and are left out of the scores."
    assert found.folds is None
    assert found.sample.labels.tolist() == list(range(301, 351))
    with pytest.raises(InputError, match="All 300 rows were used to fit the model"):
        rows_to_score(crossed, table[::-1])


def test_reports_and_explanations_of_a_table_that_was_fitted_as_a_whole(crossed, table, new):
    parts = report_parts(crossed, table)
    board = board_of(parts)
    assert list(board.verdict.sentences) == crossed.task["scores"]["verdict"]["sentences"]
    assert (board.rows, board.evaluation.row_words) == (300, "out-of-fold rows")
    assert parts["ids"][1] == [f"p{label - 1}" for label in parts["sample"].labels]
    explanation, note = explain_table(crossed, table)
    assert "importance is measured on 60 of them, with the copies that were fitted without these" in note
    assert (explanation.importance.rows, explanation.effects.rows) == (60, 300)
    compared = monitor(crossed, table)
    assert "the model was fitted to all rows of this table" in compared.not_compared[-1]
    assert not {"coverage", "pit"} & {check.kind for check in compared.checks}


def test_models_of_version_0_3_have_scores_of_test_rows(crossed, tmp_path):
    scores = {name: value for name, value in crossed.task["scores"].items() if name not in ("scored_on", "title")}
    task = {name: value for name, value in crossed.task.items() if name != "scores"} | {"test": scores}
    ModelFolder(crossed.model, task).save(tmp_path / "old")
    assert read_task(tmp_path / "old")["scores"]["title"] == "Scores on 300 test rows"


def board_of(parts):
    """The leaderboard of a report that is written from these parts."""
    return gather(**{name: each for name, each in parts.items() if name not in ("warnings", "task")}).board


def test_leaks_are_repeated_and_forbid_a_positive_verdict(folder, table):
    leak = "Column paid nearly determines the target."
    leaking = ModelFolder(folder.model, folder.task | {"leaks": [leak]})
    found = evaluate(leaking, table.head(80))
    assert found["verdict"]["level"] == "unusable"
    assert leak in found["verdict"]["sentences"]
    assert found["warnings"] == [leak, *folder.task["warnings"]]
    parts = report_parts(leaking, table.head(80))
    assert (parts["leak"], parts["warnings"]) == (leak, folder.task["warnings"])
    assert board_of(parts).verdict.level == "unusable"


def test_the_report_has_the_verdict_of_evaluate_and_the_rows_of_the_file(folder, table, prepared):
    parts = report_parts(folder, table)
    assert list(board_of(parts).verdict.sentences) == folder.task["scores"]["verdict"]["sentences"]
    assert parts["sample"].labels.tolist() == (prepared.split.rows.test + 1).tolist()
    assert parts["ids"] == ("patient", [f"p{row}" for row in prepared.split.rows.test])
    assert parts["task"]["numbering"].startswith("Rows are numbered as in the file")
    assert report_parts(folder, table.drop("patient"))["ids"] is None


def test_a_cell_that_cannot_be_read_is_reported(folder, table):
    row = pl.int_range(pl.len()) == 96
    infinite = table.with_columns(severity=pl.when(row).then(float("inf")).otherwise("severity"))
    for use in (lambda: predict(folder, infinite, PredictionSpec()), lambda: evaluate(folder, infinite)):
        with pytest.warns(UserWarning, match=r"Column severity: 1 of 300 values are not numbers as in fit \('inf'\)"):
            use()


# The table against the distributions that it is made of ---------------------------------------------------------------


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    """A constant distribution of counts per unit of exposure."""
    rng = np.random.default_rng(0)
    sample = CountRows(np.zeros((300, 1)), rng.negative_binomial(3, 0.3, 300).astype(float), exposure=np.ones(300))
    return Predictor({"constant": Constant().fit(sample, None, seed=0)}, needs_exposure=True)


def test_columns_are_those_of_the_distribution(predictor):
    exposure, X = np.array([0.5, 1.0, 40.0]), np.zeros((3, 1))
    found = predictor.predict(X, exposure).to_columns(PredictionSpec(coverage=0.8, quantiles=(0.1, 0.99), pmf=2))
    assert list(found) == [
        "mean", "median", "mode", "lower", "upper", "interval_probability", "aleatoric", "epistemic", "stddev",
        "q0.1", "q0.99", "p0", "p1", "p2",
    ]  # fmt: skip
    integers = {"median", "mode", "lower", "upper", "q0.1", "q0.99"}
    assert {name for name, values in found.items() if values.dtype == np.int64} == integers
    dist = discretize(predictor.distribution(X, exposure))
    pmf = dist.log_prob(torch.arange(20_000.0, dtype=torch.float64)[:, None]).exp().numpy()
    cdf, counts = pmf.cumsum(0), np.arange(20_000.0)
    np.testing.assert_allclose(found["mean"], counts @ pmf, rtol=1e-8)
    np.testing.assert_allclose(found["stddev"] ** 2, counts**2 @ pmf - (counts @ pmf) ** 2, rtol=1e-6)
    np.testing.assert_array_equal(found["mode"], pmf.argmax(0))
    below = np.where(found["lower"] > 0, np.take_along_axis(cdf, np.maximum(found["lower"] - 1, 0)[None], 0)[0], 0.0)
    own = np.take_along_axis(cdf, found["upper"][None], 0)[0] - below
    np.testing.assert_allclose(found["interval_probability"], own, rtol=1e-8)
    assert (own >= 0.8).all()
    central = predictor.predict(X, exposure).to_columns(PredictionSpec(coverage=0.8, interval_kind="central"))
    for name, level in {"lower": 0.1, "upper": 0.9}.items():
        np.testing.assert_array_equal(central[name], (cdf < level).sum(0), err_msg=name)
    assert (central["upper"] - central["lower"] >= found["upper"] - found["lower"]).all()
    for name, level in {"median": 0.5, "q0.1": 0.1, "q0.99": 0.99}.items():
        np.testing.assert_array_equal(found[name], (cdf < level).sum(0), err_msg=name)
    np.testing.assert_allclose([found[f"p{count}"] for count in range(3)], pmf[:3], rtol=1e-10)


def test_a_part_of_the_rows_has_the_same_table(predictor):
    exposure, spec = np.linspace(0.1, 9.0, 7), PredictionSpec(quantiles=(0.3,))
    whole = predict_rows(predictor, np.zeros((7, 1)), exposure)
    part, all_rows = whole[2:5].to_columns(spec), whole.to_columns(spec)
    for name, values in part.items():
        np.testing.assert_array_equal(values, all_rows[name][2:5], err_msg=name)


@pytest.mark.parametrize("exposure", [1e16, 1e100, 1.7e308])
def test_a_count_that_no_float_can_hold_is_refused_with_its_row(predictor, exposure):
    with pytest.raises(RowError) as caught, label_row_errors(np.array([11, 12, 13])):
        predictor.predict(np.zeros((3, 1)), np.array([1.0, exposure, 2.0])).to_columns(PredictionSpec())
    assert caught.value.bad.tolist() == [False, True, False]
    assert "row 12" in str(caught.value)


# What may be asked for ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"), [("coverage", 1.5), ("quantiles", (0.5, 1.0)), ("pmf", -1), ("pmf", 10_001)]
)
def test_wrong_requests(name, value):
    with pytest.raises(ConfigError) as error:
        PredictionSpec(**{name: value})
    assert error.value.argument == name
