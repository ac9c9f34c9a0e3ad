"""All distributions that are mixed, one stack per family: how far their counts reach, and their pmf on a grid.

A Poisson is a Double Poisson whose gamma is 1.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ddpn.distributions.kernels.scalar import HALF_LOG_TWO_PI, LOG_H, MARGIN
from ddpn.export.graph import Graph, Value
from ddpn.export.links import Piece

#: The largest count of a grid: sums over more take seconds per row.
LARGEST = 2.0**18
#: Newton steps to the end of a window, from above; every step stays above.
_STEPS, _NEGATIVE_BINOMIAL_STEPS = 4, 8
#: The least depth of a component's window, however small its weight.
_LEAST_DEPTH = 4.0
#: Counts below this have log h(y) from a table, others by Stirling's series.
_TABLE = 32
FAMILIES = ("double_poisson", "negative_binomial")


@dataclass(frozen=True)
class FamilyGraph:
    """A stack of C distributions per row.

    `outer` is the component of the mixture that each belongs to, `positive` says which exclude zeros. Shape of values:
    (rows, C).
    """

    name: str
    log_mu: Value
    log_shape: Value
    weight: Value
    outer: np.ndarray
    positive: np.ndarray

    @property
    def size(self) -> int:
        """C."""
        return len(self.outer)

    def of(self, log_mu: Value, log_shape: Value, weight: Value) -> "FamilyGraph":
        """The same stack with other rows."""
        return FamilyGraph(self.name, log_mu, log_shape, weight, self.outer, self.positive)


def families_of(graph: Graph, pieces: list[tuple[Piece, int, int]], ones: Value) -> list[FamilyGraph]:
    """Pieces, each with its first component and how many it has, as one stack per family. `ones`: (rows, 1)."""
    found = []
    for name in FAMILIES:
        own = [(piece, np.arange(first, first + size)) for piece, first, size in pieces if piece.family == name]
        if not own:
            continue
        weights = [ones * np.ones((1, len(outer))) if p.weight is None else p.weight for p, outer in own]
        found.append(
            FamilyGraph(
                name,
                graph.concat([piece.log_mu for piece, _ in own]),
                graph.concat([piece.log_shape for piece, _ in own]),
                graph.concat(weights),
                np.concatenate([outer for _, outer in own]),
                np.concatenate([np.full(len(outer), piece.positive) for piece, outer in own]),
            )
        )
    return found


def ends(family: FamilyGraph, share: np.ndarray, depth: float) -> Value:
    """The last count of each distribution's window; a distribution of weight w may leave out e^-depth / w.

    `share` is the weight of each component in the mixture. Shape: (rows, C).
    """
    depths = ((family.weight * share[family.outer][None]).log() + depth).clip(_LEAST_DEPTH, depth)
    end = _negative_binomial_end if family.name == "negative_binomial" else _double_poisson_end
    return end(family, depths).floor() + (1.0 + MARGIN)


def _double_poisson_end(family: FamilyGraph, depths: Value) -> Value:
    """As `ddpn.distributions.double_poisson.weights.upper_end`."""
    log_mu = family.log_mu
    mu, target = log_mu.exp(), depths / family.log_shape.exp()
    s = mu.sqrt() + (target * 0.5).sqrt()
    for _ in range(_STEPS):
        log_ratio = s.log() * 2.0 - log_mu
        s = s - (mu - target + s * s * (log_ratio - 1.0)) / (log_ratio * s * 2.0)
    return s * s


def _negative_binomial_end(family: FamilyGraph, depths: Value) -> Value:
    """Where the unit deviance reaches the depth, by Newton's method from above: it is convex."""
    mu, alpha = family.log_mu.exp(), family.log_shape.exp()
    r, ratio = 1.0 / alpha, alpha * mu
    tail = (depths + 1.0) * 4.0 / (1.0 / ratio + 1.0).log()
    y = (mu + tail + (depths * mu * (ratio + 1.0)).sqrt() * 20.0).clip(0.0, 1e15)
    for _ in range(_NEGATIVE_BINOMIAL_STEPS):
        own, other = (y / mu).log(), ((y + r) / (mu + r)).log()
        y = y - (y * own - (y + r) * other - depths) / (own - other)
    return y


class Grid(NamedTuple):
    """The counts 0..K-1 and functions of them. Shape: (K,) each."""

    y: Value
    log_y: Value
    log_h: Value


