"""Sums over counts in operations of torch, of fixed shape: for GPUs, `torch.func` and second derivatives.

Every sum has 63 terms. Windows of up to 62 counts are summed count by count. Wider ones take 20 terms at 0..19, joined
to Gauss-Legendre nodes in sqrt(y), where the distribution has about constant width. The terms are placed without
gradient, so derivatives of any order are those of the sum. Errors are below 1e-9.
"""

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ddpn.distributions.arguments import is_transformed
from ddpn.distributions.kernels.scalar import HALF_LOG_TWO_PI, HEAD, JOIN, LOG_H, NODES, TERMS, WEIGHTS

#: Rows whose terms a GPU computes at once, 3 KB each.
_ROWS = 1 << 18
#: gamma D at the ends of the terms of a Double Poisson: what is left out is some e^-28 of the mass.
_DEPTH = 28.0
#: 1 / (2 pi h(y)^2) = y + 1/6 + 1/72 / (y + 31/90 + _C / (y + _D)), within 6e-11 for y >= 15.5.
_C, _D = 0.182993827160493827, 0.129023337035176573
#: The least y / mu - 1 that is asked for a logarithm, which y = 0 multiplies by 0.
_ABOVE_MINUS_ONE = -1.0 + 2.0**-53


def needs_torch(*tensors: Tensor) -> bool:
    """Whether kernels cannot read tensors: on a GPU, or transformed."""
    return any(x.device.type != "cpu" for x in tensors) or is_transformed(*tensors)


@cache
def constants(device: torch.device) -> tuple[Tensor, ...]:
    """Counts and weights of the first terms, nodes and weights on [0, 1], and log h(y) of small counts."""
    with torch.inference_mode(False):
        arrays = (np.arange(float(len(HEAD))), HEAD, NODES, WEIGHTS, LOG_H[:JOIN])
        return tuple(torch.tensor(x, dtype=torch.float64, device=device) for x in arrays)


