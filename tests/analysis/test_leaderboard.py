"""Test scores against scipy, and verdicts on chosen numbers and on rows whose truth is known."""

import json
from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from scipy import stats
from torch.distributions import Normal

from ddpn.analysis.evaluation import Evaluation
from ddpn.analysis.gains import Gain
from ddpn.analysis.leaderboard import leaderboard
from ddpn.analysis.row_scores import SCORES, RowScores, score_rows
from ddpn.analysis.verdict import verdict
from ddpn.calibration.calibrate import fit_intervals
from ddpn.distributions import Poisson
from ddpn.members import Member
from ddpn.predictor import MIXTURE, Predictor
from ddpn.rows.count_rows import CountRows

MEAN = np.array([2.0, 5.5, 9.0, 0.3, 4.0])
Y = np.array([3.0, 5.0, 20.0, 0.0, 1.0])
GRID = np.arange(200)


class Scaled(Member):
    """A member that predicts `factor` times X, per exposure, as a Poisson or a Normal with standard deviation 1."""

    def __init__(self, factor: float = 1.0, normal: bool = False, label: str = "", complexity: int = 3) -> None:
        self.factor, self.normal, self.label, self.complexity = factor, normal, label, complexity

    def distribution(self, X, exposure=None):
        mean = torch.from_numpy(self.factor * X[0].values * (1.0 if exposure is None else exposure)).unsqueeze(1)
        return Normal(mean, 1.0) if self.normal else Poisson(mean)

    fit = state = from_state = None


@pytest.fixture
def two_row_blocks(monkeypatch):
    usual = CountRows.blocks
    monkeypatch.setattr(CountRows, "blocks", lambda sample, size=2: usual(sample, min(size, 2)))


def test_every_row_is_scored_as_by_scipy(two_row_blocks):
    scores = score_rows(Predictor({"one": Scaled()}), CountRows(MEAN[:, None] / 2, Y, exposure=np.full(5, 2.0)))
    dist = stats.poisson(MEAN[:, None])
    assert scores.mae == pytest.approx(np.abs(dist.median()[:, 0] - Y))
    assert scores.crps == pytest.approx(np.square(dist.cdf(GRID) - (Y[:, None] <= GRID)).sum(1))
    assert scores.nll == pytest.approx(-dist.logpmf(Y[:, None])[:, 0])
    cdf = np.c_[np.zeros(5), dist.cdf(GRID)]
    for row, width in enumerate(scores.width.astype(int)):
        masses = cdf[row, width + 1 :] - cdf[row, : -width - 1]
        low = masses.argmax()
        assert scores.expected[row] == pytest.approx(masses[low])
        assert scores.expected[row] >= 0.9
        assert width == 0 or (cdf[row, width:] - cdf[row, :-width]).max() < 0.9
        assert scores.coverage[row] == (low <= Y[row] <= low + width)


def test_means_count_rows_by_their_weight():
    weight = np.array([1.0, 2.0, 0.0, 3.0, 1.0])
    scores = score_rows(Predictor({"one": Scaled()}), CountRows(MEAN[:, None], Y))
    repeated = {name: np.repeat(getattr(scores, name), weight.astype(int)).mean() for name in SCORES}
    assert scores.means(weight) == pytest.approx(repeated)


def test_a_normal_is_scored_as_the_counts_it_rounds_to():
    scores = score_rows(Predictor({"one": Scaled(normal=True)}), CountRows(MEAN[:, None], Y))
    cdf = stats.norm(MEAN[:, None], 1.0).cdf(GRID + 0.5)
    assert scores.crps == pytest.approx(np.square(cdf - (Y[:, None] <= GRID)).sum(1))
    assert (scores.width == np.rint(scores.width)).all()


# The leaderboard -----------------------------------------------------------------------------------------------------

RNG = np.random.default_rng(0)
MANY = RNG.uniform(1, 20, 300)
SAMPLE = CountRows(MANY[:, None], RNG.poisson(MANY).astype(float))


def mix_low_and_high(comparison: Member) -> Predictor:
    predictor = Predictor({"low": Scaled(0.9), "high": Scaled(1.1)}, {"low": 0.25, "high": 0.75}, seconds={"low": 2.0})
    predictor.add("half_of_it", comparison, seconds=1.0)
    return predictor


