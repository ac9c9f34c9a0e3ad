"""`evaluate`: all metrics of a set of predictions, averaged over the rows."""

from typing import Any, NamedTuple

import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.distributions import Normal

from ddpn.distributions import CountDistribution
from ddpn.distributions.arguments import broadcast_shapes, check_coverage
from ddpn.distributions.mixture import ContinuousMixture
from ddpn.metrics.calibration import compute_pit_distance
from ddpn.metrics.predictive import (
    Predicted,
    cdf_limits,
    interval,
    interval_probability,
    mean,
    median,
    validate_prediction,
    validate_weights,
)
from ddpn.metrics.scores import crps, nll, point


@torch.no_grad()
def evaluate(
    dist: Predicted,
    y: ArrayLike,
    statistic: str | None = None,
    coverage: float = 0.9,
    weight: ArrayLike | None = None,
) -> dict[str, float]:
    """Compute errors, scores, calibration and sharpness of predictions, averaged over the rows.

    Parameters
    ----------
    dist : Distribution
        Predicted distributions, one per row, see `crps`.
    y : array-like
        Observed counts.
    statistic : {"mean", "median", "mode"}, optional
        The point prediction of `mae` and `rmse`. Default: the median for `mae` and the mean for `rmse`, because these
        minimise the respective error in expectation. The paper uses the mode for `mae`.
    coverage : float
        Nominal coverage of the central intervals, in (0, 1).
    weight : array-like, optional
        Weights of the rows. Default: 1.

    Returns
    -------
    dict of float
        "mae", "rmse", "crps", "nll", "coverage" and "width" of the intervals, "expected_coverage" (the mean
        probability of the intervals by the distributions themselves), "median_precision" and "pit_distance".

    Notes
    -----
    The `nll` of a Normal is that of a density and cannot be compared with the `nll` of count distributions. Pass
    `discretize(dist)` to compare them.

    Examples
    --------
    >>> from ddpn.distributions import Poisson
    >>> result = evaluate(Poisson(torch.tensor([2.0, 3.0, 9.0])), torch.tensor([2, 5, 8]))
    >>> round(result["mae"], 3), round(result["crps"], 3), round(result["coverage"], 3)
    (1.0, 0.801, 1.0)
    """
    dist, y = validate_prediction(dist, y)
    if isinstance(dist, CountDistribution):
        statistics = _summarise_counts(dist, y, coverage)
    else:
        statistics = _summarise_density(dist, y, coverage)
    points = {"mean": statistics.mean, "median": statistics.median}
    if statistic is not None:
        points = dict.fromkeys(points, points[statistic] if statistic in points else point(dist, statistic))
    low, high = statistics.interval
    values_per_row = {
        "mae": (points["median"] - y).abs(),
        "rmse": (points["mean"] - y).square(),
        "crps": statistics.crps,
        "nll": nll(dist, y),
        "coverage": (low <= y) & (y <= high),
        "expected_coverage": statistics.expected_coverage,
        "width": high - low,
    }
    shape = values_per_row["crps"].shape
    w = validate_weights(weight, values_per_row["crps"])
    result = {name: mean(value.expand(shape).reshape(-1), w).item() for name, value in values_per_row.items()}
    result["rmse"] **= 0.5
    result["median_precision"] = median(statistics.variance.reciprocal().expand(shape).reshape(-1), w).item()
    result["pit_distance"] = compute_pit_distance(*statistics.pit, w)
    return result


class _RowStatistics(NamedTuple):
    """Statistics of each row, from which `evaluate` computes its metrics.

    `mean`, `variance` and `median` are those of the predicted distribution, and `crps` is its score. The shapes
    broadcast with that of the observed counts y. `interval` has the two ends of the central interval, and
    `expected_coverage` is its probability under the predicted distribution. `pit` has F(y - 1) and F(y), with the
    predicted cdf F.
    """

    mean: Tensor
    variance: Tensor
    median: Tensor
    interval: tuple[Tensor, Tensor]
    expected_coverage: Tensor
    crps: Tensor
    pit: tuple[Tensor, Tensor]


def _summarise_counts(dist: CountDistribution, y: Tensor, coverage: float) -> _RowStatistics:
    """Compute the statistics of each row for count distributions and observed counts y.

    `coverage` is the nominal coverage of the central intervals. All statistics come from one call of `summary` and one
    of `cdf`, which is faster than separate calls.
    """
    shape = broadcast_shapes(y=tuple(y.shape), dist=tuple(dist.batch_shape))
    dist = dist if dist.batch_shape == shape else dist.expand(shape)
    tail = 0.5 * (1.0 - check_coverage(coverage))
    summary: Any = dist.summary(torch.tensor([tail, 0.5, 1.0 - tail], dtype=torch.float64), y)
    low, median, high = summary.quantiles.reshape(*shape, 3).unbind(-1)
    counts = y.double().expand(shape)
    before, upto, *pit = dist.cdf(torch.stack([low.double() - 1.0, high.double(), counts - 1.0, counts]))
    moments = summary.mean, summary.variance
    return _RowStatistics(*moments, median, (low, high), upto - before, summary.crps, (pit[0], pit[1]))


def _summarise_density(dist: ContinuousMixture | Normal, y: Tensor, coverage: float) -> _RowStatistics:
    low, high = interval(dist, coverage)
    expected, pit = interval_probability(dist, low, high), cdf_limits(dist, y)
    return _RowStatistics(dist.mean, dist.variance, point(dist, "median"), (low, high), expected, crps(dist, y), pit)
