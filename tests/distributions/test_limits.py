"""Test right-censored counts against explicit sums, finite differences, and the definition of a proper score."""

import math

import pytest
import torch
from scipy import stats
from torch.autograd import gradcheck

from ddpn import DoublePoisson, InputError, NegativeBinomial, Poisson
from ddpn.distributions import (
    Censored,
    CountDistribution,
    Mixture,
    MonotoneMap,
    Recalibrated,
    Truncated,
    ZeroInflated,
)


def make_float64(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


MU, OTHER, LIMIT = make_float64(0.3, 3.3, 8.2, 45.2), make_float64(0.3, 0.8, 2.5, 0.4), make_float64(2, 4, math.inf, 40)
BASES: dict[str, CountDistribution] = {
    "Poisson": Poisson(MU),
    "Double Poisson": DoublePoisson(MU, OTHER),
    "Negative Binomial": NegativeBinomial(MU, OTHER),
    "mixture": Mixture([DoublePoisson(MU, OTHER), NegativeBinomial(MU, OTHER)], [0.3, 0.7]),
    "truncated": Truncated(Poisson(MU), 1, make_float64(3, 9, 12, 80)),
    "zero-inflated": ZeroInflated(NegativeBinomial(MU, OTHER), 0.3),
}
each_base = pytest.mark.parametrize("base", [pytest.param(b, id=name) for name, b in BASES.items()])
two_bases = pytest.mark.parametrize(
    "base", [pytest.param(BASES[name], id=name) for name in ("Double Poisson", "mixture")]
)
Y = torch.arange(900.0, dtype=torch.float64).unsqueeze(1)


def sum_beyond_limit(base: CountDistribution) -> torch.Tensor:
    """Return the pmf of min(Z, limit): mass beyond the limit is added up there."""
    p = base.log_prob(Y).exp()
    beyond = torch.where(Y >= LIMIT, p, 0.0).sum(0)
    return torch.where(Y < LIMIT, p, torch.where(Y == LIMIT, beyond, 0.0))


@each_base
def test_mass_beyond_the_limit_is_added_up_there(base):
    dist, p = Censored(base, LIMIT), sum_beyond_limit(base)
    torch.testing.assert_close(dist.log_prob(Y).exp(), p, rtol=1e-8, atol=1e-13)


@each_base
def test_crps_compares_cdfs_below_the_limit(base):
    cdf = base.log_prob(Y).exp().cumsum(0)
    y = torch.stack([make_float64(0, 0, 0, 0), make_float64(1, 3, 9, 39), make_float64(2, 4, 20, 40)])
    below = torch.stack([((cdf - (counts <= Y).double()) ** 2 * (Y < LIMIT)).sum(0) for counts in y])
    torch.testing.assert_close(Censored(base, LIMIT).crps(y), below, rtol=1e-6, atol=1e-9)


@two_bases
def test_without_a_limit_a_censored_distribution_is_its_base(base):
    dist, y = Censored(base, math.inf), make_float64(1, 3, 9, 40)
    for method in ("log_prob", "cdf", "survival", "crps"):
        torch.testing.assert_close(getattr(dist, method)(y), getattr(base, method)(y), rtol=1e-10, atol=1e-14)
    torch.testing.assert_close(dist.mean, base.mean, rtol=1e-9, atol=0.0)
    assert torch.equal(dist.icdf(make_float64(0.9)), base.icdf(make_float64(0.9)))


def test_a_censored_count_has_the_upper_tail_of_scipy():
    log_prob = Censored(Poisson(make_float64(2.0, 8.0, 50.0)), make_float64(9, 10, 90)).log_prob(
        make_float64(9, 10, 90)
    )
    expected = stats.poisson.logsf([8, 9, 89], [2.0, 8.0, 50.0])
    torch.testing.assert_close(log_prob, torch.from_numpy(expected), rtol=1e-9, atol=0.0)


@pytest.mark.parametrize("is_censored", [True, False])
def test_gradients_are_finite_differences(is_censored):
    limit = make_float64(2, 9, 50)
    y = limit if is_censored else limit - 1

    def values(mu, other, logits):
        parts = [DoublePoisson(mu, other), NegativeBinomial(mu, other)]
        dists = [*parts, Mixture(parts, logits.softmax(0)), Truncated(parts[1], 1), ZeroInflated(parts[0], 0.2)]
        return torch.cat([Censored(dist, limit).log_prob(y) for dist in dists])

    leaves = [
        x.requires_grad_() for x in (make_float64(0.4, 8.0, 60.0), make_float64(0.5, 1.7, 0.2), make_float64(0.3, -0.4))
    ]
    assert gradcheck(values, leaves, eps=1e-6, atol=1e-6, rtol=1e-5, fast_mode=True)


def test_gradients_of_rows_do_not_mix():
    """A row far beyond its limit, one with p = 0 and one without a limit all have finite gradients."""
    mu = make_float64(1e-4, 1e4, 3.0).requires_grad_()
    Censored(Poisson(mu), make_float64(30, 2, math.inf)).log_prob(make_float64(30, 2, 4)).sum().backward()
    assert torch.isfinite(mu.grad).all()
    assert mu.grad[2].item() == pytest.approx(4 / 3 - 1)


def test_one_base_broadcasts_with_many_limits():
    dist = Censored(Poisson(make_float64(3.0)), make_float64(0, 2, math.inf))
    assert dist.batch_shape == (3,)
    torch.testing.assert_close(dist.log_prob(0), make_float64(0.0, -3.0, -3.0))
    assert dist.log_prob(make_float64(1, 3, 3))[:2].tolist() == [-math.inf, -math.inf]


def test_no_other_distribution_has_a_better_expected_score():
    """Forecasts differ below the limit, so the truth is strictly best; differences beyond it do not count."""
    truth, limit = DoublePoisson(make_float64(6.0), make_float64(1.6)), 8.0
    others = [
        DoublePoisson(make_float64(m), make_float64(g)) for m, g in ((5.0, 1.6), (7.0, 1.6), (6.0, 0.8), (6.0, 3.2))
    ]
    y = torch.arange(9.0, dtype=torch.float64)
    weight = Censored(truth, limit).log_prob(y).exp()
    for score in (lambda d: -Censored(d, limit).log_prob(y), lambda d: Censored(d, limit).crps(y)):
        best = (weight * score(truth)).sum()
        assert all((weight * score(other)).sum() > best + 1e-3 for other in [*others, Poisson(make_float64(6.0))])


def test_bad_limits_and_bases_are_refused():
    with pytest.raises(InputError, match="limit must be at least 0, got -1"):
        Censored(Poisson(MU), -1)
    with pytest.raises(InputError, match="limit must be at least 0, got nan"):
        Censored(Poisson(MU), math.nan)
    with pytest.raises(InputError, match="must be a count distribution, got Normal"):
        Censored(torch.distributions.Normal(0.0, 1.0), 3)
    with pytest.raises(InputError, match="must broadcast"):
        Censored(Poisson(MU), torch.ones(3))


@pytest.mark.parametrize("mu", [1000.0, 1e6, 1e12])
def test_a_limit_below_all_counts_has_all_mass(mu):
    dist = Censored(Poisson(make_float64(mu)), 5)
    summary = dist.summary(make_float64(0.1, 0.9), make_float64(3.0))
    assert [dist.mean.item(), dist.variance.item(), dist.mode.item()] == [5.0, 0.0, 5.0]
    assert [*summary.quantiles[0].tolist(), summary.crps.item()] == [5.0, 5.0, 2.0]


def test_a_limit_between_components_that_are_far_apart_cuts_one():
    dist = Censored(Mixture([Poisson(make_float64(1.0)), DoublePoisson(make_float64(1e9), 1e9)]), 10)
    below = sum(min(k, 10) * stats.poisson.pmf(k, 1.0) for k in range(60))
    assert dist.mean.item() == pytest.approx(0.5 * below + 5.0, rel=1e-13)


def test_a_limit_of_a_limit_is_the_smaller_one():
    nested = Censored(Censored(Poisson(make_float64(3.0)), make_float64(5.0, 2.0)), 4)
    assert torch.equal(nested.mean, Censored(Poisson(make_float64(3.0)), make_float64(4.0, 2.0)).mean)


def test_a_truncated_mixture_ignores_components_without_weight():
    mixture = Truncated(
        Mixture([Poisson(make_float64(1000.0)), Poisson(make_float64(1.0))], weights=[0.0, 1.0]), low=1000
    )
    alone = Truncated(Poisson(make_float64(1.0)), low=1000)
    assert mixture.mean.item() == pytest.approx(alone.mean.item(), rel=1e-14)
    assert mixture.cdf(make_float64(1001.0)).item() == pytest.approx(alone.cdf(make_float64(1001.0)).item(), rel=1e-14)
    assert alone.survival(alone.bracket(37.0)[1]).item() < 1e-16


@pytest.mark.parametrize("limit", [100.0, 1e4])
def test_a_wide_distribution_has_the_mean_of_its_tails(limit):
    base = NegativeBinomial(make_float64(1e6), 1.0)
    expected = base.survival(torch.arange(limit)).sum()
    torch.testing.assert_close(Censored(base, limit).mean, expected.reshape(1), rtol=1e-12, atol=0.0)


def test_a_truncated_mixture_with_a_recalibrated_distribution_has_the_sums_of_its_range():
    """Compare with sums over the range, as one component has a formula and the other has none."""
    changed = Recalibrated(Poisson(make_float64(4.0)), MonotoneMap.from_knots([0.0, 0.3, 1.0], [0.0, 0.5, 1.0]))
    dist = Truncated(Mixture.concatenate([changed, Poisson(make_float64(7.0))], [0.4, 0.6]), 2, 9)
    y = torch.arange(2, 10)
    pmf = dist.log_prob(y).exp()
    assert pmf.sum().item() == pytest.approx(1.0)
    torch.testing.assert_close(dist.cdf(y), pmf.cumsum(0))
    assert dist.mean.item() == pytest.approx((pmf * y).sum().item())


def test_a_limit_between_two_counts_is_the_lower_one():
    censored = Censored(Poisson(make_float64(4.0)), 5.7)
    assert censored.log_prob(torch.arange(6)).exp().sum().item() == pytest.approx(1.0)
