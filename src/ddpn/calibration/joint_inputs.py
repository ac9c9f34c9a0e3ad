"""`JointInputs`: the joint distribution of encoded features, which finds rows whose values do not go together."""

from typing import NamedTuple, Self

import numpy as np

#: The smallest variance of a direction, as a share of the mean variance. Smaller ones are rounding errors.
_MIN_VARIANCE_SHARE = 1e-3
#: The scale of an input is this quantile of its absolute residuals in the training rows.
_RESIDUAL_QUANTILE = 0.995


class JointInputs(NamedTuple):
    """Joint distribution of the inputs that encode a row, for finding rows whose values do not go together.

    Inputs are normal scores of numbers and indicators of levels. A row is unusual if its Mahalanobis distance from the
    mean is large, or if one of its inputs is far from its prediction by the other inputs.

    Attributes
    ----------
    mean : array, shape (width,)
        The mean of each input in the training rows.
    precision : array, shape (width, width)
        The inverse of the covariance matrix.
    scale : array, shape (width,)
        For each input, a residual that few training rows exceed (the 99.5% quantile). The residual is proportional to
        the difference between the input and its prediction by the other inputs.
    """

    mean: np.ndarray
    precision: np.ndarray
    scale: np.ndarray

    @classmethod
    def fit(cls, inputs: np.ndarray) -> Self:
        """Estimate the three attributes of this class from training rows, with `inputs` of shape (rows, width).

        The attributes are the means, the inverse of the covariance matrix, and the scale of each input's residual,
        which is proportional to the difference between the input and its prediction by the other inputs. The covariance
        matrix is shrunk by the method of Ledoit and Wolf.
        """
        from sklearn.covariance import ledoit_wolf  # slow to import

        mean = inputs.mean(0, dtype=np.float64)
        centred = inputs - mean
        covariance, _ = ledoit_wolf(centred, assume_centered=True)
        typical = max(
            float(np.trace(covariance)) / len(mean), _MIN_VARIANCE_SHARE
        )  # about 1, but 0 if all columns are constant
        precision = np.linalg.inv(covariance + _MIN_VARIANCE_SHARE * typical * np.eye(len(mean)))
        # Not below the standard deviation: the quantile of an input that is almost always 0 is smaller.
        rare = np.quantile(np.abs(centred @ precision), _RESIDUAL_QUANTILE, axis=0)
        scale = np.maximum(rare, np.sqrt(np.diag(precision)))
        return cls(*(part.astype(np.float32) for part in (mean, precision, scale)))

    def find_least_explained_input(self, inputs: np.ndarray) -> np.ndarray:
        """Return, for each row, the position of the input that is farthest from its prediction by the other inputs.

        The distance is the residual in units of `scale`. Shape: (rows, width) -> (rows,).
        """
        return np.abs((inputs - self.mean) @ self.precision / self.scale).argmax(1)

    def compute_distances(self, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return two measures of how unusual each row is. Shape: (rows, width) -> (rows,) each.

        The first is its squared Mahalanobis distance from the mean, divided by the number of inputs. The second is its
        largest absolute residual, in units of `scale`; a residual is proportional to the difference between an input
        and its prediction by the other inputs. The computation is in float64, because float32 results would depend on
        the number of rows that are multiplied at once.
        """
        centred = inputs - self.mean.astype(np.float64)
        weighted = centred @ self.precision.astype(np.float64)
        return (centred * weighted).mean(1), np.abs(weighted / self.scale).max(1)
