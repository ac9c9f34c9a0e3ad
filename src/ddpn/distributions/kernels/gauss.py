"""Gauss's rule for sums: a panel is n = 16 * 2^k consecutive counts, represented by 16 positions.

Positions and weights are such that the sum over the counts of any polynomial of degree up to 15 is exact, and of those
up to 31 to 6 digits, as with Gauss-Legendre quadrature for integrals, which they approach. For k = 0 they are the
counts themselves. Values at the positions also stand for the polynomial of degree 15 through them, and so for partial
sums and for the values at the positions of either half of the panel. Tables for 2 n counts follow from those for n:
such a panel is two panels.
"""

from math import frexp

import numpy as np
from numpy.polynomial.legendre import legvander

#: Positions of a panel, and sizes of panels with a table of their own: from 16 * 2^26 on these agree to 1e-15.
SIZE, TABLES = 16, 27
#: Binary digits of positions, as shares of a panel.
DIGITS = 26
#: Largest count, in sizes of a panel, that is added to the panel's positions without rounding. Beyond it, distributions
#: up to a standard deviation of `NARROW` are summed count by count.
EXACT, NARROW = 2.0 ** (52 - DIGITS), 4096.0


def _compute_positions(n):
    """Compute the positions of Gauss's rule for n counts by Golub and Welsch, from half a count before the first."""
    j = np.arange(1.0, SIZE)
    shares = 0.5 + np.linalg.eigvalsh(np.diag(0.5 * j * np.sqrt((1.0 - (j / n) ** 2) / (4.0 * j**2 - 1.0)), -1))
    return n * np.round(shares * 2.0**DIGITS) / 2.0**DIGITS


def _compute_tables():
    """Compute positions, weights and partial sums over n, and values in both halves of a panel, for every k."""
    n, positions, weights, upto = float(SIZE), np.arange(SIZE) + 0.5, np.ones(SIZE), np.tril(np.ones((SIZE, SIZE)))
    left = right = np.zeros((SIZE, SIZE))
    tables = []
    for _ in range(TABLES):
        middle = upto.T - 0.5 * np.eye(SIZE)
        tables.append((positions / n, weights / n, middle / n, np.stack([left.T, right.T])))
        inner, outer = np.append(positions, positions + n) / n - 1.0, _compute_positions(2.0 * n) / n - 1.0
        halves = legvander(inner, SIZE - 1) @ np.linalg.inv(legvander(outer, SIZE - 1))
        left, right = halves[:SIZE], halves[SIZE:]
        sums = np.concatenate([upto @ left, weights @ left + upto @ right])
        upto = legvander(outer, SIZE) @ np.linalg.pinv(legvander(inner, SIZE)) @ sums
        weights = weights @ (left + right)
        n, positions = 2.0 * n, n * (outer + 1.0)
    return (np.ascontiguousarray(np.stack(values)) for values in zip(*tables, strict=True))


#: POSITIONS[k, i] * n is the place of position i, from half a count before the panel; WEIGHTS[k, i] * n its weight.
#: UPTO[k, j, i] * n is what the value at position j adds to the sum up to position i, of whose own value one half is in
#: it. HALVES[k, 0, j, i] is what the value at position j of the panel adds to that at position i of its first half, and
#: HALVES[k, 1, j, i] of its second one; a panel of k = 0 has no halves.
POSITIONS, WEIGHTS, UPTO, HALVES = _compute_tables()


def is_exact(n, y, width):
    """Return True if a panel of n counts near y may be used: rounded positions would make tails inaccurate."""
    return n * EXACT > y or width > NARROW


def find_table(n):
    """Return k of a panel of n = 16 * 2^k counts, at most the last k with tables."""
    return min(frexp(n / SIZE)[1] - 1, TABLES - 1)
