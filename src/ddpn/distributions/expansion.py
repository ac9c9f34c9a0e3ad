"""The expansion log c = sum_n q_n(gamma) k^-n, n = 1..6, of the Double Poisson's normaliser for large k = gamma mu.

For programs without compiled kernels: exported models and JAX.
"""

import numpy as np

#: The expansion starts to be used here: the first term left out is 6e-10 at k = 37, aliasing 2 e^(-2 pi^2 1.3) = 1e-11.
MIN_K, MIN_MU, MIN_VARIANCE = 37.0, 6.0, 1.3

#: Row n - 1: coefficients of gamma^0..gamma^5 in q_n.
Q = np.array(
    [
        [1 / 12, -1 / 12, 0, 0, 0, 0],
        [1 / 12, -1 / 12, 0, 0, 0, 0],
        [241 / 1440, -25 / 144, 1 / 288, 1 / 360, 0, 0],
        [121 / 240, -13 / 24, 1 / 48, 1 / 60, 0, 0],
        [733531 / 362880, -38653 / 17280, 413 / 3456, 5051 / 51840, -1 / 1440, -1 / 1260],
        [917443 / 90720, -49543 / 4320, 647 / 864, 8141 / 12960, -7 / 720, -1 / 84],
    ]
)
