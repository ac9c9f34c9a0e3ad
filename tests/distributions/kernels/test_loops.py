"""Test searches over counts: from good and bad first guesses, in the far tails, and against independent answers."""

import numpy as np
import pytest
import torch

from ddpn import DoublePoisson, NegativeBinomial, Poisson
from ddpn.distributions import DoubleBinomial, GeneralizedPoisson, Mixture, Truncated


def make_float64(x) -> torch.Tensor:
    return torch.as_tensor(x, dtype=torch.float64)


@pytest.mark.parametrize("q", [1e-300, 1e-100, 1e-30, 1e-15, 1 - 1e-12, 1 - 2**-53])
def test_quantiles_in_far_tails_follow_their_definition(q):
    """The quantile is the smallest count with cdf >= q."""
    mu = make_float64([1e-6, 0.4, 3.0, 40.0, 40.0, 1e3, 1e5, 1e7])
    gamma = make_float64([1e-3, 0.1, 5.0, 0.02, 40.0, 1.0, 0.3, 2.0])
    dist = DoublePoisson(mu, gamma)
    y = dist.icdf(make_float64(q))
    assert torch.isfinite(y).all()
    assert (dist.cdf(y) >= q).all()
    assert ((dist.cdf((y - 1).clamp(min=0)) < q) | (y == 0)).all()


def test_one_row_does_not_disturb_another(random_sums):
    dist = DoublePoisson(make_float64([o.mu for o in random_sums]), make_float64([o.gamma for o in random_sums]))
    rng = np.random.default_rng(1)
    q = make_float64(rng.uniform(size=len(random_sums)))
    y = dist.icdf(q)
    assert y.tolist() == [o.sums.quantile(level) for o, level in zip(random_sums, q.tolist(), strict=True)]


def test_float32_levels_are_compared_as_float32_rounds():
    dist = DoublePoisson(torch.tensor([0.2, 7.0, 50.0]), 0.4)
    y = torch.tensor([0.0, 9.0, 77.0])
    assert torch.equal(dist.icdf(dist.cdf(y)), y)


@pytest.mark.parametrize("mean", [1e16, 1e20, 1e300])
@pytest.mark.parametrize(
    "family", [Poisson, lambda m: NegativeBinomial(m, 0.5 * m.sign()), lambda m: DoublePoisson(m, 0.3 * m.sign())]
)
def test_searches_end_beyond_the_counts_that_float64_can_tell_apart(family, mean):
    """The count is right to the last digits, or NaN where the cdf has no digit: never a search without end."""
    dist = family(torch.tensor([mean], dtype=torch.float64))
    upper = dist.icdf(torch.tensor(0.9, dtype=torch.float64))
    low, high = dist.interval(0.9)
    assert len(low) == len(high) == 1
    normal = dist.mean + 1.2815515655446004 * dist.variance.sqrt()
    if mean <= 1e16 and not isinstance(dist, NegativeBinomial):
        torch.testing.assert_close(upper, normal, rtol=1e-9, atol=0.0)
    else:
        assert upper.isnan() or bool(upper > 0.9 * mean)


def test_a_quantile_of_nan_is_nan():
    dist = Poisson(torch.tensor([3.0, torch.nan], dtype=torch.float64), validate_args=False)
    assert dist.icdf(torch.tensor(0.5, dtype=torch.float64)).isnan().tolist() == [False, True]


@pytest.mark.parametrize("levels", [[0.5], [1e-9], [1 - 1e-9]])
@pytest.mark.parametrize("mu", [10.0, 1e10])
def test_a_nan_component_makes_all_results_of_its_row_nan(mu, levels):
    mixture = Mixture(
        Poisson(make_float64([[mu, torch.nan], [mu, 5.0]]), validate_args=False),
        weights=make_float64([[0.5, 0.5], [1, 0]]),
    )
    summary = mixture.summary(make_float64(levels), make_float64([5.0, 5.0]), entropy=True)
    results = [
        summary.mean,
        summary.variance,
        summary.aleatoric,
        summary.epistemic,
        summary.mode,
        summary.quantiles[:, 0],
    ]
    results += [summary.crps, summary.entropy]
    results += [
        mixture.icdf(make_float64(levels[0])),
        mixture.cdf(make_float64(5.0)),
        mixture.survival(make_float64(5.0)),
    ]
    assert [x.isnan().tolist() for x in results] == [[True, False]] * len(results)


def test_nan_weights_make_all_results_nan():
    mixture = Mixture(Poisson(make_float64([10.0, 4.0])), weights=make_float64([torch.nan, 0.5]), validate_args=False)
    y = make_float64(5.0)
    results = (
        mixture.cdf(y),
        mixture.survival(y),
        mixture.crps(y),
        mixture.icdf(make_float64(0.5)),
        mixture.icdf(make_float64(1e-9)),
    )
    assert all(x.isnan() for x in results)


@pytest.mark.parametrize(
    "dist",
    [
        DoubleBinomial(make_float64([2.0]), make_float64([1.998]), make_float64([20.0])),
        DoubleBinomial(make_float64([16.0]), make_float64([15.984]), make_float64([1e4])),
        Truncated(DoublePoisson(make_float64([20.0]), make_float64([100.0])), high=10),
    ],
    ids=repr,
)
def test_a_distribution_with_all_mass_at_the_last_count_is_this_count(dist):
    last = dist.bracket(37.0)[1]
    summary = dist.summary(make_float64([1e-3, 0.5, 0.999]), last)
    assert [summary.mean.item(), summary.mode.item(), *summary.quantiles[0].tolist()] == [last.item()] * 5
    assert summary.crps.item() < 1e-12
    assert dist.icdf(make_float64([1e-12, 1e-6, 0.5, 1 - 1e-6]).unsqueeze(1)).flatten().tolist() == [last.item()] * 4


@pytest.mark.parametrize(
    "dist",
    [DoublePoisson(make_float64(5000.0), 0.02), NegativeBinomial(make_float64(1e6), 1e-3), Poisson(make_float64(1e9))],
    ids=repr,
)
def test_a_quantile_at_its_own_level_is_the_count_again(dist):
    y = dist.icdf(torch.linspace(1e-5, 1 - 1e-5, 301, dtype=torch.float64))
    assert torch.equal(dist.icdf(dist.cdf(y)), y)


@pytest.mark.parametrize(
    "dist",
    [
        GeneralizedPoisson(make_float64([1e-9]), make_float64([0.5])),
        GeneralizedPoisson(make_float64([1e-9]), make_float64([30.0])),
        GeneralizedPoisson(make_float64([1.0]), make_float64([1e6])),
        NegativeBinomial(make_float64([1e-3]), make_float64([1e9])),
    ],
    ids=repr,
)
def test_moments_of_heavy_tails_are_those_of_closed_forms(dist):
    summary = dist.summary(make_float64([0.5]))
    torch.testing.assert_close(summary.mean, dist.mean, rtol=1e-9, atol=0.0)
    torch.testing.assert_close(summary.variance, dist.variance, rtol=1e-9, atol=0.0)
