"""The Double Binomial's normaliser S and the moments that are its derivatives, exact to 1e-9.

    S(n, mu, gamma) = sum over k = 0..n of w(k),    w(k) = h(k) h(n - k) / h(n) exp(-gamma D(k)),

with h(k) = e^-k k^k / k! and D half the Binomial deviance. Three ways, each where it is both exact and cheap:

table  n below 64: all integers 0..n;
local  a window of at most 60 integers: each of them;
wide   all others: the integers next to 0 and to n one by one, and between them quadrature in asin(sqrt(k / n)), in
       which the distribution has about constant width. The cost does not depend on n.

Derivatives are moments: d log S / d mu = gamma n (E[K] - mu) / (mu (n - mu)), d log S / d gamma = -E[D], and those of
E[K] and E[D] are covariances. No autograd runs through a sum.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ddpn.distributions.dispatch import Case, by_case, is_host
from ddpn.distributions.double_poisson import weights
from ddpn.distributions.gradients import RowWise, barrier
from ddpn.distributions.quadrature import JOIN, PREFIX, gauss_legendre, prefix
from ddpn.distributions.rows import DEPTH
from ddpn.distributions.tables import counts

#: Sizes of the table: all integers 0..n with n below.
TABLES = (16, 32, 64)
#: Integers of a local window, of which four are a margin.
_LOCAL = 64
#: Nodes of the integral: over 16 standard deviations, as for the Double Poisson.
_NODES = 48
#: Newton steps to the ends of a window, from outside.
_STEPS = 3


class Nodes(NamedTuple):
    """Where to evaluate (rows, N): position, log w, D, and the weight of each node in the sum over the integers."""

    k: Tensor
    log_w: Tensor
    deviance: Tensor
    weight: Tensor | float


def deviance(k: Tensor, mu: Tensor, n: Tensor) -> Tensor:
    """D(k) = k log(k / mu) + (n - k) log((n - k) / (n - mu)), with no cancellation where k is close to mu."""
    return weights.deviance(k, mu) + weights.deviance(n - k, n - mu)


def log_base(k: Tensor, n: Tensor) -> Tensor:
    """log h(k) + log h(n - k) - log h(n) of integers: log of C(n, k) k^k (n - k)^(n - k) / n^n."""
    return weights.log_h_of_count(k) + weights.log_h_of_count(n - k) - weights.log_h_of_count(n)


def window(mu: Tensor, gamma: Tensor, n: Tensor, depth: float | Tensor = DEPTH) -> tuple[Tensor, Tensor]:
    """First and last position with gamma D <= depth, both from outside, within 0..n.

    With phi = asin(sqrt(k / n)), D >= n (phi - phi_mu)^2 (from Hellinger's distance) bounds both ends; D is convex in
    k, so Newton's method from there never passes them.
    """
    phi = torch.asin((mu / n).sqrt().clamp(max=1.0))
    reach = (depth / (gamma * n)).sqrt()
    low = n * torch.sin((phi - reach).clamp(min=0.0)).square()
    high = n * torch.sin((phi + reach).clamp(max=0.5 * math.pi)).square()
    target, tiny = depth / gamma, 1e-300
    for _ in range(_STEPS):
        low, high = (
            k - side * (deviance(k, mu, n) - target).clamp(min=0.0) / (side * _slope(k, mu, n)).clamp(min=tiny)
            for k, side in ((low, -1.0), (high, 1.0))
        )
    return low.clamp(min=0.0), torch.minimum(high, n)


def _slope(k: Tensor, mu: Tensor, n: Tensor) -> Tensor:
    """dD / dk, infinite at 0 and n."""
    return torch.log(k / mu) - torch.log((n - k) / (n - mu))


def _table(size: int, mu: Tensor, gamma: Tensor, n: Tensor, first: Tensor, last: Tensor) -> Nodes:
    """The integers 0..size-1, those above n with weight 0. No logarithm per cell, but for those of a lookup."""
    y = counts(size, mu.device)
    low, high = weights.count_table(size, mu.device)[2:]
    rest = (n.unsqueeze(1) - y).clamp(0.0, size - 1.0).long()
    log_mu, log_rest = mu.log().unsqueeze(1), torch.log(n - mu).unsqueeze(1)
    dev = high + high[rest] - y * log_mu - rest * log_rest
    top = low[n.clamp(0.0, size - 1.0).long()].unsqueeze(1)
    log_w = low + low[rest] - top - gamma.unsqueeze(1) * dev
    inside = y <= n.unsqueeze(1)
    return Nodes(y.expand_as(log_w), torch.where(inside, log_w, -torch.inf), torch.where(inside, dev, 0.0), 1.0)


def _at_integers(k: Tensor, mu: Tensor, gamma: Tensor, n: Tensor, weight: Tensor | float = 1.0) -> Nodes:
    """Integers k of which those outside 0..n count for nothing."""
    mu, gamma, n = mu.unsqueeze(1), gamma.unsqueeze(1), n.unsqueeze(1)
    inside, k = (k >= 0.0) & (k <= n), torch.minimum(k.clamp(min=0.0), n)
    dev = deviance(k, mu, n)
    return Nodes(k, torch.where(inside, log_base(k, n) - gamma * dev, -torch.inf), dev, weight)


def _local(mu: Tensor, gamma: Tensor, n: Tensor, first: Tensor, last: Tensor) -> Nodes:
    return _at_integers((first.floor() - 2.0).unsqueeze(1) + counts(_LOCAL, mu.device), mu, gamma, n)


def _wide(mu: Tensor, gamma: Tensor, n: Tensor, first: Tensor, last: Tensor) -> Nodes:
    """The integers next to 0 and to n, joined to an integral between the two, or to the ends of the window."""
    y, joined = prefix(mu.device)
    below = _at_integers(y.expand(len(mu), PREFIX), mu, gamma, n)
    above = _at_integers(n.unsqueeze(1) - y, mu, gamma, n)
    # Of a window that is clear of an end, nothing is left there.
    edge = torch.full_like(mu, JOIN - 0.5)
    used = [joined * (end < JOIN).unsqueeze(1) for end in (first, n - last)]
    inner = _inner(mu, gamma, n, torch.maximum(first, edge), torch.minimum(last, n - edge))
    k, log_w, dev = (torch.cat(part, dim=1) for part in zip(below[:3], above[:3], inner[:3], strict=True))
    return Nodes(k, log_w, dev, torch.cat([*used, torch.as_tensor(inner.weight)], dim=1))


def _inner(mu: Tensor, gamma: Tensor, n: Tensor, start: Tensor, end: Tensor) -> Nodes:
    """Positions and weights of the integral in phi, where dk = n sin(2 phi) dphi."""
    nodes, node_weights = gauss_legendre(_NODES, mu.device)
    low, high = (torch.asin((k / n).clamp(0.0, 1.0).sqrt()).unsqueeze(1) for k in (start, end))
    phi = torch.lerp(low.expand(-1, _NODES), high, nodes)
    mu, gamma, n = mu.unsqueeze(1), gamma.unsqueeze(1), n.unsqueeze(1)
    k, rest = n * torch.sin(phi).square(), n * torch.cos(phi).square()
    k, rest = k.clamp(min=12.0), rest.clamp(min=12.0)
    dev = weights.deviance(k, mu) + weights.deviance(rest, n - mu)
    base = weights.log_h(k) + weights.log_h(rest) - weights.log_h(n.clamp(min=12.0))
    return Nodes(k, base - gamma * dev, dev, (high - low).clamp(min=0.0) * node_weights * n * torch.sin(2.0 * phi))


def _by_regime(reduce: Any, mu: Tensor, gamma: Tensor, n: Tensor) -> tuple[Tensor, ...]:
    """`reduce` of the nodes that suit each row."""
    small = is_host(mu) and len(n) > 0 and bool(n.max() < TABLES[-1])
    first, last = (n, n) if small else window(mu, gamma, n)  # a table needs no window
    cases, low = [], 0
    for size in TABLES if is_host(mu) else TABLES[-1:]:
        cases.append(Case((n >= low) & (n < size), _reduced(reduce, partial(_table, size)), size))
        low = size
    local = last - first <= _LOCAL - 4
    cases.append(Case((n >= low) & local, _reduced(reduce, _local), _LOCAL))
    cases.append(Case((n >= low) & ~local, _reduced(reduce, _wide), 2 * PREFIX + _NODES))
    return by_case(cases, mu, gamma, n, first, last)


def _reduced(reduce: Any, make: Any) -> Any:
    return lambda *row: reduce(make(*row))


def _normalized(nodes: Nodes) -> tuple[Tensor, Tensor]:
    """log S, and every node's share of it."""
    peak = nodes.log_w.amax(dim=1, keepdim=True)
    w = (nodes.log_w - peak).exp() * nodes.weight
    total = w.sum(1, keepdim=True)
    return (peak + total.log()).squeeze(1), w / total


def _first(nodes: Nodes) -> tuple[Tensor, Tensor, Tensor]:
    log_total, w = _normalized(nodes)
    return log_total, (w * nodes.k).sum(1), (w * nodes.deviance).sum(1)


def _second(nodes: Nodes) -> tuple[Tensor, Tensor, Tensor]:
    _, w = _normalized(nodes)
    gap = nodes.k - (w * nodes.k).sum(1, keepdim=True)
    other = nodes.deviance - (w * nodes.deviance).sum(1, keepdim=True)
    return (w * gap * gap).sum(1), (w * gap * other).sum(1), (w * other * other).sum(1)


class _Sums(RowWise):
    """(log S, E[K], E[D]): log S differentiable twice, the moments once."""

    @staticmethod
    def forward(mu: Tensor, gamma: Tensor, n: Tensor) -> Any:
        return _by_regime(_first, mu, gamma, n)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(*inputs, *output[1:])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, g_log: Tensor | None, g_mean: Tensor | None, g_dev: Tensor | None) -> Any:
        mu, gamma, n, mean, dev = ctx.saved_tensors
        by_mu, by_gamma = torch.zeros_like(mu), torch.zeros_like(mu)
        unit = n / (mu * (n - mu))  # d logit(mu / n) / d mu
        if g_log is not None:
            if torch.is_grad_enabled():
                _, mean, dev = log_total_and_moments(mu, gamma, n)
            by_mu, by_gamma = g_log * gamma * (mean - mu) * unit, -g_log * dev
        if g_mean is not None or g_dev is not None:
            more = _moments_backward(mu, gamma, n, mean, unit, g_mean, g_dev)
            by_mu, by_gamma = by_mu + more[0], by_gamma + more[1]
        return by_mu, by_gamma, None


