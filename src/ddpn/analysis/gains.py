"""Gains: by how much the mean score of a model is better than that of another, with a confidence interval."""

import math
from typing import NamedTuple

import numpy as np

from ddpn.rows.groups import encode_groups
from ddpn.statistics import TAIL, effective_rows, mean_and_error, weighted_mean

#: A few rows are one percent of all rows, within these limits.
_MIN_FEW_ROWS, _MAX_FEW_ROWS = 3, 20
#: The smallest ratio of two mean scores whose logarithm is taken.
_MIN_SCORE_RATIO = 1e-9
#: The fewest groups from which the variation between groups can be estimated.
MIN_GROUPS = 5


class Gain(NamedTuple):
    """Mean difference between the scores of two models, positive if the first one is better, with a 95% interval.

    Attributes
    ----------
    mean : float
        The mean difference over the rows.
    low, high : float
        The ends of the 95% interval of the mean.
    error : float
        The standard error of the mean.
    few : int
        The number of rows that are considered few: 1% of all rows, but at least 3 and at most 20.
    without_few : float
        The mean if the differences of the `few` most influential rows are set to 0.
    depends_on_few : bool
        True if `without_few` is less than half of the mean and not significantly different from 0.
    """

    mean: float
    low: float
    high: float
    error: float = 0.0
    few: int = 0
    without_few: float = 0.0
    depends_on_few: bool = False

    def __neg__(self) -> "Gain":
        """Return the gain of the second model over the first."""
        return self._replace(mean=-self.mean, low=-self.high, high=-self.low, without_few=-self.without_few)

    @property
    def is_clear(self) -> bool:
        """True if the interval excludes 0, so that the gain is more than chance."""
        return self.low > 0 or self.high < 0


def mean_gain(
    differences: np.ndarray, weight: np.ndarray, candidates: int = 1, group: np.ndarray | None = None
) -> Gain:
    """Return the mean difference in score between two models, with a 95% interval.

    `differences`, `weight` and `group` have one value per row. A difference is positive if the first model is better on
    this row. Rows with the same label in `group` are not independent, so the interval is computed from group means if
    there are groups.

    If the second model was chosen as the best of several `candidates` on the same rows, its score is too optimistic.
    Therefore, the upper end of the interval gets a Bonferroni correction. The lower end needs none, because a model
    that is better than the best candidate is better than all of them.
    """
    return _compute_gain(_vary_few_rows(differences, weight), weight, candidates, group)


def compare_scores(
    model_scores: np.ndarray,
    rival_scores: np.ndarray,
    weight: np.ndarray,
    candidates: int = 1,
    group: np.ndarray | None = None,
    folds: int = 0,
) -> Gain:
    """Return by how much the mean score of a model is lower than that of a rival. Scores must not be negative.

    `model_scores`, `rival_scores` and `weight` have one value per row. The interval is computed for the logarithm of
    the ratio of the two means (delta method) and converted back. So the gain never exceeds 100% of the rival's score.
    `candidates` and `group` are as for `mean_gain`.

    If the rows were predicted out of fold, `folds` is the number of folds. The scores are then not independent, because
    the fitted models share training rows. Therefore, standard errors are multiplied by `fold_error_factor`.

    >>> gain = compare_scores(np.array([0.1, 0.4, 0.1]), np.array([2.0, 9.0, 1.0]), np.ones(3))
    >>> gain.low < gain.mean < gain.high < 4.0
    True
    """
    base, factor = weighted_mean(rival_scores, weight), fold_error_factor(folds)
    variants = _vary_few_rows(rival_scores - model_scores, weight)
    gain = _compute_gain(variants, weight, candidates, group, factor)
    if not base > 0.0:
        return gain  # the rival's score is 0, so there is no ratio
    scores = rival_scores - variants
    # The logarithm of a mean of 0 would not be finite.
    means = np.maximum((scores * weight).sum(-1) / weight.sum(), _MIN_SCORE_RATIO * base)[:, None]
    # The linear part of log(base / mean): over rows, its mean is this logarithm, and its variance that of the
    # logarithm.
    logs = np.log(base / means) + rival_scores / base - scores / means
    log_gain = _compute_gain(logs, weight, candidates, group, factor)
    low, high = (-base * math.expm1(-end) for end in (log_gain.low, log_gain.high))
    return gain._replace(low=min(low, gain.mean), high=max(high, gain.mean))


def fold_error_factor(folds: int) -> float:
    """Return the factor by which cross-fitting increases the standard error of a mean score.

    The models of different folds share training rows, so out-of-fold scores are not independent. By the correction of
    Nadeau and Bengio (2003, Machine Learning 52), the variance of the mean of k folds is (1 / k + 1 / (k - 1)) times
    that of one fold. For independent scores, it would be 1 / k times. Without the correction, 95% intervals of the gain
    cover 80% (docs/how-to/default-model.md). For test rows (0 folds), the factor is 1.

    >>> fold_error_factor(5), fold_error_factor(0)
    (1.5, 1.0)
    """
    return math.sqrt(1.0 + folds / (folds - 1.0)) if folds > 1 else 1.0


