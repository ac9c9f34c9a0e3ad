"""Searches over counts: from good and bad first guesses, in the far tails, and against independent answers."""

import numpy as np
import pytest
import torch

from ddpn import DoublePoisson, NegativeBinomial, Poisson


def f64(x) -> torch.Tensor:
    return torch.as_tensor(x, dtype=torch.float64)


@pytest.mark.parametrize("q", [1e-300, 1e-100, 1e-30, 1e-15, 1 - 1e-12, 1 - 2**-53])
def test_far_tails(q):
    """The smallest count with cdf >= q, by its definition."""
    mu = f64([1e-6, 0.4, 3.0, 40.0, 40.0, 1e3, 1e5, 1e7])
    gamma = f64([1e-3, 0.1, 5.0, 0.02, 40.0, 1.0, 0.3, 2.0])
    law = DoublePoisson(mu, gamma)
    y = law.icdf(f64(q))
    assert torch.isfinite(y).all()
    assert (law.cdf(y) >= q).all()
    assert ((law.cdf((y - 1).clamp(min=0)) < q) | (y == 0)).all()


def test_one_row_does_not_disturb_another(random_laws):
    law = DoublePoisson(f64([o.mu for o in random_laws]), f64([o.gamma for o in random_laws]))
    rng = np.random.default_rng(1)
    q = f64(rng.uniform(size=len(random_laws)))
    y = law.icdf(q)
    assert y.tolist() == [o.law.quantile(level) for o, level in zip(random_laws, q.tolist(), strict=True)]


def test_float32_levels_are_compared_as_float32_rounds():
    law = DoublePoisson(torch.tensor([0.2, 7.0, 50.0]), 0.4)
    y = torch.tensor([0.0, 9.0, 77.0])
    assert torch.equal(law.icdf(law.cdf(y)), y)


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