def _moments_backward(
    mu: Tensor, gamma: Tensor, n: Tensor, mean: Tensor, unit: Tensor, g_mean: Tensor | None, g_dev: Tensor | None
) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        variance, covariance, deviance_variance = _SecondMoments.apply(mu, gamma, n)
        by_mu, by_gamma = torch.zeros_like(mu), torch.zeros_like(mu)
        if g_mean is not None:
            by_mu, by_gamma = by_mu + g_mean * gamma * variance * unit, by_gamma - g_mean * covariance
        if g_dev is not None:
            by_mu = by_mu + g_dev * (gamma * covariance - (mean - mu)) * unit
            by_gamma = by_gamma - g_dev * deviance_variance
    name = "the second derivative of a Double Binomial's mean"
    parts = [g for g in (g_mean, g_dev) if g is not None]
    return barrier(name, by_mu, mu, gamma, *parts), barrier(name, by_gamma, mu, gamma, *parts)


class _SecondMoments(RowWise):
    """Var[K], Cov[K, D] and Var[D], without derivatives."""

    @staticmethod
    def forward(mu: Tensor, gamma: Tensor, n: Tensor) -> Any:
        return _by_regime(_second, mu, gamma, n)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output)


def log_total_and_moments(mu: Tensor, gamma: Tensor, n: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Differentiable log S, E[K] and E[D]. Shape: float64 vectors (rows,)."""
    return _Sums.apply(mu, gamma, n)


def second_moments(mu: Tensor, gamma: Tensor, n: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Var[K], Cov[K, D] and Var[D], without derivatives."""
    return _SecondMoments.apply(mu, gamma, n)
