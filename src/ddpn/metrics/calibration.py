"""Calibration and sharpness: coverage of intervals, probability integral transform (PIT), precision.

Histograms, distances, curves and medians take a `weight` for each row. A weight of 2 has the same effect as giving a
row twice.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from ddpn.distributions import CountDistribution
from ddpn.metrics.predictive import (
    Predicted,
    cdf_limits,
    interval,
    interval_probability,
    mean,
    median,
    require_supported,
    validate_prediction,
    validate_weights,
)
from ddpn.runtime.validation import check_integer

#: If F(y) - F(y - 1) is smaller, it is treated as a jump. Distances change by less than this, and slopes stay precise.
_JUMP = 1e-7


def is_covered(dist: Predicted, y: ArrayLike, coverage: float = 0.9) -> Tensor:
    """Return True for each row whose count y lies in the central prediction interval of the row.

    An interval of counts ends at integers, so its probability is usually above `coverage`. So compare the share of rows
    with True with the mean of `expected_coverage`, not with `coverage`.

    Parameters
    ----------
    dist : Distribution
        Predicted distributions, one per row, see `crps`.
    y : array-like
        Observed counts.
    coverage : float
        Nominal coverage of the intervals, in (0, 1).

    Returns
    -------
    Tensor of bool
        One value per row.

    Examples
    --------
    >>> from ddpn.distributions import Poisson
    >>> is_covered(Poisson(torch.tensor([2.0, 2.0])), torch.tensor([5, 6]))
    tensor([ True, False])
    """
    dist, y = validate_prediction(dist, y)
    low, high = interval(dist, coverage)
    return (low <= y) & (y <= high)


def expected_coverage(dist: Predicted, coverage: float = 0.9) -> Tensor:
    """Compute the probability of each row's central interval under the predicted distribution, P(low <= Z <= high).

    It equals `coverage` for continuous distributions, and is at least `coverage` for counts. The observed coverage of a
    calibrated model is close to the mean of these probabilities.

    Parameters
    ----------
    dist : Distribution
        Predicted distributions, one per row, see `crps`.
    coverage : float
        Nominal coverage of the intervals, in (0, 1).

    Returns
    -------
    Tensor
        Of shape `dist.batch_shape`.

    Examples
    --------
    >>> from ddpn.distributions import Poisson
    >>> expected_coverage(Poisson(torch.tensor([0.01, 2.0, 50.0])))
    tensor([0.9900, 0.9834, 0.9102])
    """
    dist = require_supported(dist)
    return interval_probability(dist, *interval(dist, coverage))


def pit_bounds(dist: Predicted, y: ArrayLike) -> tuple[Tensor, Tensor]:
    """Compute F(y - 1) and F(y) for each row, with the predicted cdf F.

    They are the ends of the probability integral transform (PIT) of a count, which is an interval. For continuous
    distributions, both ends are F(y).

    Parameters
    ----------
    dist : Distribution
        Predicted distributions, one per row, see `crps`.
    y : array-like
        Observed counts.

    Returns
    -------
    lower, upper : Tensor
        One value per row each.

    Examples
    --------
    >>> from ddpn.distributions import Poisson
    >>> pit_bounds(Poisson(torch.tensor(2.0)), torch.tensor([0, 2]))
    (tensor([0.0000, 0.4060]), tensor([0.1353, 0.6767]))
    """
    dist, y = validate_prediction(dist, y)
    return cdf_limits(dist, dist.as_counts(y) if isinstance(dist, CountDistribution) else y)


# Whole sets of predictions -----------------------------------------------------------------------------------------


class CoverageCurve(NamedTuple):
    """The observed and the expected coverage of prediction intervals at several nominal levels.

    Attributes
    ----------
    level : Tensor, shape (levels,)
        The nominal levels.
    observed : Tensor, shape (levels,)
        The share of observations inside the intervals.
    expected : Tensor, shape (levels,)
        The mean probability of the intervals under the predicted distributions.
    """

    level: Tensor
    observed: Tensor
    expected: Tensor


def pit_histogram(dist: Predicted, y: ArrayLike, bins: int = 10, weight: ArrayLike | None = None) -> Tensor:
    """Compute the non-randomised histogram of the PIT (Czado, Gneiting and Held, 2009).

    All bars are close to 1 if the predicted distributions are calibrated. A U shape means that they are too narrow, a
    hump that they are too wide, and a slope that they are biased.

    Parameters
    ----------
    dist : Distribution
        Predicted distributions, one per row, see `crps`.
    y : array-like
        Observed counts.
    bins : int
        Number of equally wide bins.
    weight : array-like, optional
        Weights of the rows. Default: 1.

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
    lower, upper = (x.unsqueeze(-1) for x in pit_bounds(dist, y))
    edges = torch.linspace(0.0, 1.0, bins + 1, dtype=torch.float64).to(lower)
    # P(PIT <= edge | y) rises evenly from F(y - 1) to F(y). A continuous distribution, or a count whose probability
    # underflows, has a jump instead of a slope.
    upto = ((edges - lower) / (upper - lower)).clamp(0.0, 1.0)
    upto = torch.where(edges >= upper, 1.0, torch.where(edges < lower, 0.0, upto))
    upto[..., 0] = 0.0
    shares = upto.double().diff(dim=-1)
    return bins * mean(shares.flatten(0, -2), validate_weights(weight, shares[..., 0]))


