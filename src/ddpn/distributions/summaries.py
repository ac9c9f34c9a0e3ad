"""Statistics of rows of count distributions: what is requested, and what is returned."""

from typing import NamedTuple

import numpy as np
from torch import Tensor


class Summaries(NamedTuple):
    """Arrays of statistics per row, in float64, to which kernels write.

    Parameters
    ----------
    moments : array, (rows, 6)
        Mean, variance, mode, entropy, and the parts of the variance within and between groups of components.
    quantiles, scores : array, (rows, L) and (rows, Q)
        Quantiles at L levels, and the CRPS of Q counts.
    intervals : array, (rows, 3) or (rows, 0)
        Lowest and highest count of narrowest intervals, and their probability.
    entries : array, (rows, 2) or (rows, 0)
        The two levels of `CountDistribution.entry_levels`.
    """

    moments: np.ndarray
    quantiles: np.ndarray
    scores: np.ndarray
    intervals: np.ndarray
    entries: np.ndarray


class Interval(NamedTuple):
    """Intervals of counts, one per row.

    Parameters
    ----------
    low, high : Tensor
        The lowest and the highest count, both included.
    probability : Tensor
        The probability that a count lies in the interval, in float64.
    """

    low: Tensor
    high: Tensor
    probability: Tensor


class Summary(NamedTuple):
    """Result of `CountDistribution.summary`, one value per row.

    Parameters
    ----------
    mean, variance : Tensor
        Exact moments.
    aleatoric, epistemic : Tensor
        The parts of the variance, as `Mixture` defines them.
    quantiles : Tensor
        Counts at the levels, (rows, n).
    mode : Tensor
        The most probable count.
    crps, entropy : Tensor or None
        The CRPS of the observed counts, and the entropy; None unless requested.
    interval : Interval or None
        The narrowest intervals; None unless requested.
    """

    mean: Tensor
    variance: Tensor
    aleatoric: Tensor
    epistemic: Tensor
    quantiles: Tensor
    mode: Tensor
    crps: Tensor | None
    entropy: Tensor | None
    interval: Interval | None = None


class SummaryRequest(NamedTuple):
    """Request for the statistics of rows; moments are always computed.

    Parameters
    ----------
    levels, y : array, (rows, L) and (rows, Q), optional
        Levels of the quantiles, and the counts to score.
    interval_levels : array, (rows, 1), optional
        Probabilities of narrowest intervals.
    entries, entropy : bool
        Compute `CountDistribution.entry_levels` of the first y, and the entropy.
    cdf_map : array, (2, knots)
        Knots and values of a map by which all cdfs are recalibrated, see `MonotoneMap`.
    """

    levels: np.ndarray | None = None
    y: np.ndarray | None = None
    interval_levels: np.ndarray | None = None
    entries: bool = False
    entropy: bool = False
    cdf_map: np.ndarray = np.empty((2, 0))
