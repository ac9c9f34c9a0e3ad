"""How unusual the values of a row are together: a Mahalanobis distance in a standardised encoding."""

from typing import NamedTuple, Self

import numpy as np

#: Up to this width all directions are kept, beyond it only the first ones and the length of the rest.
_ALL, _FIRST = 256, 64
#: Directions with less than this share of the mean variance count as having it: rounding is not evidence.
_LEAST = 1e-3
#: The share of training rows whose residual stays below the scale of an input.
_RARE = 0.995


class Joint(NamedTuple):
    """Mean and principal directions of training rows, and one over the variance of each; `rest` of all others.

    `scale` is the size of the residual that each input rarely has when it is predicted from the others.
    Shape: (width,), (width, k), (k,), (1,), (width,).
    """

    mean: np.ndarray
    directions: np.ndarray
    precision: np.ndarray
    rest: np.ndarray
    scale: np.ndarray

    @classmethod
    def fit(cls, inputs: np.ndarray) -> Self:
        """From encoded training rows.

        Variances are shrunk towards their mean, by the rule of Ledoit and Wolf in narrow tables.
        """
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
        typical = max(total / width, _LEAST)  # the variance of an input is about 1, or 0 where nothing varies
        wide = width > _ALL  # the rule would need all products of columns
        shrinkage = width / (width + rows) if wide else ledoit_wolf_shrinkage(centred, assume_centered=True)
        left = max(total - variance.sum(), 0.0) / max(width - len(variance), 1)
        shrunk = [(1.0 - shrinkage) * np.atleast_1d(v) + shrinkage * typical for v in (variance, left)]
        precision, rest = (1.0 / np.maximum(v, _LEAST * typical) for v in shrunk)
        found = cls(mean, *(np.asarray(v, dtype=np.float32) for v in (directions, precision, rest, np.ones(width))))
        # At least their standard deviation: an input that hardly ever differs from 0 has a smaller quantile.
        deviation = np.sqrt(found.rest + np.square(found.directions) @ (found.precision - found.rest))
        rare = np.quantile(np.abs(found._weighted(centred)), _RARE, axis=0)
        return found._replace(scale=np.maximum(rare, deviation).astype(np.float32))

    def _weighted(self, centred: np.ndarray) -> np.ndarray:
        """The inverse covariance times each row: residuals of each input given the others, up to its own factor."""
        return self.rest * centred + ((centred @ self.directions) * (self.precision - self.rest)) @ self.directions.T

    def worst(self, inputs: np.ndarray) -> np.ndarray:
        """The input of each row that the others predict worst, by position."""
        return np.abs(self._weighted(inputs - self.mean) / self.scale).argmax(1)

    def distances(self, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Per row the squared distance from the mean, and the largest residual of an input given the others."""
        centred = inputs - self.mean
        weighted = self._weighted(centred)
        return (centred * weighted).mean(1, dtype=np.float64), np.abs(weighted / self.scale).max(1).astype(np.float64)
