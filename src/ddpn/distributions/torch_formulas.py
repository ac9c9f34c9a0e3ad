"""Formulas in torch operations, for GPUs, `torch.func` and second derivatives.

A Double Poisson is normalised by a sum over counts. Here, every such sum has 63 terms, so that tensors have a fixed
shape. Which terms these are depends on the window, the range of counts that are not negligible.

- If the window has at most 62 counts, the terms are the counts from its start on.
- In a wider window, the sum over large counts is replaced by an integral over s = sqrt(y), because a Double Poisson has
  about the same width everywhere on this scale. The integral is evaluated by Gauss-Legendre quadrature with 43 nodes.
  If the window starts below 16, the other 20 terms are the counts 0, ..., 19. The last of these have weights that join
  the sum to the integral.

The positions of terms have no gradient, so derivatives of any order are those of the sum. Errors are below 1e-9 where
gamma is at least 1e-4, the smallest gamma that networks predict. They grow to 3e-6 at a gamma of 5e-8.
"""

import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from ddpn.distributions.arguments import is_transformed
from ddpn.distributions.kernels.scalar import HALF_LOG_TWO_PI, LOG_H

#: Terms of a row, the last of which is the count y of `log_prob`.
TERMS = 64
#: Counts below `JOIN_COUNT` are summed one by one, and the next `MARGIN` counts join this sum to an integral.
JOIN_COUNT, MARGIN = 16, 4
#: Expansion of 1/delta - 1/(2 asinh(delta/2)) in odd powers of the central difference delta (Gauss-Encke): it joins a
#: sum of counts to an integral.
_CUT_SERIES = (-1 / 24, 17 / 5760, -367 / 967680, 27859 / 464486400)
#: Rows per block on a GPU; the terms of a row take 3 KB.
_MAX_BLOCK_ROWS = 1 << 18
#: gamma D(y; mu) at the ends of the summed range, which leaves out about e^-28 of the mass.
_DEPTH = 28.0
#: 1 / (2 pi h(y)^2) = y + 1/6 + 1/72 / (y + 31/90 + _C / (y + _D)), within 6e-11 for y >= 15.5.
_C, _D = 0.182993827160493827, 0.129023337035176573
#: Smallest argument of log1p. At y = 0, the exact argument would give log 0, which is then multiplied by 0.
_ABOVE_MINUS_ONE = -1.0 + 2.0**-53


def _compute_head_weights() -> np.ndarray:
    """Compute the weights of the counts 0, ..., 19 in a sum over counts that continues as an integral from 15.5 on.

    The first 12 weights are 1. The last 8 correct the error at the transition from the sum to the integral, by the
    Gauss-Encke formula.
    """
    cut = np.zeros(2 * MARGIN)
    for i, coefficient in enumerate(_CUT_SERIES):
        for j in range(2 * i + 2):
            cut[3 - i + j] += coefficient * (-1) ** (2 * i + 1 - j) * math.comb(2 * i + 1, j)
    weights = np.where(np.arange(JOIN_COUNT + MARGIN) < JOIN_COUNT, 1.0, 0.0)
    weights[JOIN_COUNT - MARGIN :] -= cut
    return weights


HEAD_WEIGHTS = _compute_head_weights()


def needs_torch(*tensors: Tensor) -> bool:
    """Return True if a tensor is on a GPU or inside a `torch.func` transform, so that kernels cannot read it."""
    return any(x.device.type != "cpu" for x in tensors) or is_transformed(*tensors)


