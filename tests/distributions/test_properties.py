"""Test what holds for every count distribution whatever its parameters: hypothesis looks for a counterexample."""

import math

import numpy as np
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch.distributions import kl_divergence

from ddpn.distributions import (
    ConwayMaxwellPoisson,
    CountDistribution,
    DoubleBinomial,
    DoublePoisson,
    GeneralizedPoisson,
    Mixture,
    NegativeBinomial,
    Poisson,
)

examples = settings(
    derandomize=True, deadline=None, max_examples=20, suppress_health_check=[HealthCheck.too_slow], print_blob=False
)
few_examples = settings(examples, max_examples=10)


def make_float64(x: float) -> torch.Tensor:
    return torch.tensor(x, dtype=torch.float64)


def draw_evenly(low: float, high: float) -> st.SearchStrategy[float]:
    """Draw numbers all over [low, high], the ends included; `st.floats` gives 0 half of the time."""
    digits = st.tuples(st.integers(0, 100), st.integers(0, 100))
    return digits.map(lambda d: low + (high - low) * min((d[0] + d[1] / 101) / 100, 1.0))


def draw_exponential(low: float, high: float) -> st.SearchStrategy[torch.Tensor]:
    """Draw a parameter whose logarithm lies in [low, high]."""
    return draw_evenly(low, high).map(lambda x: make_float64(math.exp(x)))


def draw_double_poissons(log_mu=(-10.0, 14.0), log_gamma=(-6.0, 6.0)) -> st.SearchStrategy[DoublePoisson]:
    return st.builds(DoublePoisson, draw_exponential(*log_mu), draw_exponential(*log_gamma))


def draw_double_binomials(top: float) -> st.SearchStrategy[DoubleBinomial]:
    """Draw totals of at most 20,000, with shares not too close to 0 and 1."""

    def make(log_total: float, logit: float, gamma: torch.Tensor) -> DoubleBinomial:
        total = max(1.0, float(round(math.exp(log_total))))
        share = 1.0 / (1.0 + math.exp(-logit))
        return DoubleBinomial(
            make_float64(total), make_float64(total * share), gamma.clamp(max=100 * total * share * (1 - share))
        )

    return st.builds(make, draw_evenly(0.0, min(top + 2.0, 9.9)), draw_evenly(-7.0, 7.0), draw_exponential(-6.0, 6.0))


def draw_conway_maxwells(top: float) -> st.SearchStrategy[ConwayMaxwellPoisson]:
    def make(mu: torch.Tensor, nu: torch.Tensor) -> ConwayMaxwellPoisson:
        return ConwayMaxwellPoisson(mu, torch.minimum(nu, 4.0 * mu.clamp(min=1.0)))

    return st.builds(make, draw_exponential(-10.0, min(top, 9.0)), draw_exponential(-4.0, 4.0))


def draw_distribution(top: float = 14.0) -> st.SearchStrategy[CountDistribution]:
    """Draw a distribution of any family; families with heavy tails stay where their windows can be summed."""
    return st.one_of(
        draw_double_binomials(top),
        draw_conway_maxwells(top),
        st.builds(GeneralizedPoisson, draw_exponential(-10.0, min(top, 7.0)), draw_exponential(-8.0, 2.0)),
        draw_double_poissons((-10.0, top)),
        st.builds(Poisson, draw_exponential(-10.0, top)),
        st.builds(NegativeBinomial, draw_exponential(-10.0, min(top, 7.0)), draw_exponential(-6.0, 2.0)),
    )


def compute_depth(dist: CountDistribution, y: float) -> float:
    """Return -log of the pmf over its peak, up to a slowly varying factor."""
    mu = dist.mu.item()
    log_ratio = y * math.log(y / mu) if y > 0 else 0.0
    if isinstance(dist, NegativeBinomial):
        r = 1 / dist.alpha.item()
        return log_ratio - (y + r) * math.log1p((y - mu) / (mu + r))
    return (dist.gamma.item() if isinstance(dist, DoublePoisson) else 1.0) * (mu - y + log_ratio)


