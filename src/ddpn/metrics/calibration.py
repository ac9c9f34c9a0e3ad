"""Calibration and sharpness per row: intervals, probability integral transform (PIT), precision.

Histograms and curves, which only a whole set of predictions has, are in `reliability`.
"""

from typing import Any

import torch
from torch import Tensor

from ddpn.distributions import CountDistribution
from ddpn.metrics.predictive import as_tensor, cdf_sides, checked, interval, known, mass_between


def covered(dist: Any, y: Any, coverage: float = 0.9, kind: str = "central") -> Tensor:
    """Whether y lies in the prediction interval.

    Intervals of counts have `coverage` or more: compare with `expected_coverage`.

    Parameters
    ----------
    dist, y
        As for `crps`.
    coverage : float
        Nominal coverage of the intervals, in (0, 1).
    kind : {"central", "highest"}
        Which intervals, see `CountDistribution.interval`.

    Returns
    -------
    Tensor of bool
        One value per row.

    Examples
    --------
    >>> from ddpn.distributions import Poisson
    >>> covered(Poisson(torch.tensor([2.0, 2.0])), torch.tensor([5, 6]))
    tensor([ True, False])
    """
    dist, y = checked(dist, y)
    low, high = interval(dist, coverage, kind)
    return (low <= y) & (y <= high)


def width(dist: Any, coverage: float = 0.9, kind: str = "central") -> Tensor:
    """Width of the prediction interval, high - low: for counts, one less than the number of counts in it.

    Parameters
    ----------
    dist
        As for `crps`.
    coverage, kind
        As for `covered`.

    Returns
    -------
    Tensor
        Of shape `dist.batch_shape`.

    Examples
    --------
    >>> from ddpn.distributions import Poisson
    >>> width(Poisson(torch.tensor([0.01, 2.0, 50.0])))
    tensor([ 0.,  5., 23.])
    """
    low, high = interval(known(dist), coverage, kind)
    return high - low


def expected_coverage(dist: Any, coverage: float = 0.9, kind: str = "central") -> Tensor:
    """Probability of the prediction interval under the distribution itself, P(low <= Z <= high).

    It is `coverage` for continuous distributions and at least that for counts: the level to compare the observed
    coverage of counts with.

    Parameters
    ----------
    dist
        As for `crps`.
    coverage, kind
        As for `covered`.

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
    dist = known(dist)
    return mass_between(dist, *interval(dist, coverage, kind))


def pit_bounds(dist: Any, y: Any) -> tuple[Tensor, Tensor]:
    """Ends of the probability integral transform (PIT) of a count, F(y - 1) and F(y).

    For a continuous distribution both are F(y).

    Parameters
    ----------
    dist, y
        As for `crps`.

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
    dist, y = checked(dist, y)
    return cdf_sides(dist, dist._counts(y) if isinstance(dist, CountDistribution) else y)


def pit(dist: Any, y: Any, generator: torch.Generator | None = None) -> Tensor:
    """Randomised probability integral transform (PIT): uniform between F(y - 1) and F(y).

    It is uniform on [0, 1] if y comes from `dist`.

    Parameters
    ----------
    dist, y
        As for `crps`.
    generator : torch.Generator, optional
        The source of randomness. Default: torch's own.

    Returns
    -------
    Tensor
        One value per row, from 0 to 1.

    Examples
    --------
    >>> from ddpn.distributions import Poisson
    >>> pit(Poisson(2.0), torch.tensor([0, 2]), generator=torch.Generator().manual_seed(0))
    tensor([0.1313, 0.5976])
    """
    lower, upper = pit_bounds(dist, y)
    # A generator draws on its own device only.
    device = lower.device if generator is None else generator.device
    u = torch.rand(lower.shape, dtype=torch.float64, device=device, generator=generator).to(lower.device)
    return torch.lerp(lower.double(), upper.double(), u).to(lower.dtype)


def pit_cdf(dist: Any, y: Any, u: Tensor) -> Tensor:
    """Non-randomised PIT of Czado, Gneiting and Held (2009, Eq. 2): P(PIT <= u | y), 0 up to F(y - 1), 1 from F(y).

    Its mean over the rows is u if the predictions are calibrated.

    Parameters
    ----------
    dist, y
        As for `crps`.
    u : Tensor, shape (n,)
        Numbers from 0 to 1.

    Returns
    -------
    Tensor
        Of the shape of the rows, and n.

    Examples
    --------
    >>> from ddpn.distributions import Poisson
    >>> pit_cdf(Poisson(2.0), torch.tensor([0, 2]), torch.tensor([0.1, 0.5]))
    tensor([[0.7389, 1.0000],
            [0.0000, 0.3473]])
    """
    lower, upper = (x.unsqueeze(-1) for x in pit_bounds(dist, y))
    u = as_tensor(u).to(lower)
    share = ((u - lower) / (upper - lower)).clamp(0.0, 1.0)
    # A continuous distribution, or a count whose probability underflows, has a jump instead of a slope.
    return torch.where(u >= upper, 1.0, torch.where(u < lower, 0.0, share))


def precision(dist: Any) -> Tensor:
    """Precision of each row, 1 / variance (Appendix B.2); infinite where all mass is on one count.

    The exact variance, where the paper's single Double Poissons have gamma / mu.

    Parameters
    ----------
    dist
        As for `crps`.

    Returns
    -------
    Tensor
        Of shape `dist.batch_shape`.

    Examples
    --------
    >>> from ddpn.distributions import Poisson
    >>> precision(Poisson(torch.tensor([2.0, 50.0])))
    tensor([0.5000, 0.0200])
    """
    return known(dist).variance.reciprocal()
