"""All metrics of a set of predictions: the place where values per row become one number."""

import torch
from numpy.typing import ArrayLike

from ddpn.metrics.calibration import median_precision, pit_distance
from ddpn.metrics.predictive import Predicted, checked, checked_weight, interval, mass_between, mean
from ddpn.metrics.scores import absolute_error, crps, nll, point


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
    low, high = interval(dist, coverage)
    each = {
        "mae": absolute_error(dist, y, statistic or "median"),
        "rmse": (point(dist, statistic or "mean") - y).square(),
        "crps": crps(dist, y),
        "nll": nll(dist, y),
        "coverage": (low <= y) & (y <= high),
        "expected_coverage": mass_between(dist, low, high),
        "width": high - low,
    }
    shape = each["crps"].shape
    w = checked_weight(weight, each["crps"])
    result = {name: mean(value.expand(shape).reshape(-1), w).item() for name, value in each.items()}
    result["rmse"] **= 0.5
    result["median_precision"] = median_precision(dist.expand(shape), w.view(shape))
    result["pit_distance"] = pit_distance(dist, y, w.view(shape))
    return result
