"""Calibration of a whole set of predictions: PIT histogram, its distance from uniform, coverage curve, sharpness.

These are defined on sets, so unlike the other metrics they return one result for all rows. `weight` counts a row that
many times.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ddpn.metrics.calibration import pit_bounds, pit_cdf, precision
from ddpn.metrics.predictive import checked, interval, mass_between
from ddpn.metrics.weights import checked_weight, mean, median
from ddpn.runtime.validation import check_integer

#: Below this F(y) - F(y - 1) is a jump: distances change by less than this, and slopes keep their digits.
_JUMP = 1e-7


class CoverageCurve(NamedTuple):
    """Observed and expected coverage of prediction intervals at nominal levels.

    Attributes
    ----------
    level : Tensor, shape (levels,)
        The nominal levels.
    observed : Tensor, shape (levels,)
        The share of y inside.
    expected : Tensor, shape (levels,)
        The share that the distributions themselves expect.
    """

    level: Tensor
    observed: Tensor
    expected: Tensor


def pit_histogram(dist: Any, y: Any, bins: int = 10, weight: Any = None) -> Tensor:
    """Heights of the non-randomised PIT histogram (Czado, Gneiting and Held, 2009): all 1 if calibrated.

    A valley means that distributions are too narrow, a hill too wide, a slope that they are biased.

    Parameters
    ----------
    dist, y
        As for `crps`.
    bins : int
        Number of equally wide bins.
    weight : array-like, optional
        How many times each row counts. Default: once.

    Returns
    -------
    Tensor, shape (bins,)

    Examples
    --------
    >>> from ddpn.distributions import Poisson
    >>> pit_histogram(Poisson(4.0), torch.tensor([2, 3, 4, 6]), bins=4)
    tensor([1.0609, 1.2796, 0.6595, 1.0000], dtype=torch.float64)
    """
    bins = check_integer("bins", bins, minimum=1)
    edges = torch.linspace(0.0, 1.0, bins + 1, dtype=torch.float64)
    upto = pit_cdf(dist, y, edges)
    upto[..., 0] = 0.0
    shares = upto.double().diff(dim=-1)
    return bins * mean(shares.flatten(0, -2), checked_weight(weight, shares[..., 0]))


def pit_distance(dist: Any, y: Any, weight: Any = None) -> float:
    """Kolmogorov distance of the mean non-randomised PIT cdf from uniform: the largest |mean P(PIT <= u) - u|.

    From 0 (calibrated) to 1; n calibrated rows have about 0.87 / sqrt(n) for continuous distributions, less for counts.

    Parameters
    ----------
    dist, y
        As for `crps`.
    weight : array-like, optional
        How many times each row counts. Default: once.

    Examples
    --------
    >>> from ddpn.distributions import Poisson
    >>> round(pit_distance(Poisson(4.0), torch.tensor([2, 3, 4, 6])), 4)
    0.1212
    """
    lower, upper = pit_bounds(dist, y)
    w = checked_weight(weight, lower)
    w = w / w.sum()
    lower, upper = (x.double().reshape(-1) for x in (lower, upper))
    # The mean cdf is linear between the places where the cdf of a row begins or ends to rise.
    jumps = upper - lower < _JUMP
    slope = torch.where(jumps, 0.0, w / (upper - lower).clamp(min=_JUMP))
    ends = torch.tensor([0.0, 1.0], dtype=w.dtype, device=w.device)
    at, order = torch.cat([ends, lower, upper]).sort(stable=True)
    nothing = torch.zeros_like(ends)
    slope = torch.cat([nothing, slope, -slope])[order].cumsum(0)
    jump = torch.cat([nothing, torch.zeros_like(w), torch.where(jumps, w, 0.0)])[order]
    after = torch.cat([nothing[:1], (slope[:-1] * at.diff()).cumsum(0)]) + jump.cumsum(0) - at
    return torch.maximum(after.abs(), (after - jump).abs()).max().item()


def median_precision(dist: Any, weight: Any = None) -> float:
    """Median of 1 / variance over the rows (Appendix B.2): sharpness, which matters only together with calibration.

    Parameters
    ----------
    dist
        As for `crps`.
    weight : array-like, optional
        How many times each row counts. Default: once.

    Examples
    --------
    >>> from ddpn.distributions import Poisson
    >>> median_precision(Poisson(torch.tensor([1.0, 4.0, 100.0])))
    0.25
    """
    values = precision(dist)
    return median(values.reshape(-1), checked_weight(weight, values)).item()


def coverage_curve(
    dist: Any, y: Any, levels: Sequence[float] | Tensor, kind: str = "central", weight: Any = None
) -> CoverageCurve:
    """Observed and expected coverage at nominal levels.

    Intervals of counts over-cover: compare `observed` with `expected`.

    Parameters
    ----------
    dist, y
        As for `crps`.
    levels : sequence of float
        Nominal coverages, in (0, 1).
    kind : {"central", "highest"}
        Which intervals, see `CountDistribution.interval`.
    weight : array-like, optional
        How many times each row counts. Default: once.

    Returns
    -------
    CoverageCurve

    Examples
    --------
    >>> from ddpn.distributions import Poisson
    >>> coverage_curve(Poisson(4.0), torch.tensor([2, 3, 4, 9]), [0.5, 0.9]).observed
    tensor([0.5000, 0.7500], dtype=torch.float64)
    """
    dist, y = checked(dist, y)
    inside, expected = [], []
    level = torch.as_tensor(levels, dtype=torch.float64).reshape(-1)
    for nominal in level.tolist():
        low, high = interval(dist, nominal, kind)
        hit = (low <= y) & (y <= high)
        w = checked_weight(weight, hit)
        inside.append(mean(hit.reshape(-1), w))
        expected.append(mean(mass_between(dist, low, high).expand(hit.shape).reshape(-1), w))
    return CoverageCurve(level.to(y.device), torch.stack(inside), torch.stack(expected))
