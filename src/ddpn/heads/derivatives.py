"""First derivatives and curvatures of losses in raw outputs, row by row: what boosting takes its steps from."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from scipy.interpolate import RectBivariateSpline
from scipy.ndimage import map_coordinates, spline_filter
from scipy.special import betainc, digamma, gammaln, xlogy
from torch import Tensor

from ddpn.heads.clamps import LOG_ALPHA, LOG_GAMMA, LOG_MU, highest_log_gamma

#: The smallest curvature, where a loss is flat or not convex: a step is then as long as the gradient allows.
FLOOR = 1e-6
#: Of log gamma and log alpha, whose curvature is at most about 1/2: with less, rows far from any information took
#: steps onto the clamps.
DISPERSION_FLOOR = 0.05

Derivatives = tuple[Tensor, Tensor]


@torch.inference_mode(False)
def slope(loss: Callable[[Tensor], Tensor], raw: Tensor) -> Tensor:
    """Gradient of the losses of some rows. Shape: (N, P)."""
    x = raw.detach().double().clone().requires_grad_()
    with torch.enable_grad():
        return torch.autograd.grad(loss(x).sum(), x)[0]


@torch.inference_mode(False)
def by_autograd(loss: Callable[[Tensor], Tensor], raw: Tensor) -> Derivatives:
    """Gradient of the losses of some rows, and the size of their second derivatives. Shape: (N, P) each."""
    x = raw.detach().double().clone().requires_grad_()
    with torch.enable_grad():
        (gradient,) = torch.autograd.grad(loss(x).sum(), x, create_graph=True)
        curvature = torch.stack(
            [torch.autograd.grad(part.sum(), x, retain_graph=True)[0][:, p] for p, part in enumerate(gradient.T)], 1
        )
    # Where a loss bends down, its size still says how far a step may go.
    return gradient.detach(), curvature.abs().clamp(min=FLOOR)


def poisson(raw: Tensor, y: Tensor, exposure: Tensor | None) -> Derivatives:
    """mu - y and mu, for log mu within its clamp."""
    mu = raw[:, :1].exp() if exposure is None else raw[:, :1].exp() * exposure[:, None]
    return mu - y[:, None], mu.clamp(min=FLOOR)


def negative_binomial(raw: Tensor, y: Tensor, exposure: Tensor | None) -> Derivatives:
    """Exact gradient and expected curvature in (log mu, log alpha), within their clamps.

    With r = 1 / alpha: (mu - y) r / (r + mu), mu r / (r + mu), and for log alpha the score of r times -r and r^2 times
    its information sum_j P(Y > j) / (r + j)^2 - mu / (r (r + mu)), read from a table.
    """
    log_mu, log_alpha, counts = _numpy(raw[:, 0], raw[:, 1], y)
    if exposure is not None:
        log_mu = log_mu + np.log(exposure.numpy())
    mu, r = np.exp(log_mu), np.exp(-log_alpha)
    share = r / (r + mu)
    by_r = digamma(counts + r) - digamma(r) - np.log1p(mu / r) + (mu - counts) / (r + mu)
    gradient = np.stack([(mu - counts) * share, r * by_r], 1)
    information = np.exp(_alpha_table().ev(np.clip(log_mu, *_TABLE_MU), np.clip(log_alpha, *_TABLE_ALPHA)))
    curvature = np.stack([np.maximum(mu * share, FLOOR), np.maximum(information, DISPERSION_FLOOR)], 1)
    return torch.from_numpy(gradient), torch.from_numpy(curvature)


def double_poisson(raw: Tensor, y: Tensor, exposure: Tensor | None) -> Derivatives:
    """Exact gradient and expected curvature in (log mu, log gamma), within their clamps.

    With T(y) = y + y log(mu / y) the pmf is proportional to e^(gamma T(y)) and a function of y alone. The gradient is
    gamma (E[Y] - y, E[T(Y)] - T(y)), the curvature gamma^2 (Var[Y], Var[T(Y)]). Narrow distributions, with a variance
    mu / gamma below 0.6, have few terms that are added; for wide ones the moments come from a table.
    """
    log_mu, log_gamma, counts = _numpy(raw[:, 0], raw[:, 1], y)
    if exposure is not None:
        log_mu = log_mu + np.log(exposure.numpy())
    is_narrow = (log_mu - log_gamma < _NARROW) & (log_gamma > _MODEST)
    moments = np.empty((4, len(counts)))
    for rows, form in ((is_narrow, _narrow_moments), (~is_narrow, _wide_moments)):
        if rows.any():
            moments[:, rows] = form(log_mu[rows], log_gamma[rows])
    mean, statistic, variance, spread = moments
    gamma, observed = np.exp(log_gamma), counts + counts * log_mu - xlogy(counts, counts)
    gradient = np.stack([gamma * (mean - counts), gamma * (statistic - observed)], 1)
    curvature = np.stack([np.maximum(variance, FLOOR), np.maximum(spread, DISPERSION_FLOOR)], 1)
    return torch.from_numpy(gradient), torch.from_numpy(curvature)


def _narrow_moments(log_mu: np.ndarray, log_gamma: np.ndarray) -> np.ndarray:
    """E[Y], E[T(Y)], gamma^2 Var[Y] and gamma^2 Var[T(Y)] from the terms within eight standard deviations."""
    gamma, first = np.exp(log_gamma), np.maximum(np.floor(np.exp(log_mu)) - _WINDOW, 0.0)
    y = first[:, None] + np.arange(2.0 * _WINDOW + 2.0)
    entropy = xlogy(y, y)
    statistic = y * (1.0 + log_mu[:, None]) - entropy
    terms = gamma[:, None] * statistic + entropy - y - gammaln(y + 1.0)
    p = np.exp(terms - terms.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    mean, expected = (p * y).sum(1), (p * statistic).sum(1)
    variances = ((p * np.square(x - m[:, None])).sum(1) for x, m in ((y, mean), (statistic, expected)))
    return np.stack([mean, expected, *(np.square(gamma) * variance for variance in variances)])


def _wide_moments(log_mu: np.ndarray, log_gamma: np.ndarray) -> np.ndarray:
    """The same from the derivatives of F = log Z - gamma mu + log(gamma) / 2, which is 0 in Efron's approximation.

    Z is the sum of the terms: gamma E[Y] = d log Z / d log mu, and gamma E[T(Y)] = d log Z / d log gamma.
    """
    gamma, both = np.exp(log_gamma), np.exp(log_mu + log_gamma)
    place = np.stack([log_mu - LOG_MU[0], log_gamma - LOG_GAMMA[0]]) / _STEP
    by_mu, by_gamma, twice_mu, twice_gamma = (_interpolated(table, place) for table in _normaliser_tables())
    mean, statistic = (both + by_mu) / gamma, (both - 0.5 + by_gamma) / gamma
    return np.stack([mean, statistic, both + twice_mu, 0.5 + twice_gamma - by_gamma])


def closed_form(head: Any, raw: Tensor, y: Tensor, exposure: Tensor | None = None) -> Derivatives:
    """The closed form of a head's likelihood where no clamp bends the raw outputs, autograd for the other rows."""
    names = (getattr(kind, "name", None) for kind in type(head).__mro__)  # a subclass may be renamed
    form, ranges = next(_FORMS[name] for name in names if name in _FORMS)
    raw, y = raw.detach().double(), y.double()
    scale = None if exposure is None else exposure.double()
    low, high = torch.tensor(ranges, dtype=torch.float64).T
    inside = ((raw > low) & (raw < high)).all(1)
    if form is double_poisson:
        log_mu = raw[:, 0] if scale is None else raw[:, 0] + scale.log()
        inside &= (log_mu > LOG_MU[0]) & (log_mu < LOG_MU[1]) & (raw[:, 1] < highest_log_gamma(log_mu))
    if bool(inside.all()):
        return form(raw, y, scale)
    gradient, curvature = torch.empty_like(raw), torch.empty_like(raw)
    if bool(inside.any()):
        gradient[inside], curvature[inside] = form(raw[inside], y[inside], None if scale is None else scale[inside])
    rest, known = y[~inside], None if scale is None else scale[~inside]
    gradient[~inside], curvature[~inside] = by_autograd(lambda x: head.loss(x, rest, known), raw[~inside])
    curvature[:, 1:] = curvature[:, 1:].clamp(min=DISPERSION_FLOOR)
    return gradient, curvature


