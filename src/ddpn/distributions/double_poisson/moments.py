"""From exact moments to the parameters of the Double Poisson that has them."""

import torch
from torch import Tensor

from ddpn.distributions.arguments import check_positive
from ddpn.distributions.double_poisson.normalizer import Moments, moments
from ddpn.errors import InputError

_STEPS = 100
_TOLERANCE = 1e-9
#: Parameters are sought within these bounds: beyond, float64 cannot hold the law.
_LOG_MU, _LOG_GAMMA = (-600.0, 36.0), (-18.0, 23.0)


def variance_limits(mean: Tensor) -> tuple[Tensor, Tensor]:
    """The smallest and the largest variance that a Double Poisson of this mean can have, both excluded.

    Below: f (1 - f) with f the fraction of the mean, as for any integers. Above: gamma -> 0, where the distribution
    tends to weights h(y) x^y; with T the tree function, their sum is 1 / (1 - T), their mean T / (1 - T)^2 and their
    variance T (1 + T) / (1 - T)^4: about 2 mean^2 for large means, the mean itself for small ones.

    Parameters
    ----------
    mean : Tensor
        The mean, positive.

    Returns
    -------
    low, high : Tensor

    Examples
    --------
    >>> [round(x.item(), 4) for x in variance_limits(torch.tensor(2.5))]
    [0.25, 17.8958]
    """
    fraction = mean - mean.floor()
    # T = 2 m / (2 m + 1 + sqrt(4 m + 1)), the root below 1 of T = m (1 - T)^2.
    tree = 2.0 * mean / (2.0 * mean + 1.0 + (4.0 * mean + 1.0).sqrt())
    return fraction * (1.0 - fraction), mean**2 * (1.0 + tree) / tree


def parameters_of_moments(mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """(mu, gamma) of the Double Poisson with exactly this mean and variance. Shape: any, both the same."""
    check_positive("mean", mean, "A Double Poisson has a positive mean.")
    check_positive("variance", variance, "A Double Poisson has a positive variance.")
    m, v = mean.detach().reshape(-1).double(), variance.detach().reshape(-1).double()
    low, high = variance_limits(m)
    _check_reached((v > low) & (v < high), m, v)
    mu, gamma, reached = _newton(m, v)
    _check_reached(reached, m, v)
    return mu.reshape(mean.shape).to(mean.dtype), gamma.reshape(mean.shape).to(mean.dtype)


def _check_reached(reached: Tensor, mean: Tensor, variance: Tensor) -> None:
    if not reached.all():
        i = int((~reached).nonzero()[0])
        low, high = (x[i].item() for x in variance_limits(mean))
        raise InputError(
            f"variance must lie well between {low:.6g} and {high:.6g} for a Double Poisson of mean {mean[i]:.6g}, "
            f"got {variance[i]:.6g} at {i}. Choose a reachable pair, or NegativeBinomial for more variance."
        )


def _excess(mean: Tensor, variance: Tensor, below: Tensor) -> tuple[Tensor, Tensor]:
    """E[(Z - n)(Z - n - 1)] with n = `below`, and its slope in the mean.

    It is 0 for distributions on {n, n + 1} alone: for n the integer below the mean it is the variance beyond the least.
    """
    gap = mean - below
    return variance + gap * (gap - 1.0), 2.0 * gap - 1.0


def _newton(mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Solve for (log mu, log gamma) by Newton with steps cut to 1, and halved where the misfit grows.

    Mean and excess variance are matched in logarithms, where both equations are close to linear.
    """
    below = mean.floor()
    excess, _ = _excess(mean, variance, below)
    best_mu, best_gamma = mean.log(), (mean / variance).clamp(max=1.5).log()
    log_mu, log_gamma = best_mu, best_gamma
    best = torch.full_like(mean, torch.inf)
    step_mu, step_gamma = torch.zeros_like(mean), torch.zeros_like(mean)
    for _ in range(_STEPS):
        found = moments(log_mu.exp(), log_gamma.exp())
        found_excess, slope = _excess(found.mean, found.variance, below)
        off_mean, off_excess = (found.mean / mean).log(), (found_excess / excess).log()
        misfit = (off_mean.abs() + off_excess.abs()).nan_to_num(torch.inf)
        better = (misfit < best) | torch.isinf(best)
        best_mu, best_gamma = torch.where(better, log_mu, best_mu), torch.where(better, log_gamma, best_gamma)
        best = torch.where(better, misfit, best)
        if (best < 1e-13).all():
            break
        new_mu, new_gamma = _newton_step(found, log_gamma.exp(), found_excess, slope, off_mean, off_excess)
        step_mu = torch.where(better, new_mu, 0.5 * step_mu)
        step_gamma = torch.where(better, new_gamma, 0.5 * step_gamma)
        log_mu, log_gamma = (best_mu + step_mu).clamp(*_LOG_MU), (best_gamma + step_gamma).clamp(*_LOG_GAMMA)
    return best_mu.exp(), best_gamma.exp(), best < _TOLERANCE


def _newton_step(
    found: Moments, gamma: Tensor, excess: Tensor, slope: Tensor, off_mean: Tensor, off_excess: Tensor
) -> tuple[Tensor, Tensor]:
    mean_by_mu, mean_by_gamma = gamma * found.variance, -gamma * found.covariance
    a, b = mean_by_mu / found.mean, mean_by_gamma / found.mean
    c = (gamma * found.third + slope * mean_by_mu) / excess
    d = (-gamma * found.square_deviance + slope * mean_by_gamma) / excess
    determinant = a * d - b * c
    step_mu = -(d * off_mean - b * off_excess) / determinant
    step_gamma = -(a * off_excess - c * off_mean) / determinant
    longest = torch.maximum(step_mu.abs(), step_gamma.abs()).clamp(min=1.0)
    # Where the excess has underflowed the law is too narrow: a smaller gamma widens it.
    return (step_mu / longest).nan_to_num(0.0), (step_gamma / longest).nan_to_num(-0.5)
