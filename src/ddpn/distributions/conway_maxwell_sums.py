"""The Conway-Maxwell-Poisson's normaliser, its moments, and the rate that gives it a mean, exact to 1e-9.

With m = lambda^(1 / nu), p(y) = exp(nu R(y)) / S with R(y) = y log m - m - log y! = log h(y) - D(y; m), where
h(y) = e^-y y^y / y! and D is half the Poisson deviance. Three ways to sum, each where it is both exact and cheap:

table  the window ends below 64: all integers;
local  a window of at most 54 integers: each of them;
wide   all others: the first integers one by one, the rest by quadrature (`quadrature.py`).

The rate of a mean, which has no closed form, is found by Newton's method in log m between brackets. Derivatives in the
mean and nu are moments: d log m / d mu = 1 / (nu Var[Y]), d log m / d nu = -Cov[Y, R] / (nu Var[Y]).
"""

import math
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ddpn.distributions.dispatch import Case, by_case, is_host
from ddpn.distributions.double_poisson import weights
from ddpn.distributions.quadrature import JOIN, PREFIX, between, prefix
from ddpn.distributions.rows import DEPTH, MARGIN
from ddpn.distributions.tables import counts

TABLES = (16, 32, 64)
_LOCAL = 64
#: Integers beside a window: where nu is large, h(y)^nu moves the mass of a narrow distribution by less than that.
_BESIDE = 5.0
#: Nodes over 16 standard deviations, as for the Double Poisson.
_NODES = 40
#: Steps to the rate: so many at most, and always the second number where values cannot be read.
_STEPS, _STEPS_UNSEEN = 60, 12
#: Errors of the mean that end the search: in standard deviations, and relative to the mean.
_TOLERANCE, _ROUNDING = 1e-11, 1e-15


class Solved(NamedTuple):
    """log m, log S, E[R], Var[Y] and Cov[Y, R] of the distribution with a given mean."""

    log_m: Tensor
    log_total: Tensor
    kernel: Tensor
    variance: Tensor
    covariance: Tensor


class Nodes(NamedTuple):
    """Where to evaluate (rows, N): position, R, and the weight of each node in the sum over the integers."""

    y: Tensor
    kernel: Tensor
    weight: Tensor | float


@cache
def _log_factorials(n: int, device: torch.device) -> Tensor:
    with torch.inference_mode(False):
        return torch.lgamma(counts(n, device) + 1.0)


def kernel(y: Tensor, log_m: Tensor, log_h: Tensor) -> Tensor:
    """R(y), by the deviance where m is above 1: large counts keep their digits."""
    large = log_h - weights.deviance(y, log_m.clamp(min=0.0).exp())
    small = log_h + y * (1.0 + log_m.clamp(max=0.0) - y.clamp(min=1.0).log()) - log_m.clamp(max=0.0).exp()
    return torch.where(log_m > 0.0, large, small)


def upper_end(log_m: Tensor, nu: Tensor, depth: float | Tensor = DEPTH) -> Tensor:
    """The y > m with nu D(y; m) = depth, from above: Newton's method in sqrt(y) on a convex function, from a bound.

    D(y; m) >= (sqrt(y) - sqrt(m))^2, and nu D(y; m) >= -y log lambda for y >= e, which is closer where nu is small.
    """
    target, m = depth / nu, log_m.exp()
    by_rate = (depth / (-nu * log_m).clamp(min=1e-300)).clamp(min=math.e).sqrt()
    s = torch.minimum(m.sqrt() + target.sqrt(), by_rate)
    for _ in range(5):
        square = s * s
        ratio = square.log() - log_m
        s = s - (m - target + square * (ratio - 1.0)).clamp(min=0.0) / (2.0 * s * ratio).clamp(min=1e-300)
    return s * s


def window(log_m: Tensor, nu: Tensor, depth: float | Tensor = DEPTH) -> tuple[Tensor, Tensor]:
    """First and last position that matter."""
    first = weights.lower_end(log_m.exp().clamp(min=1e-300), nu, depth)
    return (first - 1.0).clamp(min=0.0), upper_end(log_m, nu, depth) + 1.0


def _table(size: int, log_m: Tensor, nu: Tensor, first: Tensor, last: Tensor) -> Nodes:
    y = counts(size, log_m.device)
    kernels = torch.addcmul(-_log_factorials(size, log_m.device), log_m.unsqueeze(1), y) - log_m.exp().unsqueeze(1)
    return Nodes(y.expand_as(kernels), kernels, 1.0)


def _local(log_m: Tensor, nu: Tensor, first: Tensor, last: Tensor) -> Nodes:
    y = (first.floor() - _BESIDE).clamp(min=0.0).unsqueeze(1) + counts(_LOCAL, log_m.device)
    return Nodes(y, kernel(y, log_m.unsqueeze(1), weights.log_h_of_count(y)), 1.0)


def _wide(log_m: Tensor, nu: Tensor, first: Tensor, last: Tensor) -> Nodes:
    y, weight = between(first.clamp(min=JOIN - 0.5), last, _NODES)
    head = _table(PREFIX, log_m, nu, first, last)
    joined = prefix(log_m.device)[1] * (first < JOIN).unsqueeze(1)
    inner = kernel(y, log_m.unsqueeze(1), weights.log_h(y))
    return Nodes(*(torch.cat(pair, dim=1) for pair in ((head.y, y), (head.kernel, inner), (joined, weight))))