_FORMS: dict[str, tuple[Callable[..., Derivatives], tuple[tuple[float, float], ...]]] = {
    "poisson": (poisson, (LOG_MU,)),
    "negative_binomial": (negative_binomial, (LOG_MU, LOG_ALPHA)),
    "double_poisson": (double_poisson, (LOG_MU, LOG_GAMMA)),
}


def _numpy(*tensors: Tensor) -> list[np.ndarray]:
    return [tensor.detach().double().numpy() for tensor in tensors]


# Tables --------------------------------------------------------------------------------------------------------------

#: Below a variance of 0.6 F has a wave per integer of more than 1e-5, which the table does not resolve, except for
#: small means with a gamma of at most e^0.7; and the integers from 6 below to 7 above the mean are all that matter.
_NARROW, _MODEST, _WINDOW = float(np.log(0.6)), 0.7, 6.0
#: Steps of the tables, and the range of that of log alpha: outside, its edge is below the floor or constant.
_STEP, _TABLE_MU, _TABLE_ALPHA, _ALPHA_STEP = 0.1, (-8.0, 16.0), (-16.0, 9.2), 0.5
#: Points of the grid outside the range of the normaliser's table.
_MARGIN = 5
#: Terms of the sum over counts that are added one by one, and nodes of the integral over the rest.
_TERMS, _NODES = 48, 96


