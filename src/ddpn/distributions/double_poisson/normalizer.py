"""log c(mu, gamma) of the Double Poisson and the moments that are its derivatives, exact to 1e-9.

    c(mu, gamma) = sqrt(gamma) sum_y h(y) exp(-gamma D(y; mu))

Four ways, each where it is both exact and cheap:

series  gamma mu large and the distribution wide: `series.py`, no sum at all;
table   the window ends below 128, or 64 where narrow: all integers, their log weights by one matrix product;
local   narrow and far from 0: the integers around mu;
wide    reaches 0 and far beyond 128: the first integers one by one, the rest by quadrature (`quadrature.py`).

Derivatives are moments (no autograd through sums): with Z ~ DP(mu, gamma),
d log c / d log mu = gamma (E[Z] - mu) and d log c / d log gamma = 1/2 - gamma E[D]; second ones are covariances.
"""

import math
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ddpn.distributions.dispatch import Case, by_case, constant, in_blocks, is_host
from ddpn.distributions.double_poisson import cuda_kernel, cuda_scores, series, weights
from ddpn.distributions.quadrature import JOIN, PREFIX, between, gauss_legendre, prefix
from ddpn.distributions.rows import DEPTH, MARGIN
from ddpn.distributions.special import HALF_LOG_TWO_PI

#: Sizes of tables that other sums over the integers share; on a GPU the largest decides what is called wide.
TABLES = (16, 32, 64)
#: On a CPU sizes are multiples of the first, up to the second: there quadrature takes less time.
_STEP, _LARGEST = 8, 128
#: So many cells of a table take as long as another table for some of the rows.
_CALL = 20_000
#: From so many rows on, closer ends of windows take less time than the cells that they save.
_MANY = 8192
#: Up to so many distributions share one table.
_FEW = 64
_LOCAL = 10
_NODES = 40
_JOIN_T = (JOIN - 0.5) ** 0.5
#: Sums of weights below this may have lost digits.
_TINY = 1e-200
_SQRT_TWO_OVER_PI = (2.0 / math.pi) ** 0.5


class Moments(NamedTuple):
    """Mean, variance and what their derivatives need: D is the deviance at Z, third the central moment."""

    mean: Tensor
    variance: Tensor
    deviance: Tensor
    covariance: Tensor
    deviance_variance: Tensor
    third: Tensor
    square_deviance: Tensor


class Nodes(NamedTuple):
    """Where to evaluate (rows, n): position, log w, D, and the weight of each node in the sum over the integers."""

    y: Tensor
    log_w: Tensor
    deviance: Tensor
    weight: Tensor


def table_nodes(mu: Tensor, gamma: Tensor, n: int) -> Nodes:
    """The integers 0..n-1."""
    y = weights.count_table(n, mu.device)[1]
    log_w = weights.log_weight_table(mu, gamma, n) - (gamma * mu).unsqueeze(1)
    y_log_y_minus_y = -weights.count_table(n, mu.device)[0]
    dev = mu.unsqueeze(1) + y_log_y_minus_y - y * mu.log().unsqueeze(1)
    return Nodes(y.expand_as(log_w), log_w, dev, torch.ones_like(y).expand_as(log_w))


def stirling_nodes(y: Tensor, weight: Tensor, mu: Tensor, gamma: Tensor) -> Nodes:
    """Any positions y >= 12."""
    dev = weights.deviance(y, mu.unsqueeze(1))
    return Nodes(y, torch.addcmul(weights.log_h(y), gamma.unsqueeze(1), dev, value=-1.0), dev, weight)


def local_nodes(mu: Tensor, gamma: Tensor, end: Tensor) -> Nodes:
    """The 21 integers around mu: beyond 8.7 standard deviations where the distribution is narrow."""
    y = (mu.round().unsqueeze(1) + _offsets(mu.device)).clamp(min=12.0)
    return stirling_nodes(y, torch.ones_like(y), mu, gamma)


def wide_nodes(mu: Tensor, gamma: Tensor, end: Tensor) -> Nodes:
    """0..15 exactly, joined to an integral up to the end of the window."""
    y, weight = between(
        torch.full_like(mu, JOIN - 0.5), weights.upper_end(mu, gamma, DEPTH, steps=2, start=end), _NODES
    )
    head, tail = table_nodes(mu, gamma, PREFIX), stirling_nodes(y, weight, mu, gamma)
    joined = head._replace(weight=prefix(mu.device)[1].expand_as(head.y))
    return Nodes(*(torch.cat(pair, dim=1) for pair in zip(joined, tail, strict=True)))