def find_window(dist: CountDistribution, reach: float = 45.0) -> torch.Tensor:
    """Find consecutive counts that leave out about e^-reach of the distribution."""
    if isinstance(dist, DoubleBinomial | ConwayMaxwellPoisson | GeneralizedPoisson):
        # Too short a window would not sum to 1.
        low, high = (int(end.item()) for end in dist.bracket(reach))
        return torch.arange(low, high + 1, dtype=torch.float64)
    low, high = math.floor(dist.mu.item()), math.ceil(dist.mu.item())
    # One of the two counts beside mu may itself be deep, where gamma is large.
    reach += min(compute_depth(dist, low), compute_depth(dist, high))
    step = 1
    while low > 0 and compute_depth(dist, low) < reach:
        low, step = max(low - step, 0), math.ceil(step * 1.3)
    step = 1
    while compute_depth(dist, high) < reach:
        high, step = high + step, math.ceil(step * 1.3)
    return torch.arange(low, high + 2, dtype=torch.float64)


def choose_some(y: torch.Tensor, dist: CountDistribution) -> torch.Tensor:
    """Choose few of many counts: a run around the mode, and others all over, in order."""
    if len(y) <= 400:
        return y
    start = max(int(dist.mode.item() - y[0].item()) - 100, 0)
    everywhere = torch.linspace(0, len(y) - 1, 200).long()
    return y[torch.cat([torch.arange(start, min(start + 200, len(y))), everywhere]).unique()]


def compute_moments(dist: CountDistribution) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Return counts, their probabilities and the sum of y p(y)."""
    y = find_window(dist)
    p = dist.log_prob(y).exp()
    return y, p, (y * p).sum().item()


@examples
@given(draw_distribution())
def test_pmf_sums_to_one_and_is_no_density(dist):
    log_p = dist.log_prob(find_window(dist))
    assert abs(log_p.exp().sum().item() - 1) < 1e-8
    assert log_p.max() <= 1e-12


@examples
@given(draw_distribution())
def test_mean_and_variance_are_those_of_the_pmf(dist):
    y, p, mean = compute_moments(dist)
    assert math.isclose(dist.mean.item(), mean, rel_tol=1e-7)
    centre = dist.mode.item()
    variance = (p * (y - centre) ** 2).sum() - (p * (y - centre)).sum() ** 2
    assert math.isclose(dist.variance.item(), variance.item(), rel_tol=1e-6)


@examples
@given(draw_distribution())
def test_cdf_is_the_running_sum_of_the_pmf(dist):
    y = find_window(dist)
    upto = np.cumsum(dist.log_prob(y).exp().numpy().astype(np.longdouble)).astype(np.float64)
    at = choose_some(y, dist)
    expected = upto[(at - y[0]).int().numpy()]
    np.testing.assert_allclose(dist.cdf(at).numpy(), expected, rtol=2e-6, atol=1e-12)


@examples
@given(draw_distribution())
def test_icdf_inverts_cdf(dist):
    y = choose_some(find_window(dist), dist)
    cdf, p = dist.cdf(y), dist.log_prob(y).exp()
    # Where float64 tells cdf(y) from cdf(y - 1), and from 1.
    resolved = (cdf < 1) & (p > 1e-15 * cdf)
    counts = dist.icdf(cdf)
    assert torch.equal(counts[resolved], y[resolved])


@examples
@given(draw_distribution(), draw_evenly(1e-9, 1 - 1e-9))
def test_icdf_is_the_first_count_to_reach_q(dist, q):
    y = dist.icdf(make_float64(q))
    # The quantile is defined by the cdf in float64; a rounding error of the cdf is no step of it.
    assert dist.cdf(y) >= q - 1e-15
    assert y == 0 or dist.cdf(y - 1) < q + 1e-15


@examples
@given(draw_distribution(), st.integers(0, 10**7))
def test_crps_lies_between_its_bounds(dist, y):
    """Two terms of its sum bound it from below, E|Z - y| from above; it is never negative."""
    for at in (make_float64(float(y)), dist.mode, dist.mean.round(), make_float64(1e12)):
        score = dist.crps(at).item()
        below = dist.cdf(at - 1).item() if at > 0 else 0.0
        least = below**2 + dist.survival(at).item() ** 2
        assert score >= least * (1 - 1e-6)
        assert score >= 0
        spread = abs(dist.mean.item() - at.item())
        assert score <= (dist.variance.item() + spread**2) ** 0.5 * (1 + 1e-9) + 1e-300


@examples
@given(st.integers(0, 1000), draw_evenly(20.0, 600.0))
def test_crps_vanishes_with_the_mass_beside_a_point_mass(y, times):
    """At mu = y the mass beside y vanishes as gamma grows, and the score as the square of that mass."""
    dist = DoublePoisson(make_float64(max(y, 0.01)), make_float64(times * max(y, 1)))
    at = make_float64(float(y))
    neighbours = torch.stack([at - 1, at + 1]) if y else (at + 1).unsqueeze(0)
    masses = dist.log_prob(neighbours).exp()
    assert masses.sum() < 1e-3
    assert math.isclose(dist.crps(at).item(), (masses**2).sum().item(), rel_tol=1e-2)
    assert dist.crps(at + 1).item() > 0.99


@examples
@given(draw_distribution(4.0), st.integers(0, 300))
def test_crps_is_a_difference_of_mean_distances(dist, y):
    """Compute E|Z - y| - E|Z - Z'| / 2 by a double sum."""
    z = find_window(dist)
    assume(len(z) <= 1500)
    p = dist.log_prob(z).exp()
    to_y = (p * (z - y).abs()).sum()
    apart = p @ (z.unsqueeze(1) - z).abs() @ p
    expected = (to_y - 0.5 * apart).item()
    # The difference cancels where all mass is at y.
    assert math.isclose(
        dist.crps(make_float64(float(y))).item(), expected, rel_tol=1e-6, abs_tol=1e-11 * (1 + to_y.item())
    )