@cache
def _tabulate_h(device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return tables of log h(y) and of sqrt(2 pi) h(y) for the counts 0, ..., 15, and the number 1 as a tensor.

    h(y) = e^-y y^y / y!. All three results are float64 tensors on the device.
    """
    with torch.inference_mode(False):
        values = LOG_H[:JOIN_COUNT], np.exp(LOG_H[:JOIN_COUNT] + HALF_LOG_TWO_PI), 1.0
        return tuple(torch.tensor(x, dtype=torch.float64, device=device) for x in values)  # type: ignore[return-value]


@cache
def _make_term_matrices(device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Make two matrices (7, 64) that give the positions and the weights of a row's 64 terms, see `place_terms`.

    Positions and weights are linear in seven numbers of the row, with which the matrices are multiplied. The first two
    numbers are 0 if the window of counts is long, and the next four are 0 if it is short.

    - The two numbers of a short window are its first count, and 1. The terms are 63 consecutive counts of weight 1.
    - The first number of a long window is 1 if the terms include the counts 0, ..., 19, else 0. The other three are
      start^2, start * length and length^2, where start and length describe the window of s = sqrt(y). At a quadrature
      node x of weight w, the position is y = (start + x length)^2. Its weight is w dy/dx = 2 w (start + x length)
      length. Both are linear in these three numbers.
    - The seventh number is the count y of `log_prob`, which is the last term and has weight 0.

    Also return a boolean tensor (6,), which is True for the four numbers of a long window.
    """
    size = len(HEAD_WEIGHTS)
    x, w = np.polynomial.legendre.leggauss(TERMS - 1 - size)
    x, w = (x + 1.0) / 2.0, w / 2.0
    y, weight = np.zeros((7, TERMS)), np.zeros((7, TERMS))
    y[0, :-1], y[1, :-1], weight[1, :-1] = 1.0, np.arange(TERMS - 1), 1.0
    y[2, :size], weight[2, :size] = np.arange(size), HEAD_WEIGHTS
    y[3:6, size:-1] = np.ones_like(x), 2.0 * x, x * x
    weight[4:6, size:-1] = 2.0 * w, 2.0 * x * w
    y[6, -1] = 1.0
    with torch.inference_mode(False):
        positions, weights = (torch.tensor(matrix, dtype=torch.float64, device=device) for matrix in (y, weight))
        return positions, weights, torch.tensor([False, False, True, True, True, True], device=device)


def approximate_log_h(y: Tensor) -> Tensor:
    """Compute log(e^-y y^y / y!) for real y >= 15 by Stirling's series, with an error of at most 1e-11."""
    r = 1.0 / y
    return 0.5 * torch.log(r) - HALF_LOG_TWO_PI - r * (1 / 12 + r * r * (r * r / 1260 - 1 / 360))


def log_h(y: Tensor) -> Tensor:
    """Compute log(e^-y y^y / y!) for counts y, and for real y of at least 15.

    Counts below 15 are looked up in a table. From 15 on, Stirling's series is used.
    """
    from_table = _look_up(_tabulate_h(y.device)[0], y)
    return torch.where(y < JOIN_COUNT - 1, from_table, approximate_log_h(y.clamp(min=JOIN_COUNT - 1.0)))


def _look_up(table: Tensor, y: Tensor) -> Tensor:
    """Look up each element of y in a table for the counts 0, ..., 15. Counts above 15 get its last value."""
    # The extra axis is for vmap, which would read the value of an index without axes.
    return table[y.clamp(0, JOIN_COUNT - 1).long().unsqueeze(-1)].squeeze(-1)


def deviance(y: Tensor, mu: Tensor) -> Tensor:
    """Compute D(y; mu) = mu - y + y log(y / mu), half of the Poisson deviance.

    The formula uses y - mu and log1p, so the result is accurate even if y is close to mu.
    """
    gap = y - mu
    return torch.special.xlog1py(y, (gap / mu).clamp(min=_ABOVE_MINUS_ONE)) - gap


def place_terms(mu: Tensor, gamma: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Choose the 63 terms of the sum that normalises each Double Poisson, and add the count y as a term of weight 0.

    The terms cover the counts z with gamma D(z; mu) up to about 28, where D is the function `deviance`. They are
    consecutive counts if there are at most 62 of these, and otherwise nodes of a quadrature rule.

    Returns
    -------
    positions, weights : Tensor, (..., 64)
        The terms' counts, which may be fractional, and their weights in the sum, for parameters of shape (...).
    """
    positions, weights, is_long = _make_term_matrices(mu.device)
    centre, reach = mu.sqrt(), math.sqrt(2.0 * _DEPTH) * gamma.rsqrt()
    # Near mu, D(y; mu) is about 2 (sqrt(y) - sqrt(mu))^2, so the ends of sqrt(y) are sqrt(mu) -+ reach / 2. Far from
    # mu, the factor 1/2 changes. In units of sqrt(mu), exact ends are functions of a^2 / 2 = 28 / (gamma mu) alone.
    a = reach / centre
    high = torch.addcmul(centre, reach, torch.rsqrt(4.0 + 2.7 * torch.log1p(0.247 * a)))
    low = torch.addcmul(centre, reach, 0.5 + 0.07 * a, value=-1.0).clamp(min=0.0)
    is_joined = low < math.sqrt(JOIN_COUNT)
    first = (low * low).floor().masked_fill(is_joined, 0.0)
    is_short = high * high - first < TERMS - 2
    start = low.clamp(min=math.sqrt(JOIN_COUNT - 0.5))
    length = high - start
    one, joined = torch.ones_like(mu), is_joined.to(mu.dtype)
    numbers = torch.stack([first, one, joined, start * start, start * length, length * length], dim=-1)
    used = torch.cat([numbers * (is_short.unsqueeze(-1) ^ is_long), y.unsqueeze(-1)], dim=-1)
    return used @ positions, used @ weights


class WeightedTerms(NamedTuple):
    """The 63 terms of the sum that normalises a Double Poisson, and the count y of `log_prob` as the last term.

    A term is h(z) exp(-gamma D(z; mu)) times its quadrature weight, with h(z) = e^-z z^z / z! and D the function
    `deviance`.

    Parameters
    ----------
    y, deviance : Tensor, (..., 64)
        The terms' counts z, which may be fractional, and D(z; mu).
    weight : Tensor, (..., 64)
        The terms, divided by exp(-gamma min_deviance) and multiplied by sqrt(2 pi). The last one is 0.
    total : Tensor, (...)
        The sum of `weight`.
    min_deviance : Tensor, (...)
        The smallest D of all terms.
    scaled_h : Tensor, (...)
        sqrt(2 pi) h(y) for the count y of `log_prob`.
    """

    y: Tensor
    deviance: Tensor
    weight: Tensor
    total: Tensor
    min_deviance: Tensor
    scaled_h: Tensor

    def mean(self, x: Tensor) -> Tensor:
        """Compute the expectation of a function under each Double Poisson, given its values x (..., 64).

        The values are those at the 64 terms of each row.
        """
        return (self.weight * x).sum(-1) / self.total


def weigh_terms(y: Tensor, mu: Tensor, gamma: Tensor) -> WeightedTerms:
    """Compute the terms of the sum that normalises each Double Poisson, with the count y as an extra last term.

    All tensors have one shape. The result is differentiable in mu and gamma.
    """
    with torch.no_grad():
        at, weight = place_terms(mu, gamma, y)
        _, small, one = _tabulate_h(mu.device)
        inner = torch.addcdiv(at, one, at + _D, value=_C).add_(31 / 90)
        h = torch.addcdiv(at, one, inner, value=1 / 72).add_(1 / 6).rsqrt_()
        scaled_h = torch.where(y < JOIN_COUNT, _look_up(small, y), h[..., -1])
        # Each of the first 16 terms is one of the counts 0..15, or large.
        first = torch.where(at[..., :1] == 0, small, h[..., :JOIN_COUNT])
        share = torch.cat([first, h[..., JOIN_COUNT:]], dim=-1) * weight
    dev = deviance(at, mu.unsqueeze(-1))
    min_deviance = dev.detach().amin(-1)
    weights = torch.exp(gamma.unsqueeze(-1) * (min_deviance.unsqueeze(-1) - dev)) * share
    return WeightedTerms(at, dev, weights, weights.sum(-1), min_deviance, scaled_h)


class DoublePoissonSums(NamedTuple):
    """Sums over all counts of a Double Poisson. All are differentiable.

    Parameters
    ----------
    log_total : Tensor
        The logarithm of the sum of h(y) exp(-gamma D(y; mu)).
    mean, variance, deviance : Tensor
        E[Z], Var[Z] and E[D(Z; mu)].
    """

    log_total: Tensor
    mean: Tensor
    variance: Tensor
    deviance: Tensor


def double_poisson_sums(mu: Tensor, gamma: Tensor) -> DoublePoissonSums:
    """Compute the normaliser, mean, variance and mean deviance of Double Poissons with parameters `mu` and `gamma`.

    All tensors have one shape.
    """
    terms = weigh_terms(torch.zeros_like(mu), mu, gamma)
    # Deviations from the most probable term, so that a variance is accurate even if nearly all mass is on this term.
    centre = terms.y.gather(-1, terms.weight.detach().argmax(-1, keepdim=True))
    gap = terms.y - centre
    shift = terms.mean(gap)
    variance = (terms.mean(gap * gap) - shift * shift).clamp(min=0.0)
    log_total = terms.total.log() - gamma * terms.min_deviance - HALF_LOG_TWO_PI
    return DoublePoissonSums(log_total, centre.squeeze(-1) + shift, variance, terms.mean(terms.deviance))


def double_poisson(y: Tensor, mu: Tensor, gamma: Tensor) -> Tensor:
    """Compute log p(y) of Double Poissons with parameters `mu` and `gamma`, for tensors of one shape.

    The result can be differentiated any number of times in both parameters.
    """
    if mu.is_cuda and not is_transformed(y, mu, gamma):
        return DoublePoissonLogProb.apply(y, mu, gamma)
    return _log_prob(y, mu, gamma)


def _log_prob(y: Tensor, mu: Tensor, gamma: Tensor) -> Tensor:
    return _log_prob_from_terms(weigh_terms(y, mu, gamma), gamma)


def _log_prob_from_terms(terms: WeightedTerms, gamma: Tensor) -> Tensor:
    return torch.log(terms.scaled_h / terms.total) + gamma * (terms.min_deviance - terms.deviance[..., -1])


class SavedContext(Protocol):
    """The context of an autograd function in its `backward`, with the tensors that `forward` saved."""

    saved_tensors: tuple[Tensor, ...]


class DoublePoissonLogProb(torch.autograd.Function):
    """Autograd function of log p(y) of Double Poissons, with a closed formula for the gradient.

    It saves memory: automatic differentiation would store all 64 terms of every row.
    """

    @staticmethod
    def forward(ctx: FunctionCtx, y: Tensor, mu: Tensor, gamma: Tensor) -> Tensor:
        """Compute log p(y) and its gradient in blocks of rows, so that memory use is bounded."""
        flat = [x.reshape(-1).split(_MAX_BLOCK_ROWS) for x in (y, mu, gamma)]
        blocks = [_compute_with_gradient(*block) for block in zip(*flat, strict=True)]
        value, by_mu, by_gamma = blocks[0] if len(blocks) == 1 else map(torch.cat, zip(*blocks, strict=True))
        ctx.save_for_backward(y, mu, gamma, by_mu.view(y.shape), by_gamma.view(y.shape))
        return value.view(y.shape)

    @staticmethod
    def backward(ctx: SavedContext, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Multiply `grad` by the gradient that `forward` saved.

        For second derivatives, the gradient is computed again by automatic differentiation.
        """
        y, mu, gamma = ctx.saved_tensors[:3]
        slopes: Sequence[Tensor] = ctx.saved_tensors[3:]
        if torch.is_grad_enabled():
            leaves = [x if x.requires_grad else x.detach().requires_grad_() for x in (mu, gamma)]
            slopes = torch.autograd.grad(_log_prob(y, *leaves).sum(), leaves, create_graph=True)
        return None, *(grad * slope for slope in slopes)


def _compute_with_gradient(y: Tensor, mu: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compute log p(y) of Double Poissons, and its derivatives in mu and in gamma. All tensors have the shape (rows,).

    The derivatives are gamma (y - E[Z]) / mu and E[D(Z; mu)] - D(y; mu), with D as in `deviance`.
    """
    terms = weigh_terms(y, mu, gamma)
    slope = terms.mean(terms.deviance) - terms.deviance[..., -1]
    return _log_prob_from_terms(terms, gamma).clamp_(max=0.0), gamma * (y - terms.mean(terms.y)) / mu, slope
