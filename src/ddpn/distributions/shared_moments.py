"""Moments and sums of many Double Poissons, by polynomials that are shared by all with nearly equal parameters.

For a fixed gamma a Double Poisson is an exponential family in gamma log mu, so that its variance is the mean times the
derivative of L = log(mean) by log(mu), divided by gamma. L is analytic: in a square of log(mu) and log(gamma) of side
1/4 a polynomial of degree 9 in each is exact to about 1e-13, and its derivative to 1e-10. The same holds for the
logarithm of the sum of weights. Polynomials are computed for the squares that are met, from sums over all counts, and
kept. What they give depends on mu and gamma alone.
"""

from functools import cache

import numpy as np
import torch

from ddpn.distributions.family_tables import LONGEST, double_poissons

#: Side of a square, and coefficients per direction.
SIDE, _SIZE = 0.25, 10
#: Squares: log(mu) from -5 to 5 and log(gamma) from -3 to 1. The zeros of the normaliser that are nearest, where L
#: is not analytic, are about pi / gamma away: 1.2 at the upper end, five sides.
FIRST, SHAPE = (-5.0, -3.0), (40, 16)
#: Largest gamma mu and reach of a square: sums over counts from 0 on are exact there.
_DEEPEST, _FARTHEST = 500.0, LONGEST - 16.0
#: Components that are sorted, and evaluated, together.
_MOST, _BLOCK = 2**15, 2**13


def chebyshev(size: int) -> tuple[np.ndarray, np.ndarray]:
    """So many nodes within (-1, 1), and the matrix that takes values there to the coefficients of a polynomial."""
    nodes = np.cos((np.arange(size) + 0.5) * (np.pi / size))
    return nodes, np.linalg.inv(np.vander(nodes, increasing=True))


class Squares:
    """Polynomials of all squares, those that are known so far."""

    def __init__(self) -> None:
        self._nodes, self._inverse = chebyshev(_SIZE)
        #: Coefficients of powers of log(mu) in rows, of log(gamma) in columns: first those of L, then of the sums.
        self._coefficients = np.zeros((SHAPE[0] * SHAPE[1], 2 * _SIZE, _SIZE))
        mu = np.exp(FIRST[0] + SIDE * np.arange(1, SHAPE[0] + 1))[:, None]
        gamma = np.exp(FIRST[1] + SIDE * np.arange(SHAPE[1]))[None]
        depth = mu * gamma * np.exp(SIDE)
        self.serves = ((depth < _DEEPEST) & (_reach(mu, gamma) < _FARTHEST)).reshape(-1)
        #: One more for all that is outside of them.
        self.serves = np.append(self.serves, False)
        self._known = np.zeros(len(self._coefficients), dtype=bool)

    def of(self, number: int) -> np.ndarray:
        """Both polynomials of a square. Shape: (20, 10)."""
        if not self._known[number]:
            self._coefficients[number] = self._computed(number)
            self._known[number] = True
        return self._coefficients[number]

    def _computed(self, number: int) -> np.ndarray:
        place = divmod(number, SHAPE[1])
        x, z = (first + SIDE * (i + 0.5 + 0.5 * self._nodes) for first, i in zip(FIRST, place, strict=True))
        mu, gamma = np.exp(x)[:, None].repeat(_SIZE, 1), np.exp(z)[None].repeat(_SIZE, 0)
        n = int(min(_reach(mu, gamma).max() + 4.0, LONGEST))
        mean, _, _, total = double_poissons(mu, gamma, np.ones_like(mu), n)
        return np.concatenate([self._inverse @ np.log(each) @ self._inverse.T for each in (mean, total)])


def _reach(mu: np.ndarray, gamma: np.ndarray) -> np.ndarray:
    """A count beyond which less than 1e-15 of the mass lies: the deviance there exceeds 36 / gamma."""
    return np.square(np.sqrt(mu) + np.sqrt(18.0 / gamma))


@cache
def _squares() -> Squares:
    return Squares()


def shared_moments(mu: np.ndarray, gamma: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean and variance of Double Poissons, within 1e-12 and 1e-10, and the logarithm of the sum of their weights.

    The sum is that of `double_poissons`. NaN outside of all squares. Shape: (k,) each.
    """
    parts = [_in_squares(mu[i : i + _MOST], gamma[i : i + _MOST]) for i in range(0, len(mu), _MOST)]
    mean, variance, total = np.concatenate(parts, axis=1) if parts else np.empty((3, 0))
    return mean, variance, total


def _in_squares(mu: np.ndarray, gamma: np.ndarray) -> np.ndarray:
    """The same of components whose numbers stay in cache. Shape: (3, k)."""
    squares = _squares()
    x, z = (_position(value, first) for value, first in zip((mu, gamma), FIRST, strict=True))
    i, j = np.floor(x), np.floor(z)
    with np.errstate(invalid="ignore"):
        x -= i
        z -= j
    inside = (i >= 0) & (i < SHAPE[0]) & (j >= 0) & (j < SHAPE[1])
    i *= SHAPE[1]
    i += j
    if not inside.all():
        i[~inside] = -1.0
    # Numbers of 16 bits are sorted in linear time.
    number = i.astype(np.int16)
    order = np.argsort(number, kind="stable")
    number = number.take(order)
    used = squares.serves[number]
    if not used.all():
        order, number = order[used], number[used]
    mean, slope, total = _evaluated(squares, number, 2.0 * x.take(order) - 1.0, 2.0 * z.take(order) - 1.0)
    slope *= mean
    slope *= 2.0 / SIDE
    found = np.full((3, len(mu)), np.nan)
    found[0, order], found[1, order], found[2, order] = mean, slope, total
    found[1] /= gamma
    return found


def _position(value: np.ndarray, first: float) -> np.ndarray:
    """Where the logarithm lies, in sides from the first corner."""
    logarithm = torch.from_numpy(np.ascontiguousarray(value)).log().numpy()
    logarithm -= first
    logarithm *= 1.0 / SIDE
    return logarithm


def _evaluated(squares: Squares, number: np.ndarray, t: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, ...]:
    """exp(L), the derivative of L by t, and the other logarithm, of components by their square, at t and s in it."""
    found, slopes, totals = np.empty_like(t), np.empty_like(t), np.empty_like(t)
    powers, rows = np.ones((_SIZE, _BLOCK)), np.empty((2 * _SIZE, _BLOCK))
    for start in range(0, len(t), _BLOCK):
        part = slice(start, start + _BLOCK)
        here, value, slope, total = t[part], found[part], slopes[part], totals[part]
        size = len(here)
        for k in range(1, _SIZE):
            np.multiply(powers[k - 1, :size], s[part], out=powers[k, :size])
        starts = np.flatnonzero(np.diff(number[part], prepend=-1)).tolist()
        for low, high in zip(starts, [*starts[1:], size], strict=True):
            np.matmul(squares.of(number[start + low]), powers[:, low:high], out=rows[:, low:high])
        # Horner's scheme for the polynomial in t and its derivative, and for the other one.
        value[:], slope[:], total[:] = rows[_SIZE - 1, :size], 0.0, rows[-1, :size]
        for k in range(_SIZE - 2, -1, -1):
            slope *= here
            slope += value
            value *= here
            value += rows[k, :size]
            total *= here
            total += rows[k + _SIZE, :size]
    return torch.from_numpy(found).exp_().numpy(), slopes, totals
