"""What `predict_distribution` returns: numbers against scipy, intervals against the estimator, and how it is shown."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from ddpn import CountGLM, InputError, Mixture, Poisson, discretized, metrics
from ddpn.distributions import CountDistribution
from ddpn.estimators.prediction import Prediction
from ddpn.predictor import Predictor

RNG = np.random.default_rng(0)
X = RNG.uniform(-1.0, 1.0, (600, 1))
MEAN = np.exp(1.0 + X[:, 0])
Y = RNG.poisson(RNG.gamma(2.0, MEAN / 2.0))


@pytest.fixture(scope="module")
def model() -> CountGLM:
    """Far too narrow distributions, with calibrated intervals."""
    return CountGLM("poisson", covariance="robust").fit(X[:300], Y[:300]).fit_intervals(X[300:], Y[300:])


@pytest.fixture(scope="module")
def found(model) -> Prediction:
    return model.predict_distribution(X[:40])


def test_masses_and_quantiles_are_those_of_scipy(model, found):
    truth = stats.poisson(model.predict(X[:40])[:, None])
    np.testing.assert_allclose(found.pmf([0, 3, 9]), truth.pmf([0, 3, 9]), rtol=1e-9)
    np.testing.assert_allclose(found.pmf(2), truth.pmf(2)[:, 0], rtol=1e-9)
    assert found.quantile([0.1, 0.5]).tolist() == truth.ppf([0.1, 0.5]).tolist()
    assert found.quantile(0.9).tolist() == truth.ppf(0.9)[:, 0].tolist()
    for bad in (1.5, "half", [[0.1]]):
        with pytest.raises(InputError, match="q must"):
            found.quantile(bad)


@pytest.mark.parametrize("kind", ["narrowest", "central"])
def test_intervals_are_those_of_the_estimator(model, found, kind):
    low, high = found.interval(0.8, kind)
    assert np.column_stack([low, high]).tolist() == model.predict_interval(X[:40], 0.8, kind=kind).tolist()
    intervals, own = model.predict_interval(X[:40], 0.8, kind=kind, return_probability=True)
    assert own == pytest.approx(found.probability(low, high).numpy())
    truth = stats.poisson(model.predict(X[:40]))
    assert own == pytest.approx(truth.cdf(intervals[:, 1]) - truth.cdf(intervals[:, 0] - 1))
    with pytest.raises(InputError, match=r"low must be one count, or one per row \(40\)"):
        found.probability([1, 2], 3)


def test_intervals_by_group_follow_the_column(model):
    frame = pd.DataFrame({"x": X[:, 0], "wide": np.where(np.arange(600) % 2, "yes", "no")})
    y = np.where(frame["wide"] == "yes", 5 * Y, Y)
    grouped = CountGLM("poisson", covariance="robust").fit(frame[["x"]], y)
    grouped.fit_intervals(frame[["x"]], y, groups=frame["wide"])
    known = grouped.predict_distribution(frame[["x"]], groups=frame["wide"]).interval()
    assert np.column_stack(known).tolist() == grouped.predict_interval(frame[["x"]], groups=frame["wide"]).tolist()
    same = grouped.predict_distribution(frame[["x"]]).interval()
    assert (same[1] != known[1]).any(), "without labels, the level of all rows"


def test_it_is_the_distribution_that_it_holds(found):
    assert isinstance(found, Mixture | CountDistribution)
    assert discretized(found) is found
    y = pd.Series(Y[:40])
    for metric in (metrics.crps, metrics.nll, metrics.covered):
        assert torch.equal(metric(found, y), metrics.__dict__[metric.__name__](found.distribution, y))
    for same in (copy.deepcopy(found), pickle.loads(pickle.dumps(found))):
        assert torch.equal(same.mean, found.mean)
        assert torch.equal(same.interval()[1], found.interval()[1])


def test_the_first_rows_are_shown_with_their_labels():
    dist = Mixture(Poisson(torch.tensor([[2.0], [30.0], [3.0], [4.0], [5.0], [6.0], [7.0]]).double()))
    found = Prediction(dist, Predictor({}, {}), labels=list("abcdefg"))
    lines = repr(found).splitlines()
    assert lines[0] == "Prediction of 7 rows"
    assert lines[1].split() == ["row", "mean", "interval,", "90%", "or", "more"]
    low, high, own = (part.item() for part in dist.rows(torch.tensor([1])).narrowest_interval(0.9))
    assert own == pytest.approx(stats.poisson.cdf(high, 30.0) - stats.poisson.cdf(low - 1, 30.0))
    assert lines[3].split() == ["b", "30", f"{low:.0f}", "to", f"{high:.0f}", f"({own:.0%})"]
    assert lines[-1] == "and 2 more rows"
    assert found._repr_html_().count("<tr>") == 6
    assert f"<td>{low:.0f} to {high:.0f} ({own:.0%})</td>" in found._repr_html_()


def test_bars_of_a_plot_have_the_heights_of_the_masses():
    found = Prediction(Mixture(Poisson(torch.tensor([[4.0], [9.0]]).double())), Predictor({}, {}))
    (axes,) = found.plot([0]).axes
    heights = np.array([bar.get_height() for bar in axes.patches])
    np.testing.assert_allclose(heights, stats.poisson(4.0).pmf(np.arange(len(heights))), atol=1e-9)
