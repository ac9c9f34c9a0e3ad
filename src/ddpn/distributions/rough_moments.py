"""Moments and sums of many Double Poissons in float32, by polynomials that are shared by nearly equal parameters.

As `shared_moments`, for mixtures in float32: exact to 1e-6, mostly 1e-7, in less than half the time. The logarithms of
mean / mu, of variance gamma / mu, and of the sum of weights less gamma mu are smooth: in a square of log(mu) and
log(gamma) of side 1/4 polynomials of degree 5 are as exact as float32. Their coefficients come from the polynomials of
`shared_moments`.
"""

from functools import cache

import numpy as np
import torch

from ddpn.distributions.shared_moments import FIRST, SHAPE, SIDE, chebyshev, shared_moments

#: Coefficients per direction.
_SIZE = 6
#: Components that are sorted, and evaluated, together.
_MOST, _BLOCK = 2**18, 2**14


class RoughSquares:
    """Polynomials of all squares, those that are known so far, in float32."""

    def __init__(self) -> None:
        self._nodes, self._inverse = chebyshev(_SIZE)
        #: Coefficients by power of log(mu), then by what is computed; powers of log(gamma) in columns.
        self._coefficients = np.full((SHAPE[0] * SHAPE[1] + 1, 3 * _SIZE, _SIZE), np.nan, dtype=np.float32)
        #: Mean / mu, and variance gamma / mu, in the middle of each square: logarithms are relative to these.
        self.middles = np.ones((2, len(self._coefficients)), dtype=np.float32)
        self._known = np.zeros(len(self._coefficients), dtype=bool)
        self._known[-1] = True  # NaN outside of all squares

    def of(self, number: int) -> np.ndarray:
        """The polynomials of a square. Shape: (18, 6)."""
        if not self._known[number]:
            found = self._computed(number)
            self.middles[:, number] = np.exp2(found[:2, 0])
            found[:2, 0] = 0.0
            self._coefficients[number] = found
            self._known[number] = True
        return self._coefficients[number]

    def _computed(self, number: int) -> np.ndarray:
        place = divmod(number, SHAPE[1])
        x, z = (first + SIDE * (i + 0.5 + 0.5 * self._nodes) for first, i in zip(FIRST, place, strict=True))
        mu, gamma = np.exp(x).repeat(_SIZE), np.tile(np.exp(z), _SIZE)
        mean, variance, total = shared_moments(mu, gamma)
        values = np.stack([np.log2(mean / mu), np.log2(variance * gamma / mu), total - gamma * mu])
        found = self._inverse @ values.reshape(3, _SIZE, _SIZE) @ self._inverse.T
        return found.transpose(1, 0, 2).reshape(3 * _SIZE, _SIZE)


@cache
def _squares() -> RoughSquares:
    return RoughSquares()


def rough_moments(mu: np.ndarray, gamma: np.ndarray) -> np.ndarray:
    """Mean and variance of Double Poissons within 1e-6 of them, and the logarithm of the sum of their weights.

    The sum is that of `double_poissons`; its logarithm is within 5e-7 of it or of 1. NaN outside of all squares. Shape:
    (k,) each, in float32 -> (3, k).
    """
    found = np.empty((3, len(mu)), dtype=np.float32)
    for start in range(0, len(mu), _MOST):
        part = slice(start, start + _MOST)
        _write(mu[part], gamma[part], found[:, part])
    return found


def _write(mu: np.ndarray, gamma: np.ndarray, out: np.ndarray) -> None:
    (i, t), (j, s) = (_place(value, first) for value, first in zip((mu, gamma), FIRST, strict=True))
    inside = (i >= 0) & (i < SHAPE[0]) & (j >= 0) & (j < SHAPE[1])
    i *= SHAPE[1]
    i += j
    if not inside.all():
        i[~inside], t[~inside], s[~inside] = SHAPE[0] * SHAPE[1], 0.0, 0.0
    # Numbers of 16 bits are sorted in linear time.
    number = i.astype(np.int16)
    order = np.argsort(number, kind="stable")
    number = number.take(order)
    values = _evaluated(number, t.take(order), s.take(order))
    torch.from_numpy(values[:2]).exp2_()
    values[:2] *= _squares().middles.take(number, axis=1)
    for row, value in zip(out, values, strict=True):
        row[order] = value
    out[0] *= mu
    out[1] *= mu
    out[1] /= gamma
    out[2] += mu * gamma


def _place(value: np.ndarray, first: float) -> tuple[np.ndarray, np.ndarray]:
    """The square that the logarithm lies in, counted in sides from the first corner, and where in it, from -1 to 1."""
    logarithm = torch.from_numpy(value).log().numpy()
    number = logarithm - np.float32(first)
    number *= np.float32(1.0 / SIDE)
    np.floor(number, out=number)
    # Middles of squares are exact in float32, and so are differences from them.
    middle = number * np.float32(SIDE)
    middle += np.float32(first + 0.5 * SIDE)
    with np.errstate(invalid="ignore"):
        logarithm -= middle
    logarithm *= np.float32(2.0 / SIDE)
    return number, logarithm


def _evaluated(number: np.ndarray, t: np.ndarray, s: np.ndarray) -> np.ndarray:
    """What the polynomials are at t and s in the squares of components, which are sorted. Shape: (k,) -> (3, k)."""
    squares, found = _squares(), np.empty((3, len(t)), dtype=np.float32)
    powers, rows = np.ones((_SIZE, _BLOCK), np.float32), np.empty((3 * _SIZE, _BLOCK), np.float32)
    for start in range(0, len(t), _BLOCK):
        part = slice(start, start + _BLOCK)
        here, value = t[part], found[:, part]
        size = len(here)
        for k in range(1, _SIZE):
            np.multiply(powers[k - 1, :size], s[part], out=powers[k, :size])
        starts = np.flatnonzero(np.diff(number[part], prepend=-1)).tolist()
        for low, high in zip(starts, [*starts[1:], size], strict=True):
            np.matmul(squares.of(number[start + low]), powers[:, low:high], out=rows[:, low:high])
        each = rows[:, :size].reshape(_SIZE, 3, size)
        value[...] = each[-1]
        for k in range(_SIZE - 2, -1, -1):
            value *= here
            value += each[k]
    return found