@cache
def _layout(device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """What seven numbers of a row contribute to the positions and weights of its terms, and which are of long windows.

    The numbers are `first` and 1 of a short window; 1 if counts are joined to nodes, start^2, start * length and
    length^2 of a long one; and y, the last position, of weight 0. Shapes: (7, 64), (7, 64) and (6,).
    """
    size = len(HEAD)
    x, w = np.polynomial.legendre.leggauss(TERMS - 1 - size)
    x, w = (x + 1.0) / 2.0, w / 2.0
    y, weight = np.zeros((7, TERMS)), np.zeros((7, TERMS))
    y[0, :-1], y[1, :-1], weight[1, :-1] = 1.0, np.arange(TERMS - 1), 1.0
    y[2, :size], weight[2, :size] = np.arange(size), HEAD
    y[3:6, size:-1] = np.ones_like(x), 2.0 * x, x * x
    weight[4:6, size:-1] = 2.0 * w, 2.0 * x * w
    y[6, -1] = 1.0
    with torch.inference_mode(False):
        positions, weights = (torch.tensor(matrix, dtype=torch.float64, device=device) for matrix in (y, weight))
        return positions, weights, torch.tensor([False, False, True, True, True, True], device=device)


def log_h(y: Tensor) -> Tensor:
    """log(e^-y y^y / y!) for real y >= 15 by Stirling's series, which errs by 1e-11 at most."""
    r = 1.0 / y
    return 0.5 * torch.log(r) - HALF_LOG_TWO_PI - r * (1 / 12 + r * r * (r * r / 1260 - 1 / 360))


def log_h_of_count(y: Tensor) -> Tensor:
    """log(e^-y y^y / y!) for counts below 15, by table, and real y from there on."""
    table = constants(y.device)[4]
    # With an axis more, as vmap would read the value of an index without axes.
    small = table[y.clamp(0, JOIN - 2).long().unsqueeze(-1)].squeeze(-1)
    return torch.where(y < JOIN - 1, small, log_h(y.clamp(min=JOIN - 1.0)))


def deviance(y: Tensor, mu: Tensor) -> Tensor:
    """D(y; mu) = mu - y + y log(y / mu), from y - mu: the error is the rounding of y - mu, not that of y."""
    gap = y - mu
    return torch.special.xlog1py(y, (gap / mu).clamp(min=_ABOVE_MINUS_ONE)) - gap


class Terms(NamedTuple):
    """Positions and weights of a sum over the counts. Shape: (..., 64) each."""

    y: Tensor
    weight: Tensor


def placed(mu: Tensor, gamma: Tensor, y: Tensor) -> Terms:
    """The terms of a sum over all counts where gamma D(y; mu) is at most about 28, and y with weight 0. Shape: (...).

    In units of sqrt(mu), the square roots of both ends are functions of a^2 / 2 = 28 / (gamma mu) alone.
    """
    positions, weights, is_long = _layout(mu.device)
    centre, reach = mu.sqrt(), math.sqrt(2.0 * _DEPTH) * gamma.rsqrt()
    a = reach / centre
    high = torch.addcmul(centre, reach, torch.rsqrt(4.0 + 2.7 * torch.log1p(0.247 * a)))
    low = torch.addcmul(centre, reach, 0.5 + 0.07 * a, value=-1.0).clamp(min=0.0)
    is_joined = low < math.sqrt(JOIN)
    first = (low * low).floor().masked_fill(is_joined, 0.0)
    is_short = high * high - first < TERMS - 2
    start = low.clamp(min=math.sqrt(JOIN - 0.5))
    length = high - start
    one, joined = torch.ones_like(mu), is_joined.to(mu.dtype)
    numbers = torch.stack([first, one, joined, start * start, start * length, length * length], dim=-1)
    used = torch.cat([numbers * (is_short.unsqueeze(-1) ^ is_long), y.unsqueeze(-1)], dim=-1)
    return Terms(used @ positions, used @ weights)


def log_sum(log_w: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """log of the weighted sum of e^log_w over the last axis, and each term's share of it."""
    top = log_w.detach().amax(-1, keepdim=True)
    w = weight * (log_w - top).exp()
    total = w.sum(-1, keepdim=True)
    return (top + total.log()).squeeze(-1), w / total


class DoublePoissonSums(NamedTuple):
    """log of the sum of h(y) exp(-gamma D(y; mu)), E[Z], Var[Z] and E[D], differentiable."""

    log_total: Tensor
    mean: Tensor
    variance: Tensor
    deviance: Tensor


def double_poisson_sums(mu: Tensor, gamma: Tensor) -> DoublePoissonSums:
    """By the 63 terms, in float64."""
    with torch.no_grad():
        terms = placed(mu, gamma, torch.zeros_like(mu))
    dev = deviance(terms.y, mu.unsqueeze(-1))
    log_w = log_h_of_count(terms.y) - gamma.unsqueeze(-1) * dev
    log_total, share = log_sum(log_w, terms.weight)
    # Around the most probable term: where almost all mass is there, the variance stays accurate.
    centre = terms.y.gather(-1, log_w.detach().argmax(-1, keepdim=True))
    gap = terms.y - centre
    shift = (share * gap).sum(-1)
    variance = (share * gap * gap).sum(-1) - shift * shift
    return DoublePoissonSums(log_total, centre.squeeze(-1) + shift, variance.clamp(min=0.0), (share * dev).sum(-1))


def double_poisson(y: Tensor, mu: Tensor, gamma: Tensor) -> Tensor:
    """log p(y), differentiable any number of times."""
    if mu.is_cuda and not is_transformed(y, mu, gamma):
        return DoublePoissonLogProb.apply(y, mu, gamma)
    return _log_prob(y, mu, gamma)


def _log_prob(y: Tensor, mu: Tensor, gamma: Tensor) -> Tensor:
    return log_h_of_count(y) - gamma * deviance(y, mu) - double_poisson_sums(mu, gamma).log_total


class DoublePoissonLogProb(torch.autograd.Function):
    """log p(y) with its gradient in closed form: no operation on 64 terms is recorded."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, mu: Tensor, gamma: Tensor) -> Tensor:
        """Rows in blocks, so that memory does not grow with their number."""
        flat = [x.reshape(-1).split(_ROWS) for x in (y, mu, gamma)]
        found = [_with_gradient(*block) for block in zip(*flat, strict=True)]
        value, by_mu, by_gamma = found[0] if len(found) == 1 else map(torch.cat, zip(*found, strict=True))
        ctx.save_for_backward(y, mu, gamma, by_mu.view(y.shape), by_gamma.view(y.shape))
        return value.view(y.shape)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        """By the formula in torch where second derivatives are wanted."""
        y, mu, gamma, *slopes = ctx.saved_tensors
        if torch.is_grad_enabled():
            leaves = [x if x.requires_grad else x.detach().requires_grad_() for x in (mu, gamma)]
            slopes = torch.autograd.grad(_log_prob(y, *leaves).sum(), leaves, create_graph=True)
        return None, *(grad * slope for slope in slopes)


def _with_gradient(y: Tensor, mu: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """log p(y), gamma (y - E[Z]) / mu and E[D] - D(y). Shape: (N,).

    y is the last of the terms, so that its own h and D are found with theirs.
    """
    terms = placed(mu, gamma, y)
    h, own_h = _scaled_h(terms.y)
    dev = deviance(terms.y, mu.unsqueeze(-1))
    least, own = dev.amin(-1), dev[:, -1]
    w = (least.unsqueeze(-1) - dev).mul_(gamma.unsqueeze(-1)).exp_().mul_(h).mul_(terms.weight)
    total = w.sum(-1)
    value = torch.log(own_h / total) + gamma * (least - own)
    mean, mean_dev = ((w * x).sum(-1) / total for x in (terms.y, dev))
    return value.clamp_(max=0.0), gamma * (y - mean) / mu, mean_dev - own


def _scaled_h(y: Tensor) -> tuple[Tensor, Tensor]:
    """sqrt(2 pi) h(y) of terms, of which the first 16 are large or the counts 0..15, and of any count that is last."""
    small, one = _small_h(y.device)
    inner = torch.addcdiv(y, one, y + _D, value=_C).add_(31 / 90)
    h = torch.addcdiv(y, one, inner, value=1 / 72).add_(1 / 6).rsqrt_()
    own = y[:, -1]
    own_h = torch.where(own < JOIN, small[own.clamp(max=JOIN - 1).long()], h[:, -1])
    torch.where(y[:, :1] == 0, small, h[:, :JOIN], out=h[:, :JOIN])
    return h, own_h


@cache
def _small_h(device: torch.device) -> tuple[Tensor, Tensor]:
    """sqrt(2 pi) h(y) of the counts 0..15, and 1."""
    with torch.inference_mode(False):
        values = (np.exp(LOG_H[:JOIN] + HALF_LOG_TWO_PI), 1.0)
        return tuple(torch.tensor(x, dtype=torch.float64, device=device) for x in values)  # type: ignore[return-value]
