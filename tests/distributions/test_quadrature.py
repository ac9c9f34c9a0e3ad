"""The rules that turn sums over the integers into few evaluations, on functions they must be exact for."""

import numpy as np
import pytest
import torch

from ddpn.distributions import quadrature

CPU = torch.device("cpu")


def f64(x) -> torch.Tensor:
    return torch.as_tensor(x, dtype=torch.float64)


def correction(f, y: float) -> float:
    """B[f](y + 1/2)."""
    offsets, weights = quadrature.cut_weights(CPU)
    return float((weights * f(y + offsets)).sum())


@pytest.mark.parametrize("degree", range(9))
def test_cut_is_exact_for_polynomials(degree):
    """sum over a..b = integral from a - 1/2 to b + 1/2 + B at the upper cut - B at the lower."""
    f = lambda x: (x / 10) ** degree
    a, b = 3, 17
    integral = ((b + 0.5) ** (degree + 1) - (a - 0.5) ** (degree + 1)) / (degree + 1) / 10**degree
    found = integral + correction(f, b) - correction(f, a - 1)
    assert found == pytest.approx(sum(f(z) for z in range(a, b + 1)), rel=1e-13)


@pytest.mark.parametrize("slope", [0.05, 0.2, 0.5])
def test_cut_on_an_exponential_tail(slope):
    """The tail of e^(-slope z): B is a series in the slope, whose ninth power is the first left out."""
    f = lambda x: torch.exp(-slope * f64(x))
    exact = float(np.exp(-slope * 6) / -np.expm1(-slope))
    found = float(np.exp(-slope * 5.5) / slope) - correction(f, 5)
    assert found == pytest.approx(exact, rel=2e-5 * slope**9 + 1e-14)


def test_gauss_legendre():
    nodes, weights = quadrature.gauss_legendre(8, CPU)
    assert ((nodes > 0) & (nodes < 1)).all()
    for degree in range(16):
        assert float((weights * nodes**degree).sum()) == pytest.approx(1 / (degree + 1), rel=1e-13)


def test_running_integral_and_derivative():
    nodes, _ = quadrature.gauss_legendre(8, CPU)
    for degree in range(8):
        f = nodes**degree
        torch.testing.assert_close(f @ quadrature.running_integral(8, CPU), nodes ** (degree + 1) / (degree + 1))
        slope = degree * nodes ** (degree - 1) if degree else torch.zeros(8, dtype=torch.float64)
        torch.testing.assert_close(f @ quadrature.derivative(8, CPU), slope, rtol=1e-11, atol=1e-11)


def test_between():
    """Integrals over x, exact for polynomials in sqrt(x)."""
    x, weight = quadrature.between(f64([0.0, 4.0]), f64([9.0, 100.0]), 12)
    assert x.shape == weight.shape == (2, 12)
    for power in (0.0, 0.5, 1.0, 2.5, 6.0):
        exact = [(high ** (power + 1) - low ** (power + 1)) / (power + 1) for low, high in ((0, 9), (4, 100))]
        torch.testing.assert_close((weight * x**power).sum(1), f64(exact), rtol=1e-12, atol=0)


def test_between_nothing():
    _, weight = quadrature.between(f64([9.0, 9.0]), f64([9.0, 4.0]), 6)
    assert torch.equal(weight, torch.zeros(2, 6, dtype=torch.float64))


def test_first_integers_join_an_integral():
    """A sum over 0..60 of what is smooth from 12 on: the joined head, the integral from 15.5, the cut at 60.5."""
    y, weights = quadrature.prefix(CPU)
    assert y.tolist() == list(range(quadrature.PREFIX))
    f = lambda x: torch.exp(-0.1 * f64(x)) + (f64(x) == 3)
    exact = float(f(np.arange(61.0)).sum())
    x, weight = quadrature.between(f64(quadrature.JOIN - 0.5), f64(60.5), 24)
    found = float((weights * f(y)).sum() + (weight * f(x)).sum()) + correction(f, 60)
    assert found == pytest.approx(exact, rel=1e-13)