@examples
@given(draw_distribution(4.0))
def test_mean_crps_under_the_distribution_is_half_its_mean_difference(dist):
    z = find_window(dist)
    assume(len(z) <= 1500)
    p = dist.log_prob(z).exp()
    apart = 0.5 * (p @ (z.unsqueeze(1) - z).abs() @ p).item()
    assert math.isclose((p * dist.crps(z)).sum().item(), apart, rel_tol=1e-6, abs_tol=1e-300)


@examples
@given(draw_distribution())
def test_mode_is_the_first_most_probable_count(dist):
    y = find_window(dist)
    log_p = dist.log_prob(y)
    at = int(dist.mode.item() - y[0].item())
    assert 0 <= at < len(y)
    slack = 1e-13 * max(1.0, y[at].item() * 1e-3)
    assert log_p[at] >= log_p.max() - slack
    assert (log_p[:at] < log_p[at] + slack).all()


@examples
@given(draw_distribution())
def test_entropy_is_that_of_the_pmf(dist):
    log_p = dist.log_prob(find_window(dist))
    expected = -(log_p.exp() * log_p).sum().item()
    # Near point masses the sum itself loses the largest term's digits.
    assert math.isclose(dist.entropy().item(), expected, rel_tol=1e-7, abs_tol=1e-12)


@examples
@given(draw_distribution(), draw_evenly(0.05, 0.999))
def test_central_intervals_hold_their_coverage(dist, coverage):
    low, high = dist.interval(coverage)
    half = 0.5 * (1 - coverage)
    below = dist.cdf(low - 1) if low > 0 else make_float64(0.0)
    assert below <= half + 1e-15
    assert dist.survival(high) <= half + 1e-15
    assert low == 0 or dist.cdf(low) >= half - 1e-15
    assert high == 0 or dist.survival(high - 1) >= half - 1e-15


