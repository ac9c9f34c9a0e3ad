"""Gaussian quadrature for sums over counts.

A panel is a run of n = 16 * 2^k consecutive counts. The sum of a smooth function over the counts of a panel is
approximated by a weighted sum of its values at 16 positions, as in Gauss-Legendre quadrature. The positions are the
zeros of the polynomial of degree 16 that is orthogonal, on the n counts, to all polynomials of lower degree. Without
rounding, the rule would be exact for polynomials of degree up to 31. Positions are rounded, so the rule is exact up to
degree 15 and accurate to six digits up to degree 31. For k = 0 the positions are the counts themselves. For large k the
rule approaches Gauss-Legendre quadrature.

The values at the 16 positions determine a polynomial of degree 15. From this polynomial follow the sums over the first
counts of a panel (partial sums), and the values at the positions of either half of the panel. The tables for 2 n counts
are computed from those for n counts, because both halves of a panel of 2 n counts are panels of n counts.
"""

from math import frexp

import numpy as np
from numpy.polynomial.legendre import legvander

#: Positions per panel, and number of panel sizes with a table: from 16 * 2^26 counts on, tables agree to 1e-15.
N_POSITIONS, N_TABLES = 16, 27
#: Binary digits of positions, which are shares of a panel.
DIGITS = 26
#: Up to this count, in multiples of a panel's size, positions are not rounded when the first count is added. For larger
#: counts, distributions with a standard deviation up to `MAX_NARROW_DEVIATION` are summed count by count.
MAX_EXACT_SIZES, MAX_NARROW_DEVIATION = 2.0 ** (52 - DIGITS), 4096.0


def _compute_positions(n):
    """Compute the 16 positions of Gaussian quadrature over n consecutive counts.

    Positions are measured from half a count before the first count. They are the eigenvalues of the Jacobi matrix of
    the discrete Chebyshev polynomials, which are orthogonal on n equidistant points (algorithm of Golub and Welsch).
    Divided by n, positions are rounded to `DIGITS` binary digits.
    """
    j = np.arange(1.0, N_POSITIONS)
    shares = 0.5 + np.linalg.eigvalsh(np.diag(0.5 * j * np.sqrt((1.0 - (j / n) ** 2) / (4.0 * j**2 - 1.0)), -1))
    return n * np.round(shares * 2.0**DIGITS) / 2.0**DIGITS


def _compute_tables():
    """Compute the quadrature tables POSITIONS, WEIGHTS, UPTO and HALVES; see the comment below this function."""
    n, positions, weights, upto = (
        float(N_POSITIONS),
        np.arange(N_POSITIONS) + 0.5,
        np.ones(N_POSITIONS),
        np.tril(np.ones((N_POSITIONS, N_POSITIONS))),
    )
    left = right = np.zeros((N_POSITIONS, N_POSITIONS))
    tables = []
    for _ in range(N_TABLES):
        middle = upto.T - 0.5 * np.eye(N_POSITIONS)  # half of the value at the position itself
        tables.append((positions / n, weights / n, middle / n, np.stack([left.T, right.T])))
        # `inner`: the positions of both halves, `outer`: those of the whole panel, both scaled to [-1, 1].
        inner, outer = np.append(positions, positions + n) / n - 1.0, _compute_positions(2.0 * n) / n - 1.0
        # Values at `outer` determine a polynomial of degree 15 (its Legendre coefficients), and so values at `inner`.
        halves = legvander(inner, N_POSITIONS - 1) @ np.linalg.inv(legvander(outer, N_POSITIONS - 1))
        left, right = halves[:N_POSITIONS], halves[N_POSITIONS:]
        # Partial sums at `inner` are a polynomial of degree 16 in the position, which is evaluated at `outer`.
        sums = np.concatenate([upto @ left, weights @ left + upto @ right])
        upto = legvander(outer, N_POSITIONS) @ np.linalg.pinv(legvander(inner, N_POSITIONS)) @ sums
        weights = weights @ (left + right)
        n, positions = 2.0 * n, n * (outer + 1.0)
    return (np.ascontiguousarray(np.stack(values)) for values in zip(*tables, strict=True))


#: POSITIONS[k, i] * n is position i, counted from half a count before the panel, and WEIGHTS[k, i] * n is its weight.
#: UPTO[k, j, i] * n is the coefficient of the value at position j in the sum up to position i, which includes half of
#: the value at i. HALVES[k, 0, j, i] is the coefficient of the value at position j in the value at position i of the
#: panel's first half, and HALVES[k, 1, j, i] the same for the second half. A panel of k = 0 has no halves.
POSITIONS, WEIGHTS, UPTO, HALVES = _compute_tables()


def is_rounding_harmless(n, y, width):
    """Return True if the sum over the n counts from y on may be computed by quadrature although positions are rounded.

    Adding a position to y is exact if y is below `MAX_EXACT_SIZES` times n. If it is not exact, the rounding is
    harmless for wide distributions. `width` is a rough standard deviation of the distribution.
    """
    return n * MAX_EXACT_SIZES > y or width > MAX_NARROW_DEVIATION


def find_table(n):
    """Return the first index of `POSITIONS` and the other quadrature tables for a panel of n = 16 * 2^k counts.

    The index is k, but at most `N_TABLES` - 1, because tables hardly differ from there on.
    """
    return min(frexp(n / N_POSITIONS)[1] - 1, N_TABLES - 1)
