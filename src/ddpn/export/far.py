"""Quantiles of rows whose counts reach beyond the grid: by Simpson's rule in log y instead of a sum over all counts.

From 31.5 on, or from where the first component begins, the pmf is continued smoothly between the counts, and P(Z <= y)
is its integral up to y + 1/2. Counts below come from the grid. Rows with a component that is too narrow for the nodes
keep NaN.
"""

from typing import NamedTuple

import numpy as np

from ddpn.distributions.kernels.placing import DEPTH
from ddpn.distributions.kernels.scalar import HALF_LOG_TWO_PI, LOG_H
from ddpn.export.families import Family, log1p
from ddpn.export.graph import Graph, Value

#: Where integration begins at the earliest: half a count after the last that the grid gives.
FIRST = 31.5
#: Pairs of intervals between nodes.
_PAIRS = 2**14
#: Standard deviations below the mean that hold all mass: lower tails are lighter than those of a normal distribution.
#: That of a Negative Binomial is also below (e y / mu)^(1 / alpha).
_BELOW = 9.0
#: Nodes per standard deviation of the narrowest component, in log y: Simpson's rule is then off by 4e-8 of its mass.
_FINE = 20.0
#: Components of a smaller weight do not matter.
_NEGLIGIBLE = 1e-10
#: Newton steps inside a pair of intervals, and steps of the recurrence before Stirling's series.
_STEPS, _SHIFT = 6, 16


class _Nodes(NamedTuple):
    """Positions y, their logarithms u, (1, N), and the distance of neighbours in u, (1, 1)."""

    y: Value
    u: Value
    step: Value

    def integral(self, values: Value) -> Value:
        """The integral over y by Simpson's rule. Shape: (1, C, N) -> (1, C, 1)."""
        parts = np.tile([2.0, 4.0], _PAIRS)
        parts[0] = 1.0
        return (values * self.y * np.append(parts, 1.0)).sum(2) * (self.step / 3.0)


class FarRow:
    """The distribution of one row beyond the grid.

    `share` is the weight of every component in the mixture, `end` the last count that matters, (1, 1), and `below` is
    P(Z <= 31), (1, 1). Shape of the parameters of a family: (1, C).
    """

    def __init__(self, graph: Graph, families: list[Family], share: np.ndarray, end: Value, below: Value) -> None:
        self._graph, starts, narrowest = graph, [], []
        weights = [family.weight * share[family.outer][None] for family in families]
        for family, weight in zip(families, weights, strict=True):
            used, relative = weight > _NEGLIGIBLE, _spread(family) / family.log_mu.exp()
            starts.append(_least(graph.where(used, _start(family, relative), np.inf)))
            narrowest.append(_least(graph.where(used, relative, np.inf)))
        start = _least(graph.concat(starts))
        self._step = (end.log() - start.log()) / (2.0 * _PAIRS)
        is_fine = _least(graph.concat(narrowest)) >= self._step * _FINE
        self._u = self._step * np.arange(2.0 * _PAIRS + 1.0)[None] + start.log()
        nodes = _Nodes(self._u.exp(), self._u, self._step)
        density = None
        for family, weight in zip(families, weights, strict=True):
            own = weight.unsqueezed(1).op("MatMul", _smooth_pmf(graph, family, nodes))
            density = own if density is None else density + own
        assert density is not None
        f = density.reshaped(1, -1) * nodes.y
        self._left, self._middle, self._right = (f.take(np.arange(_PAIRS) * 2 + i) for i in range(3))
        mass = (self._left + self._middle * 4.0 + self._right) * self._step / 3.0
        self._cdf = graph.where(is_fine, mass.op("CumSum", graph.constant(1)) + below, np.nan)

    def quantile(self, level: Value) -> Value:
        """The smallest count up to which there is so much mass; NaN where it is not known. Shape: (1, 1) each."""
        graph = self._graph
        place = (self._cdf < level).cast("i").sum(1)
        inside = graph.where(place < _PAIRS, place, _PAIRS - 1).reshaped(-1)
        a, b, c, end = (each.take(inside) for each in (self._left, self._middle, self._right, self._cdf))
        # The integral of the parabola through three nodes, in units of the step: a t + b1 t^2 / 2 + b2 t^3 / 3.
        slope, bend = b * 2.0 - a * 1.5 - c * 0.5, (a - b * 2.0 + c) * 0.5
        wanted = (level - end) / self._step + (a + b * 4.0 + c) / 3.0
        t = wanted / b
        for _ in range(_STEPS):
            value = ((bend / 3.0 * t + slope * 0.5) * t + a) * t
            t = (t - (value - wanted) / ((bend * t + slope) * t + a)).clip(0.0, 2.0)
        y = (self._u.take(inside * 2) + t * self._step).exp()
        return graph.where(self._cdf.max(1) >= level, (y - 0.5).op("Ceil"), np.nan)


