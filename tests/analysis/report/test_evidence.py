"""Test predictions and scores of rows against scipy, which rows are evaluated, and sentences that follow numbers."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from torch.distributions import Normal

from ddpn import Poisson
from ddpn.analysis.explanations import Importance, Importances
from ddpn.analysis.pit import Pit
from ddpn.analysis.report.evidence import gather_evidence
from ddpn.analysis.report.row_groups import group_by_column
from ddpn.analysis.report.sections import group_by_important_columns
from ddpn.analysis.report.sentences import describe_coverage, describe_errors, describe_pit, describe_uncertainty
from ddpn.rows.count_rows import CountRows
from ddpn.tables.columns import Column, Kind


def test_one_distribution_serves_every_row_and_a_normal_is_rounded(small_model, data):
    frame, y = data
    others = {"constant": Poisson(2.0), "line": Normal(torch.full((300,), 3.0).double(), 2.0)}
    board = gather_evidence(small_model, CountRows(frame, y), others).board
    log_scores = {entry["name"]: entry["nll"] for entry in board.entries}
    assert log_scores["constant"] == pytest.approx(-stats.poisson(2.0).logpmf(y).mean(), rel=1e-6)
    normal = stats.norm(3, 2)
    below = normal.cdf(y + 0.5) - np.where(y > 0, normal.cdf(y - 0.5), 0.0)
    rounded = np.where(y <= 3, below, normal.sf(y - 0.5) - normal.sf(y + 0.5))
    assert log_scores["line"] == pytest.approx(-np.log(rounded).mean(), rel=1e-6)


def test_intervals_are_calibrated_ones(small_model, data, baselines):
    frame, y = data
    model = copy.deepcopy(small_model).fit_intervals(frame[:200], y[:200])
    evidence = gather_evidence(model, CountRows(frame, y), baselines)
    ends = model.predict_interval(frame, 0.9)
    assert np.column_stack([evidence.low, evidence.high]).tolist() == ends.tolist()
    (width,) = (entry["width"] for entry in evidence.board.entries if entry["name"] == "constant")
    assert width == np.ptp(stats.poisson(baselines["constant"].mean.numpy()).ppf([0.05, 0.95]))
    assert evidence.calibration_rows == 200


def test_rows_of_weight_0_are_not_evaluated(small_model, data, baselines):
    frame, y = data
    weight = np.arange(len(y)) % 3.0
    evidence = gather_evidence(small_model, CountRows(frame, y, weight=weight), baselines)
    kept = np.flatnonzero(weight)
    assert evidence.labels.tolist() == kept.tolist()
    assert evidence.weight.tolist() == weight[kept].tolist()
    assert evidence.weighted
    assert evidence.mean == pytest.approx(small_model.predict(frame.iloc[kept]))
    crps = np.average(baselines["truth"].crps(torch.from_numpy(y)).numpy(), weights=weight)
    assert {entry["name"]: entry["crps"] for entry in evidence.board.entries}["truth"] == pytest.approx(crps)


def test_of_very_many_rows_a_draw_is_evaluated(small_model, data, baselines):
    frame, y = data
    evidence = gather_evidence(small_model, CountRows(frame, y), baselines, max_rows=60)
    assert (len(evidence.labels), len(set(evidence.labels)), evidence.total) == (60, 60, 300)
    assert evidence.y.tolist() == y[evidence.labels].tolist()
    assert evidence.columns[0].values == pytest.approx(frame["x"].to_numpy()[evidence.labels])
    assert (evidence.board.rows, evidence.board.total, evidence.inputs.total) == (60, 300, 300)
    crps = baselines["truth"].crps(torch.from_numpy(y)).numpy()[evidence.labels].mean()
    assert {entry["name"]: entry["crps"] for entry in evidence.board.entries}["truth"] == pytest.approx(crps)


def test_rows_are_called_by_the_index_or_by_given_labels(small_model, data):
    frame, y = data[0][:9], data[1][:9]
    weight = np.arange(9) % 2
    named = gather_evidence(small_model, CountRows(frame.set_axis(list("abcdefghi")), y, weight=weight))
    assert named.labels.tolist() == list("bdfh")
    ids = ("patient", [f"p{row}" for row in range(9)])
    evidence = gather_evidence(small_model, CountRows(frame, y, weight=weight, labels=np.arange(9) + 100), ids=ids)
    assert evidence.labels.tolist() == [101, 103, 105, 107]
    assert evidence.ids == ("patient", ["p1", "p3", "p5", "p7"])


# Groups of rows ---


def test_a_group_has_the_means_of_its_rows(evidence):
    weighted = evidence._replace(weight=np.arange(1.0, 1.0 + len(evidence.y)))
    column = weighted.columns[3]
    groups = group_by_column(weighted.columns, 3, weighted)
    assert [(group.column, group.label) for group in groups] == [("flag", "no"), ("flag", "yes")]
    mask = column.values == 1.0
    error = weighted.scores.mae
    assert groups[1].mae == pytest.approx(np.average(error[mask], weights=weighted.weight[mask]))
    assert groups[1].aleatoric == pytest.approx(np.average(weighted.aleatoric[mask], weights=weighted.weight[mask]))
    assert (groups[1].rows, groups[0].rows) == (mask.sum(), (~mask).sum())
    assert 0.0 < groups[1].share < 1.0


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (Column("x", Kind.NUMBER, np.repeat([1.0, 2.0, np.nan], [60, 30, 10])), {"1": 60, "2": 30, "missing": 10}),
        (
            Column("x", Kind.NUMBER, np.concatenate([np.zeros(90), np.arange(1.0, 11.0)])),
            {"up to 0": 90, "above 0": 10},
        ),
        (Column("f", Kind.BOOLEAN, np.repeat([0.0, 1.0], [70, 30])), {"no": 70, "yes": 30}),
        (
            Column("c", Kind.CATEGORY, np.repeat([1, 0, -1], [50, 30, 20]), ("p", "q")),
            {"q": 50, "p": 30, "missing": 20},
        ),
        (
            Column("c", Kind.CATEGORY, np.r_[np.repeat(np.arange(20), 4), 20:40], tuple(f"l{j:02}" for j in range(40))),
            {f"l{j:02}": 4 for j in range(20)} | {"others": 20},
        ),
        (
            Column("year", Kind.NUMBER, np.arange(1925.0, 2025.0)),
            dict.fromkeys(["up to 1944", "1944 to 1964", "1964 to 1984", "1984 to 2004", "above 2004"], 20),
        ),
    ],
)
def test_rows_are_grouped_by_values_levels_or_ranges(make_evidence, column, expected):
    evidence = make_evidence(Poisson(torch.ones(100).double()), np.ones(100), columns=[column])
    assert {group.label: group.rows for group in group_by_column([column], 0, evidence)} == expected


# Sentences ---

RNG = np.random.default_rng(12)
MU = RNG.uniform(3.0, 9.0, 400)
Y = RNG.poisson(MU)


def make_poisson(mu):
    return Poisson(torch.as_tensor(np.broadcast_to(mu, MU.shape).copy()).double())


# Coverage and errors ---------------------------------------------------------------------------------------------


def describe_interval_coverage(evidence):
    return describe_coverage(evidence, evidence.board.evaluation)


def make_covering_evidence(made, share, expected, **more):
    """Make evidence of 1,000 rows, a share of them inside the interval, and as many expected as `expected` says."""
    evidence = made(Poisson(torch.ones(1000).double()), np.ones(1000), **more)
    evaluation = replace(evidence.board.evaluation, coverage=share, expected=expected)
    board = replace(evidence.board, evaluation=evaluation)
    return evidence._replace(board=board)


@pytest.mark.parametrize(
    ("share", "expected", "words"),
    [
        (0.85, 0.95, "too narrow"),
        (0.91, 0.95, "slightly overconfident"),
        (0.94, 0.95, "as expected"),
        (0.98, 0.95, "wider than necessary"),
    ],
)
def test_coverage_is_compared_with_the_level_and_with_what_is_expected(make_evidence, share, expected, words):
    sentence = describe_interval_coverage(make_covering_evidence(make_evidence, share, expected))
    assert words in sentence
    assert "expected 95.0%; at least 90% asked" in sentence


def test_calibrated_intervals_are_compared_with_their_own_probability_too(make_evidence):
    sentence = describe_interval_coverage(make_covering_evidence(make_evidence, 0.95, 0.95, calibration_rows=120))
    assert "calibrated on 120 held-out rows" in sentence
    assert "as expected" in sentence


def test_the_typical_error_and_a_bias_are_reported(make_evidence):
    biased = make_evidence(make_poisson(1.3 * MU), Y)
    words, error = describe_errors(biased, "visits"), np.abs(stats.poisson(1.3 * MU).median() - Y)
    assert f"off by {np.quantile(error, 0.5, method='inverted_cdf'):.0f} or less" in words
    assert f"mean absolute error is {error.mean():.2f}, and the mean of visits is {Y.mean():.2f}" in words
    assert f"{100 * abs((1.3 * MU - Y).mean()) / Y.mean():.1f}% above the counts" in words
    assert "bias" not in describe_errors(make_evidence(make_poisson(MU), Y), "visits")


# Calibration ----------------------------------------------------------------------------------------------------

FLAT = np.ones(10)
SHAPES = {
    "no evidence against": FLAT + 0.05 * np.array([1, -1] * 5),
    "too narrow": FLAT + np.array([0.8, 0, -0.2, -0.2, -0.3, -0.3, -0.2, -0.2, 0, 0.6]),
    "too wide": FLAT - np.array([0.8, 0, -0.2, -0.2, -0.3, -0.3, -0.2, -0.2, 0, 0.6]),
    "counts higher": np.linspace(0.5, 1.5, 10),
    "counts lower": np.linspace(1.5, 0.5, 10),
    "without a slope, a U or a hump": FLAT + np.array([0, 0.3, -0.3, 0, 0, 0, -0.3, 0.3, 0, 0]),
}


@pytest.mark.parametrize("fragment", SHAPES)
def test_the_shape_of_a_pit_histogram_is_recognised(fragment):
    assert fragment in describe_pit(Pit(SHAPES[fragment], 0.12))


# Why the model is uncertain, and where its intervals are too narrow ---

ROWS = 300
IN_B = np.arange(ROWS) % 3 == 0
WARD = Column("ward", Kind.CATEGORY, IN_B.astype(int), ("a", "b"))
AGE = Column("age", Kind.BOOLEAN, (np.arange(ROWS) % 2).astype(float))


@pytest.fixture(scope="module")
def noisy(make_evidence):
    mu = torch.full((ROWS,), 4.0, dtype=torch.float64)
    return make_evidence(Poisson(mu), RNG.poisson(4.0, ROWS), columns=[WARD, AGE], components=5)


def describe_groups(evidence):
    changes = [np.full((3, 3), value) for value in (0.5, 0.1)]
    importances = Importances(
        [Importance("ward", *changes[0], 0), Importance("age", *changes[1], 1)], ROWS, 2, ROWS, ROWS
    )
    groups = group_by_important_columns(importances, evidence)
    assert [column_groups[0].column for column_groups in groups] == ["ward", "age"]
    return dict(describe_uncertainty(evidence, [group for column_groups in groups for group in column_groups]))


def test_disagreement_is_reported_where_it_is_largest(noisy):
    words = describe_groups(noisy)["Reason"]
    assert "5 components of the mixture agree: their disagreement is 0% of the variance" in words
    epistemic = np.where(AGE.values == 1.0, 3.0, 0.3) * noisy.aleatoric
    words = describe_groups(noisy._replace(epistemic=epistemic))["Reason"]
    assert "most where age is yes (75.0%)" in words
    share = epistemic.mean() / (epistemic + noisy.aleatoric).mean()
    assert f"{100 * share:.1f}% is disagreement between the components" in words


def test_the_group_with_too_narrow_intervals_is_named(make_evidence, noisy):
    mu = torch.full((ROWS,), 4.0, dtype=torch.float64)
    y = np.where(IN_B & (RNG.random(ROWS) < 0.5), 40, 4)
    words = describe_groups(make_evidence(Poisson(mu), y, columns=[WARD, AGE]))["Narrow intervals"]
    assert f"Where ward is b, the 90% interval covers only {100 * (y[IN_B] == 4).mean():.1f}% of 100 rows" in words
    assert "Narrow intervals" not in describe_groups(noisy)
