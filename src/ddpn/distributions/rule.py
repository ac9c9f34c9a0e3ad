"""Sums over counts in operations of torch, of fixed shape: for GPUs, `torch.func` and second derivatives.

Every sum has 64 terms. Windows of up to 60 counts (gamma D <= 32) are summed count by count. Wider ones take 20 terms
at 0..19, joined to Gauss-Legendre nodes in sqrt(y), where the distribution has about constant width. The terms are
placed without gradient, so derivatives of any order are those of the sum. Errors are below 1e-9.
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ddpn.distributions.kernels.placing import DEPTH, HEAD, JOIN, MARGIN, NODES, TERMS, WEIGHTS
from ddpn.distributions.kernels.scalar import HALF_LOG_TWO_PI, LOG_H

#: Rows whose terms are computed at once where there is a gradient in closed form: they stay in a GPU's cache.
_ROWS = 1 << 16


def needs_torch(*tensors: Tensor) -> bool:
    """Whether kernels cannot read tensors: on a GPU, inside of a `torch.func` transform or of `torch.compile`."""
    if torch.compiler.is_compiling() or any(x.device.type != "cpu" for x in tensors):
        return True
    try:
        for x in tensors:
            x.data_ptr()
    except RuntimeError:
        return True
    return False


@cache
def constants(device: torch.device) -> tuple[Tensor, ...]:
    """Counts and weights of the first terms, nodes and weights on [0, 1], and log h(y) of small counts."""
    with torch.inference_mode(False):
        arrays = (np.arange(float(len(HEAD))), HEAD, NODES, WEIGHTS, LOG_H[:JOIN])
        return tuple(torch.tensor(x, dtype=torch.float64, device=device) for x in arrays)


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
    """D(y; mu) = mu - y + y log(y / mu): near mu by a series in v = (y - mu) / (y + mu), which has no cancellation."""
    v = (y - mu) / (y + mu)
    is_near = v.abs() < 0.1
    square = torch.where(is_near, v * v, 0.0)
    tail = torch.zeros_like(square)
    for power in range(15, 1, -2):
        tail = square * (tail + 1.0 / power)
    near = (y - mu) * v + 2.0 * y * v * tail
    positive = torch.where(is_near | (y <= 0), mu, y)
    return torch.where(is_near, near, mu - y + y * torch.log(positive / mu))


def window(mu: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor]:
    """The y around mu with gamma D(y; mu) = DEPTH: Newton steps from outside."""
    target, tiny = DEPTH / gamma, 1e-300
    low = (mu.sqrt() - target.sqrt()).clamp(min=0.0).square()
    s = mu.sqrt() + (0.5 * target).sqrt()
    for _ in range(3):
        high, slope = s * s, -torch.log((low / mu).clamp(min=tiny))
        s = s - (deviance(high, mu) - target) / (2.0 * s * torch.log1p((high - mu) / mu)).clamp(min=tiny)
        low = low + (deviance(low, mu) - target).clamp(min=0.0) / slope.clamp(min=tiny)
    return torch.where(target >= mu, 0.0, low), s * s


class Terms(NamedTuple):
    """Positions and weights of a sum over the counts. Shape: (..., 64) each."""

    y: Tensor
    weight: Tensor


def placed(low: Tensor, end: Tensor) -> Terms:
    """The terms of a sum over all counts of distributions that live between `low` and `end`. Shape: (...)."""
    head, head_weights, nodes, node_weights, _ = constants(low.device)
    first = (low.floor() - MARGIN).clamp(min=0.0)
    is_short = (end - first < TERMS - MARGIN).unsqueeze(-1)
    start = low.clamp(min=JOIN - 0.5).sqrt().unsqueeze(-1)
    length = (end.sqrt().unsqueeze(-1) - start).clamp(min=0.0)
    t = start + length * nodes
    integers = first.unsqueeze(-1) + torch.arange(float(TERMS), dtype=low.dtype, device=low.device)
    joined = (low < JOIN).unsqueeze(-1) * head_weights
    y = torch.cat([head.expand(*low.shape, -1), t * t], dim=-1)
    weight = torch.cat([joined, 2.0 * t * length * node_weights], dim=-1)
    return Terms(torch.where(is_short, integers, y), torch.where(is_short, 1.0, weight))


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
    """By the 64 terms, in float64."""
    with torch.no_grad():
        terms = placed(*window(mu, gamma))
    dev = deviance(terms.y, mu.unsqueeze(-1))
    log_w = log_h_of_count(terms.y) - gamma.unsqueeze(-1) * dev
    log_total, share = log_sum(log_w, terms.weight)
    # Around the most probable term: where almost all mass is there, the variance stays accurate.
    centre = terms.y.gather(-1, log_w.detach().argmax(-1, keepdim=True))
    gap = terms.y - centre
    shift = (share * gap).sum(-1)
    variance = (share * gap * gap).sum(-1) - shift * shift
    return DoublePoissonSums(log_total, centre.squeeze(-1) + shift, variance.clamp(min=0.0), (share * dev).sum(-1))


class _DoublePoisson(torch.autograd.Function):
    """log p(y) of a Double Poisson, with its gradient in closed form: no operation on 64 terms is recorded."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, mu: Tensor, gamma: Tensor) -> Tensor:
        flat = [x.reshape(-1).split(_ROWS) for x in (y, mu, gamma)]
        found = [_scored(*block) for block in zip(*flat, strict=True)]
        value, by_mu, by_gamma = (torch.cat(column).view(y.shape) for column in zip(*found, strict=True))
        ctx.save_for_backward(y, mu, gamma, by_mu, by_gamma)
        return value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        y, mu, gamma, by_mu, by_gamma = ctx.saved_tensors
        if torch.is_grad_enabled():  # second derivatives are wanted
            slopes = torch.autograd.grad(_log_prob(y, mu, gamma).sum(), (mu, gamma), create_graph=True)
            return None, *(grad * slope for slope in slopes)
        return None, grad * by_mu, grad * by_gamma


def _scored(y: Tensor, mu: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    sums = double_poisson_sums(mu, gamma)
    dev = deviance(y, mu)
    value = (log_h_of_count(y) - gamma * dev - sums.log_total).clamp_(max=0.0)
    return value, gamma * (y - sums.mean) / mu, sums.deviance - dev


def _log_prob(y: Tensor, mu: Tensor, gamma: Tensor) -> Tensor:
    return log_h_of_count(y) - gamma * deviance(y, mu) - double_poisson_sums(mu, gamma).log_total


def double_poisson(y: Tensor, mu: Tensor, gamma: Tensor) -> Tensor:
    """log p(y), differentiable any number of times."""
    if mu.is_cuda and not torch.compiler.is_compiling():
        return _DoublePoisson.apply(y, mu, gamma)
    return _log_prob(y, mu, gamma)
