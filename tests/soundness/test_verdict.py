"""Test that verdicts from out-of-fold scores hold on new rows, and that following their advice loses little."""

import numpy as np
import pytest

from ddpn import CountRegressor
from ddpn.analysis.evaluation import Evaluation
from ddpn.analysis.gains import compare_scores
from ddpn.analysis.leaderboard import out_of_fold_leaderboard
from ddpn.analysis.report.evidence import gather_evidence
from ddpn.analysis.row_scores import RowScores, score_prediction, score_rows
from ddpn.analysis.verdict import verdict
from ddpn.calibration.calibrate import calibrate
from ddpn.members.folds import Folds
from ddpn.predictor import MIXTURE
from ddpn.rows.count_rows import CountRows

#: Fresh rows of every table: the gain on them has a third of the standard error that the gain on 300 rows has.
FRESH = 3000


def draw_log_linear(rng: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw Poisson counts of a log-linear mean: the GLM is the truth, and nothing else can be better."""
    X = rng.normal(size=(rows, 4))
    return X, rng.poisson(np.exp(1.0 + 0.4 * X[:, 0] - 0.3 * X[:, 1])).astype(float)


def draw_counts_of_curve(rng: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw over-dispersed counts of a curved mean with an interaction, which trees can learn and a GLM cannot."""
    X = rng.normal(size=(rows, 4))
    mean = np.exp(1.0 + 0.4 * X[:, 0] + 0.6 * np.sin(2.0 * X[:, 1]) * (X[:, 2] > 0.0))
    return X, rng.negative_binomial(5.0, 5.0 / (5.0 + mean)).astype(float)


def measure_table(draw, rows: int, seed: int) -> dict[str, bool]:
    """Fit a table, and compare what its verdict says about the rival with the gain on fresh rows."""
    rng = np.random.default_rng(10_000 + seed)
    (X, y), (new_X, new_y) = draw(rng, rows), draw(rng, FRESH)
    model = CountRegressor(members=["trees", "glm"], random_state=seed).fit(X, y)
    evaluation, predictor = model.leaderboard().evaluation, model.predictor_
    new = CountRows(new_X, new_y)
    crps = {name: score_rows(predictor, new, name).crps.mean() for name in (MIXTURE, evaluation.rival)}
    gain, base = evaluation.gain, evaluation.crps[evaluation.rival]
    true = 1.0 - crps[MIXTURE] / crps[evaluation.rival]
    return {
        "covered": gain.low / base <= true <= gain.high / base,
        "better than the GLM": "glm" in evaluation.gains and evaluation.against("glm") == "better",
        "possible": max(other_gain.high / evaluation.crps[name] for name, other_gain in evaluation.gains.items())
        <= 1.0,
    }


@pytest.mark.parametrize(
    ("draw", "rows", "seeds"),
    [
        (draw_log_linear, 300, 8),
        (draw_counts_of_curve, 400, 6),
        pytest.param(draw_log_linear, 300, 200, marks=pytest.mark.slow),
        pytest.param(draw_counts_of_curve, 400, 100, marks=pytest.mark.slow),
    ],
)
def test_the_stated_gain_is_that_on_new_rows(draw, rows, seeds):
    measures = [measure_table(draw, rows, seed) for seed in range(seeds)]
    share = {name: np.mean([one[name] for one in measures]) for name in measures[0]}
    assert share["possible"] == 1.0
    # Three standard errors of a share of so many tables, around 95%.
    assert share["covered"] >= 0.95 - 3.0 * np.sqrt(0.95 * 0.05 / seeds)
    if draw is draw_log_linear:
        assert share["better than the GLM"] <= 0.05


@pytest.fixture(scope="module")
def model_and_fresh_rows():
    """A model of 1,500 rows, and 6,000 fresh rows."""
    rng = np.random.default_rng(3)
    (X, y), (new_X, new_y) = draw_counts_of_curve(rng, 1500), draw_counts_of_curve(rng, 6000)
    return CountRegressor(members=["trees", "glm"], random_state=0).fit(X, y), CountRows(new_X, new_y)


@pytest.mark.parametrize("of", [MIXTURE, "trees", "glm"])
def test_out_of_fold_scores_are_those_of_new_rows_with_small_and_large_means(model_and_fresh_rows, of):
    model, new = model_and_fresh_rows
    blocks = list(model.predictor_.predict_out_of_fold(model._held_out, of))
    parts = [(score_prediction(prediction, sample), sample) for prediction, sample in blocks]
    fresh = score_rows(model.predictor_, new, of)
    for is_large in (False, True):
        chosen = [(model.predict(sample.X) > 3.0) == is_large for _, sample in parts]
        new_chosen = (model.predict(new.X) > 3.0) == is_large
        for name, most in (("crps", 0.04), ("coverage", 0.02)):
            held_out = np.concatenate(
                [getattr(scores, name)[keep] for (scores, _), keep in zip(parts, chosen, strict=True)]
            )
            other = getattr(fresh, name)[new_chosen]
            error = np.sqrt(held_out.var() / len(held_out) + other.var() / len(other))
            # Copies were fitted to four fifths of the rows, and are mixed with no others: they score a little worse.
            assert abs(held_out.mean() - other.mean()) < 3.0 * error + most * other.mean(), (name, is_large)


def test_every_row_is_scored_once_by_copies_that_left_it_out(model_and_fresh_rows):
    model, _ = model_and_fresh_rows
    predictor, whole = model.predictor_, model._held_out.held_out.predictions
    folds = Folds(whole.rows, None, whole.part)
    rows = calibrate(predictor.predict_held_out(folds, whole.seed), seed=whole.seed)
    board = out_of_fold_leaderboard(predictor, rows)
    assert board.rows == len(rows) == 1500
    again = model.leaderboard()
    assert again.entries == board.entries
    assert again.evaluation.folds == 5
    # With other counts in a fold, the weights, maps and levels of its rows stay the same.
    changed = folds.train.replace(y=np.where(folds.fold_numbers == 2, folds.train.y + 5.0, folds.train.y))
    changed_folds = Folds(changed, None, folds.fold_numbers)
    other = calibrate(predictor.predict_held_out(changed_folds, whole.seed), seed=whole.seed)
    for name in (MIXTURE, "trees", "glm"):
        levels = [predictions.parts[2].interval_level(0.9, name) for predictions in (rows, other)]
        assert levels[0] == levels[1]
        levels = [predictions.parts[1].interval_level(0.9, name) for predictions in (rows, other)]
        assert levels[0] != levels[1]


def test_rows_that_were_predicted_earlier_keep_their_weights_and_groups():
    rng = np.random.default_rng(5)
    X, y = draw_log_linear(rng, 200)
    weight, group = rng.uniform(0.1, 3.0, 200), np.repeat(np.arange(40), 5)
    model = CountRegressor(members=["constant", "glm"], random_state=0).fit(X, y, sample_weight=weight, groups=group)
    predictor, whole = model.predictor_, model._held_out.held_out.predictions
    folds = Folds(whole.rows, None, whole.part)
    fresh, later = (calibrate(predictor.predict_held_out(folds, whole.seed), seed=whole.seed) for _ in range(2))
    for _ in later.held_out.take(np.arange(0, 200, 3)).blocks():
        pass
    assert (np.diff(later.held_out.block_order) < 0).any(), "the rows are scored in another order"
    board, other = out_of_fold_leaderboard(predictor, fresh), out_of_fold_leaderboard(predictor, later)
    for entry, other_entry in zip(board.entries, other.entries, strict=True):
        assert entry["name"] == other_entry["name"]
        assert other_entry["crps"] == pytest.approx(entry["crps"], rel=1e-12)
        assert other_entry["coverage"] == pytest.approx(entry["coverage"], rel=1e-12)
    for name, gain in board.evaluation.gains.items():
        assert other.evaluation.gains[name] == pytest.approx(gain, rel=1e-9)
    shown, later_shown = (
        gather_evidence(model, whole.rows.replace(labels=np.arange(200)), held_out=rows) for rows in (fresh, later)
    )
    order = np.argsort(later_shown.labels)
    np.testing.assert_allclose(later_shown.scores.crps[order], shown.scores.crps, rtol=1e-9)
    np.testing.assert_array_equal(later_shown.y[order], shown.y)


def test_no_interval_says_that_a_score_is_more_than_100_percent_lower():
    for seed in range(200):
        rng = np.random.default_rng(seed)
        rows = int(rng.integers(50, 200))
        rival = rng.lognormal(0.0, 2.0, rows)
        close, often = rival * rng.uniform(0.0, 0.3, rows), np.where(rng.random(rows) < 0.9, 0.0, rival)
        for model in (close, often, np.zeros(rows)):
            gain = compare_scores(model, rival, np.ones(rows), candidates=4, folds=5)
            assert gain.low <= gain.mean <= gain.high <= rival.mean() * (1.0 + 1e-12)


def test_following_the_advice_loses_little_and_ends():
    """Where counts follow one column weakly, the simplest model is preferred only if that is shown to be safe."""
    for seed, slope in ((0, 0.0), (1, 0.0), (2, 0.15), (3, 0.4)):
        rng = np.random.default_rng(seed)
        X, new_X = rng.normal(size=(1500, 2)), rng.normal(size=(4000, 2))
        y, new_y = (rng.poisson(np.exp(1.0 + slope * x[:, 0])).astype(float) for x in (X, new_X))
        members, crps = ["glm", "poisson_glm", "constant"], []
        for _ in range(3):
            model = CountRegressor(members=members, random_state=0).fit(X, y)
            crps.append(score_rows(model.predictor_, CountRows(new_X, new_y)).crps.mean())
            chosen = model.verdict().prefer
            if chosen is None:
                break
            members = [chosen]
        assert model.verdict().prefer is None
        assert crps[-1] <= 1.01 * crps[0], (seed, slope)


def test_a_few_rows_do_not_make_models_equal():
    """Fifty rows cannot show equality within 1%, so the answer is undecided, and the model is kept."""
    rng = np.random.default_rng(0)
    model_scores = rng.gamma(2.0, size=50)
    zeros = np.zeros(50)
    scores = {
        name: RowScores(values, values, values, zeros, zeros, zeros)
        for name, values in (("model", model_scores), ("simple", model_scores * rng.uniform(0.8, 1.2, 50)))
    }
    decision = verdict(Evaluation.from_rows("model", scores, rng.poisson(3.0, 50).astype(float)))
    assert (decision.level, decision.prefer) == ("undecided", None)
