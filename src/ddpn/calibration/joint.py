"""How unusual the values of a row are together: a Mahalanobis distance in a standardised encoding."""

from typing import NamedTuple, Self

import numpy as np

#: Up to this width all directions are kept, beyond it only the first ones and the length of the rest.
_ALL, _FIRST = 256, 64
#: Directions with less than this share of the mean variance count as having it: rounding is not evidence.
_LEAST = 1e-3


class Joint(NamedTuple):
    """Mean and principal directions of training rows, and one over the variance of each; `rest` of all others.

    Shape: (width,), (width, k), (k,), (1,).
    """

    mean: np.ndarray
    directions: np.ndarray
    precision: np.ndarray
    rest: np.ndarray

    @classmethod
    def fit(cls, inputs: np.ndarray) -> Self:
        """From encoded training rows. Variances are shrunk towards their mean, by the rule of Ledoit and Wolf if narrow."""
        from sklearn.covariance import ledoit_wolf_shrinkage  # slow to import
        from sklearn.utils.extmath import randomized_svd

        rows, width = inputs.shape
        mean = inputs.mean(0, dtype=np.float64).astype(np.float32)
        centred = inputs - mean
        total = float(np.square(centred).sum(dtype=np.float64)) / rows
        if width <= _ALL:
            variance, directions = np.linalg.eigh(centred.T.astype(np.float64) @ centred / rows)
        else:
            _, singular, across = randomized_svd(centred, min(_FIRST, rows - 1), n_iter=2, random_state=0)
            variance, directions = np.square(singular) / rows, across.T
        typical = total / width
        if not typical > 0.0:  # nothing varies
            return cls(mean, np.zeros((width, 0), np.float32), np.zeros(0, np.float32), np.zeros(1, np.float32))
        wide = width > _ALL  # the rule would need all products of columns
        shrinkage = width / (width + rows) if wide else ledoit_wolf_shrinkage(centred, assume_centered=True)
        left = max(total - variance.sum(), 0.0) / max(width - len(variance), 1)
        shrunk = [(1.0 - shrinkage) * np.atleast_1d(v) + shrinkage * typical for v in (variance, left)]
        precision, rest = (1.0 / np.maximum(v, _LEAST * typical) for v in shrunk)
        return cls(mean, *(np.asarray(v, dtype=np.float32) for v in (directions, precision, rest)))

    def distance(self, inputs: np.ndarray) -> np.ndarray:
        """The squared distance from the mean of each row, per input. Shape: (rows,)."""
        centred = inputs - self.mean
        along = np.square(centred @ self.directions)
        rest = np.maximum(np.square(centred).sum(1) - along.sum(1), 0.0)
        if self.directions.shape[1] == len(self.mean):
            rest = np.zeros_like(rest)
        return ((along @ self.precision + rest * self.rest[0]) / len(self.mean)).astype(np.float64)
