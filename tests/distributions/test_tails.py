"""P(Z <= y), P(Z > y) and E|Z - y| at every count of a law, so that every hand-over between methods is crossed."""

import numpy as np
import pytest
import torch

from ddpn import DoublePoisson

#: Over, at and under Poisson; ending below 16, at 60-64, beyond; reaching 0 and far from it; tails short and long.
LAWS = [
    (1e-5, 0.05),
    (1e-3, 0.01),
    (0.3, 0.2),
    (2.0, 8.0),
    (5.0, 0.08),
    (16.0, 0.3),
    (17.0, 1.0),
    (20.0, 1.7),
    (30.0, 0.02),
    (40.0, 9.0),
    (60.0, 0.62),
    (63.5, 300.0),
    (64.5, 2.0),
    (90.0, 0.4),
    (150.0, 0.25),
    (260.0, 1.0),
    (300.4, 3000.0),
    (700.0, 0.05),
    (2000.0, 5.0),
]


@pytest.mark.parametrize(("mu", "gamma"), LAWS)
def test_every_count(summed, assert_within, mu, gamma):
    o = summed(mu, gamma)
    # Down to e^-45 on both sides; of long windows every count below 200, and some beyond.
    near = np.flatnonzero(o.gamma * o.deviance <= 45.0)
    low, high = int(o.law.y[near[0]]), int(o.law.y[near[-1]])
    y = np.unique(np.concatenate([np.arange(low, min(high, low + 200) + 1), np.linspace(low, high, 400).round()]))
    count, at = torch.from_numpy(y), y.astype(int) - o.law.first
    law = DoublePoisson(*torch.tensor([mu, gamma], dtype=torch.float64))
    for got, exact in ((law.cdf(count), o.law.below), (law.survival(count), o.law.above)):
        expected = exact[at].astype(float)
        assert_within(got, expected, 2e-6, floor=1e-12, y=y)
        assert_within(got, expected, 1e-7, floor=1e-4, y=y)
    # E|Z - y| = y - E[Z] + 2 sum over z > y of (z - y) p(z); CRPS is a third of it or more, and may be off by 1e-6.
    beyond = np.append(o.law.above[::-1].cumsum()[::-1], 0)[at].astype(float)
    found = law._flat(count.shape).cut(count)
    assert_within(found.distance, y - o.law.mean + 2 * beyond, 1e-7, y=y)
    # The same cut, with and without the distance.
    torch.testing.assert_close(found.cdf, law.cdf(count), rtol=1e-9, atol=0)
    torch.testing.assert_close(found.survival, law.survival(count), rtol=1e-9, atol=0)


@pytest.mark.parametrize(("mu", "gamma"), LAWS)
def test_monotone_and_complete(mu, gamma):
    """cdf rises, survival falls, each step is the pmf, and together they are 1."""
    law = DoublePoisson(torch.tensor(mu, dtype=torch.float64), torch.tensor(gamma, dtype=torch.float64))
    y = torch.arange(400.0, dtype=torch.float64)
    cdf, survival, p = law.cdf(y), law.survival(y), law.log_prob(y).exp()
    torch.testing.assert_close(cdf + survival, torch.ones_like(y), rtol=0, atol=1e-14)
    torch.testing.assert_close(cdf.diff(), p[1:], rtol=1e-5, atol=3e-9)
    torch.testing.assert_close(-survival.diff(), p[1:], rtol=1e-5, atol=3e-9)
    assert (cdf >= 0).all()
    assert (survival >= 0).all()
    assert (cdf.diff() >= -1e-9).all()