def _vary_few_rows(differences: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return four variants of the rows' differences, to find out whether a few influential rows determine their mean.

    The variants differ in the few rows that influence the mean most (`Gain.few`):

    1. unchanged;
    2. their positive differences become 0;
    3. their negative differences become 0;
    4. all their differences become 0.

    `weight` has the weight of each row in the mean. Shape: (rows,) -> (4, rows).
    """
    few = np.argsort(-np.abs(differences * weight), kind="stable")[: _count_few_rows(len(differences))]
    variants = np.stack([differences] * 4)
    variants[1, few], variants[2, few] = np.minimum(differences[few], 0.0), np.maximum(differences[few], 0.0)
    variants[3, few] = 0.0
    return variants


def _count_few_rows(rows: int) -> int:
    return min(max(_MIN_FEW_ROWS, math.ceil(rows / 100)), _MAX_FEW_ROWS)


def _compute_gain(
    variants: np.ndarray, weight: np.ndarray, candidates: int, group: np.ndarray | None, error_factor: float = 1.0
) -> Gain:
    """Compute the gain from four variants of the rows' differences (`_vary_few_rows`), shape (4, rows).

    The interval is that of the unchanged differences, with one exception. A few large differences widen it even if they
    favour the better model. So if the mean is clearly positive without the positive differences of the few rows, `low`
    is at least the lower end of the interval without them; `high` likewise if the mean is clearly negative.

    Standard errors are multiplied by `error_factor`. The other arguments are as for `mean_gain`.
    """
    intervals = _compute_intervals(*_aggregate_groups(variants, weight, group), candidates, error_factor)
    (
        (mean, low, high, error),
        (_, lowest, _, _),
        (_, _, highest, _),
        (mean_without_few, low_without_few, high_without_few, _),
    ) = intervals
    # A few large differences make the mean uncertain, but if they favour the better model, its sign is still certain.
    low, high = max(low, lowest) if lowest > 0 else low, min(high, highest) if highest < 0 else high
    is_clear_without_few = low_without_few > 0 if mean > 0 else high_without_few < 0
    is_half_gone = mean_without_few * math.copysign(1.0, mean) < 0.5 * abs(mean)
    number = _count_few_rows(variants.shape[1])
    return Gain(mean, low, high, error, number, mean_without_few, is_half_gone and not is_clear_without_few)


def _aggregate_groups(
    values: np.ndarray, weight: np.ndarray, group: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean values and the total weight of each group. Groups of weight 0 are dropped.

    If `group` is None, `values` and `weight` are returned unchanged. Shape: values (k, rows) -> (k, groups) and weight
    (rows,) -> (groups,).
    """
    if group is None:
        return values, weight
    codes, _ = encode_groups(len(weight), group)
    total = np.bincount(codes, weight)
    used = total > 0
    return np.stack([np.bincount(codes, weight * row_values)[used] / total[used] for row_values in values]), total[used]


def _compute_intervals(
    values: np.ndarray, weight: np.ndarray, candidates: int, error_factor: float = 1.0
) -> list[list[float]]:
    """Return the mean, the ends of its 95% interval and its standard error, for each of k sets of row values.

    Each end is computed from Student's t and from Hall's transformation (1992, J. R. Stat. Soc. B 54), and the one
    farther from the mean is used. Hall's transformation corrects for skewness: if one tail is long, t intervals miss
    the mean too often. Each end leaves out a tail of 2.5%; for the upper end, this is divided by `candidates`
    (Bonferroni correction). `error_factor` multiplies the standard error. Shape: values (k, rows), weight (rows,) ->
    (k, 4).
    """
    from scipy.special import stdtrit  # slow to import

    mean, error = mean_and_error(values, weight)
    rows = max(effective_rows(weight), 2.0)
    deviation = np.where(error > 0, error * math.sqrt(rows), 1.0)
    skewness = (((values - mean[:, None]) / deviation[:, None]) ** 3 * weight).sum(-1) / weight.sum()
    is_skewed = np.abs(skewness) > 1e-6
    divisor, ends = np.where(is_skewed, skewness, 1.0), []
    for sign, tail in ((1, TAIL), (-1, TAIL / candidates)):
        x = sign * float(stdtrit(rows - 1.0, 1.0 - tail)) / math.sqrt(rows)
        inner = 1.0 + skewness * (x - skewness / (6.0 * rows))
        corrected = np.where(is_skewed, 3.0 / divisor * (np.cbrt(inner) - 1.0), x)
        reach = np.maximum(x, corrected) if sign > 0 else np.minimum(x, corrected)
        ends.append(mean - error_factor * error * math.sqrt(rows) * reach)
    return np.stack([mean, *ends, error_factor * error], axis=1).tolist()


def count_independent_rows(values: np.ndarray, weight: np.ndarray, group: np.ndarray | None) -> float:
    """Estimate how many independent rows of equal weight would determine the mean of `values` with the same precision.

    `values`, `weight` and `group` have one value per row. The result is at most the number of rows. It is smaller if
    weights differ or if values within groups are similar. If there are too few groups to estimate this similarity, it
    is the number of groups.
    """
    size = effective_rows(weight)
    if group is None:
        return size
    (means,), totals = _aggregate_groups(values[None], weight, group)
    if len(means) < MIN_GROUPS:
        return float(len(means))
    alone, together = float(mean_and_error(values, weight)[1]), float(mean_and_error(means, totals)[1])
    return size if together <= alone else size * (alone / together) ** 2