@examples
@given(draw_double_poissons())
def test_scores_have_mean_zero(dist):
    """E[d log p / d mu] = E[d log p / d gamma] = 0, the gradients by autograd, the mean by a sum."""
    y = find_window(dist)
    mu, gamma = (p.clone().requires_grad_() for p in (dist.mu, dist.gamma))
    log_p = DoublePoisson(mu, gamma).log_prob(y)
    p = log_p.detach().exp()
    by_mu, by_gamma = torch.autograd.grad((p * log_p).sum(), (mu, gamma))
    deviance = mu - y + torch.xlogy(y, y / mu)
    typical = (gamma / mu).item() * dist.mean.item(), (p * deviance).sum().item() + 1 / gamma.item()
    assert abs(by_mu.item()) <= 1e-8 * typical[0]
    assert abs(by_gamma.item()) <= 1e-7 * typical[1]


@examples
@given(st.lists(st.tuples(draw_evenly(-10, 14), draw_evenly(-6, 6)), min_size=1, max_size=6))
def test_mixture_variance_is_aleatoric_and_epistemic(parameters):
    mu, gamma = torch.tensor(parameters, dtype=torch.float64).exp().unbind(-1)
    members = DoublePoisson(mu, gamma)
    mixture = Mixture(members)
    second = (members.variance + members.mean**2).mean() - members.mean.mean() ** 2
    torch.testing.assert_close(mixture.aleatoric + mixture.epistemic, mixture.variance, rtol=1e-14, atol=0)
    slack = 1e-14 * (members.mean**2).mean().item()
    torch.testing.assert_close(mixture.variance, second, rtol=1e-12, atol=slack)
    assert mixture.aleatoric >= 0
    assert mixture.epistemic >= 0


@examples
@given(st.lists(st.tuples(draw_evenly(-6, 8), draw_evenly(-5, 5)), min_size=2, max_size=4), st.integers(0, 5000))
def test_mixture_crps_is_below_the_mean_of_its_components(parameters, y):
    """The score is convex in the distribution, and the entropy concave, by at most log M."""
    mu, gamma = torch.tensor(parameters, dtype=torch.float64).exp().unbind(-1)
    members = DoublePoisson(mu, gamma)
    mixture = Mixture(members)
    at = make_float64(float(y))
    assert 0 <= mixture.crps(at) <= members.crps(at).mean() * (1 + 1e-9)
    gain = mixture.entropy() - members.entropy().mean()
    assert -1e-6 <= gain <= math.log(len(parameters)) + 1e-6
    torch.testing.assert_close(mixture.cdf(at), members.cdf(at).mean(), rtol=1e-12, atol=0)


@examples
@given(draw_double_poissons(), draw_double_poissons())
def test_kl_is_not_negative_and_zero_for_equal_distributions(p, q):
    assert kl_divergence(p, q) >= 0
    assert kl_divergence(p, p) == 0


@examples
@given(draw_double_poissons((-6.0, 6.0), (-4.0, 4.0)), draw_evenly(-0.5, 0.5), draw_evenly(-0.5, 0.5))
def test_kl_is_the_mean_log_ratio(p, shift_mu, shift_gamma):
    q = DoublePoisson(p.mu * math.exp(shift_mu), p.gamma * math.exp(shift_gamma))
    y = find_window(p)
    log_p = p.log_prob(y)
    expected = (log_p.exp() * (log_p - q.log_prob(y))).sum().item()
    assert math.isclose(kl_divergence(p, q).item(), expected, rel_tol=1e-6, abs_tol=1e-9)


@examples
@given(draw_double_poissons())
def test_from_moments_finds_a_distribution_with_these_moments(dist):
    mean, variance = dist.mean.item(), dist.variance.item()
    fraction = mean - math.floor(mean)
    # float64 tells these moments from those of a distribution on two counts, or with gamma = 0.
    assume(variance > 1.001 * fraction * (1 - fraction) + 1e-9 * mean)
    matched = DoublePoisson.from_moments(dist.mean, dist.variance)
    assert math.isclose(matched.mean.item(), mean, rel_tol=1e-7)
    assert math.isclose(matched.variance.item(), variance, rel_tol=1e-7)


@examples
@given(draw_distribution())
def test_samples_lie_inside_the_window(dist):
    draws = dist.sample((50,), generator=torch.Generator().manual_seed(0))
    y = find_window(dist)
    assert ((draws >= y[0]) & (draws <= y[-1])).all()
    assert torch.equal(draws, draws.floor())