def test_the_leaderboard_as_json_has_the_mixture_then_the_best_members_first():
    board = leaderboard(mix_low_and_high(Scaled(0.5, label="half the mean")), SAMPLE)
    document = board.to_dict()
    assert json.loads(json.dumps(document)) == document
    assert board.to_frame().to_dicts() == document["entries"]
    gain = {"crps_gain", "crps_gain_error", "crps_gain_interval"}
    assert set(document) == {"rows", "draw", "scored_on", "title", "coverage", "entries", "verdict"} | gain
    assert (document["rows"], document["scored_on"], document["coverage"]) == (300, "test rows", 0.9)
    assert document["title"] == "Scores on 300 test rows"
    assert set(document["verdict"]) == {"level", "sentences", "prefer"}
    for entry in document["entries"]:
        assert list(entry) == [
            "name",
            "label",
            "weight",
            "mae",
            "crps",
            "nll",
            "coverage",
            "expected",
            "width",
            "seconds",
        ]
    entries = {entry["name"]: entry for entry in document["entries"]}
    assert list(entries) == [MIXTURE, *sorted(["low", "high"], key=lambda name: entries[name]["crps"]), "half_of_it"]
    weights = {MIXTURE: None, "low": 0.25, "high": 0.75, "half_of_it": 0.0}
    assert {name: entry["weight"] for name, entry in entries.items()} == weights
    assert (entries["low"]["label"], entries["half_of_it"]["label"]) == ("low", "half the mean")
    assert [entries[name]["seconds"] for name in (MIXTURE, "low", "high", "half_of_it")] == [2.0, 2.0, None, 1.0]
    best = min(("low", "high", "half_of_it"), key=lambda name: entries[name]["crps"])
    assert document["crps_gain"] == pytest.approx(entries[best]["crps"] - entries[MIXTURE]["crps"])
    low, high = document["crps_gain_interval"]
    assert low < document["crps_gain"] < high
    assert best in document["verdict"]["sentences"][0]


def test_the_gain_is_on_the_best_member_used_alone():
    members = {"networks": Scaled(1.0, complexity=5), "half_of_it": Scaled(0.5, label="half the mean")}
    verdict = leaderboard(Predictor(members, {"networks": 0.9, "half_of_it": 0.1}), SAMPLE).to_dict()["verdict"]
    assert verdict["level"] == "better", verdict
    assert "half the mean" in verdict["sentences"][0]  # also where it is a part of the mixture
    better = leaderboard(mix_low_and_high(Scaled(1.0, label="the true mean")), SAMPLE).to_dict()
    assert better["crps_gain"] < 0
    assert better["entries"][0]["name"] == "half_of_it"


@pytest.mark.parametrize(
    ("factor", "headline"),
    [
        (0.5, "The model is better than the best alternative, the ensemble of networks alone (the model's CRPS"),
        (1.0, "The ensemble of networks alone is better on these rows (its CRPS"),
    ],
)
def test_networks_without_weight_are_an_alternative_when_used_alone(factor, headline):
    members = {
        "networks": Scaled(factor, label="networks", complexity=5),
        "glm": Scaled(1.0 if factor < 1 else 0.7, label="GLM"),
    }
    document = leaderboard(Predictor(members, {"networks": 0.0, "glm": 1.0}), SAMPLE).to_dict()
    assert document["verdict"]["sentences"][0].startswith(headline)
    assert {entry["name"]: entry["label"] for entry in document["entries"]}["networks"] == "networks"


def test_a_member_that_is_the_mixture_has_its_scores_unless_its_intervals_differ():
    sample = CountRows(MEAN[:, None], Y)
    predictor = Predictor({"one": Scaled(), "other": Scaled(2.0)}, {"one": 1.0, "other": 0.0})

    def entries():
        return {entry["name"]: [entry[name] for name in SCORES] for entry in leaderboard(predictor, sample).entries}

    assert entries()["one"] == entries()[MIXTURE] != entries()["other"]
    held_out = predictor.predict_held_out(sample)
    fitted = fit_intervals(predictor.calibration, held_out, 20.0)
    predictor.calibration = replace(fitted, intervals={"one": fitted.intervals["one"]})
    changed = entries()
    assert changed["one"][SCORES.index("width")] != changed[MIXTURE][SCORES.index("width")]


