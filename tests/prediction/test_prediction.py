"""Test `predict_distribution`: numbers against scipy, intervals against the estimator, and how it is shown."""

import copy
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy import stats

from ddpn import ConfigError, CountGLM, InputError, Mixture, Poisson, metrics
from ddpn.prediction.prediction import Prediction
from ddpn.prediction.spec import PredictionSpec

RNG = np.random.default_rng(0)
X = RNG.uniform(-1.0, 1.0, (600, 1))
MEAN = np.exp(1.0 + X[:, 0])
Y = RNG.poisson(RNG.gamma(2.0, MEAN / 2.0))


@pytest.fixture(scope="module")
def model() -> CountGLM:
    """A model of far too narrow distributions, with calibrated intervals."""
    return CountGLM("poisson", covariance="robust").fit(X[:300], Y[:300]).fit_intervals(X[300:], Y[300:])


@pytest.fixture(scope="module")
def prediction(model) -> Prediction:
    return model.predict_distribution(X[:40])


def test_masses_and_quantiles_are_those_of_scipy(model, prediction):
    truth = stats.poisson(model.predict(X[:40])[:, None])
    np.testing.assert_allclose(prediction.pmf([0, 3, 9]), truth.pmf([0, 3, 9]), rtol=1e-9)
    np.testing.assert_allclose(prediction.pmf(2), truth.pmf(2)[:, 0], rtol=1e-9)
    assert prediction.quantile([0.1, 0.5]).tolist() == truth.ppf([0.1, 0.5]).tolist()
    assert prediction.quantile(0.9).tolist() == truth.ppf(0.9)[:, 0].tolist()
    np.testing.assert_allclose(prediction.cdf([0, 4]), truth.cdf([0, 4]), rtol=1e-9)
    np.testing.assert_allclose(prediction.prob_above([0, 12]), truth.sf([0, 12]), rtol=1e-9)
    np.testing.assert_allclose(prediction.prob_above(3), truth.sf(3)[:, 0], rtol=1e-9)
    assert prediction.median.tolist() == truth.ppf(0.5)[:, 0].tolist()
    np.testing.assert_allclose(prediction.mean, truth.mean()[:, 0], rtol=1e-9)
    np.testing.assert_allclose(prediction.std, truth.std()[:, 0], rtol=1e-9)
    assert (prediction.pmf(np.arange(60)).argmax(1) == prediction.mode).all()
    for bad in (1.5, "half", [[0.1]]):
        with pytest.raises(InputError, match="q must"):
            prediction.quantile(bad)


@pytest.mark.parametrize("kind", ["narrowest", "central"])
def test_intervals_are_those_of_the_estimator(model, prediction, kind):
    low, high = prediction.interval(0.8, kind)
    assert np.column_stack([low, high]).tolist() == model.predict_interval(X[:40], 0.8, kind=kind).tolist()
    intervals, probability = model.predict_interval(X[:40], 0.8, kind=kind, return_probability=True)
    assert probability == pytest.approx(prediction.prob_between(low, high))
    truth = stats.poisson(model.predict(X[:40]))
    assert probability == pytest.approx(truth.cdf(intervals[:, 1]) - truth.cdf(intervals[:, 0] - 1))
    with pytest.raises(InputError, match=r"low must be one count, or one per row \(40\)"):
        prediction.prob_between([1, 2], 3)


def test_intervals_by_group_follow_the_column(model):
    frame = pd.DataFrame({"x": X[:, 0], "wide": np.where(np.arange(600) % 2, "yes", "no")})
    y = np.where(frame["wide"] == "yes", 5 * Y, Y)
    grouped = CountGLM("poisson", covariance="robust").fit(frame[["x"]], y)
    grouped.fit_intervals(frame[["x"]], y, groups=frame["wide"])
    with_labels = grouped.predict_distribution(frame[["x"]], groups=frame["wide"]).interval()
    assert (
        np.column_stack(with_labels).tolist() == grouped.predict_interval(frame[["x"]], groups=frame["wide"]).tolist()
    )
    same = grouped.predict_distribution(frame[["x"]]).interval()
    assert (same[1] != with_labels[1]).any(), "without labels, the level of all rows"


