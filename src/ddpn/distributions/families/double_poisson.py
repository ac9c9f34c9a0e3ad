"""The Double Poisson distribution of Efron (1986), normalised exactly for any mean and any dispersion."""

from collections.abc import Sequence
from functools import cache
from math import exp, inf, log, nan, sqrt
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.distributions import constraints, register_kl

from ddpn.distributions import calls, normalizer_table, torch_formulas
from ddpn.distributions.arguments import as_parameters, broadcast_shapes, check_positive, needs_validation
from ddpn.distributions.families.mean_double_poisson import MeanDoublePoisson
from ddpn.distributions.kernels.by_mean import solve_rates
from ddpn.distributions.kernels.compiling import compile_kernel
from ddpn.distributions.kernels.loops import compute_log_probs
from ddpn.distributions.kernels.scalar import deviance, log_h, log_h_and_log, look_up_log
from ddpn.distributions.parametric import ParametricDistribution
from ddpn.runtime.errors import InputError

#: Largest distance of the true mode from the mode of rounded probabilities.
_MAX_MODE_SHIFT = 3
#: Bounds of log gamma in a search (beyond, float64 cannot represent the distribution), the number of halvings, and the
#: largest accepted relative error of the variance.
_LOG_GAMMA, _HALVINGS, _TOLERANCE = (-18.0, 23.0), 60, 1e-9
#: gamma mu |log mu| above which D is computed by a series, as rounding in y log y would change log weights by 2e-11.
_MAX_LOGARITHM_SIZE = 2e5
#: Fewest rows for which the table of small gammas is computed, in a second: sums take about 15 us per row.
_MIN_TABLE_ROWS = 100


class DoublePoissonFamily(NamedTuple):
    """A Double Poisson, with the formulas that compiled kernels need (see `kernels.family`).

    Its parameters are the location mu and the inverse dispersion gamma. The unnormalised probability of y is h(y)
    exp(-gamma D(y; mu)), with h(y) = e^-y y^y / y! and D(y; mu) = mu - y + y log(y / mu). If the parameters are so
    large that the terms of D nearly cancel, `is_large` is True, and D is computed by a series.
    """

    mu: float
    gamma: float
    log_mu: float
    is_large: bool

    @classmethod
    def prepare(cls, a, b, c):
        log_mu = log(a)
        return DoublePoissonFamily(a, b, log_mu, b * a * abs(log_mu) > _MAX_LOGARITHM_SIZE)

    def is_normalised(self):
        return False

    def log_weight(self, y):
        if self.is_large:
            return log_h(y) - self.gamma * deviance(y, self.mu)
        log_h_of_y, log_y = log_h_and_log(y)
        return log_h_of_y - self.gamma * (self.mu - y + y * (log_y - self.log_mu))

    def fast_log_weight(self, y, log_y, log_h_of_y):
        return nan if self.is_large else log_h_of_y - self.gamma * (self.mu - y + y * (log_y - self.log_mu))

    def score(self, y):
        by_log = self.mu - y + y * (look_up_log(y) - self.log_mu)
        return self.gamma * (y - self.mu) / self.mu, -(deviance(y, self.mu) if self.is_large else by_log), 0.0

    def estimate_shape(self):
        """Return a rough centre, an upper bound of the standard deviation, and infinity (no largest count).

        The centre is mu, or 0 where the most probable count may be 0.
        """
        mu, gamma = self.mu, self.gamma
        return (mu if mu * gamma > 2.0 else 0.0), sqrt(mu / gamma) + 1.0 / gamma, inf