def test_large_networks_are_no_simpler_alternative_to_networks():
    """A verdict must not recommend one half of the networks for being simpler."""
    members = {"networks": Scaled(complexity=5), "large_networks": Scaled(complexity=6), "half_of_it": Scaled(0.5)}
    model = Predictor(members, {"networks": 0.6, "large_networks": 0.3, "half_of_it": 0.1})
    assert leaderboard(model, SAMPLE).evaluation.rival == "half_of_it"


def test_of_two_single_members_the_less_complex_is_simpler():
    members = {"small": Scaled(complexity=1), "used": Scaled(complexity=2), "other": Scaled(complexity=4)}
    model = Predictor(members, {"small": 0.0, "used": 1.0, "other": 0.0})
    assert leaderboard(model, SAMPLE).evaluation.simpler == ["small"]


# The verdict on given numbers ----------------------------------------------------------------------------------------

LABELS = {"boosted_nb": "gradient boosting with a Negative Binomial", "constant": "a constant distribution"}


def make_evaluation(model=1.0, gain=0.2, reach=0.02, rows=500, coverage=0.91, error_gain=None, **more):
    """Make an evaluation against gradient boosting, with this gain in CRPS and half width of its interval."""
    error_gain = gain if error_gain is None else error_gain
    crps = {"mixture": model, "boosted_nb": model + gain, "constant": 3.0}
    gains = {"boosted_nb": Gain(gain, gain - reach, gain + reach), "constant": Gain(2.0, 1.9, 2.1)}
    errors = {"mixture": 2.0, "boosted_nb": 2.0 + error_gain, "constant": 4.0}
    error_gains = {
        "boosted_nb": Gain(error_gain, error_gain - 0.05, error_gain + 0.05),
        "constant": Gain(2.0, 1.9, 2.1),
    }
    fields = {"crps": crps, "gains": gains, "errors": errors, "error_gains": error_gains, "labels": LABELS}
    return Evaluation(**{"model": "mixture", "rows": rows, "coverage": coverage} | fields | more)