def test_scores_accept_a_prediction_and_it_survives_copies(prediction):
    y = pd.Series(Y[:40])
    for metric in (metrics.crps, metrics.nll, metrics.is_covered):
        assert torch.equal(metric(prediction, y), metric(prediction.distribution, y))
    for same in (copy.deepcopy(prediction), pickle.loads(pickle.dumps(prediction))):
        assert same.mean.tolist() == prediction.mean.tolist()
        assert same.interval()[1].tolist() == prediction.interval()[1].tolist()


def test_results_are_arrays_of_numpy(prediction):
    for name in ("mean", "median", "mode", "std", "variance", "aleatoric", "epistemic"):
        assert isinstance(values := getattr(prediction, name), np.ndarray)
        assert values.shape == (40,), name
    np.testing.assert_allclose(prediction.variance, prediction.aleatoric + prediction.epistemic)
    low, high = prediction.interval(0.5)
    assert (low.dtype, high.dtype) == (np.int64, np.int64)


def test_samples_follow_the_distribution_and_their_seed(prediction):
    draws = prediction.sample(4000, seed=1)
    assert (draws.shape, draws.dtype) == ((40, 4000), np.int64)
    np.testing.assert_allclose(draws.mean(1), prediction.mean, atol=5 * (prediction.std / 4000**0.5).max())
    np.testing.assert_allclose(draws.std(1), prediction.std, rtol=0.1)
    assert (prediction.sample(5, seed=2) == prediction.sample(5, seed=2)).all()
    assert (prediction.sample(50) != prediction.sample(50)).any()


@pytest.mark.parametrize(
    ("rows", "positions"),
    [(3, [3]), (-1, [39]), (slice(2, 5), [2, 3, 4]), ([4, 1], [4, 1]), (np.arange(40) % 20 == 7, [7, 27])],
)
def test_some_rows_have_the_same_prediction(model, prediction, rows, positions):
    some = prediction[rows]
    assert len(some) == len(positions)
    assert some.mean.tolist() == prediction.mean[positions].tolist()
    assert np.array(some.interval(0.8)).T.tolist() == model.predict_interval(X[positions], 0.8).tolist()
    assert some.to_frame().equals(prediction.to_frame()[positions])
    assert repr(some).splitlines()[2].split()[0] == str(positions[0])
    with pytest.raises(IndexError):
        prediction[40]


def test_iteration_is_over_rows(prediction):
    assert [row.mean.item() for row in prediction[:3]] == prediction.mean[:3].tolist()


def test_a_frame_is_of_the_library_of_the_rows(model):
    frame = pd.DataFrame({"x": X[:40, 0]}, index=[f"row {number}" for number in range(40)])
    named = CountGLM("poisson", covariance="robust").fit(frame, Y[:40])
    table = named.predict_distribution(frame).to_frame(quantiles=[0.9])
    assert isinstance(table, pd.DataFrame)
    assert (table.index == frame.index).all()
    other = named.predict_distribution(pl.DataFrame({"x": X[:40, 0]})).to_frame(quantiles=[0.9])
    assert isinstance(other, pl.DataFrame)
    assert other.columns == list(table.columns) == [*PredictionSpec().columns[:-1], "q0.9"]
    assert other["lower"].to_list() == table["lower"].tolist()
    assert isinstance(model.predict_distribution(X[:2]).to_frame(), pl.DataFrame)