class DoublePoisson(ParametricDistribution):
    r"""Double Poisson distribution with location mu and inverse dispersion gamma.

    p(y) = sqrt(gamma) / c(mu, gamma) * (e^-y y^y / y!) * exp(-gamma (mu - y + y log(y / mu)))   (Eq. 1)

    Counts are under-dispersed for gamma > 1, Poisson(mu) for gamma = 1, and over-dispersed for gamma < 1. The mean is
    close to mu and the variance to mu / gamma where gamma mu is large; `mean` and `variance` are exact everywhere.

    Shape: mu and gamma broadcast to `batch_shape`. Results are computed in float64 and have the dtype of the
    parameters.

    Parameters
    ----------
    mu : Tensor or float
        Location, positive.
    gamma : Tensor or float
        Inverse dispersion, positive.
    validate_args : bool, optional
        Validate values. Default: only on a CPU.

    Examples
    --------
    >>> dist = DoublePoisson(mu=5.0, gamma=2.0)
    >>> round(dist.mean.item(), 4), round(dist.variance.item(), 4), dist.mode.item()
    (5.0054, 2.4962, 5.0)
    """

    arg_constraints = {"mu": constraints.positive, "gamma": constraints.positive}
    family = DoublePoissonFamily
    _names = ("mu", "gamma")

    def __init__(self, mu: Tensor | float, gamma: Tensor | float, validate_args: bool | None = None) -> None:
        self.mu, self.gamma = as_parameters(mu=mu, gamma=gamma)
        if needs_validation(validate_args, self.mu):
            check_positive("mu", self.mu)
            check_positive("gamma", self.gamma)
        super().__init__(self.mu.shape, validate_args)

    @classmethod
    def from_moments(cls, mean: Tensor | float, variance: Tensor | float) -> "DoublePoisson":
        """Make the Double Poisson with exactly this mean and variance.

        Parameters
        ----------
        mean : Tensor or float
            The mean, positive.
        variance : Tensor or float
            The variance, within the limits that `variance_limits` returns.

        Raises
        ------
        InputError
            If no Double Poisson has these moments.

        Examples
        --------
        >>> dist = DoublePoisson.from_moments(mean=10.0, variance=2.5)
        >>> round(dist.mean.item(), 4), round(dist.variance.item(), 4)
        (10.0, 2.5)
        """
        return cls(*solve_moments(*as_parameters(mean=mean, variance=variance)))

    @staticmethod
    def torch_log_prob(y: Tensor, mu: Tensor, gamma: Tensor) -> Tensor:
        """Compute log p(y) in torch operations, normalised by a sum of 63 terms (see `torch_formulas`)."""
        return torch_formulas.double_poisson(y, mu, gamma)

    @classmethod
    def evaluate_kernel(cls, name: str, columns: Sequence[np.ndarray]) -> np.ndarray:
        """Evaluate a log probability and its derivatives for many rows, as in `ParametricDistribution.evaluate_kernel`.

        `name` is the kernel, and `columns` has its inputs: the counts (or the bounds of a range), mu and gamma. The
        kernel "float32", which is accurate only to float32, looks up the normalising constant in a table
        (`normalizer_table`) where that is possible. The other kernels compute it by a sum.
        """
        if name != "float32":
            return super().evaluate_kernel(name, columns)
        columns_array = np.stack(columns)
        results = np.empty_like(columns_array)
        usual, small = normalizer_table.USUAL, normalizer_table.SMALL_GAMMA
        kernel = compile_kernel(normalizer_table.log_probs)
        kernel(_table(usual), np.array(usual), columns_array, results)
        is_small = np.isnan(results[0]) & (columns_array[2] < exp(small[-1]))
        if np.count_nonzero(is_small) >= _MIN_TABLE_ROWS:
            small_columns = np.ascontiguousarray(columns_array[:, is_small])
            small_results = np.empty_like(small_columns)
            kernel(_table(small), np.array(small), small_columns, small_results)
            results[:, is_small] = small_results
        beyond = np.isnan(results[0])
        if beyond.any():
            results[:, beyond] = super().evaluate_kernel("log_prob", list(columns_array[:, beyond]))[:3]
        return results

    def log_normalizer(self) -> Tensor:
        """Compute log c(mu, gamma), the log of the normalising constant by which Eq. 1 of the paper divides.

        The result is differentiable.
        """
        gamma = self.gamma.double()
        return self._to_tensor(
            torch_formulas.double_poisson_sums(self.mu.double(), gamma).log_total + 0.5 * gamma.log()
        )

    @property
    def _needs_torch(self) -> bool:
        """True if moments must be computed by torch operations instead of compiled kernels.

        This is so if a parameter requires gradients, is on a GPU, or is inside a `torch.func` transform.
        """
        has_gradient = torch.is_grad_enabled() and (self.mu.requires_grad or self.gamma.requires_grad)
        return has_gradient or torch_formulas.needs_torch(self.mu, self.gamma)

    @property
    def mean(self) -> Tensor:
        """Exact mean E[Z], differentiable."""
        if self._needs_torch:
            return torch_formulas.double_poisson_sums(self.mu.double(), self.gamma.double()).mean.to(self.dtype)
        return super().mean

    @property
    def variance(self) -> Tensor:
        """Exact variance Var[Z], differentiable."""
        if self._needs_torch:
            return torch_formulas.double_poisson_sums(self.mu.double(), self.gamma.double()).variance.to(self.dtype)
        return super().variance

    @property
    def mode(self) -> Tensor:
        """The most probable count. If two counts are equally probable, it is the smaller one.

        Because of rounding, a comparison of probabilities may find a neighbour of the mode. So the result is corrected
        by the exact ratios of neighbouring probabilities.
        """
        with torch.no_grad():
            mode, mu, gamma = (x.double() for x in (super().mode, self.mu, self.gamma))
            for _ in range(_MAX_MODE_SHIFT):
                rises, falls = _log_ratio(mode, mu, gamma) > 0, _log_ratio(mode - 1.0, mu, gamma) <= 0
                mode = torch.where(rises, mode + 1.0, torch.where(falls & (mode > 0), mode - 1.0, mode))
        return mode.to(self.dtype)

    @property
    def efron_mean(self) -> Tensor:
        """Efron's approximation of the mean, which is mu."""
        return self.mu

    @property
    def efron_variance(self) -> Tensor:
        """Efron's approximation of the variance, which is mu / gamma."""
        return self.mu / self.gamma


