"""Predictions and scores of every row against scipy; which rows are evaluated."""

import copy

import numpy as np
import pytest
import torch
from scipy import stats
from torch.distributions import Exponential, Normal

from ddpn import InputError, Poisson
from ddpn.analysis.report import evidence as module
from ddpn.analysis.report.evidence import count_distribution, gather, scored

MU = np.array([0.3, 2.0, 17.5, 120.0])
Y = np.array([1.0, 0.0, 25.0, 110.0])


def test_a_distribution_is_scored_as_by_scipy():
    dist, found = stats.poisson(MU), scored(Poisson(torch.from_numpy(MU)), torch.from_numpy(Y))
    counts = np.arange(2000)[:, None]
    low, high = dist.ppf(0.05), dist.ppf(0.95)
    expected = {
        "mean": MU,
        "median": dist.ppf(0.5),
        "low": low,
        "high": high,
        "variance": MU,
        "crps": np.square(dist.cdf(counts) - (counts >= Y)).sum(0),
        "nll": -dist.logpmf(Y),
        "error": np.abs(dist.ppf(0.5) - Y),
        "inside": ((low <= Y) & (high >= Y)).astype(float),
        "expected": dist.cdf(high) - dist.cdf(low - 1),
        "width": high - low,
    }
    for name, values in expected.items():
        assert getattr(found, name) == pytest.approx(values, rel=1e-9), name


def test_one_distribution_serves_every_row_and_a_normal_is_rounded():
    assert count_distribution("constant", Poisson(2.0), 4).batch_shape == (4,)
    dist = count_distribution("line", Normal(torch.tensor([3.0, 9.0]).double(), 2.0), 2)
    rounded = stats.norm(3, 2).cdf(4.5) - stats.norm(3, 2).cdf(3.5)
    assert dist.log_prob(torch.tensor(4.0)).exp()[0].item() == pytest.approx(rounded, rel=1e-9)


@pytest.mark.parametrize(
    ("dist", "words"),
    [(Poisson(torch.ones(3)), r"baseline 'glm' .* per row of X \(4\)"), (Exponential(1.0), "dist")],
)
def test_an_unsuitable_baseline_is_refused(dist, words):
    with pytest.raises(InputError, match=words):
        count_distribution("glm", dist, 4)


def test_intervals_are_taken_at_their_level(fitted, data, baselines):
    frame, y = data
    model = copy.deepcopy(fitted).fit_intervals(frame[:200], y[:200])
    found = gather(model, frame, y, None, None, baselines, lambda stage: None, {"truth": 0.6})
    ends = model.predict_interval(frame, 0.9, kind="calibrated")
    assert np.column_stack([found.model.low, found.model.high]).tolist() == ends.tolist()
    truth, constant = (stats.poisson(baselines[name].mean.numpy()) for name in ("truth", "constant"))
    assert found.baselines["truth"].high == pytest.approx(truth.ppf(0.8))
    assert found.baselines["constant"].high == pytest.approx(np.full(300, constant.ppf(0.95)))
    assert found.calibrated == 200


def test_scores_are_means_and_a_weight_repeats_a_row():
    found = scored(Poisson(torch.from_numpy(MU)), torch.from_numpy(Y))
    scores = found.scores(np.ones(4))
    assert scores["mae"] == pytest.approx(np.abs(stats.poisson.ppf(0.5, MU) - Y).mean())
    assert scores["coverage"] == pytest.approx(np.mean([1, 1, 1, 1]))
    assert scores["width"] == pytest.approx((stats.poisson.ppf(0.95, MU) - stats.poisson.ppf(0.05, MU)).mean())
    often = np.array([0, 1, 1, 1, 2, 3, 3])
    repeated = scored(Poisson(torch.from_numpy(MU[often])), torch.from_numpy(Y[often])).scores(np.ones(7))
    assert found.scores(np.array([1.0, 3.0, 1.0, 2.0])) == pytest.approx(repeated)


def test_both_parts_of_the_variance_are_those_of_the_model(fitted, data, evidence):
    parts = fitted.predict_uncertainty(data[0])
    assert evidence.aleatoric == pytest.approx(parts["aleatoric"])
    assert evidence.epistemic == pytest.approx(parts["epistemic"])
    assert evidence.model.variance == pytest.approx(parts["total"])
    assert not evidence.weighted


def test_rows_of_weight_0_are_not_evaluated(fitted, data, baselines):
    frame, y = data
    weight = np.arange(len(y)) % 3.0
    found = gather(fitted, frame, y, None, weight, baselines, lambda stage: None)
    kept = np.flatnonzero(weight)
    assert found.labels.tolist() == kept.tolist()
    assert found.weight.tolist() == weight[kept].tolist()
    assert found.weighted
    assert found.model.mean == pytest.approx(fitted.predict(frame.iloc[kept]))
    assert found.baselines["truth"].mean == pytest.approx(baselines["truth"].mean.numpy()[kept])


def test_of_very_many_rows_a_draw_is_evaluated(monkeypatch, fitted, data, baselines):
    monkeypatch.setattr(module, "MAX_ROWS", 60)
    frame, y = data
    found = gather(fitted, frame, y, None, None, baselines, lambda stage: None)
    assert (len(found.labels), len(set(found.labels)), found.total) == (60, 60, 300)
    assert found.y.tolist() == y[found.labels].tolist()
    assert found.columns[0].values == pytest.approx(frame["x"].to_numpy()[found.labels])
    assert found.baselines["truth"].mean == pytest.approx(baselines["truth"].mean.numpy()[found.labels])


def test_rows_are_called_by_the_index_or_by_given_labels(fitted, data):
    frame, y = data[0][:9], data[1][:9]
    options = {"exposure": None, "weight": np.arange(9) % 2, "baselines": {}, "progress": lambda stage: None}
    named = gather(fitted, frame.set_axis(list("abcdefghi")), y, **options)
    assert named.labels.tolist() == list("bdfh")
    ids = ("patient", [f"p{row}" for row in range(9)])
    found = gather(fitted, frame, y, **options, labels=np.arange(9) + 100, ids=ids)
    assert found.labels.tolist() == [101, 103, 105, 107]
    assert found.ids == ("patient", ["p1", "p3", "p5", "p7"])