@cache
def _normaliser_tables() -> list[np.ndarray]:
    """F_mu, F_gamma, F_mumu and F_gammagamma over (log mu, log gamma), as coefficients of bicubic splines.

    At y = 0 the loss is the log normaliser itself.
    """
    from ddpn.distributions import DoublePoisson

    # Beyond the bounds, where splines are less exact, there are further points.
    margin = np.arange(-_MARGIN, 0) * _STEP
    axes = [
        np.concatenate([low + margin, np.arange(low, high, _STEP), high - margin[::-1] - _STEP])
        for low, high in (LOG_MU, LOG_GAMMA)
    ]
    grid = torch.from_numpy(np.stack(np.meshgrid(*axes, indexing="ij"), -1))
    with torch.no_grad():
        dist = DoublePoisson(grid[..., 0].exp(), grid[..., 1].exp(), validate_args=False)
        log_normaliser = -dist.log_prob(torch.zeros(grid.shape[:-1], dtype=torch.float64))
        values = log_normaliser - grid.sum(-1).exp() + 0.5 * grid[..., 1]
    spline = RectBivariateSpline(*axes, values.nan_to_num(0.0).numpy())
    inside = [axis[_MARGIN:] for axis in axes]
    return [spline_filter(spline(*inside, dx=dx, dy=dy)) for dx, dy in ((1, 0), (0, 1), (2, 0), (0, 2))]


def _interpolated(table: np.ndarray, place: np.ndarray) -> np.ndarray:
    return map_coordinates(table, place, prefilter=False, mode="nearest")


@cache
def _alpha_table() -> RectBivariateSpline:
    """Log of the information about log alpha over (log mu, log alpha).

    r^2 (sum_j P(Y > j) / (r + j)^2 - mu / (r (r + mu))): the first terms one by one, the rest as an integral over
    log(j), by the midpoint rule.
    """
    mu, alpha = np.arange(*_TABLE_MU, _ALPHA_STEP), np.arange(*_TABLE_ALPHA, _ALPHA_STEP)
    means, r = np.exp(mu)[:, None, None], np.exp(-alpha)[None, :, None]
    probability = means / (r + means)
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    top = np.log(_TERMS - 0.5) + 1.0 + np.log1p(40.0 * (means + np.sqrt(means * (1.0 + means / r))) / _TERMS)
    low = np.log(_TERMS - 0.5)
    u = low + (top - low) * (nodes + 1.0) / 2.0
    first, rest = np.arange(float(_TERMS)), np.exp(u)
    each = betainc(first + 1.0, r, probability) / (1.0 + first / r) ** 2
    others = betainc(rest + 1.0, r, probability) / (1.0 + rest / r) ** 2 * rest * (top - low) / 2.0 * weights
    total = each.sum(-1) + others.sum(-1) - (means * r / (r + means))[..., 0]
    return RectBivariateSpline(mu, alpha, np.log(np.maximum(total, 1e-12)))