def grid_of(graph: Graph, count: Value) -> Grid:
    """The counts below `count`, with log h(y) = y log y - y - log y!."""
    zero, one = graph.constant(0), graph.constant(1)
    place = graph.op("Range", zero, count, one, kind="i")
    y = place.cast("f")
    log_y = y.clip(1.0, np.inf).log()
    r = 1.0 / y.clip(float(_TABLE), np.inf)
    r2 = r * r
    error = ((r2 * (1 / 1260) - 1 / 360) * r2 + 1 / 12) * r
    series = log_y * -0.5 - HALF_LOG_TWO_PI - error
    table = graph.constant(LOG_H[:_TABLE])
    small = table.take(graph.where(place < _TABLE, place, _TABLE - 1), axis=0)
    log_h = graph.where(y < float(_TABLE), small, series)
    return Grid(y, log_y, log_h)


def moments_on(grid: Grid, pmf: Value, axis: int) -> tuple[Value, Value]:
    """Mean and variance of probabilities on the grid, which is the last axis; that axis is kept."""
    mean = (pmf * grid.y).sum(axis)
    gap = grid.y - mean
    return mean, (pmf * gap * gap).sum(axis)


class Tabulated(NamedTuple):
    """The pmf of a family on the grid, (rows, C, K), and its means and variances, (rows, C)."""

    pmf: Value
    mean: Value
    variance: Value


def tabulate(graph: Graph, family: FamilyGraph, grid: Grid) -> Tabulated:
    """The pmf on the grid, and exact moments."""
    if family.name == "double_poisson":
        found = _double_poisson(family, grid)
    else:
        mu, alpha = family.log_mu.exp(), family.log_shape.exp()
        found = Tabulated(_negative_binomial(graph, family, grid), mu, mu + alpha * mu * mu)
    return _without_zeros(graph, found, grid, family.positive) if family.positive.any() else found


def _double_poisson(family: FamilyGraph, grid: Grid) -> Tabulated:
    """Normalised by the sum over the grid."""
    log_mu, gamma = family.log_mu.unsqueezed(2), family.log_shape.exp().unsqueezed(2)
    deviance = (grid.log_y - log_mu) * grid.y + (log_mu.exp() - grid.y)
    log_weight = grid.log_h - gamma * deviance
    weight = (log_weight - log_weight.max(2)).exp()
    pmf = weight / weight.sum(2)
    return Tabulated(pmf, *(each.reshaped(-1, family.size) for each in moments_on(grid, pmf, 2)))


def _negative_binomial(graph: Graph, family: FamilyGraph, grid: Grid) -> Value:
    """By the ratios p(y) / p(y - 1), which need no log-gamma function."""
    log_mu, alpha = family.log_mu.unsqueezed(2), family.log_shape.exp().unsqueezed(2)
    rise = alpha * log_mu.exp()
    at_zero = -log1p(graph, rise) / alpha
    before = (grid.y - 1.0).clip(0.0, np.inf)
    ratios = log_mu - grid.log_y + ((alpha * before + 1.0) / (rise + 1.0)).log()
    return graph.where(grid.y < 1.0, at_zero, ratios).op("CumSum", graph.constant(2)).exp()


def log1p(graph: Graph, x: Value) -> Value:
    """log(1 + x) without loss for small x (Kahan)."""
    u = x + 1.0
    rounded = u - 1.0
    is_small = rounded.equals(0.0)
    return graph.where(is_small, x, u.log() * x / graph.where(is_small, 1.0, rounded))


def _without_zeros(graph: Graph, found: Tabulated, grid: Grid, positive: np.ndarray) -> Tabulated:
    """The same given that counts are above 0, for those distributions that exclude zeros."""
    at_zero = found.pmf.take([0], axis=2)
    rest = found.pmf * grid.y.clip(0.0, 1.0)
    total = graph.where(at_zero > 0.5, rest.sum(2), 1.0 - at_zero)
    flat = total.reshaped(-1, len(positive))
    mean = found.mean / flat
    variance = (found.variance + found.mean * found.mean) / flat - mean * mean
    mask = positive[None]
    return Tabulated(
        graph.where(graph.constant(mask[..., None]), rest / total, found.pmf),
        graph.where(graph.constant(mask), mean, found.mean),
        graph.where(graph.constant(mask), variance, found.variance),
    )
