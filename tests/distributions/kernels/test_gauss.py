"""Test Gauss's rule for sums over counts: sums of polynomials, and rows of many counts against all their counts."""

import numpy as np
import pytest
import torch
from numpy.polynomial import Chebyshev, Legendre

from ddpn.distributions import DoublePoisson, Mixture, NegativeBinomial, Poisson, Truncated
from ddpn.distributions.kernels.gauss import N_POSITIONS, N_TABLES, POSITIONS, UPTO, WEIGHTS, find_table


@pytest.mark.parametrize("n", [16, 32, 64, 1024, 2**17])
class TestTables:
    def test_sums_of_polynomials_are_exact(self, n):
        k = find_table(n)
        for degree in range(min(n, 2 * N_POSITIONS)):
            p = Chebyshev.basis(degree, domain=[-1.0, n])
            error = WEIGHTS[k] @ p(POSITIONS[k] * n - 0.5) - p(np.arange(n)).mean()
            assert abs(error) < (1e-14 if degree < N_POSITIONS else 1e-6), degree

    def test_partial_sums_of_polynomials_are_exact(self, n):
        """Take p(z) = q(z) - q(z - 1), whose sum from 0 to z is q(z) - q(-1)."""
        k = find_table(n)
        z = POSITIONS[k] * n - 0.5
        for degree in range(1, N_POSITIONS + 1):
            q = Chebyshev.basis(degree, domain=[-1.0, n])
            p = q(z) - q(z - 1.0)
            np.testing.assert_allclose(n * p @ UPTO[k] + 0.5 * p, q(z) - q(-1.0), atol=2e-13 + 1e-15 * n)


def test_the_largest_tables_are_those_of_integrals():
    x, w = np.polynomial.legendre.leggauss(N_POSITIONS)
    np.testing.assert_allclose(POSITIONS[-1], (x + 1.0) / 2.0, atol=1e-8)
    np.testing.assert_allclose(WEIGHTS[-1], w / 2.0, atol=1e-7)
    for degree in range(N_POSITIONS):
        p = Legendre.basis(degree)
        np.testing.assert_allclose(p(x) @ UPTO[-1], p.integ(lbnd=-1.0)(x) / 2.0, atol=1e-7)
    assert find_table(2.0**500) == N_TABLES - 1


def test_rows_of_many_counts_are_sums_of_all_their_counts():
    """Check CRPS, entropy and quantiles where single counts, short and long panels meet."""
    tensor = lambda *values: torch.tensor(values, dtype=torch.float64)
    dist = Mixture.concatenate(
        [
            DoublePoisson(tensor(300.0, 900.0, 1e4), tensor(0.9, 80.0, 0.05)),
            NegativeBinomial(tensor(1e4), tensor(3.0)),
            Poisson(tensor(290.0)),
        ],
        weights=tensor(0.3, 0.3, 0.1, 0.1, 0.2),
    )
    pmf = dist.log_prob(torch.arange(1 << 20)).exp().numpy()
    below, above = pmf.cumsum(), pmf[::-1].cumsum()[::-1] - pmf
    some = pmf[pmf > 0.0]
    for y in (0, 290, 2500, 70_000):
        summary = dist.summary(tensor(0.1, 0.5), torch.tensor(y), entropy=True)
        assert summary.crps.item() == pytest.approx((below[:y] ** 2).sum() + (above[y:] ** 2).sum(), rel=1e-11)
        assert summary.entropy.item() == pytest.approx(-(some * np.log(some)).sum(), rel=1e-11)
        assert summary.quantiles.flatten().tolist() == [np.searchsorted(below, q) for q in (0.1, 0.5)]


@pytest.mark.parametrize("low", [1000.0, 1024.0, 65536.0])
def test_the_mode_may_be_the_lower_end_of_a_range(low):
    dist = Truncated(NegativeBinomial(torch.tensor([3e5], dtype=torch.float64), 2.0), low=low)
    assert dist.mode.item() == low