def test_a_frame_has_the_columns_that_are_asked_for(model, prediction):
    spec = PredictionSpec(columns=("upper", "mean"), pmf=1, coverage=0.8)
    assert prediction.to_frame(spec).columns == ["mean", "upper", "p0", "p1"], "in the order of all columns"
    assert prediction.to_frame(spec)["upper"].to_list() == prediction.interval(0.8)[1].tolist()
    assert prediction.to_frame(spec, columns=["mode"], pmf=None).columns == ["mode"]
    for bad, shown in ((200.5, "200.5"), (-1, "-1"), ([3, 0.5], "0.5")):
        with pytest.raises(InputError, match=f"^counts must hold non-negative integers, got {shown}.$"):
            prediction.prob_above(bad)
    above = prediction.to_frame(columns=["mode"], prob_above=[0, 4])
    assert above.columns == ["mode", "prob_above_0", "prob_above_4"]
    assert above.select(pl.exclude("mode")).to_numpy().tolist() == prediction.prob_above([0, 4]).tolist()
    assert np.allclose(above["prob_above_4"], 1 - prediction.pmf(range(5)).sum(axis=1))
    with pytest.raises(ConfigError, match=r"prob_above must hold integers from 0 to 2.53, got 200.5"):
        prediction.to_frame(prob_above=[200.5])
    with pytest.raises(ConfigError, match="Unknown key 'average' in columns"):
        prediction.to_frame(columns=["average"])
    with pytest.raises(InputError, match="columns must be columns of a table, got 'members'"):
        prediction.to_frame(columns=["members"])
    flagged = copy.deepcopy(model).fit_ood(X[300:]).predict_distribution([[0.0], [90.0]]).to_frame(ood=0.05)
    assert flagged["ood"].to_list() == [False, True]
    assert flagged["ood_reason"][0] is None
    assert flagged["ood_reason"][1].startswith("'x0' above the training range: 90 > ")


def test_the_first_rows_are_shown_with_their_labels():
    dist = Mixture(Poisson(torch.tensor([[2.0], [30.0], [3.0], [4.0], [5.0], [6.0], [7.0]]).double()))
    labelled = Prediction(dist, labels=np.array(list("abcdefg")))
    lines = repr(labelled).splitlines()
    assert lines[0] == "Prediction of 7 rows"
    assert lines[1].split() == ["row", "mean", "interval,", "90%", "or", "more"]
    low, high, probability = (part.item() for part in dist.rows(torch.tensor([1])).narrowest_interval(0.9))
    assert probability == pytest.approx(stats.poisson.cdf(high, 30.0) - stats.poisson.cdf(low - 1, 30.0))
    assert lines[3].split() == ["b", "30", f"{low:.0f}", "to", f"{high:.0f}", f"({probability:.0%})"]
    assert lines[-1] == "... and 2 more rows"
    assert labelled._repr_html_().count("<tr>") == 6
    assert f"<td>{low:.0f} to {high:.0f} ({probability:.0%})</td>" in labelled._repr_html_()


def test_bars_of_a_plot_have_the_heights_of_the_masses():
    two_rows = Prediction(Mixture(Poisson(torch.tensor([[4.0], [9.0]]).double())))
    (axes,) = two_rows.plot([0]).axes
    heights = np.array([bar.get_height() for bar in axes.patches])
    np.testing.assert_allclose(heights, stats.poisson(4.0).pmf(np.arange(len(heights))), atol=1e-9)


def test_rows_may_be_reversed_or_none(model, prediction):
    assert prediction[::-1].mean.tolist() == prediction.mean[::-1].tolist()
    assert prediction[::-1].interval(0.8)[0].tolist() == prediction.interval(0.8)[0][::-1].tolist()
    flagged = CountGLM("poisson", covariance="robust").fit(X[:300], Y[:300]).fit_ood(X[300:])
    for whole in (prediction, flagged.predict_distribution(X[:40])):
        for nothing in ([], np.zeros(40, dtype=bool), slice(0)):
            assert len(whole[nothing]) == 0
            assert whole[nothing].mean.shape == (0,)