def by_regime(methods: dict[str, Any], mu: Tensor, gamma: Tensor) -> tuple[Tensor, ...]:
    """Sort rows into series, table, local and wide; `methods` says what to do with each, and may leave out table."""
    by_series = series.applies(mu, gamma)
    rest = partial(_by_sum, methods)
    if is_host(mu) and not by_series.any():
        return in_blocks(rest, 8, mu, gamma)
    return by_case([Case(by_series, methods["series"], 24), Case(~by_series, rest, 8)], mu, gamma)


def _by_sum(methods: dict[str, Any], mu: Tensor, gamma: Tensor) -> tuple[Tensor, ...]:
    on_host, has_tables = is_host(mu), "table" in methods
    # A closer end pays for many rows only.
    end = weights.upper_end(mu, gamma, DEPTH, steps=3 if on_host and len(mu) > _MANY else 1)
    narrow = gamma * mu >= series.MIN_K
    # A table loses digits to large gamma y log y.
    reach = torch.where(narrow & (end >= TABLES[-1] - MARGIN), torch.inf, end)
    sizes, others = _table_sizes(reach) if on_host and has_tables else (list(TABLES[-1:] if has_tables else ()), True)
    if len(sizes) == 1 and not others:
        return in_blocks(methods["table"](sizes[0]), sizes[0], mu, gamma, end)
    far = reach > ((_LARGEST if on_host else TABLES[-1]) - MARGIN if has_tables else -1.0)
    found, low = [], 0.0
    for n in sizes:
        # A row at the edge of a step may have been counted on either side of it.
        upto = ~far if n == sizes[-1] else reach < n - MARGIN
        found.append(Case((reach >= low) & upto, methods["table"](n), n))
        low = n - MARGIN
    if others:
        found.append(Case(far & narrow, methods["local"], 2 * _LOCAL + 1))
        found.append(Case(far & ~narrow, methods["wide"], PREFIX + _NODES))
    return by_case(found, mu, gamma, end)


