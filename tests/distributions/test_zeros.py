"""Test truncated, zero-inflated and hurdle counts: pmfs of scipy and statsmodels, limits and messages.

test_contract.py tests what follows from the pmf; kernels/test_ranges.py masses, moments and scores with 40 digits.
"""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from statsmodels.distributions.discrete import truncatednegbin, truncatedpoisson, zinegbin, zipoisson
from torch.autograd import gradcheck

from ddpn import DoublePoisson, InputError, NegativeBinomial, Poisson
from ddpn.distributions import Hurdle, Mixture, Truncated, ZeroInflated


def make_float64(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


MU = make_float64(0.01, 3.3, 45.2, 420.7)


def test_pmfs_are_those_of_statsmodels():
    y = np.arange(0, 40)
    at = torch.arange(40.0, dtype=torch.float64)
    mu, alpha, pi = make_float64(3.3), make_float64(0.7), 0.3
    poisson, nb = Poisson(mu), NegativeBinomial(mu, alpha)
    pairs = [
        (Truncated(poisson, 3), truncatedpoisson.pmf(y, 3.3, 2)),
        (Truncated(nb, 3), truncatednegbin.pmf(y, 3.3, 0.7, 2, 2)),
        (ZeroInflated(poisson, pi), zipoisson.pmf(y, 3.3, pi)),
        (ZeroInflated(nb, pi), zinegbin.pmf(y, 3.3, 0.7, 2, pi)),
    ]
    for dist, expected in pairs:
        np.testing.assert_allclose(dist.log_prob(at).exp().numpy(), expected, rtol=1e-9, atol=1e-15)
    expected = np.where(y > 0, 0.7 * stats.poisson.pmf(y, 3.3) / stats.poisson.sf(0, 3.3), 0.3)
    np.testing.assert_allclose(Hurdle(poisson, pi).log_prob(at).exp().numpy(), expected, rtol=1e-12)


def test_a_range_without_mass_to_speak_of_is_a_proper_distribution():
    dist = Truncated(Poisson(make_float64(1e-8)), 1)
    assert dist.log_prob(1).item() == pytest.approx(-5e-9, rel=1e-6)
    assert dist.variance.item() == pytest.approx(5e-9, rel=1e-6)
    far = Truncated(Poisson(make_float64(3.0, 1e5)), make_float64(2000, 10), make_float64(math.inf, 500))
    torch.testing.assert_close(far.cdf(make_float64(2100, 500)), torch.ones(2, dtype=torch.float64))
    assert torch.equal(far.mode, make_float64(2000, 500))
    assert torch.isfinite(far.crps(make_float64(2001, 490))).all()


def test_gradients_are_finite_differences():
    y = make_float64(0.0, 3.0).unsqueeze(1)
    leaves = [
        x.clone().requires_grad_()
        for x in (make_float64(0.4, 6.0, 33.0), make_float64(0.5, 1.5, 0.2), make_float64(0.1, 0.5, 0.9))
    ]

    def values(mu, other, pi):
        logits = (pi * 3.0).sin()
        dists = (
            Truncated(DoublePoisson(mu, other), 0, 50),
            ZeroInflated(NegativeBinomial(mu, other), pi),
            ZeroInflated(Poisson(mu), logits=logits),
            Hurdle(DoublePoisson(mu, other), pi),
            Hurdle(NegativeBinomial(mu, other), logits=logits),
            Truncated(Mixture(NegativeBinomial(mu, other).expand((2, 3)), pi / pi.sum()), 0, 45),
        )
        results = [d.log_prob(y) for d in dists] + [x for d in dists[1:3] for x in (d.mean, d.variance)]
        return torch.cat([x.flatten() for x in results])

    assert gradcheck(values, leaves, eps=1e-6, atol=1e-5, rtol=1e-5, fast_mode=True)


def test_probabilities_of_zero_may_be_0_and_1():
    base = Poisson(make_float64(3.0))
    for pi in (0.0, 1.0):
        leaf = make_float64(pi).requires_grad_()
        for dist in (ZeroInflated(base, leaf), Hurdle(base, leaf)):
            (at_zero,) = torch.autograd.grad(dist.log_prob(0).sum(), leaf)
            assert not at_zero.isnan()
            if pi == 0.0:
                (beyond,) = torch.autograd.grad(dist.log_prob(4).sum(), leaf)
                assert beyond.item() == pytest.approx(-1.0)
            else:
                assert dist.log_prob(0).item() == 0.0
                assert dist.log_prob(4).item() == -math.inf
    torch.testing.assert_close(ZeroInflated(base, 0.0).log_prob(make_float64(0, 5)), base.log_prob(make_float64(0, 5)))
    tiny = ZeroInflated(Poisson(make_float64(2000.0)), logits=-900.0)
    assert tiny.log_prob(0).item() == pytest.approx(-900.0)


def test_variance_of_an_ensemble_splits_over_its_members():
    members = [ZeroInflated(Poisson(MU), 0.2), ZeroInflated(Poisson(2 * MU), 0.4), ZeroInflated(Poisson(MU), 0.1)]
    ensemble = Mixture(members)
    assert ensemble.size == 3
    means = torch.stack([m.mean for m in members])
    torch.testing.assert_close(ensemble.epistemic, means.var(0, unbiased=False))
    torch.testing.assert_close(ensemble.aleatoric, torch.stack([m.variance for m in members]).mean(0))


def test_bad_ranges_and_probabilities_are_refused():
    base = Poisson(torch.tensor([1.0, 2.0]))
    for low, high, match in ((3, 2, "at most high"), (0.5, None, "integers"), (float("nan"), None, "integers")):
        with pytest.raises(InputError, match=match):
            Truncated(base, low, high)
    with pytest.raises(InputError, match="mass between"):
        Truncated(Hurdle(base, 1.0), 1)
    with pytest.raises(InputError, match="pi must lie in"):
        ZeroInflated(base, 1.5)
    with pytest.raises(InputError, match="one of pi and logits"):
        Hurdle(base)
    with pytest.raises(InputError, match="base must be a count distribution"):
        ZeroInflated(torch.distributions.Normal(0.0, 1.0), 0.5)
    with pytest.raises(InputError, match="must broadcast"):
        Truncated(base, torch.zeros(3))