@cache
def _table(ends: tuple[float, ...]) -> np.ndarray:
    """Return the table of spline coefficients of the normalising constant (see `normalizer_table.compute_table`).

    `ends` are the first and last log mu, and the first and last log gamma. The table is computed on the first call with
    these ends, which takes up to a second. Later calls return the same array, which must not be changed.
    """

    def at_zero(mu: np.ndarray, gamma: np.ndarray) -> np.ndarray:
        return calls.call_per_row(compute_log_probs, DoublePoisson.family, (np.zeros_like(mu), mu, gamma), 4)

    return normalizer_table.compute_table(at_zero, ends)


def _log_ratio(y: Tensor, mu: Tensor, gamma: Tensor) -> Tensor:
    """Compute log(p(y + 1) / p(y)) of Double Poissons by a formula in which no large terms cancel.

    All tensors broadcast.
    """
    count = y.clamp(min=0.0)
    inner = count * torch.log1p(1.0 / count.clamp(min=0.5)) - 1.0
    return (1.0 - gamma) * inner - gamma * torch.log((count + 1.0) / mu)


@register_kl(DoublePoisson, DoublePoisson)
def kl_divergence(p: DoublePoisson, q: DoublePoisson) -> Tensor:
    """Compute the Kullback-Leibler divergence KL(p || q) of two Double Poissons.

    log p(z) = log h(z) - gamma_p D(z; mu_p) - log S_p, where S_p is the sum of h(z) exp(-gamma_p D(z; mu_p)) over all
    counts. The same holds for q. The terms log h(z) cancel, so KL(p || q) = log S_q - log S_p + gamma_q E[D(Z; mu_q)] -
    gamma_p E[D(Z; mu_p)], with expectations under p. They follow from E[Z] and E[D(Z; mu_p)], because D(Z; mu_q) = D(Z;
    mu_p) + mu_q - mu_p - Z log(mu_q / mu_p).
    """
    shape = broadcast_shapes(p=tuple(p.batch_shape), q=tuple(q.batch_shape))
    (mu_p, gamma_p), (mu_q, gamma_q) = ((x.expand(shape).double() for x in (d.mu, d.gamma)) for d in (p, q))
    sums_p = torch_formulas.double_poisson_sums(mu_p, gamma_p)
    sums_q = torch_formulas.double_poisson_sums(mu_q, gamma_q)
    deviance_q = sums_p.deviance + (mu_q - mu_p) - sums_p.mean * torch.log(mu_q / mu_p)
    value = sums_q.log_total - sums_p.log_total + gamma_q * deviance_q - gamma_p * sums_p.deviance
    return value.clamp(min=0.0).to(torch.promote_types(p.dtype, q.dtype))


