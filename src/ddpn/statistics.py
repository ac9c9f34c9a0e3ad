"""Statistics of weighted rows: means, quantiles, confidence intervals, adjusted p-values and Poisson deviance."""

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

#: The half-width of a 95% interval of the normal distribution, in standard deviations.
Z = 1.959963984540054
#: The probability of each tail outside a 95% interval.
TAIL = 0.025


def effective_rows(weight: np.ndarray) -> float:
    """Return the effective number of rows of a weighted sample, (sum w)^2 / sum w^2 (Kish's formula)."""
    return float(weight.sum() ** 2 / np.square(weight).sum())


def weighted_mean(values: np.ndarray, weight: np.ndarray) -> float:
    """Return the weighted mean of an array.

    For a few hundred values, this is three times as fast as `numpy.average`.
    """
    return float((values * weight).sum()) / float(weight.sum())


def weighted_quantile(values: np.ndarray, weight: np.ndarray, q: float) -> float:
    """Return the weighted q-quantile of an array.

    It is the smallest value v such that the values up to v have at least the share q of the total weight.
    """
    order = np.argsort(values, kind="stable")
    upto = np.cumsum(weight[order])
    # Rounded sums of weights such as 0.1 can fall just short of the level.
    position = np.searchsorted(upto, q * upto[-1] * (1 - 1e-12))
    return float(values[order][min(int(position), len(values) - 1)])


def mean_and_error(values: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the weighted mean of `values` over the last axis, and the standard error of this mean.

    Shape: values (..., rows), weight (rows,) -> two arrays (...).
    """
    mean, total = (values * weight).sum(-1) / weight.sum(), weight.sum()
    gaps = values - mean[..., None]
    scale = np.abs(gaps).max(-1)
    scale = np.where(scale > 0, scale, 1.0)  # avoids overflow and underflow of squares
    variance = (np.square(gaps / scale[..., None]) * weight).sum(-1) / total
    return mean, scale * np.sqrt(variance / max(effective_rows(weight) - 1.0, 1.0))


def bonferroni_z(comparisons: int) -> float:
    """Return the half-width, in standard errors, of simultaneous 95% confidence intervals (Bonferroni).

    `comparisons` is the number of intervals. The probability that all of them contain the true value is at least 95%.

    >>> round(bonferroni_z(1), 2), round(bonferroni_z(10), 2)
    (1.96, 2.81)
    """
    return NormalDist().inv_cdf(1.0 - TAIL / comparisons)


def wilson_interval(share: float, rows: float, z: float = Z) -> tuple[float, float]:
    """Return Wilson's confidence interval of a proportion.

    `share` is the proportion observed in `rows` rows; with weights, `rows` may be an effective number of rows and need
    not be an integer. `z` is the half-width of the interval in standard errors, by default that of a 95% interval.

    >>> tuple(round(end, 4) for end in wilson_interval(0.9, 100))
    (0.8256, 0.9448)
    """
    centre = (share + z * z / (2.0 * rows)) / (1.0 + z * z / rows)
    half = z / (1.0 + z * z / rows) * math.sqrt(share * (1.0 - share) / rows + z * z / (4.0 * rows * rows))
    return max(0.0, centre - half), min(1.0, centre + half)


def adjust_p_values(p_values: Sequence[float]) -> list[float]:
    """Adjust the p-values of several tests by Holm's method; the order is kept.

    >>> adjust_p_values([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p_values, kind="stable")
    factors = np.arange(len(p_values), 0, -1)
    adjusted = np.maximum.accumulate(np.asarray(p_values)[order] * factors)
    back = np.empty(len(p_values))
    back[order] = np.minimum(adjusted, 1.0)
    return [float(value) for value in back]


def poisson_deviance(y: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Return the Poisson deviance of each row, which measures how far the count `y` is from its predicted `mean`.

    It is 2 (log p(y; y) - log p(y; mean)), where p(y; m) is the Poisson probability of y for the mean m.

    >>> poisson_deviance(np.array([0.0, 2.0]), np.array([1.0, 2.0])).tolist()
    [2.0, 0.0]
    """
    deviance: np.ndarray = 2.0 * (y * np.log(np.where(y > 0, y, 1.0) / mean) - y + mean)
    return deviance


def explained_deviance(y: np.ndarray, mean: np.ndarray, weight: np.ndarray, scale: np.ndarray) -> float:
    """Return D^2, the share of the Poisson deviance that predicted means explain.

    It is 1 - deviance / null deviance. The null deviance is that of a constant rate: means in proportion to `scale`.
    All arrays have one value per row: the counts `y`, their predicted `mean`, the row's `weight`, and its exposure
    `scale`.

    >>> explained_deviance(np.array([1.0, 3.0]), np.array([1.0, 3.0]), np.ones(2), np.ones(2))
    1.0
    """
    constant = scale * (weight @ y / (weight @ scale))
    null = float(weight @ poisson_deviance(y, constant)) if constant.any() else 0.0
    # The mean of a Gaussian may be negative. Dividing a count by this bound does not overflow.
    left = float(weight @ poisson_deviance(y, np.maximum(mean, 1e-290)))
    return float(1.0 - left / null) if null > 0 else float(left < 1e-6)
