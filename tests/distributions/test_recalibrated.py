"""Test that a recalibrated distribution is G(F), by sums over all integers, for one distribution and for mixtures."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch.distributions import Normal

from ddpn import DoublePoisson, InputError, NegativeBinomial, Poisson
from ddpn.distributions import Censored, Mixture, MonotoneMap, Recalibrated, Truncated, log_mass
from ddpn.distributions.limits import censor_rows
from ddpn.metrics import ood_score

AT, VALUE = [0.0, 0.03, 0.2, 0.5, 0.9, 1.0], [0.0, 0.06, 0.3, 0.45, 0.95, 1.0]
CHANGE = MonotoneMap.from_knots(AT, VALUE)
Z = np.arange(700.0)


def make_float64(*values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


BASES = {
    "poisson": Poisson(make_float64(0.02, 3.0, 250.0)),
    "mixture": Mixture(DoublePoisson(make_float64([2.0, 9.0], [40.0, 44.0], [0.5, 0.6]), make_float64(0.4, 2.0))),
    "families": Mixture.concatenate(
        [Poisson(make_float64([3.0], [70.0])), DoublePoisson(make_float64([8.0], [9.0]), 1.5)]
    ),
    "rounded": Normal(make_float64(0.3, 20.0), make_float64(1.0, 6.0)),
}


@pytest.fixture(params=BASES, ids=list(BASES))
def dist(request) -> Recalibrated:
    return Recalibrated(BASES[request.param], CHANGE)


@pytest.fixture
def table(dist) -> np.ndarray:
    """G(F(y)) at all counts, by numpy's interpolation. Shape: (counts, rows)."""
    return np.interp(dist.base.cdf(torch.from_numpy(Z)[:, None]).numpy(), AT, VALUE)


def test_probabilities_are_differences_of_the_mapped_cdf(dist, table):
    probabilities = dist.log_prob(torch.from_numpy(Z)[:, None]).exp().numpy()
    # F(y) - F(y - 1) of the base is its probability up to 1e-11, which shows where a knot lies between the two.
    assert probabilities == pytest.approx(np.diff(table, axis=0, prepend=0.0), abs=2e-11)
    assert dist.cdf(torch.from_numpy(Z)[:, None]).numpy() == pytest.approx(table, abs=1e-14)


@pytest.mark.parametrize("y", [0.0, 2000.0])
def test_both_tails_keep_their_relative_accuracy(y):
    base = Poisson(make_float64(250.0))
    log_prob = Recalibrated(base, CHANGE).log_prob(torch.tensor(y)).item()
    slope = VALUE[1] / AT[1] if y == 0 else (1 - VALUE[-2]) / (1 - AT[-2])
    assert log_prob == pytest.approx(stats.poisson.logpmf(y, 250.0) + np.log(slope), rel=1e-12)
    if y == 0:
        assert Recalibrated(base, CHANGE).cdf(torch.tensor(y)).item() == pytest.approx(
            np.exp(-250.0) * slope, rel=1e-12
        )
    else:
        tail = Recalibrated(base, CHANGE).survival(torch.tensor(500.0)).item()
        assert tail == pytest.approx(stats.poisson.sf(500, 250.0) * slope, rel=1e-9)


def test_the_identity_changes_nothing(dist):
    same = Recalibrated(dist.base, MonotoneMap.from_knots([0.0, 0.4, 1.0], [0.0, 0.4, 1.0]))
    assert same.mean.numpy() == pytest.approx(dist.base.mean.numpy(), rel=1e-9)
    assert same.crps(torch.tensor(3.0)).numpy() == pytest.approx(dist.base.crps(torch.tensor(3.0)).numpy(), rel=1e-9)
    assert same.interval(0.9)[1].tolist() == dist.base.interval(0.9)[1].tolist()


def test_the_parts_of_the_variance_keep_the_proportions_of_the_mixture():
    dist = Recalibrated(BASES["mixture"], CHANGE)
    assert (dist.aleatoric + dist.epistemic).numpy() == pytest.approx(dist.variance.numpy())
    share = dist.base.epistemic / dist.base.variance
    assert (dist.epistemic / dist.variance).numpy() == pytest.approx(share.numpy())
    assert Recalibrated(BASES["poisson"], CHANGE).epistemic.tolist() == [0.0, 0.0, 0.0]
    for kind in ("variance", "mutual_information"):
        assert (ood_score(dist, kind) == ood_score(dist.base, kind)).all()