LARGE = {"rows": 10**6, "reach": 2e-4}
FEW = Gain(0.2, 0.1, 0.3, 0.05, few=5, without_few=-0.1, depends_on_few=True)
TABLE = [
    (make_evaluation(), "better", "better than the best alternative, gradient boosting"),
    (make_evaluation(), "better", "the model's CRPS is 17% lower, 95% interval 15% to 18%"),
    (make_evaluation(gain=-0.03), "worse", "Gradient boosting with a Negative Binomial is better"),
    (make_evaluation(gain=-0.03), "worse", "3% lower, 95% interval 1% to 5%): use it"),
    (
        make_evaluation(gain=-0.03, coverage=0.8),
        "worse",
        "80.0% of the test rows (at least 90% asked): they are too narrow",
    ),
    (make_evaluation(gain=0.015), "undecided", "1.5% lower, 95% interval 0.49% higher to 3.4% lower). Keep the model"),
    (make_evaluation(gain=-0.01), "undecided", "the model's CRPS is 1% higher, 95% interval 3% higher to 1% lower"),
    (make_evaluation(gain=0.015, folds=5), "undecided", "Undecided: 500 out-of-fold rows are too few to tell"),
    (
        make_evaluation(gain=0.015, labels=LABELS | {"boosted_nb": "Poisson GLM"}),
        "undecided",
        "to tell which predicts better, the model or the Poisson GLM (the model's CRPS is",
    ),
    (make_evaluation(gain=-0.03, labels=LABELS | {"boosted_nb": "GLM"}), "worse", "The GLM is better on these rows"),
    (make_evaluation(gain=0.015, simpler=[]), "undecided", "3.4% lower). Keep the model; more rows would decide."),
    (
        make_evaluation(gain=0.0, reach=0.0),
        "as good as",
        "is as good as the model, within 1% (the same CRPS): prefer it",
    ),
    (
        make_evaluation(gain=0.0, reach=0.0, labels=LABELS | {"boosted_nb": "boosted trees"}),
        "as good as",
        "The simpler boosted trees are as good as the model, within 1% (the same CRPS): prefer them",
    ),
    (make_evaluation(gain=0.004, **LARGE), "as good as", "within 1% (the model's CRPS is 0.4% lower"),
    (make_evaluation(gain=-0.004, **LARGE), "as good as", "within 1% (the model's CRPS is 0.4% higher"),
    (make_evaluation(gain=1e-4, **LARGE), "as good as", "under 0.1% lower"),
    (make_evaluation(gain=1e-4, **LARGE, simpler=[]), "as good as", "The model is as good as gradient boosting"),
    (make_evaluation(gain=0.011, **LARGE), "better", "1.1% lower"),
    (
        make_evaluation(folds=5),
        "better",
        "There are no test rows: every row was scored by copies of the models that were",
    ),
    (make_evaluation(coverage=0.8), "undecided", "but its intervals are too narrow"),
    (make_evaluation(coverage=0.89, rows=10**6), "better", "cover 89.0% of the test rows (at least 90% asked)."),
    (make_evaluation(coverage=0.85, rows=60), "better", "cover 85.0% of the test rows (at least 90% asked)."),
    (make_evaluation(coverage=0.99, expected=0.92), "undecided", "but its intervals are much wider than necessary"),
    (
        make_evaluation(coverage=0.99, expected=0.97),
        "better",
        "cover 99.0% of the test rows (expected 97.0%",
    ),
    (make_evaluation(rows=49), "undecided", "Too few rows for a verdict: with 49 test rows"),
    (make_evaluation(effective_rows=12.3), "undecided", "500 test rows, which by their weights and groups count as 12"),
    (make_evaluation(gain=-0.3, rows=1), "undecided", "with 1 test row "),
    (make_evaluation(crps={"mixture": 1.0}, gains={}), "undecided", "not compared"),
    (make_evaluation(gains={}), "undecided", "No other model could be scored"),
    (make_evaluation(model=-3.0), "unusable", "not a finite number of at least 0"),
    (make_evaluation(model=float("nan")), "unusable", "not a finite number"),
    (make_evaluation(model=float("inf"), coverage=float("nan")), "unusable", "not a finite number"),
    (make_evaluation(leak="Column 'total' predicts it."), "unusable", "Column 'total' predicts it."),
    (make_evaluation(gain=-0.3, leak="Column 'total'."), "unusable", "cannot be trusted"),
    (make_evaluation(scores_note="40% of rows are new."), "better", "40% of rows are new."),
    (make_evaluation(only_count=5.0), "undecided", "All 500 test rows have the count 5"),
    (make_evaluation(model=6e-44, gain=6e-24, reach=1e-25, mean_count=5.0), "as good as", "within 1%"),
    (make_evaluation(error_gain=-0.3), "undecided", "its mean absolute error 18% higher, 95% interval 15% to 21%"),
    (make_evaluation(gain=-0.2, error_gain=0.3), "undecided", "the model's CRPS is 25% higher"),
    (make_evaluation(error_gain=-0.04), "better", "use it"),
    (make_evaluation(gains={"boosted_nb": FEW}), "undecided", "8.3% higher without the 5 of 500 rows that count most"),
]


@pytest.mark.parametrize(("evaluation", "level", "words"), TABLE)
def test_scores_decide_the_words_of_the_verdict(evaluation, level, words):
    decision = verdict(evaluation)
    assert words in str(decision)
    assert decision.level == level
    assert "nan" not in str(decision)
    assert all(sentence.endswith(".") for sentence in decision.sentences)
    assert str(decision).startswith(decision.headline)
    assert (level == "better") <= ("use it" in decision.headline)


def test_a_verdict_names_counts_that_the_model_held_for_impossible():
    """Two of the held-out counts have probability 0 by the model, which has the lower CRPS all the same."""
    rng = np.random.default_rng(0)
    y = rng.poisson(3.0, 500).astype(float)
    ones = np.ones(500)
    model, other = (
        RowScores(
            mae=crps,
            crps=crps,
            nll=2.0 * ones,
            coverage=(np.arange(500) % 20 > 0) * ones,
            expected=0.95 * ones,
            width=5.0 * ones,
        )
        for crps in (rng.normal(1.0, 0.1, 500), rng.normal(2.0, 0.1, 500))
    )
    model.nll[[3, 7]] = np.inf
    decision = verdict(Evaluation.from_rows("mixture", {"mixture": model, "glm": other}, y))
    assert decision.level == "better"
    assert "2 of these counts have probability 0 by the model" in str(decision)
    model.nll[[3, 7]] = 9.0
    assert "probability 0" not in str(verdict(Evaluation.from_rows("mixture", {"mixture": model, "glm": other}, y)))


