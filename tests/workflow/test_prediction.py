"""Test a saved model on other tables: its predictions, and the table of them."""

import numpy as np
import polars as pl
import pytest
import torch
from polars.testing import assert_frame_equal

from ddpn.analysis.report.evidence import gather_evidence
from ddpn.distributions import discretize
from ddpn.members.constant import Constant
from ddpn.members.folds import get_fold_copies
from ddpn.prediction.spec import PredictionSpec
from ddpn.predictor import MIXTURE, Predictor
from ddpn.rows.checks import RowError, label_row_errors
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.workflow import prediction
from ddpn.workflow.examining import collect_report_arguments, evaluate, explain_table, monitor
from ddpn.workflow.fitting import fit
from ddpn.workflow.model_folder import ModelFolder, load
from ddpn.workflow.prediction import predict
from ddpn.workflow.preparing import prepare
from ddpn.workflow.rows_to_score import choose_rows_to_score

COLUMNS = [
    "mean", "median", "mode", "lower", "upper", "interval_probability", "aleatoric", "epistemic", "stddev",
    "ood_pvalue",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(patients_fit) -> ModelFolder:
    return patients_fit.folder


@pytest.fixture(scope="module")
def new(table) -> pl.DataFrame:
    """50 rows that the model was not fitted to."""
    return table.head(50).with_columns(severity=pl.col("severity") + 0.01)


def test_columns_and_flags_are_those_of_the_estimator(folder, patients, table):
    """The numbers are compared in tests/cli/test_python_models.py."""
    predictions = predict(folder, table, PredictionSpec(coverage=0.8, quantiles=(0.1, 0.75), pmf=2, ood=0.05))
    assert predictions.columns == [*COLUMNS[:-1], "q0.1", "q0.75", "p0", "p1", "p2", "ood_pvalue", "ood", "ood_reason"]
    model, X, exposure = folder.model, patients.sample.X, patients.sample.exposure
    assert predictions["mean"].to_numpy() == pytest.approx(model.predict(X, exposure))
    assert predictions["ood"].to_list() == model.is_ood(X, 0.05).tolist()
    both = zip(predictions["ood"], model.ood_reasons(X), strict=True)
    assert predictions["ood_reason"].to_list() == ["; ".join(reasons) if flag else None for flag, reasons in both]


def test_unseen_levels_and_flagged_rows_are_reported_once(folder, table):
    some = table.tail(200).with_columns(
        ward=pl.when(pl.int_range(200) < 30).then(pl.lit("Z")).otherwise("ward"),
        severity=pl.when(pl.int_range(200) == 150).then(None).otherwise("severity"),
    )
    findings = []
    predictions = predict(folder, some, PredictionSpec(ood=0.1), on_finding=findings.append)
    assert findings[:2] == [
        "30 rows have an unseen level of 'ward'.",
        "1 row has a missing 'severity', which was never missing in training.",
    ]
    share = f"{predictions['ood'].mean():.1%} of rows are flagged as out-of-distribution (10% expected for rows like"
    assert findings[-1].startswith(share)
    assert predictions["ood"][:30].all()
    assert predictions["ood_reason"][0].startswith("unseen level 'Z' of 'ward'")
    assert predictions["ood_reason"][150].startswith("missing 'severity'")
    predict(folder, some.head(3), PredictionSpec(ood=0.1), on_finding=findings.append)
    assert findings[-1].startswith("3 of 3 rows are flagged as out-of-distribution (10% expected")


def test_predictions_and_findings_do_not_depend_on_blocks(folder, table, monkeypatch):
    some = table.head(100)
    whole = predict(folder, some, PredictionSpec())
    monkeypatch.setattr(prediction, "BLOCK", 40)
    assert_frame_equal(predict(folder, some, PredictionSpec()), whole, rel_tol=1e-9)
    findings = {size: [] for size in (40, 100)}
    for size, sentences in findings.items():
        monkeypatch.setattr(prediction, "BLOCK", size)
        predict(folder, some.with_columns(ward=pl.lit("Z")), PredictionSpec(), on_finding=sentences.append)
    assert findings[40] == findings[100] != []


def test_kept_columns_come_first_and_keep_their_names(folder, table):
    some = table.head(3)
    predictions = predict(folder, some.with_columns(mean=pl.lit("mine")), PredictionSpec(keep=True))
    assert predictions.columns == [*table.columns, "mean", "predicted_mean", *COLUMNS[1:]]
    assert predictions["mean"][0] == "mine"
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
    with pytest.raises(InputError, match="ood needs a model with calibrated out-of-distribution scores"):
        predict(small, table.tail(3), PredictionSpec(ood=0.05))


# Scores --------------------------------------------------------------------------------------------------------------


def test_of_the_table_of_fit_only_test_rows_are_scored(folder, table):
    scores = evaluate(folder, table)
    assert scores.pop("note") == "The model was fitted to this table, so only its 60 test rows are scored."
    assert scores.pop("warnings") == folder.task["warnings"]
    assert scores == folder.task["scores"]


def test_of_another_table_all_rows_are_scored(folder, new):
    rows = choose_rows_to_score(folder, new)
    assert (len(rows.sample), rows.note, rows.folds) == (50, "", None)
    assert rows.sample.labels.tolist() == list(range(1, 51))
    assert choose_rows_to_score(folder, new.drop("weight")).sample.weight is None


@pytest.mark.parametrize("role", ["split_column", "time"])
def test_the_table_of_fit_needs_the_column_that_splits_it(folder, table, new, role):
    marked = table.with_columns(part=pl.Series(["train", "test"] * 150))
    plan = folder.task["plan"] | {role: "part"}
    split = ModelFolder(folder.model, folder.task | {"plan": plan})
    with pytest.raises(InputError, match=r"No column named 'part'\. The model was fitted to this table"):
        evaluate(split, table)
    assert choose_rows_to_score(split, new).note == ""
    if role == "split_column":
        assert len(choose_rows_to_score(split, marked).sample) == 150


def test_rows_of_weight_zero_are_not_scored(folder, new):
    some = new.with_columns(weight=pl.Series([0, 1] * 25))
    assert choose_rows_to_score(folder, some).sample.labels.tolist() == list(range(2, 51, 2))


def test_rows_without_a_target_are_not_scored_and_counted(folder, new, table):
    some = new.with_columns(visits=pl.when(pl.int_range(pl.len()) % 10 != 3).then("visits"))
    rows = choose_rows_to_score(folder, some)
    sample, note = rows.sample, rows.note
    assert note == "5 rows without a value of 'visits' were left out."
    assert (len(sample), 4 in sample.labels) == (45, False)
    assert evaluate(folder, some)["note"] == note
    mixed = pl.concat([table.head(1), some])
    assert choose_rows_to_score(folder, mixed).note.startswith(note)


def test_rows_of_fit_are_recognised_in_any_order(folder, table, patients, tmp_path):
    folder.save(tmp_path / "model")
    again = load(tmp_path / "model")
    order = np.random.default_rng(0).permutation(300)
    rows = choose_rows_to_score(again, table[order])
    assert rows.note == "240 of 300 rows were used to fit the model and are left out of the scores."
    assert set(order[rows.sample.labels - 1].tolist()) == set(patients.split.rows.test.tolist())
    scores, usual = evaluate(again, table[order]), folder.task["scores"]
    assert scores["crps_gain"] == pytest.approx(usual["crps_gain"])
    assert scores["verdict"] == usual["verdict"]


# Scores out of fold, where all rows are fitted ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cross_fitted_folder(table, plan):
    """A model that was fitted to all 300 rows, with groups of intervals."""
    cross_fitted_plan = plan(
        only="glm", compare_with=("constant",), interval_groups="ward", model={"n_networks": "auto"}
    )
    return fit(prepare(table, cross_fitted_plan), {}).folder


def test_a_table_that_was_fitted_as_a_whole_is_scored_out_of_fold(cross_fitted_folder, table, tmp_path):
    assert cross_fitted_folder.task["split"]["rows"] == {"train": 300, "validation": 0, "test": 0}
    assert cross_fitted_folder.task["scores"]["scored_on"] == "out-of-fold rows"
    cross_fitted_folder.save(tmp_path / "model")
    for folder in (cross_fitted_folder, load(tmp_path / "model")):
        scores = evaluate(folder, table)
        assert (
            scores.pop("note") == "The model was fitted to all 300 rows of this table, so they are scored out of fold."
        )
        assert scores.pop("warnings") == folder.task["warnings"]
        seconds = [entry.pop("seconds") for entry in scores["entries"]]
        assert len(seconds) == 3
        for entry, usual in zip(scores["entries"], folder.task["scores"]["entries"], strict=True):
            assert entry == pytest.approx({name: usual[name] for name in entry})
        assert scores["verdict"] == folder.task["scores"]["verdict"]


def test_no_copy_that_scores_a_row_was_fitted_to_it(cross_fitted_folder, table):
    held_out = choose_rows_to_score(cross_fitted_folder, table).predict_out_of_fold(cross_fitted_folder)
    rows = held_out.held_out.rows
    assert sorted(rows.labels.tolist()) == list(range(1, 301))
    assert len(held_out.parts) == 5
    for number, index, dist in held_out.held_out.blocks("glm"):
        assert (cross_fitted_folder.folds[rows.labels[index] - 1] == number).all()
        copy = get_fold_copies(cross_fitted_folder.model.predictor_.members["glm"])[number]
        assert torch.equal(dist.mean, copy.distribution(rows.rows(index).X, rows.exposure[index]).mean[:, 0])
        calibration = held_out.parts[number]
        assert calibration.intervals[MIXTURE].rows[0] == 300 - len(index), "levels are those of the other folds"
        assert sum(calibration.groups.rows.values()) == 300 - len(index)


def test_new_rows_beside_those_of_fit_are_scored_alone(cross_fitted_folder, table, new):
    rows = choose_rows_to_score(cross_fitted_folder, pl.concat([table, new]))
    assert rows.note == "300 of 350 rows were used to fit the model and are left out of the scores."
    assert rows.folds is None
    assert rows.sample.labels.tolist() == list(range(301, 351))
    with pytest.raises(InputError, match="All 300 rows were used to fit the model"):
        choose_rows_to_score(cross_fitted_folder, table[::-1])


def test_reports_and_explanations_of_a_table_that_was_fitted_as_a_whole(cross_fitted_folder, table, new):
    parts = collect_report_arguments(cross_fitted_folder, table)
    board = gather_leaderboard(parts)
    assert list(board.verdict.sentences) == cross_fitted_folder.task["scores"]["verdict"]["sentences"]
    assert (board.rows, board.evaluation.row_words) == (300, "out-of-fold rows")
    assert parts["ids"][1] == [f"p{label - 1}" for label in parts["sample"].labels]
    explanation, note = explain_table(cross_fitted_folder, table)
    assert (
        "importance is measured on one fold (60 rows), with the copies of the members that were fitted without it"
        in note
    )
    assert (explanation.importance.rows, explanation.effects.rows) == (60, 300)
    compared = monitor(cross_fitted_folder, table)
    assert "the model was fitted to all rows of this table" in compared.not_compared[-1]
    assert not {"coverage", "pit"} & {check.kind for check in compared.checks}


def gather_leaderboard(parts):
    """Gather the leaderboard of a report that is written from these parts."""
    return gather_evidence(**{name: part for name, part in parts.items() if name not in ("warnings", "task")}).board


def test_leaks_are_repeated_and_forbid_a_positive_verdict(folder, table):
    leak = "Column paid nearly determines the target."
    leaking = ModelFolder(folder.model, folder.task | {"leaks": [leak]})
    scores = evaluate(leaking, table.head(80))
    assert scores["verdict"]["level"] == "unusable"
    assert leak in scores["verdict"]["sentences"]
    assert scores["warnings"] == [leak, *folder.task["warnings"]]
    parts = collect_report_arguments(leaking, table.head(80))
    assert (parts["leak"], parts["warnings"]) == (leak, folder.task["warnings"])
    assert gather_leaderboard(parts).verdict.level == "unusable"


def test_the_report_has_the_verdict_of_evaluate_and_the_rows_of_the_file(folder, table, patients):
    parts = collect_report_arguments(folder, table)
    assert list(gather_leaderboard(parts).verdict.sentences) == folder.task["scores"]["verdict"]["sentences"]
    assert parts["sample"].labels.tolist() == (patients.split.rows.test + 1).tolist()
    assert parts["ids"] == ("patient", [f"p{row}" for row in patients.split.rows.test])
    assert parts["task"]["numbering"].startswith("Rows are numbered as in the file")
    assert collect_report_arguments(folder, table.drop("patient"))["ids"] is None


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
    return Predictor({"constant": Constant.fit(sample, None, seed=0)}, needs_exposure=True)


def test_columns_are_those_of_the_distribution(predictor):
    exposure, X = np.array([0.5, 1.0, 40.0]), np.zeros((3, 1))
    columns = predictor.predict(X, exposure).to_columns(PredictionSpec(coverage=0.8, quantiles=(0.1, 0.99), pmf=2))
    assert list(columns) == [
        "mean", "median", "mode", "lower", "upper", "interval_probability", "aleatoric", "epistemic", "stddev",
        "q0.1", "q0.99", "p0", "p1", "p2",
    ]  # fmt: skip
    integers = {"median", "mode", "lower", "upper", "q0.1", "q0.99"}
    assert {name for name, values in columns.items() if values.dtype == np.int64} == integers
    dist = discretize(predictor.distribution(X, exposure))
    pmf = dist.log_prob(torch.arange(20_000.0, dtype=torch.float64)[:, None]).exp().numpy()
    cdf, counts = pmf.cumsum(0), np.arange(20_000.0)
    np.testing.assert_allclose(columns["mean"], counts @ pmf, rtol=1e-8)
    np.testing.assert_allclose(columns["stddev"] ** 2, counts**2 @ pmf - (counts @ pmf) ** 2, rtol=1e-6)
    np.testing.assert_array_equal(columns["mode"], pmf.argmax(0))
    below = np.where(
        columns["lower"] > 0, np.take_along_axis(cdf, np.maximum(columns["lower"] - 1, 0)[None], 0)[0], 0.0
    )
    probability = np.take_along_axis(cdf, columns["upper"][None], 0)[0] - below
    np.testing.assert_allclose(columns["interval_probability"], probability, rtol=1e-8)
    assert (probability >= 0.8).all()
    central = predictor.predict(X, exposure).to_columns(PredictionSpec(coverage=0.8, interval_kind="central"))
    for name, level in {"lower": 0.1, "upper": 0.9}.items():
        np.testing.assert_array_equal(central[name], (cdf < level).sum(0), err_msg=name)
    assert (central["upper"] - central["lower"] >= columns["upper"] - columns["lower"]).all()
    for name, level in {"median": 0.5, "q0.1": 0.1, "q0.99": 0.99}.items():
        np.testing.assert_array_equal(columns[name], (cdf < level).sum(0), err_msg=name)
    np.testing.assert_allclose([columns[f"p{count}"] for count in range(3)], pmf[:3], rtol=1e-10)


def test_a_part_of_the_rows_has_the_same_table(predictor):
    exposure, spec = np.linspace(0.1, 9.0, 7), PredictionSpec(quantiles=(0.3,))
    whole = predictor.predict(np.zeros((7, 1)), exposure)
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
def test_wrong_options_are_named(name, value):
    with pytest.raises(ConfigError) as error:
        PredictionSpec(**{name: value})
    assert error.value.argument == name