def pit_distance(dist: Predicted, y: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Compute the Kolmogorov distance between the distribution of the PIT and the uniform distribution.

    The PIT is the probability integral transform, see `pit_bounds`. The distance is the largest |mean P(PIT <= u) - u|
    over all u: 0 is perfectly calibrated, 1 is the worst. For n rows of calibrated continuous distributions, it is
    about 0.87 / sqrt(n), and for counts it is smaller.

    Parameters
    ----------
    dist : Distribution
        Predicted distributions, one per row, see `crps`.
    y : array-like
        Observed counts.
    weight : array-like, optional
        Weights of the rows. Default: 1.

    Examples
    --------
    >>> from ddpn.distributions import Poisson
    >>> round(pit_distance(Poisson(4.0), torch.tensor([2, 3, 4, 6])), 4)
    0.1212
    """
    lower, upper = pit_bounds(dist, y)
    return compute_pit_distance(lower, upper, validate_weights(weight, lower))


def compute_pit_distance(lower: Tensor, upper: Tensor, weight: Tensor) -> float:
    """Compute `pit_distance` from the results `lower` and `upper` of `pit_bounds` and the weights of the rows.

    All tensors have the shape (rows,). The result is the largest distance at an end of some row's PIT interval. It
    cannot be larger elsewhere, because the mean cdf of the PIT is linear between the ends.
    """
    w = weight / weight.sum()
    lower, upper = (x.double().reshape(-1) for x in (lower, upper))
    # Between the ends of the rows' PIT intervals, the mean cdf is linear.
    jumps = upper - lower < _JUMP
    slope = torch.where(jumps, 0.0, w / (upper - lower).clamp(min=_JUMP))
    ends = torch.tensor([0.0, 1.0], dtype=w.dtype, device=w.device)
    at, order = torch.cat([ends, lower, upper]).sort(stable=True)
    nothing = torch.zeros_like(ends)
    slope = torch.cat([nothing, slope, -slope])[order].cumsum(0)
    jump = torch.cat([nothing, torch.zeros_like(w), torch.where(jumps, w, 0.0)])[order]
    after = torch.cat([nothing[:1], (slope[:-1] * at.diff()).cumsum(0)]) + jump.cumsum(0) - at
    return torch.maximum(after.abs(), (after - jump).abs()).max().item()


def median_precision(dist: Predicted, weight: ArrayLike | None = None) -> float:
    """Compute the median of the rows' precisions, 1 / variance, a measure of sharpness.

    It is defined in Appendix B.2 of the paper. A sharp model is good only if it is calibrated as well. The variances
    are exact. The paper uses mu / gamma, the approximate variance of a Double Poisson.

    Parameters
    ----------
    dist : Distribution
        Predicted distributions, one per row, see `crps`.
    weight : array-like, optional
        Weights of the rows. Default: 1.

    Examples
    --------
    >>> from ddpn.distributions import Poisson
    >>> median_precision(Poisson(torch.tensor([1.0, 4.0, 100.0])))
    0.25
    """
    values = require_supported(dist).variance.reciprocal()
    return median(values.reshape(-1), validate_weights(weight, values)).item()


def coverage_curve(
    dist: Predicted,
    y: ArrayLike,
    levels: Sequence[float] | Tensor,
    weight: ArrayLike | None = None,
) -> CoverageCurve:
    """Compute the observed and the expected coverage of central intervals at several nominal levels.

    An interval of counts ends at integers, so its probability is usually above the nominal level. So compare `observed`
    with `expected`, not with the level.

    Parameters
    ----------
    dist : Distribution
        Predicted distributions, one per row, see `crps`.
    y : array-like
        Observed counts.
    levels : sequence of float
        Nominal coverages, in (0, 1).
    weight : array-like, optional
        Weights of the rows. Default: 1.

    Returns
    -------
    CoverageCurve

    Examples
    --------
    >>> from ddpn.distributions import Poisson
    >>> coverage_curve(Poisson(4.0), torch.tensor([2, 3, 4, 9]), [0.5, 0.9]).observed
    tensor([0.5000, 0.7500], dtype=torch.float64)
    """
    dist, y = validate_prediction(dist, y)
    inside, expected = [], []
    level = torch.as_tensor(levels, dtype=torch.float64).reshape(-1)
    for nominal in level.tolist():
        low, high = interval(dist, nominal)
        hit = (low <= y) & (y <= high)
        w = validate_weights(weight, hit)
        inside.append(mean(hit.reshape(-1), w))
        expected.append(mean(interval_probability(dist, low, high).expand(hit.shape).reshape(-1), w))
    return CoverageCurve(level.to(y.device), torch.stack(inside), torch.stack(expected))
