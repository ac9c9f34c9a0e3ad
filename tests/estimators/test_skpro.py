"""skpro's own checks of the adapter and its distribution, and what these leave open: whether the numbers are right."""

import importlib
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from skpro.metrics import CRPS
from skpro.utils.estimator_checks import check_estimator
from torch.distributions import Normal

from ddpn import ConfigError, DoublePoisson, Mixture, Poisson
from ddpn.estimators import skpro
from ddpn.estimators.skpro import CountRegressorSkpro, SkproDistribution


@pytest.mark.parametrize("kind", [SkproDistribution, CountRegressorSkpro])
def test_passes_the_checks_of_skpro(kind):
    """All of them: none is left out."""
    results = check_estimator(kind, verbose=False)
    assert len(results) > 50
    assert {name: outcome for name, outcome in results.items() if outcome != "PASSED"} == {}


MEANS = np.array([[0.4, 1.5], [3.0, 5.0], [40.0, 55.0]])


@pytest.fixture
def dist() -> SkproDistribution:
    components = Mixture(Poisson(torch.from_numpy(MEANS)))
    return SkproDistribution(components, index=pd.Index(["a", "b", "c"]), columns=pd.Index(["visits"]))


def frame(values: list[float]) -> pd.DataFrame:
    return pd.DataFrame({"visits": values}, index=["a", "b", "c"])


def test_probabilities_are_those_of_the_mixture(dist):
    x = frame([0.0, 4.0, 50.0])
    for ours, theirs in ((dist.pmf, stats.poisson.pmf), (dist.cdf, stats.poisson.cdf), (dist.surv, stats.poisson.sf)):
        assert ours(x)["visits"].to_numpy() == pytest.approx(theirs(x.to_numpy(), MEANS).mean(1), rel=1e-8)
    assert dist.log_pmf(x)["visits"].to_numpy() == pytest.approx(np.log(stats.poisson.pmf(x, MEANS).mean(1)), rel=1e-8)


def test_between_counts_there_is_no_mass(dist):
    between, below = frame([0.5, 4.5, 50.5]), frame([0.0, 4.0, 50.0])
    assert (dist.pmf(between) == 0).all(axis=None)
    assert (dist.log_pmf(between) == -np.inf).all(axis=None)
    pd.testing.assert_frame_equal(dist.cdf(between), dist.cdf(below))
    assert (dist.cdf(frame([-0.5, -1.0, -7.0])) == 0).all(axis=None)
    assert (dist.pmf(frame([-1.0, -2.0, -3.0])) == 0).all(axis=None)


def test_moments_are_those_of_the_mixture(dist):
    means = MEANS.mean(1)
    assert dist.mean()["visits"].to_numpy() == pytest.approx(means)
    assert dist.var()["visits"].to_numpy() == pytest.approx(means + MEANS.var(1))


def test_energies_are_sums_over_the_pmf(dist):
    z = np.arange(200.0)
    pmf = stats.poisson.pmf(z, MEANS[..., None]).mean(1)
    pairs = np.abs(z[:, None] - z)
    assert dist.energy()["energy"].to_numpy() == pytest.approx(np.einsum("ri,ij,rj->r", pmf, pairs, pmf), rel=1e-8)
    for x in ([0.0, 4.0, 50.0], [0.25, 4.5, 50.75], [-1.5, -1.0, 60.0]):
        wanted = (pmf * np.abs(z - np.array(x)[:, None])).sum(1)
        assert dist.energy(frame(x))["energy"].to_numpy() == pytest.approx(wanted, rel=1e-8)


def test_rows_are_selected_by_label_and_position(dist):
    selected = dist.loc[["c", "a"]]
    assert selected.mean()["visits"].tolist() == pytest.approx([47.5, 0.95])
    assert list(selected.index) == ["c", "a"]
    assert dist.iloc[[1]].mean()["visits"].tolist() == pytest.approx([4.0])
    assert dist.iat[2, 0].mean() == pytest.approx(47.5)


def test_samples_follow_the_distribution():
    np.random.seed(0)  # skpro draws from numpy's global stream
    dist = SkproDistribution(Mixture(Poisson(torch.tensor([3.0, 5.0]).expand(2000, 2))))
    seen = np.bincount(dist.sample()[0].astype(int), minlength=12)
    expected = 2000 * stats.poisson.pmf(np.arange(11)[:, None], [3.0, 5.0]).mean(1)
    tail = 2000 - expected.sum()
    assert stats.chisquare([*seen[:11], seen[11:].sum()], [*expected, tail]).pvalue > 1e-3
    assert dist.sample(2).shape == (4000, 1)


def test_normals_are_rounded_to_counts():
    dist = SkproDistribution(Mixture(Normal(torch.tensor([[3.0]]), torch.tensor([[1.5]]))))
    assert dist.pmf(2.0).to_numpy().item() == pytest.approx(np.diff(stats.norm(3, 1.5).cdf([1.5, 2.5])).item())
    assert dist.ppf(0.001).to_numpy().item() == 0.0


def test_a_single_distribution_gives_numbers():
    dist = SkproDistribution(Mixture(DoublePoisson(torch.tensor([2.0, 3.0]), torch.tensor([1.0, 1.0]))))
    assert dist.shape == ()
    assert dist.cdf(2) == pytest.approx(stats.poisson.cdf(2, [2.0, 3.0]).mean())


def test_predicts_what_the_estimator_predicts(quick, counts):
    X, y = pd.DataFrame(counts[0], columns=list("abc")), pd.DataFrame({"visits": counts[1]})
    ours, given = quick().fit(X, y["visits"]), quick()
    theirs = CountRegressorSkpro(given).fit(X, y)
    assert not hasattr(given, "predictor_"), "the estimator that was given stays unfitted"
    assert theirs.predict(X)["visits"].to_numpy() == pytest.approx(ours.predict(X), rel=1e-12)
    assert theirs.predict_var(X)["visits"].to_numpy() == pytest.approx(ours.predict_uncertainty(X)["total"])
    quantiles = theirs.predict_quantiles(X, alpha=[0.1, 0.9])
    assert (quantiles.to_numpy() == ours.predict_quantiles(X, [0.1, 0.9])).all()
    interval = theirs.predict_interval(X, coverage=0.9)
    assert (interval.to_numpy() == ours.predict_interval(X, coverage=0.9)).all()
    assert CRPS()(y, theirs.predict_proba(X)) == pytest.approx(ours.crps(X, y["visits"]), rel=1e-9)


def test_a_missing_skpro_is_reported_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "skpro.distributions.base", None)
    spec = importlib.util.spec_from_file_location("adapter_without_skpro", skpro.__file__)
    with pytest.raises(ConfigError, match=r"ddpn\[skpro\] is not installed: pip install 'ddpn\[skpro\]'"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