def test_a_leak_forbids_every_positive_verdict():
    for evaluation, level, _ in TABLE:
        leaking = verdict(Evaluation(**vars(evaluation) | {"leak": "Column 'total' predicts it."}))
        assert leaking.level == "unusable", level
        assert "use it" not in str(leaking)


# Numbers from rows ---------------------------------------------------------------------------------------------------


def make_scores(crps, inside=None, expected=None, error=None):
    """Make the scores of candidates that a verdict needs."""
    row_scores = {}
    for name, values in crps.items():
        rows = np.ones(len(values)) if inside is None else np.asarray(inside, dtype=float)
        expected_shares = 0 * rows + 0.92 if expected is None else np.asarray(expected, dtype=float)
        row_scores[name] = RowScores(
            values if error is None else error[name], values, values, rows, expected_shares, rows
        )
    return row_scores


@pytest.mark.parametrize("weight", [None, np.random.default_rng(1).integers(1, 4, 200).astype(float)])
def test_rows_give_their_means_and_the_gain_on_the_best(weight):
    rng = np.random.default_rng(0)
    crps = {"mixture": rng.gamma(2.0, size=200), "glm": rng.gamma(3.0, size=200), "constant": rng.gamma(9.0, size=200)}
    inside = rng.random(200) < 0.8
    evaluation = Evaluation.from_rows("mixture", make_scores(crps, inside, inside[::-1]), np.arange(200.0), weight)
    assert evaluation.crps["glm"] == pytest.approx(np.average(crps["glm"], weights=weight))
    assert (evaluation.others, evaluation.rival, evaluation.rows) == (["glm", "constant"], "glm", 200)
    difference = crps["glm"] - crps["mixture"]
    assert evaluation.gain.mean == pytest.approx(np.average(difference, weights=weight))
    assert evaluation.coverage == pytest.approx(np.average(inside, weights=weight))
    assert evaluation.expected == pytest.approx(np.average(inside[::-1], weights=weight))
    assert (evaluation.errors, evaluation.error_gains) == (evaluation.crps, {"glm": evaluation.gain})
    assert evaluation.mean_count == pytest.approx(np.average(np.arange(200), weights=weight))
    if weight is None:
        assert evaluation.gain.error == pytest.approx(stats.sem(difference))
        assert evaluation.independent_rows == pytest.approx(200)


def test_rows_of_weight_zero_do_not_count():
    weight = np.r_[np.ones(60), np.zeros(940)]
    y = np.r_[np.full(60, 4.0), np.arange(940.0)]
    crps = {"m": np.ones(1000), "o": np.full(1000, 2.0)}
    evaluation = Evaluation.from_rows("m", make_scores(crps), y, weight)
    assert (evaluation.rows, evaluation.only_count) == (60, 4.0)


def test_candidates_without_a_finite_score_are_left_out():
    crps = {"m": np.ones(60), "glm": np.full(60, np.inf), "tree": np.full(60, np.nan), "low": np.full(60, -1e9)}
    y = np.arange(60.0)
    assert Evaluation.from_rows("m", make_scores(crps), y).others == []
    assert verdict(Evaluation.from_rows("glm", make_scores(crps), y)).level == "unusable"


@pytest.mark.parametrize("mean", [0.05, 0.4, 3.0, 50.0])
def test_the_right_interval_of_integers_is_never_too_wide(mean):
    y = np.random.default_rng(0).poisson(mean, 20_000)
    low, high = stats.poisson.ppf([0.05, 0.95], mean)
    probability = stats.poisson.cdf(high, mean) - stats.poisson.cdf(low - 1, mean)
    evaluation = make_scores({"m": np.ones(len(y))}, (low <= y) & (y <= high), np.full(len(y), probability))
    evaluation = Evaluation.from_rows("m", evaluation, y)
    assert not evaluation.too_wide