def _by_regime(reduce: Any, log_m: Tensor, nu: Tensor) -> tuple[Tensor, ...]:
    """`reduce` of nu and the nodes that suit each row."""
    first, last = window(log_m, nu)
    cases, low = [], 0.0
    for size in TABLES if is_host(nu) else TABLES[-1:]:
        cases.append(Case((last >= low) & (last < size - MARGIN), _reduced(reduce, partial(_table, size)), size))
        low = size - MARGIN
    local = last - first < _LOCAL - 2.0 * _BESIDE
    beyond = ~(last < low)  # also where NaN, which must stay one
    cases.append(Case(beyond & local, _reduced(reduce, _local), _LOCAL))
    cases.append(Case(beyond & ~local, _reduced(reduce, _wide), PREFIX + _NODES))
    return by_case(cases, log_m, nu, first, last)


def _reduced(reduce: Any, make: Any) -> Any:
    return lambda log_m, nu, *ends: reduce(log_m, nu, make(log_m, nu, *ends))


def _shares(nu: Tensor, nodes: Nodes) -> tuple[Tensor, Tensor]:
    """log S, and every node's share of it."""
    log_w = nu.unsqueeze(1) * nodes.kernel
    peak = log_w.amax(dim=1, keepdim=True)
    w = (log_w - peak).exp_().mul_(nodes.weight)
    total = w.sum(1, keepdim=True)
    return (peak + total.log()).squeeze(1), w / total


def _moments(log_m: Tensor, nu: Tensor, nodes: Nodes) -> tuple[Tensor, ...]:
    """E[Y] and the fields of `Solved` from log S on."""
    log_total, w = _shares(nu, nodes)
    mean, kernels = (w * nodes.y).sum(1), (w * nodes.kernel).sum(1)
    gap = nodes.y - mean.unsqueeze(1)
    pull = w * gap
    return mean, log_total, kernels, (pull * gap).sum(1), (pull * (nodes.kernel - kernels.unsqueeze(1))).sum(1)


def _third(log_m: Tensor, nu: Tensor, nodes: Nodes) -> tuple[Tensor, ...]:
    """Var[R] and the third central moments of Y, of Y twice with R, and of Y with R twice."""
    _, w = _shares(nu, nodes)
    y, r = (x - (w * x).sum(1, keepdim=True) for x in (nodes.y, nodes.kernel))
    return (w * r * r).sum(1), (w * y**3).sum(1), (w * y * y * r).sum(1), (w * y * r * r).sum(1)


def third_moments(log_m: Tensor, nu: Tensor) -> tuple[Tensor, ...]:
    """What the derivatives of `Solved` need."""
    return _by_regime(_third, log_m, nu)


def _guess(mu: Tensor, nu: Tensor) -> Tensor:
    """log m by the mean's expansion m - (nu - 1) / (2 nu) where that is close; else between the limits' rates.

    nu = 0 is the Geometric with lambda = mu / (1 + mu), nu = 1 the Poisson, nu = infinity the Bernoulli.
    """
    by_mean = (mu + 0.5 - 0.5 / nu).clamp(min=1e-300).log()
    to_geometric = (mu.log() - (1.0 - nu) * torch.log1p(mu)) / nu
    to_bernoulli = (mu.log() - (1.0 - 1.0 / nu) * torch.log1p(-mu.clamp(max=1.0 - 2**-53))) / nu
    wide = torch.where(2.0 * nu * mu > 3.0, by_mean, to_geometric)
    narrow = torch.where(mu < 1.0, torch.minimum(by_mean, to_bernoulli), by_mean)
    return torch.where(nu < 1.0, wide, narrow)


def solve(mu: Tensor, nu: Tensor) -> Solved:
    """The distribution with mean mu; float64 vectors, no autograd.

    Newton's method for log E[Y], which is increasing in log m; a step that leaves the bracket is a bisection. On a CPU
    rows that are done are left out of further steps.
    """
    log_m = _guess(mu, nu)
    state = [log_m, *_by_regime(_moments, log_m, nu), torch.full_like(mu, -torch.inf), torch.full_like(mu, torch.inf)]
    if not is_host(mu):
        for _ in range(_STEPS_UNSEEN):
            state = _step(mu, nu, *state)
        return Solved(state[0], *state[2:6])
    for _ in range(_STEPS):
        mean, variance = state[1], state[4]
        left = ((mean - mu).abs() > _TOLERANCE * variance.sqrt() + _ROUNDING * mu).nonzero().squeeze(1)
        if not len(left):
            break
        if len(left) == len(mu):
            state = _step(mu, nu, *state)
            continue
        for all_rows, some in zip(state, _step(*(x[left] for x in (mu, nu, *state))), strict=True):
            all_rows.index_copy_(0, left, some)
    return Solved(state[0], *state[2:6])


def _step(
    mu: Tensor,
    nu: Tensor,
    log_m: Tensor,
    mean: Tensor,
    log_total: Tensor,
    kernels: Tensor,
    variance: Tensor,
    covariance: Tensor,
    low: Tensor,
    high: Tensor,
) -> list[Tensor]:
    """The next log m with its moments, and the bracket."""
    gap = mean - mu
    low, high = torch.where(gap < 0.0, log_m, low), torch.where(gap > 0.0, log_m, high)
    step = -torch.log1p(gap / mu) * mean / (nu * variance).clamp(min=1e-300)
    # Where the variance is tiny the slope is no guide: at most a factor of e^2 in lambda at a time.
    new = log_m + torch.maximum(torch.minimum(step, 2.0 / nu), -2.0 / nu)
    middle = 0.5 * (low + high)
    log_m = torch.where((new > low) & (new < high) | ~torch.isfinite(middle), new, middle)
    return [log_m, *_by_regime(_moments, log_m, nu), low, high]
