"""Predictions and scores of every row against scipy; which rows are evaluated."""

import copy

import numpy as np
import pytest
import torch
from scipy import stats
from torch.distributions import Exponential, Normal

from ddpn import InputError, Poisson
from ddpn.analysis.report import evidence as module
from ddpn.analysis.report.evidence import _coded, gather, groups_by
from ddpn.tables.encoding.table import Column


def test_one_distribution_serves_every_row_and_a_normal_is_rounded(fitted, data):
    frame, y = data
    others = {"constant": Poisson(2.0), "line": Normal(torch.full((300,), 3.0).double(), 2.0)}
    found = gather(fitted, frame, y, baselines=others).board.scores
    assert found["constant"].nll == pytest.approx(-stats.poisson(2.0).logpmf(y), rel=1e-6)
    rounded = stats.norm(3, 2).cdf(y + 0.5) - np.where(y > 0, stats.norm(3, 2).cdf(y - 0.5), 0.0)
    assert np.exp(-found["line"].nll) == pytest.approx(rounded, rel=1e-6)


@pytest.mark.parametrize(
    ("dist", "words"),
    [(Poisson(torch.ones(3)), r"baseline 'glm' .* per row of X \(300\)"), (Exponential(1.0), "dist")],
)
def test_an_unsuitable_baseline_is_refused(dist, words, fitted, data):
    with pytest.raises(InputError, match=words):
        gather(fitted, *data, baselines={"glm": dist})


def test_intervals_are_calibrated_ones(fitted, data, baselines):
    frame, y = data
    model = copy.deepcopy(fitted).fit_intervals(frame[:200], y[:200])
    found = gather(model, frame, y, baselines=baselines)
    ends = model.predict_interval(frame, 0.9, kind="calibrated")
    assert np.column_stack([found.low, found.high]).tolist() == ends.tolist()
    constant = stats.poisson(baselines["constant"].mean.numpy())
    assert found.board.scores["constant"].width == pytest.approx(np.full(300, np.ptp(constant.ppf([0.05, 0.95]))))
    assert found.calibrated == 200


def test_both_parts_of_the_variance_are_those_of_the_model(fitted, data, evidence):
    parts = fitted.predict_uncertainty(data[0])
    assert evidence.aleatoric == pytest.approx(parts["aleatoric"])
    assert evidence.epistemic == pytest.approx(parts["epistemic"])
    assert evidence.variance == pytest.approx(parts["total"])
    assert not evidence.weighted


def test_rows_of_weight_0_are_not_evaluated(fitted, data, baselines):
    frame, y = data
    weight = np.arange(len(y)) % 3.0
    found = gather(fitted, frame, y, weight=weight, baselines=baselines)
    kept = np.flatnonzero(weight)
    assert found.labels.tolist() == kept.tolist()
    assert found.weight.tolist() == weight[kept].tolist()
    assert found.weighted
    assert found.mean == pytest.approx(fitted.predict(frame.iloc[kept]))
    crps = baselines["truth"].crps(torch.from_numpy(y)).numpy()[kept]
    assert found.board.scores["truth"].crps == pytest.approx(crps)


def test_of_very_many_rows_a_draw_is_evaluated(monkeypatch, fitted, data, baselines):
    monkeypatch.setattr(module, "MAX_ROWS", 60)
    frame, y = data
    found = gather(fitted, frame, y, baselines=baselines)
    assert (len(found.labels), len(set(found.labels)), found.total) == (60, 60, 300)
    assert found.y.tolist() == y[found.labels].tolist()
    assert found.columns[0].values == pytest.approx(frame["x"].to_numpy()[found.labels])
    assert found.board.rows == 300, "all rows are scored"


def test_rows_are_called_by_the_index_or_by_given_labels(fitted, data):
    frame, y = data[0][:9], data[1][:9]
    options = {"weight": np.arange(9) % 2}
    named = gather(fitted, frame.set_axis(list("abcdefghi")), y, **options)
    assert named.labels.tolist() == list("bdfh")
    ids = ("patient", [f"p{row}" for row in range(9)])
    found = gather(fitted, frame, y, **options, labels=np.arange(9) + 100, ids=ids)
    assert found.labels.tolist() == [101, 103, 105, 107]
    assert found.ids == ("patient", ["p1", "p3", "p5", "p7"])


# Groups of rows ---


def test_a_group_has_the_means_of_its_rows(evidence):
    weighted = evidence._replace(weight=np.arange(1.0, 1.0 + len(evidence.y)))
    column = weighted.columns[3]
    found = groups_by(column, weighted)
    assert [(group.column, group.label) for group in found] == [("flag", "no"), ("flag", "yes")]
    mask = column.values == 1.0
    error = weighted.scores.mae
    assert found[1].mae == pytest.approx(np.average(error[mask], weights=weighted.weight[mask]))
    assert found[1].aleatoric == pytest.approx(np.average(weighted.aleatoric[mask], weights=weighted.weight[mask]))
    assert (found[1].rows, found[0].rows) == (mask.sum(), (~mask).sum())
    assert 0.0 < found[1].share < 1.0


def test_numbers_are_grouped_into_fifths():
    values = np.random.default_rng(2).normal(size=500)
    codes, labels = _coded(Column("x", "number", values))
    ranks = np.argsort(np.argsort(values))
    assert codes.tolist() == (ranks // 100).tolist()
    assert (labels[0][:6], labels[4][:6], labels[-1]) == ("up to ", "above ", "missing")


def test_rare_levels_are_grouped_together():
    values = np.concatenate([np.repeat(np.arange(7), 20), np.arange(7, 30)])
    column = Column("c", "category", values, tuple(f"l{j}" for j in range(30)))
    codes, labels = _coded(column)
    assert labels == [*(f"l{j}" for j in range(7)), "others", "missing"]
    assert np.bincount(codes).tolist() == [20] * 7 + [23]


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        (np.concatenate([np.zeros(90), np.arange(1.0, 11.0)]), ["up to 0", "above 0"]),
        (np.concatenate([np.arange(10.0), np.full(90, 10.0)]), ["up to 9", "above 9"]),
    ],
)
def test_a_column_dominated_by_one_value_has_two_groups(values, labels):
    codes, names = _coded(Column("x", "number", values))
    assert [names[code] for code in (codes[0], codes[-1])] == labels