def _table_sizes(reach: Tensor) -> tuple[list[int], bool]:
    """Sizes of the tables that sum rows up to `reach` in the least time, increasing, and if rows are left over."""
    if 0 < len(reach) <= _FEW:
        furthest = reach.max().item()
        return [TABLES[-1] if furthest < TABLES[-1] - MARGIN else _LARGEST], not furthest <= _LARGEST - MARGIN
    in_step = torch.histc(reach, _LARGEST // _STEP, -MARGIN, _LARGEST - MARGIN).tolist()
    upto = [0, *(int(x) for x in np.cumsum(in_step))]
    sizes = [upto.index(upto[-1])]
    while sizes[0]:
        saved = [upto[i] * (sizes[0] - i) * _STEP for i in range(sizes[0])]
        if max(saved) < _CALL:
            break
        sizes.insert(0, saved.index(max(saved)))
    return [_STEP * n for n in sizes if n], upto[-1] < len(reach) or not upto[-1]


def _first_of_series(mu: Tensor, gamma: Tensor) -> tuple[Tensor, ...]:
    value, m, g = series.log_normalizer(mu, gamma, order=1)
    return value, mu + m / gamma, (0.5 - g) / gamma


@cache
def _columns(n: int, device: torch.device) -> Tensor:
    """1, y and y log y for y = 0..n-1: what a table's weights are summed against."""
    _, y, _, y_log_y = weights.count_table(n, device).unbind()
    with torch.inference_mode(False):
        return torch.stack([torch.ones_like(y), y, y_log_y], dim=1)


def _first_of_table(n: int) -> Any:
    def method(mu: Tensor, gamma: Tensor, end: Tensor) -> tuple[Tensor, ...]:
        log_mu, columns = mu.log(), _columns(n, mu.device)
        log_total: Tensor | None = None
        if is_host(mu):
            total, sum_y, sum_y_log_y = (weights.log_weights(mu, gamma, log_mu, n).exp_() @ columns).unbind(1)
            # Where no count is close to mu, measured by gamma, weights are relative to the largest.
            log_total = total.log() if total.min() >= _TINY else None
        if log_total is None:
            log_w = weights.log_weights(mu, gamma, log_mu, n)
            peak = log_w.amax(dim=1, keepdim=True)
            total, sum_y, sum_y_log_y = (log_w.sub_(peak).exp_() @ columns).unbind(1)
            log_total = peak.squeeze(1) + total.log()
        mean = sum_y / total
        return log_total.add_(gamma.log(), alpha=0.5), mean, sum_y_log_y / total + mu - mean * (1.0 + log_mu)

    return method


def _first_of_local(mu: Tensor, gamma: Tensor, end: Tensor) -> tuple[Tensor, ...]:
    """As `local_nodes`, spelled out for speed: gamma D = (k + k x) log(1 + x) - k x, k = gamma mu, x = y / mu - 1."""
    k = (gamma * mu).unsqueeze(1)
    y = (mu.round().unsqueeze(1) + _offsets(mu.device)).clamp_(min=12.0)
    x = (y * torch.reciprocal(mu).unsqueeze(1)).sub_(1.0)
    u = torch.log1p(x)
    kx = x.mul_(k)
    scaled_dev = torch.addcmul(kx.neg(), kx + k, u)
    log_w = weights.minus_stirling_error(u.mul_(-0.5).sub_(scaled_dev), y)
    # No count beats the one next to mu by more than a nat.
    peak = log_w[:, _LOCAL : _LOCAL + 1].clone()
    w = log_w.sub_(peak).exp_()
    total = w.sum(1)
    log_c = 0.5 * (gamma / mu).log() - HALF_LOG_TWO_PI + peak.squeeze(1) + total.log()
    return log_c, y.mul_(w).sum(1) / total, scaled_dev.mul_(w).sum(1) / (total * gamma)


@cache
def _offsets(device: torch.device) -> Tensor:
    return constant(np.arange(-_LOCAL, _LOCAL + 1), device)


@cache
def _joined_columns(device: torch.device) -> Tensor:
    """`_columns` of the first integers, with the weights that join them to an integral."""
    with torch.inference_mode(False):
        return _columns(PREFIX, device) * prefix(device)[1].unsqueeze(1)


def _first_of_wide(mu: Tensor, gamma: Tensor, end: Tensor) -> tuple[Tensor, ...]:
    """As `wide_nodes`, spelled out for speed: the Jacobian 2t cancels h's 1/sqrt(y), and no weight can underflow."""
    nodes, node_weights = gauss_legendre(_NODES, mu.device)
    log_mu = mu.log()
    head = (weights.log_weight_table(mu, gamma, PREFIX) - (gamma * mu).unsqueeze(1)).exp_()
    head_total, head_y, head_y_log_y = (head @ _joined_columns(mu.device)).unbind(1)
    length = weights.upper_end(mu, gamma, DEPTH, steps=2, start=end).sqrt() - _JOIN_T
    t = (length.unsqueeze(1) * nodes).add_(_JOIN_T)
    y = t.mul_(t)
    dev = torch.addcmul(mu.unsqueeze(1), y, torch.log(y).sub_((1.0 + log_mu).unsqueeze(1)))
    w = weights.minus_stirling_error(dev * -gamma.unsqueeze(1), y).exp_()
    scale = _SQRT_TWO_OVER_PI * length
    tail_total, tail_y, tail_dev = (scale * (f @ node_weights) for f in (w, y.mul_(w), dev.mul_(w)))
    total = head_total + tail_total
    head_dev = mu * head_total - head_y * (1.0 + log_mu) + head_y_log_y
    return 0.5 * gamma.log() + total.log(), (head_y + tail_y) / total, (head_dev + tail_dev) / total


_FIRST_FAR = {"series": _first_of_series, "local": _first_of_local, "wide": _first_of_wide}
_FIRST = {**_FIRST_FAR, "table": _first_of_table}


def first_moments(mu: Tensor, gamma: Tensor, far: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """log c, E[Z] and E[D] a row; float64 vectors, no autograd (see `likelihood.py`).

    `far` says that all windows end beyond the largest table.
    """
    if mu.is_cuda and (found := cuda_kernel.first_moments(mu, gamma)) is not None:
        return found
    log_c, mean, dev = by_regime(_FIRST_FAR if far else _FIRST, mu, gamma)
    return log_c, mean, dev


def _second_of_series(mu: Tensor, gamma: Tensor) -> tuple[Tensor, ...]:
    s = series.LogNormalizer(*series.log_normalizer(mu, gamma, order=2))
    square = gamma * gamma
    variance = mu / gamma + s.mm / square
    return Moments(
        mean=mu + s.m / gamma,
        variance=variance,
        deviance=(0.5 - s.g) / gamma,
        covariance=(s.m - s.mg) / square,
        deviance_variance=(0.5 - s.g + s.gg) / square,
        third=mu / square + s.mmm / (square * gamma),
        square_deviance=(mu / gamma + (2.0 * s.mm - s.mmg) / square) / gamma,
    )


def _second_of_nodes(make: Any) -> Any:
    def method(mu: Tensor, gamma: Tensor, end: Tensor) -> tuple[Tensor, ...]:
        y, log_w, dev, weight = make(mu, gamma, end)
        # Centred on the mode, so that a law with almost all its mass there keeps its tiny variance.
        peak, at = log_w.amax(dim=1, keepdim=True), log_w.argmax(dim=1, keepdim=True)
        w = (log_w - peak).exp_().mul_(weight)
        w = w / w.sum(1, keepdim=True)
        mode, mode_dev = y.gather(1, at), dev.gather(1, at)
        dy, ddev = y - mode, dev - mode_dev
        shift, shift_dev = (w * dy).sum(1), (w * ddev).sum(1)
        second = (w * dy * dy).sum(1)
        variance = second - shift**2
        covariance = (w * dy * ddev).sum(1) - shift * shift_dev
        square_dev = (w * dy * dy * ddev).sum(1) - second * shift_dev
        return Moments(
            mean=mode.squeeze(1) + shift,
            variance=variance,
            deviance=mode_dev.squeeze(1) + shift_dev,
            covariance=covariance,
            deviance_variance=(w * ddev * ddev).sum(1) - shift_dev**2,
            third=(w * dy**3).sum(1) - 3.0 * shift * second + 2.0 * shift**3,
            square_deviance=square_dev - 2.0 * shift * covariance,
        )

    return method


_SECOND = {
    "series": _second_of_series,
    "table": lambda n: _second_of_nodes(lambda mu, gamma, end: table_nodes(mu, gamma, n)),
    "local": _second_of_nodes(local_nodes),
    "wide": _second_of_nodes(wide_nodes),
}


def moments(mu: Tensor, gamma: Tensor) -> Moments:
    """Mean, variance and the covariances behind second derivatives; float64 vectors, no autograd."""
    return Moments(*by_regime(_SECOND, mu, gamma))


def _spread_of_series(mu: Tensor, gamma: Tensor) -> tuple[Tensor, ...]:
    s = series.LogNormalizer(*series.log_normalizer(mu, gamma, order=2))
    return mu + s.m / gamma, mu / gamma + s.mm / (gamma * gamma)


def _spread_of_nodes(y: Tensor, log_w: Tensor, weight: Tensor | None) -> tuple[Tensor, ...]:
    """Mean and variance around the mode, as in `_second_of_nodes`."""
    peak, at = log_w.max(dim=1, keepdim=True)
    w = (log_w - peak).exp_()
    w = w if weight is None else w.mul_(weight)
    mode = y.expand_as(w).gather(1, at)
    gap, total = y - mode, w.sum(1)
    w.mul_(gap)
    shift = w.sum(1) / total
    return mode.squeeze(1) + shift, w.mul_(gap).sum(1) / total - shift**2


def _spread_of_table(n: int) -> Any:
    def method(mu: Tensor, gamma: Tensor, end: Tensor) -> tuple[Tensor, ...]:
        y = weights.count_table(n, mu.device)[1].unsqueeze(0)
        return _spread_of_nodes(y, weights.log_weight_table(mu, gamma, n), None)

    return method


def _spread_of(make: Any) -> Any:
    def method(mu: Tensor, gamma: Tensor, end: Tensor) -> tuple[Tensor, ...]:
        at = make(mu, gamma, end)
        return _spread_of_nodes(at.y, at.log_w, at.weight)

    return method


_SPREAD = {
    "series": _spread_of_series,
    "table": _spread_of_table,
    "local": _spread_of(local_nodes),
    "wide": _spread_of(wide_nodes),
}


def mean_variance(mu: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance alone; float64 vectors, no autograd."""
    if mu.is_cuda and (found := cuda_scores.mean_variance(mu, gamma)) is not None:
        return found
    few = is_host(mu) and 0 < len(mu) <= _FEW and not bool(series.applies(mu, gamma).any())
    if few and weights.upper_end(mu, gamma, DEPTH, steps=1).max().item() < TABLES[-1] - MARGIN:
        # The largest table for all takes less time than sorting so few into smaller ones, and gives the same.
        mean, variance = _spread_of_table(TABLES[-1])(mu, gamma, mu)
        return mean, variance
    mean, variance = by_regime(_SPREAD, mu, gamma)
    return mean, variance