def _least(values: Value) -> Value:
    """The smallest element of each row. Shape: (rows, n) -> (rows, 1)."""
    return -(-values).max(1)


def _start(family: Family, relative: Value) -> Value:
    """A count before which there is next to no mass; `relative` is the standard deviation as a share of the mean."""
    share = 1.0 - relative * _BELOW
    if family.name == "negative_binomial":
        assert family.log_shape is not None
        by_power = (family.log_shape.exp() * -DEPTH - 1.0).exp()
        share = relative.graph.where(share > by_power, share, by_power)
    return (family.log_mu.exp() * share).clip(FIRST, np.inf)


def _spread(family: Family) -> Value:
    """About the standard deviation. Shape: (rows, C)."""
    mu = family.log_mu.exp()
    if family.log_shape is None:
        return mu.sqrt()
    shape = family.log_shape.exp()
    return (mu / shape).sqrt() if family.name == "double_poisson" else (mu + shape * mu * mu).sqrt()


def _smooth_pmf(graph: Graph, family: Family, nodes: _Nodes) -> Value:
    """The pmf at real positions of at least 31.5. Shape: (1, C, N)."""
    if family.name == "negative_binomial":
        log_p, log_zero = _log_negative_binomial(graph, family, nodes.y, nodes.u)
        pmf, zero = log_p.exp(), log_zero.exp()
    else:
        log_h = nodes.u * -0.5 - HALF_LOG_TWO_PI - _stirling_error(nodes.y)
        log_weight = _log_weight(family, nodes.y, nodes.u, log_h)
        if family.name == "poisson":
            pmf, zero = log_weight.exp(), (-family.log_mu.exp()).exp().unsqueezed(2)
        else:
            pmf, zero = _normalised(graph, family, nodes, log_weight)
    return pmf / graph.where(graph.constant(family.positive[None, :, None]), 1.0 - zero, 1.0)


def _log_weight(family: Family, y: Value, log_y: Value, log_h: Value) -> Value:
    """log h(y) - gamma D(y; mu), with gamma = 1 for a Poisson. Shape: (1, C, N)."""
    log_mu = family.log_mu.unsqueezed(2)
    deviance = (log_y - log_mu) * y + (log_mu.exp() - y)
    return log_h - (deviance if family.log_shape is None else family.log_shape.exp().unsqueezed(2) * deviance)


def _normalised(graph: Graph, family: Family, nodes: _Nodes, log_weight: Value) -> tuple[Value, Value]:
    """The pmf of a Double Poisson at the nodes, and at 0: its weights, divided by their sum and integral."""
    y = np.arange(np.ceil(FIRST))
    counts = (graph.constant(each[None]) for each in (y, np.log(np.maximum(y, 1.0)), LOG_H[: len(y)]))
    first = _log_weight(family, *counts)
    top = graph.concat([log_weight.max(2), first.max(2)], axis=2).max(2)
    weight, before = (log_weight - top).exp(), (first - top).exp()
    total = nodes.integral(weight) + before.sum(2)
    return weight / total, before.take([0], axis=2) / total


def _log_negative_binomial(graph: Graph, family: Family, y: Value, u: Value) -> tuple[Value, Value]:
    """log p(y) by Stirling's series, as in `ddpn.distributions.negative_binomial`, and log p(0)."""
    assert family.log_shape is not None
    mu, alpha = family.log_mu.exp().unsqueezed(2), family.log_shape.exp().unsqueezed(2)
    r = 1.0 / alpha
    n, gap = y + r, y - mu
    saturated = (r / n).log() * 0.5 - u * 0.5 - HALF_LOG_TWO_PI
    saturated = saturated + _stirling_error(n) - _stirling_error(y) - _stirling_error_from_zero(graph, r)
    deviance = y * log1p(graph, r * gap / (mu * n)) - r * log1p(graph, gap / (mu + r))
    return saturated - deviance, -r * log1p(graph, alpha * mu)


def _stirling_error(y: Value) -> Value:
    """log y! minus its leading terms, for y of at least 16."""
    r = 1.0 / y
    r2 = r * r
    return ((r2 * (1 / 1260) - 1 / 360) * r2 + 1 / 12) * r


def _stirling_error_from_zero(graph: Graph, x: Value) -> Value:
    """The same for any positive x, by x! = (x + 16)! / ((x + 1) ... (x + 16))."""
    small = x.clip(0.0, float(_SHIFT))
    big = small + float(_SHIFT)
    log_factorial = (big + 0.5) * big.log() - big + HALF_LOG_TWO_PI + _stirling_error(big)
    for k in range(1, _SHIFT + 1):
        log_factorial = log_factorial - (small + float(k)).log()
    exact = log_factorial - (small + 0.5) * small.log() + small - HALF_LOG_TWO_PI
    return graph.where(x < float(_SHIFT), exact, _stirling_error(x.clip(float(_SHIFT), np.inf)))
