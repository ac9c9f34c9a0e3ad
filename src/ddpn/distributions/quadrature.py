"""Summing a smooth function over the integers with few evaluations.

For f that is smooth on the scale of 1, Euler-Maclaurin in its midpoint form says

    sum_{z=a}^{b-1} f(z) = int_{a-1/2}^{b-1/2} f(x) dx + B[f](b - 1/2) - B[f](a - 1/2),

with B = 1/delta - 1/D in operator form (delta the central difference, D the derivative). The integral takes
Gauss-Legendre nodes in t = sqrt(x), where count distributions have about constant width; B is read off the eight
integers around the cut, so no derivative is needed.
"""

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from torch import Tensor

from ddpn.distributions.dispatch import constant

#: Below this count a pmf may be as sharp as x^-1/2 (h(0) = 1): those integers are always summed one by one.
JOIN = 16
#: Integers beyond those before a cut that the correction of the cut needs.
BEYOND_CUT = 4
#: The integers 0..PREFIX-1 carry both the exact part and the cut at JOIN - 1/2.
PREFIX = JOIN + BEYOND_CUT
#: Expansion of 1/delta - 1/(2 asinh(delta/2)) in odd powers of delta (Gauss-Encke coefficients).
_CUT_SERIES = (-1 / 24, 17 / 5760, -367 / 967680, 27859 / 464486400)


def _cut_weights() -> np.ndarray:
    """Weights of the eight integers around a cut."""
    weights = np.zeros(8)
    for i, coefficient in enumerate(_CUT_SERIES):
        order = 2 * i + 1
        for j in range(order + 1):
            weights[3 - i + j] += coefficient * (-1) ** (order - j) * math.comb(order, j)
    return weights


@cache
def cut_weights(device: torch.device) -> tuple[Tensor, Tensor]:
    """Offsets (from y, for a cut at y + 1/2) and weights of B."""
    return constant(np.arange(-3.0, 5.0), device), constant(_cut_weights(), device)


@cache
def prefix(device: torch.device, join: int = JOIN) -> tuple[Tensor, Tensor]:
    """The integers 0..join+3 and the weights with which they join an integral that starts at join - 1/2."""
    weights = np.where(np.arange(join + BEYOND_CUT) < join, 1.0, 0.0)
    weights[join - BEYOND_CUT :] -= _cut_weights()
    return constant(np.arange(join + BEYOND_CUT), device), constant(weights, device)


@cache
def gauss_legendre(n: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Nodes on [0, 1] and weights that sum to 1."""
    nodes, weights = np.polynomial.legendre.leggauss(n)
    return constant((nodes + 1) / 2, device), constant(weights / 2, device)


def _of_interpolant(n: int, take: Callable[[np.polynomial.Legendre], np.polynomial.Legendre]) -> np.ndarray:
    """Matrix that takes values at the nodes of `leggauss(n)` to those of a linear operator on their interpolant."""
    nodes, _ = np.polynomial.legendre.leggauss(n)
    to_coefficients = np.linalg.inv(np.polynomial.legendre.legvander(nodes, n - 1))
    return (np.stack([take(np.polynomial.Legendre.basis(i))(nodes) for i in range(n)], axis=1) @ to_coefficients).T


@cache
def running_integral(n: int, device: torch.device) -> Tensor:
    """Matrix C with (f @ C)_j = the integral of f's interpolant from 0 to node j of `gauss_legendre(n)`."""
    return constant(_of_interpolant(n, lambda basis: basis.integ(lbnd=-1)) / 2, device)


@cache
def derivative(n: int, device: torch.device) -> Tensor:
    """Matrix D with (f @ D)_j = the slope of f's interpolant at node j of `gauss_legendre(n)`."""
    return constant(_of_interpolant(n, lambda basis: basis.deriv()) * 2, device)


def between(start: Tensor, end: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Nodes x and weights for the integral from `start` to `end` over x, taken in t = sqrt(x).

    Shape: start, end (...); both results (..., n). An empty range (end <= start) gets weights 0.
    """
    nodes, weights = gauss_legendre(n, start.device)
    low = start.sqrt().unsqueeze(-1)
    length = (end.sqrt().unsqueeze(-1) - low).clamp(min=0.0)
    t = torch.addcmul(low, length, nodes)
    return t * t, (2.0 * length * weights) * t