def variance_limits(mean: Tensor) -> tuple[Tensor, Tensor]:
    """Return the limits of the variance of a Double Poisson with a given mean; both are excluded.

    The lower limit is f (1 - f) with the fractional part f of the mean, the smallest variance of any distribution over
    integers with this mean. The upper limit is approached for gamma -> 0. It is about 2 mean^2 for large means, and
    about the mean itself for small means.

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
    # For gamma -> 0, the distribution tends to the weights h(y) x^y. With the tree function T, T e^-T = x / e, the sum
    # of the weights is 1 / (1 - T), the mean m = T / (1 - T)^2, the variance T (1 + T) / (1 - T)^4 = m^2 (1 + T) / T.
    # T = 2 m / (2 m + 1 + sqrt(4 m + 1)), the root below 1 of T = m (1 - T)^2.
    tree = 2.0 * mean / (2.0 * mean + 1.0 + (4.0 * mean + 1.0).sqrt())
    return fraction * (1.0 - fraction), mean**2 * (1.0 + tree) / tree


def solve_moments(mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """Find mu and gamma of the Double Poisson with exactly this mean and variance; both are tensors of one shape.

    Raise an `InputError` if there is none.
    """
    check_positive("mean", mean, "A Double Poisson has a positive mean.")
    check_positive("variance", variance, "A Double Poisson has a positive variance.")
    m, v = mean.detach().reshape(-1).double(), variance.detach().reshape(-1).double()
    low, high = variance_limits(m)
    _check_reachable((v > low) & (v < high), m, v)
    mu, gamma, variance_reached = _solve_for_variance(m, v)
    _check_reachable((variance_reached / v - 1.0).abs() < _TOLERANCE, m, v)
    return mu.reshape(mean.shape).to(mean.dtype), gamma.reshape(mean.shape).to(mean.dtype)


def _check_reachable(reached: Tensor, mean: Tensor, variance: Tensor) -> None:
    if not reached.all():
        i = int((~reached).nonzero()[0])
        low, high = (x[i].item() for x in variance_limits(mean))
        raise InputError(
            f"variance must lie well between {low:.6g} and {high:.6g} for a Double Poisson of mean {mean[i]:.6g}, "
            f"got {variance[i]:.6g} at {i}. Choose a reachable pair, or NegativeBinomial for more variance."
        )


def _solve_for_variance(mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Find mu and gamma of the Double Poissons with a given mean and variance, by bisection in log gamma.

    For a fixed mean, the variance falls as gamma rises. Return mu, gamma and the variance with these parameters.
    """
    low, high = (torch.full_like(mean, end) for end in _LOG_GAMMA)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        log_mu, reached = _solve_location(mean, middle.exp())
        is_wide = reached > variance
        low, high = torch.where(is_wide, middle, low), torch.where(is_wide, high, middle)
    return log_mu.exp(), middle.exp(), reached


def _solve_location(mean: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor]:
    """Find mu of the Double Poissons with a given mean and gamma. Return log mu and the variance.

    All tensors are float64 and have the shape (rows,).
    """
    log_mu, variance = calls.call_per_row(solve_rates, MeanDoublePoisson.family, [mean.numpy(), gamma.numpy()], 2)
    return torch.from_numpy(log_mu), torch.from_numpy(variance)