def test_distributions_on_very_many_counts_are_changed_as_a_normal_is():
    mean, gamma = 1e12, 1e-3
    dist, deviation = (
        Recalibrated(DoublePoisson(make_float64(mean), make_float64(gamma)), CHANGE),
        np.sqrt(mean / gamma),
    )
    # The recalibrated normal scores, by a fine grid of their cdf.
    u = (np.arange(2_000_000) + 0.5) / 2_000_000
    scores = stats.norm.ppf(CHANGE.inverse(torch.from_numpy(u)).numpy())
    assert (dist.mean.item() - mean) / deviation == pytest.approx(scores.mean(), abs=2e-4)
    assert dist.variance.item() / deviation**2 == pytest.approx(scores.var(), rel=1e-3)
    low, high = ((end.item() - mean) / deviation for end in dist.interval(0.8))
    assert [low, high] == pytest.approx(np.quantile(scores, [0.1, 0.9]), abs=1e-3)
    assert dist.crps(make_float64(mean)).item() / deviation == pytest.approx(
        np.abs(scores).mean() - (scores * (2 * u - 1)).mean(), rel=1e-3
    )
    assert dist.sample((3,)).shape == (3, 1)


@pytest.mark.parametrize(
    ("at", "value"), [([0, 1], [0, 0.9]), ([0, 0.5, 1], [0, 0, 1]), ([0, 0.5, 1], [0, 1]), ([0.1, 1], [0, 1])]
)
def test_maps_that_are_not_monotone_are_refused(at, value):
    with pytest.raises(InputError, match="increase strictly from 0 to 1"):
        MonotoneMap.from_knots(at, value)


def test_masses_in_the_upper_tail_keep_their_digits():
    base = Poisson(make_float64(10.0))
    slope = (1 - VALUE[-2]) / (1 - AT[-2])
    for last in (70, None):
        mass = log_mass(Recalibrated(base, CHANGE), 60, last).item()
        assert mass == pytest.approx(log_mass(base, 60, last).item() + np.log(slope), rel=1e-12)


def test_a_recalibrated_distribution_is_not_recalibrated_again():
    with pytest.raises(InputError, match="already recalibrated"):
        Recalibrated(Recalibrated(Poisson(make_float64(3.0)), CHANGE), CHANGE)


@pytest.mark.parametrize(
    "base",
    [
        NegativeBinomial(make_float64(1000.0), 1.3),
        Censored(NegativeBinomial(make_float64(5000.0), 1.0), 2500),
        Censored(NegativeBinomial(make_float64(1000.0), 1.0), 200_000),
        Truncated(NegativeBinomial(make_float64(1e6), 0.5), high=50_000),
        NegativeBinomial(make_float64(2000.0), 1.0),
    ],
    ids=repr,
)
def test_rows_that_span_many_counts_are_changed_in_all_results_or_in_none(base):
    dist = Recalibrated(base, CHANGE)
    assert dist.mean.item() == pytest.approx(dist.survival(torch.arange(2.0**17)).sum().item(), rel=1e-9)
    assert dist.summary(make_float64(0.3)).quantiles.item() == dist.icdf(make_float64(0.3)).item()


def test_counts_beyond_a_limit_are_added_up_there(dist):
    recorded, y = censor_rows(dist, np.full(dist.batch_shape, 8.0)), torch.arange(9.0).unsqueeze(-1)
    expected = torch.cat([dist.log_prob(y[:-1]).exp(), dist.survival(y[-2:-1])])
    torch.testing.assert_close(recorded.log_prob(y).exp(), expected, rtol=1e-12, atol=0.0)
    below = expected.cumsum(0)[:-1]
    torch.testing.assert_close(recorded.crps(y[8] + 3), below.square().sum(0), rtol=1e-11, atol=0.0)


def test_a_limit_does_not_make_long_rows_short():
    dist = Recalibrated(NegativeBinomial(make_float64(1e5), 1.0), CHANGE)
    assert censor_rows(dist, 1000.0).log_prob(make_float64(500.0)).item() == dist.log_prob(make_float64(500.0)).item()