def test_the_rival_is_the_best_that_is_clearly_better_or_else_not_clearly_beaten():
    crps = {"m": 2.0, "a": 1.9, "b": 1.8, "c": 2.2}
    doubt, better, worse = Gain(-0.1, -0.3, 0.1), Gain(0.2, 0.1, 0.3), Gain(-0.2, -0.3, -0.1)
    fields = {"model": "m", "crps": crps, "rows": 900, "coverage": 0.9}
    assert Evaluation(**fields, gains={"a": doubt, "b": worse, "c": better}).rival == "b"
    assert Evaluation(**fields, gains={"a": better, "b": better, "c": doubt}).rival == "c", "uncertain, so not beaten"
    assert Evaluation(**fields, gains={"a": better, "c": better}).rival == "a"


def test_of_equally_good_candidates_the_simplest_is_preferred():
    """Following the advice ends at once, and loses 1% at most."""
    tie, doubt, worse = Gain(0.0, -0.01, 0.01), Gain(0.01, -0.3, 0.3), Gain(-0.2, -0.3, -0.1)
    crps = {"m": 2.0, "trees": 1.99, "glm": 2.0, "constant": 2.01}
    fields = {"model": "m", "crps": crps, "rows": 900, "coverage": 0.9, "simpler": ["constant", "glm", "trees"]}
    assert verdict(Evaluation(**fields, gains={"trees": tie, "glm": tie, "constant": tie})).prefer == "constant"
    assert verdict(Evaluation(**fields, gains={"trees": tie, "glm": tie, "constant": doubt})).prefer == "glm"
    assert verdict(Evaluation(**fields, gains={"trees": doubt, "glm": tie, "constant": doubt})).prefer == "glm"
    assert verdict(Evaluation(**fields, gains={"trees": worse, "glm": tie, "constant": tie})).prefer == "trees"
    assert verdict(Evaluation(**fields, gains={"trees": doubt, "glm": doubt})).prefer is None
    assert verdict(Evaluation(**fields | {"simpler": ["constant"]}, gains={"trees": tie})).prefer is None


def test_simpler_candidates_are_in_the_order_of_their_complexity():
    members = {"trees": Scaled(complexity=3), "glm": Scaled(complexity=2), "constant": Scaled(complexity=0)}
    weights = {"trees": 0.5, "glm": 0.5, "constant": 0.0}
    assert leaderboard(Predictor(members, weights), SAMPLE).evaluation.simpler == ["constant", "glm", "trees"]


# Simulated rows: the verdict that is right is known ------------------------------------------------------------------


def judge_gap(rng, difference, level=3.0, coverage=0.92, error=None, y=None, **options):
    """Judge a model whose CRPS is lower by these differences, with one row of differences per other candidate."""
    difference = np.atleast_2d(difference)
    rows = difference.shape[1]
    y = rng.poisson(5.0, rows).astype(float) if y is None else y
    crps_of_model = level + rng.gamma(2.0, 0.4, rows)
    crps = {"model": crps_of_model} | {f"other {i}": crps_of_model + gain for i, gain in enumerate(difference)}
    error = difference if error is None else np.atleast_2d(error)
    errors = {"model": crps_of_model} | {f"other {i}": crps_of_model + gain for i, gain in enumerate(error)}
    inside = rng.random(rows) < coverage
    return verdict(Evaluation.from_rows("model", make_scores(crps, inside, error=errors), y, **options))


def count_levels(make, seeds=300):
    counter = Counter(make(np.random.default_rng(seed)).level for seed in range(seeds))
    return {level: number / seeds for level, number in counter.items()}


NOISE = {
    "normal": lambda rng, n: rng.normal(size=n),
    "heavy tails": lambda rng, n: rng.standard_t(2.0, n),
    "rare losses": lambda rng, n: np.exp(0.5) - np.exp(rng.normal(size=n)),
    "rare gains": lambda rng, n: np.exp(rng.normal(size=n)) - np.exp(0.5),
    "mostly ties": lambda rng, n: rng.normal(size=n) * (rng.random(n) < 0.2),
}


