"""Statistics of count distributions, one per row: the request for them, and the results."""

from typing import NamedTuple

import numpy as np
from torch import Tensor


class Summaries(NamedTuple):
    """Statistics per row, as the float64 arrays to which kernels write.

    Parameters
    ----------
    moments : array, (rows, 6)
        Mean, variance, mode, entropy, aleatoric variance and epistemic variance. The last two are the variance within
        and between the components of the user's mixture.
    quantiles : array, (rows, L)
        Quantiles at L levels.
    scores : array, (rows, Q)
        The CRPS of Q counts.
    intervals : array, (rows, 3) or (rows, 0)
        The lowest and the highest count of the narrowest interval, and its probability. Empty if not requested.
    entries : array, (rows, 2) or (rows, 0)
        The two results of `CountDistribution.entry_levels`. Empty if not requested.
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
    """The result of `CountDistribution.summary`, with one value per row in every field.

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
    """What to compute for each row, besides the moments, which are always computed.

    Parameters
    ----------
    levels : array, (rows, L), optional
        Levels of the quantiles to compute. Default: none.
    y : array, (rows, Q), optional
        Counts whose CRPS to compute. Default: none.
    interval_levels : array, (rows, 1), optional
        Levels of the narrowest intervals to compute. Default: none.
    entries : bool
        Compute `CountDistribution.entry_levels` of the first count in `y` of each row.
    entropy : bool
        Compute the entropy.
    cdf_map : array, (2, knots)
        The knots and the values of a `MonotoneMap` by which all cdfs are recalibrated. If it has no knots, cdfs are
        unchanged.
    """

    levels: np.ndarray | None = None
    y: np.ndarray | None = None
    interval_levels: np.ndarray | None = None
    entries: bool = False
    entropy: bool = False
    cdf_map: np.ndarray = np.empty((2, 0))
