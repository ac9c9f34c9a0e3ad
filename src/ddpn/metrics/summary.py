"""All metrics of a set of predictions: the place where values per row become one number."""

from typing import Any, NamedTuple

import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.distributions import Normal

from ddpn.distributions import CountDistribution
from ddpn.distributions.arguments import broadcast_shapes, check_coverage
from ddpn.distributions.mixture import ContinuousMixture
from ddpn.metrics.calibration import distance_of_bounds
from ddpn.metrics.predictive import (
    Predicted,
    cdf_sides,
    checked,
    checked_weight,
    interval,
    mass_between,
    mean,
    median,
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
    """Errors, scores, calibration and sharpness of predictions, averaged over the rows.

    Parameters
    ----------
    dist, y
        As for `crps`.
    statistic : {"mean", "median", "mode"}, optional
        The point prediction of `mae` and `rmse`. Default: for each the one that makes it smallest, median and mean (the
        paper takes the mode for `mae`).
    coverage : float
        Nominal coverage of the central intervals, in (0, 1).
    weight : array-like, optional
        How many times each row counts. Default: once.

    Returns
    -------
    dict of float
        "mae", "rmse", "crps", "nll", "coverage" and "width" of the intervals, "expected_coverage", their probability
        under the distributions themselves, "median_precision" and "pit_distance".

    Notes
    -----
    A Normal's `nll` is of a density, which does not compare with that of counts: give `discretized(dist)`.

    Examples
    --------
    >>> from ddpn.distributions import Poisson
    >>> result = evaluate(Poisson(torch.tensor([2.0, 3.0, 9.0])), torch.tensor([2, 5, 8]))
    >>> round(result["mae"], 3), round(result["crps"], 3), round(result["coverage"], 3)
    (1.0, 0.801, 1.0)
    """
    dist, y = checked(dist, y)
    facts = _of_counts(dist, y, coverage) if isinstance(dist, CountDistribution) else _of_density(dist, y, coverage)
    points = {"mean": facts.mean, "median": facts.median}
    if statistic is not None:
        points = dict.fromkeys(points, points[statistic] if statistic in points else point(dist, statistic))
    low, high = facts.interval
    each = {
        "mae": (points["median"] - y).abs(),
        "rmse": (points["mean"] - y).square(),
        "crps": facts.crps,
        "nll": nll(dist, y),
        "coverage": (low <= y) & (y <= high),
        "expected_coverage": facts.expected_coverage,
        "width": high - low,
    }
    shape = each["crps"].shape
    w = checked_weight(weight, each["crps"])
    result = {name: mean(value.expand(shape).reshape(-1), w).item() for name, value in each.items()}
    result["rmse"] **= 0.5
    result["median_precision"] = median(facts.variance.reciprocal().expand(shape).reshape(-1), w).item()
    result["pit_distance"] = distance_of_bounds(*facts.pit, w)
    return result


class _Facts(NamedTuple):
    """What all metrics of a set of predictions are computed from; shapes broadcast with that of y."""

    mean: Tensor
    variance: Tensor
    median: Tensor
    interval: tuple[Tensor, Tensor]
    expected_coverage: Tensor
    crps: Tensor
    pit: tuple[Tensor, Tensor]


def _of_counts(dist: CountDistribution, y: Tensor, coverage: float) -> _Facts:
    """By one summary and one cdf, of four counts per row."""
    shape = broadcast_shapes(y=tuple(y.shape), dist=tuple(dist.batch_shape))
    dist = dist if dist.batch_shape == shape else dist.expand(shape)
    tail = 0.5 * (1.0 - check_coverage(coverage))
    summary: Any = dist.summary(torch.tensor([tail, 0.5, 1.0 - tail], dtype=torch.float64), y)
    low, median, high = summary.quantiles.reshape(*shape, 3).unbind(-1)
    counts = y.double().expand(shape)
    before, upto, *pit = dist.cdf(torch.stack([low.double() - 1.0, high.double(), counts - 1.0, counts]))
    moments = summary.mean, summary.variance
    return _Facts(*moments, median, (low, high), upto - before, summary.crps, (pit[0], pit[1]))


def _of_density(dist: ContinuousMixture | Normal, y: Tensor, coverage: float) -> _Facts:
    low, high = interval(dist, coverage)
    expected, pit = mass_between(dist, low, high), cdf_sides(dist, y)
    return _Facts(dist.mean, dist.variance, point(dist, "median"), (low, high), expected, crps(dist, y), pit)