@pytest.mark.parametrize("rows", [50, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", NOISE)
def test_without_a_difference_few_verdicts_are_positive(kind, rows):
    shares = count_levels(lambda rng: judge_gap(rng, 0.4 * NOISE[kind](rng, rows)))
    assert shares.get("better", 0.0) <= 0.05
    assert shares.get("worse", 0.0) <= 0.05


def judge_outliers(rng, outliers, size):
    """Judge a model that is worse except on a handful of rows."""
    difference = -0.3 + 0.3 * rng.normal(size=600)
    difference[rng.choice(600, outliers, replace=False)] = size * rng.uniform(0.5, 1.5, outliers)
    return judge_gap(rng, difference)


def judge_failing_rival(rng):
    """Judge against a candidate that fails on two rows, as a Poisson GLM may, whose mean grows exponentially."""
    failing = 0.3 + 0.5 * rng.normal(size=600)
    failing[rng.choice(600, 2, replace=False)] = 1e9
    return judge_gap(rng, [failing, 0.4 + 0.5 * rng.normal(size=600)])


def judge_wrong_intervals(rng, coverage, words):
    """Judge a better model whose intervals are wrong."""
    decision = judge_gap(rng, 1.0 + rng.normal(size=600), coverage=coverage)
    assert decision.level != "undecided" or words in str(decision)
    return decision


#: How to draw rows, how often, and the least and largest shares of verdicts.
LEVELS = {
    "of several equal candidates the luckiest is not taken for better": (
        lambda rng: judge_gap(rng, 0.4 * rng.normal(size=(5, 200))), 300, {"better": (0, 0.01), "worse": (0, 0.05)},
    ),
    "one is clearly beaten, and another is as good with an uncertain score": (
        lambda rng: judge_gap(rng, [0.2 + 0.2 * rng.normal(size=200), 6.0 * rng.normal(size=200)]), 300,
        {"better": (0, 0.05)},
    ),
    "clearly better": (lambda rng: judge_gap(rng, 0.3 + 0.8 * rng.normal(size=400)), 100, {"better": (0.95, 1)}),
    "clearly worse": (lambda rng: judge_gap(rng, -0.3 + 0.8 * rng.normal(size=400)), 100, {"worse": (0.95, 1)}),
    "a tie": (lambda rng: judge_gap(rng, np.zeros(400)), 5, {"as good as": (1, 1)}),
    "too small to matter": (
        lambda rng: judge_gap(rng, 0.01 + 1e-3 * rng.normal(size=4000)), 20, {"as good as": (1, 1)},
    ),
    "few rows have all the weight": (
        lambda rng: judge_gap(rng, 1.0 + rng.normal(size=500), weight=np.r_[np.full(8, 1e3), np.ones(492)]), 20,
        {"undecided": (1, 1)},
    ),
    **{
        f"{number} outliers of {size:g}": (partial(judge_outliers, outliers=number, size=size), 50, {"better": (0, 0)})
        for number in (1, 2, 4, 6) for size in (1e4, 1e12)
    },
    "a rival that fails on two rows is beaten by the others": (judge_failing_rival, 50, {"better": (0.95, 1)}),
    "an MAE 3,000 times as large, whatever the CRPS says": (
        lambda rng: judge_gap(rng, 2.0 + 0.5 * rng.normal(size=600), level=0.1, error=np.r_[-2e6, np.zeros(599)]), 20,
        {"undecided": (1, 1)},
    ),
    "too narrow": (
        partial(judge_wrong_intervals, coverage=0.8, words="too narrow"), 50, {"undecided": (0.95, 1)},
    ),
    "too wide": (
        partial(judge_wrong_intervals, coverage=0.995, words="too wide"), 50, {"undecided": (0.95, 1)},
    ),
    "right intervals": (lambda rng: judge_gap(rng, 1.0 + rng.normal(size=600)), 200, {"better": (0.95, 1)}),
    "medians that are clearly worse": (
        lambda rng: judge_gap(rng, 0.5 + rng.normal(size=600), error=-0.5 + rng.normal(size=600)), 50,
        {"undecided": (0.95, 1)},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("make", "seeds", "shares"), LEVELS.values(), ids=LEVELS)
def test_the_verdict_is_the_right_one_as_often_as_promised(make, seeds, shares):
    level_shares = count_levels(make, seeds)
    for level, (least, most) in shares.items():
        assert least <= level_shares.get(level, 0.0) <= most
