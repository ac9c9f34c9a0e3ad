"""How much better one candidate scores than another on the same rows: its interval, and on how few rows it hangs."""

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

#: Standard errors of a two-sided 95% interval of a normal distribution.
Z = 1.959963984540054
#: The tail on either side of a 95% interval.
_TAIL = 0.025
#: A handful of rows: a hundredth of all, but at least and at most so many.
_FEWEST, _MOST = 3, 20


class Gain(NamedTuple):
    """The mean of per-row differences, positive where the model is better, and its 95% interval.

    `without_few` is the mean without the `few` rows (their positions) that count most.
    """

    mean: float
    low: float
    high: float
    error: float = 0.0
    without_few: float | None = None
    few: tuple[int, ...] = ()

    def __neg__(self) -> "Gain":
        """The gain of the other candidate on the model."""
        without = None if self.without_few is None else -self.without_few
        return self._replace(mean=-self.mean, low=-self.high, high=-self.low, without_few=without)

    @property
    def is_clear(self) -> bool:
        """Whether it is more than chance: the interval does not contain 0."""
        return self.low > 0 or self.high < 0

    @property
    def hangs_on_few(self) -> bool:
        """Whether more than half of it disappears without the rows that count most."""
        return self.without_few is not None and self.without_few * np.sign(self.mean) < 0.5 * abs(self.mean)


def gain_of(difference: np.ndarray, weight: np.ndarray, candidates: int = 1) -> Gain:
    """The gain of per-row differences. Shape: (rows,) each.

    With several `candidates` the best of them was chosen on the same rows, which makes it look too good: the upper end
    is that of Bonferroni's interval. The lower end needs none: the model is better than all where it is better than
    each.
    """
    mean, error = mean_and_error(difference, weight)
    low, high = (mean - reach for reach in _reaches(difference, weight, mean, error, candidates))
    few = few_rows(difference, weight)
    rest = np.delete(np.arange(len(difference)), few)
    without = float(np.average(difference[rest], weights=weight[rest])) if weight[rest].any() else mean
    return Gain(mean, low, high, error, without, tuple(few.tolist()))


def few_rows(values: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Positions of the handful of rows that count most in a weighted sum of values, the largest first."""
    number = min(max(_FEWEST, math.ceil(len(values) / 100)), _MOST)
    return np.argsort(-np.abs(values * weight), kind="stable")[:number]


def _reaches(values: np.ndarray, weight: np.ndarray, mean: float, error: float, candidates: int) -> tuple[float, float]:
    """The mean minus the lower and the upper end of its interval.

    That of Student's t or, where it reaches farther, that of Hall's transformation (1992, J. R. Stat. Soc. B 54), which
    corrects for skewness: where one side has a long tail, the t interval misses the mean too often.
    """
    from scipy.special import stdtrit  # slow to import

    if error == 0:
        return 0.0, 0.0
    rows = max(effective_rows(weight), 2.0)
    deviation = error * math.sqrt(rows)
    skewness = float(np.average(((values - mean) / deviation) ** 3, weights=weight))
    reaches = []
    for sign, tail in ((1, _TAIL), (-1, _TAIL / candidates)):
        x = sign * float(stdtrit(rows - 1.0, 1.0 - tail)) / math.sqrt(rows)
        corrected = x
        if abs(skewness) > 1e-6:
            inner = 1.0 + skewness * (x - skewness / (6.0 * rows))
            corrected = 3.0 / skewness * (float(np.cbrt(inner)) - 1.0)
        reaches.append(deviation * (max(x, corrected) if sign > 0 else min(x, corrected)))
    return reaches[0], reaches[1]


def effective_rows(weight: np.ndarray) -> float:
    """(sum w)^2 / sum w^2, Kish's size of a weighted sample."""
    return float(weight.sum() ** 2 / np.square(weight).sum())


def mean_and_error(values: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """Weighted mean of per-row values and its standard error."""
    mean = float(np.average(values, weights=weight))
    scale = float(np.abs(values - mean).max()) or 1.0  # squares of very large or small values leave float64
    variance = float(np.average(np.square((values - mean) / scale), weights=weight))
    return mean, scale * math.sqrt(variance / max(effective_rows(weight) - 1.0, 1.0))


def z_of(comparisons: int) -> float:
    """Standard errors of normal intervals that all hold with 95%, for so many comparisons (Bonferroni).

    >>> round(z_of(1), 2), round(z_of(10), 2)
    (1.96, 2.81)
    """
    return NormalDist().inv_cdf(1.0 - _TAIL / comparisons)


def wilson(share: float, rows: float, z: float = Z) -> tuple[float, float]:
    """Wilson's interval of a share observed among so many rows, which need not be an integer.

    >>> tuple(round(end, 4) for end in wilson(0.9, 100))
    (0.8256, 0.9448)
    """
    centre = (share + z * z / (2.0 * rows)) / (1.0 + z * z / rows)
    half = z / (1.0 + z * z / rows) * math.sqrt(share * (1.0 - share) / rows + z * z / (4.0 * rows * rows))
    return max(0.0, centre - half), min(1.0, centre + half)
