"""Where a sum of 64 terms evaluates a count distribution of any width: 20 counts joined to nodes in sqrt(y)."""

import math

import numpy as np

#: Terms of a sum, and the depth of the window that they cover.
TERMS, DEPTH = 64, 32.0
#: Counts below this are always summed one by one; those of a short window leave so many terms unused.
JOIN, MARGIN = 16, 4
#: Expansion of 1/delta - 1/(2 asinh(delta/2)) in odd powers of the central difference delta (Gauss-Encke): what joins a
#: sum of counts to an integral.
_CUT_SERIES = (-1 / 24, 17 / 5760, -367 / 967680, 27859 / 464486400)


def _cut_weights() -> np.ndarray:
    """Weights of the eight counts around a cut, from 3.5 below it on, in the sum of the counts below it."""
    weights = np.zeros(8)
    for i, coefficient in enumerate(_CUT_SERIES):
        for j in range(2 * i + 2):
            weights[3 - i + j] += coefficient * (-1) ** (2 * i + 1 - j) * math.comb(2 * i + 1, j)
    return weights


CUT = _cut_weights()
#: Weights with which the counts 0..19 join an integral that starts at 15.5.
HEAD = np.where(np.arange(JOIN + MARGIN) < JOIN, 1.0, 0.0)
HEAD[JOIN - MARGIN :] -= CUT
_X, _W = np.polynomial.legendre.leggauss(TERMS - JOIN - MARGIN)
#: Nodes on [0, 1] and weights that sum to 1.
NODES, WEIGHTS = (_X + 1.0) / 2.0, _W / 2.0
