"""Add graph nodes that convert raw outputs of members to distributions, and compute their pmfs.

A component is the distribution that one network, one GLM or one pair of tree ensembles predicts for a row. A component
may be a mixture of several distributions, for example if it is zero-inflated. Each of these belongs to one of two
families: Double Poissons, which include Poissons (gamma = 1), and Negative Binomials.

All distributions of a family are computed together. They form a `Stack`. Pmfs are computed on a grid of counts 0, ...,
K - 1. The window of a distribution is the part of the grid that contains nearly all of its probability.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import NamedTuple

import numpy as np
import torch

from ddpn.export.graph import Graph, Operand, Value
from ddpn.networks.heads import HEADS, SHIPPED, Head, mixed, zeros
from ddpn.networks.heads.clamps import LOG_ALPHA, LOG_GAMMA, LOG_LARGE_MU, LOG_MU, highest_log_gamma
from ddpn.runtime.errors import ConfigError

#: The likelihoods of which zero-inflated and hurdle forms and mixtures consist.
_BASE_LIKELIHOODS = ("poisson", "double_poisson", "negative_binomial")
#: The number of half-angle steps before the series of the arctangent, and of terms of the series. The argument is then
#: below tan(pi / 16), and the first omitted term below 1e-17.
_N_HALVINGS, _N_SERIES_TERMS = 3, 12


@dataclass(frozen=True)
class Stack:
    """C distributions of the same family for each row. Unless stated otherwise, attributes have shape (rows, C).

    Each distribution is a part of a component: the distribution that a network, a GLM or a pair of tree ensembles
    predicts.

    Attributes
    ----------
    family : str
        "double_poisson" or "negative_binomial".
    log_mu : Value
        The log of the location mu, which includes the exposure.
    log_shape : Value
        The log of gamma (Double Poisson) or of alpha (Negative Binomial).
    weight : Value
        The weight of the distribution within its component.
    component : array of int, shape (C,)
        The number of the component to which each distribution belongs.
    positive : array of bool, shape (C,)
        True for distributions that are conditioned on counts above 0.
    """

    family: str
    log_mu: Value
    log_shape: Value
    weight: Value
    component: np.ndarray
    positive: np.ndarray

    @classmethod
    def join(cls, stacks: Sequence["Stack"]) -> "Stack":
        """Join stacks of the same family to one stack, along the axis of distributions."""
        concat = stacks[0].log_mu.graph.concat
        return cls(
            stacks[0].family,
            concat([stack.log_mu for stack in stacks]),
            concat([stack.log_shape for stack in stacks]),
            concat([stack.weight for stack in stacks]),
            np.concatenate([stack.component for stack in stacks]),
            np.concatenate([stack.positive for stack in stacks]),
        )


@dataclass(frozen=True)
class HeadNodes:
    """The distributions that `size` components consist of, as stacks of distributions of the same family.

    There may be several stacks of a family; `MixtureGraph` joins them later. `zero` is the additional probability of
    the count 0 in each component, as in zero-inflated likelihoods. It has shape (rows, size), or is None.
    """

    size: int
    stacks: tuple[Stack, ...]
    zero: Value | None = None

    def scale_weights(self, weight: Value) -> "HeadNodes":
        """Return a copy with the weights of all distributions, and the additional probabilities of 0, times `weight`.

        `weight` has one value per row and component, shape (rows, size).
        """
        stacks = tuple(replace(stack, weight=stack.weight * weight) for stack in self.stacks)
        return HeadNodes(self.size, stacks, None if self.zero is None else self.zero * weight)


def add_head(head: Head, raw: Value, log_scale: Value | None, size: int = 1) -> HeadNodes:
    """Add the nodes that convert raw outputs to the distributions of a likelihood.

    A likelihood that cannot be exported raises a `ConfigError`.

    Parameters
    ----------
    head : Head
        The likelihood.
    raw : Value, shape (rows, size, raw outputs)
        The raw outputs of each component.
    log_scale : Value or None, shape (rows, 1)
        The log exposure. None means an exposure of 1.
    size : int
        The number of components, such as networks.
    """
    return _add_family(head, [raw.take(j, axis=2) for j in range(head.n_raw)], log_scale, size)


def _add_family(head: Head, raw: list[Value], log_scale: Value | None, size: int) -> HeadNodes:
    """Add the nodes that convert raw outputs to the distributions of a likelihood.

    `raw` has one value of shape (rows, size) for each raw output of the likelihood. The other parameters are those of
    `add_head`. A likelihood that cannot be exported raises a `ConfigError`.
    """
    if isinstance(head, mixed.MixedHead):
        return _add_mixture(head, raw, log_scale, size)
    if isinstance(head, zeros.ZeroHead):
        return _add_zero_head(head, raw, log_scale, size)
    is_shipped = SHIPPED.get(head.name) == f"{type(head).__module__}:{type(head).__name__}"
    if getattr(head, "location", "mu") != "mu":
        remedy = 'Fit with `location="mu"`, or with another likelihood.'
        raise ConfigError(f'A Double Poisson with `location="mean"` cannot be exported. {remedy}')
    if head.name not in _BASE_LIKELIHOODS or not is_shipped:
        supported = ", ".join([*_BASE_LIKELIHOODS, "their zero-inflated and hurdle forms", "and mixtures of these"])
        raise ConfigError(f"The likelihood {head.name} cannot be exported. Likelihoods that can: {supported}.")
    log_mu = bend(raw[0], *LOG_MU)
    log_mu = log_mu if log_scale is None else log_mu + log_scale
    family = head.name
    if family == "negative_binomial":
        log_shape = bend(raw[1], *LOG_ALPHA)
    elif family == "double_poisson":
        log_shape = _compute_log_gamma(raw[1], log_mu, log_scale is not None)
    else:  # a Poisson is a Double Poisson with gamma = 1
        family, log_shape = "double_poisson", log_mu * 0.0
    ones = log_mu * 0.0 + 1.0
    stack = Stack(family, log_mu, log_shape, ones, np.arange(size), np.zeros(size, dtype=bool))
    return HeadNodes(size, (stack,))


def _compute_log_gamma(raw: Value, log_mu: Value, has_exposure: bool) -> Value:
    """Compute log gamma of a Double Poisson likelihood from its second raw output.

    `raw` has this raw output, and `log_mu` the log of the location including the exposure, shape (rows, size) each. The
    possible range of log gamma depends on mu. If `has_exposure` is True, log gamma is also moved towards 0 where the
    mean would otherwise differ from mu.
    """
    # The upper bound is log mu plus a constant, clipped to a range.
    lowest_bound, constant, highest_bound = highest_log_gamma(
        torch.tensor([-np.inf, 0.0, np.inf], dtype=torch.float64)
    ).tolist()
    highest = (log_mu + constant).clip(lowest_bound, highest_bound)
    lowest = LOG_GAMMA[0] - (log_mu - LOG_LARGE_MU).clip(0.0, np.inf)
    log_gamma = bend(raw, lowest, highest)
    if not has_exposure:
        return log_gamma
    # As `ddpn.networks.heads.clamps.mean_preserving_log_gamma`.
    mu = log_mu.exp()
    over = (-log_gamma).clip(0.0, np.inf).exp() - 1.0
    under = log_gamma.clip(0.0, np.inf).exp() - 1.0
    over = over / (over * 1.5 * (mu + 1.0) / (mu * mu) + 1.0)
    under = under / (under * 2.0 / (mu * mu * (mu + 1.0)) + 1.0)
    return (under + 1.0).log() - (over + 1.0).log()


def _add_zero_head(head: zeros.ZeroHead, raw: list[Value], log_scale: Value | None, size: int) -> HeadNodes:
    """Add the nodes of a zero-inflated or hurdle likelihood, with the additional probability of 0.

    In a hurdle model, the base distribution is conditioned on positive counts. `raw` has the raw outputs of the
    likelihood, shape (rows, size) each; the last is the logit of the additional probability. `log_scale` and `size` are
    as for `add_head`.
    """
    logit, positive = bend(raw[-1], *zeros.LOGIT), np.full(size, isinstance(head, zeros.HurdleHead))
    base = _add_family(head.base, raw[:-1], log_scale, size).scale_weights((-logit).op("Sigmoid"))
    return HeadNodes(size, tuple(replace(stack, positive=positive) for stack in base.stacks), logit.op("Sigmoid"))


def _add_mixture(head: mixed.MixedHead, raw: list[Value], log_scale: Value | None, size: int) -> HeadNodes:
    """Add the nodes of a mixture likelihood (`MixedHead`), whose weights are predicted as well.

    `raw` has the raw outputs, shape (rows, size) each: first those of all families, then one logit per family.
    `log_scale` and `size` are as for `add_head`.
    """
    graph, start, components = raw[0].graph, 0, []
    logits = [
        ((logit / mixed.MAX_LOGIT).op("Tanh") * mixed.MAX_LOGIT).add_axes(2) for logit in raw[-len(head.families) :]
    ]
    weights = graph.concat(logits, axis=2).op("Softmax", axis=2)
    for j, component in enumerate(HEADS[family]() for family in head.families):
        components.append(
            _add_family(component, raw[start : start + component.n_raw], log_scale, size).scale_weights(
                weights.take(j, axis=2)
            )
        )
        start += component.n_raw
    extra_zeros = [nodes.zero for nodes in components if nodes.zero is not None]
    stacks = tuple(stack for nodes in components for stack in nodes.stacks)
    return HeadNodes(size, stacks, reduce(add, extra_zeros) if extra_zeros else None)


def bend(x: Value, low: Value | float, high: Operand) -> Value:
    """Limit x smoothly to the range from `low` to `high`, like `ddpn.networks.heads.clamps.bend`."""
    inside = x.clip(low, high)
    return inside + arctangent(x.graph, x - inside)


def arctangent(graph: Graph, x: Value) -> Value:
    """Compute the arctangent in float64, because ONNX Runtime has this operator only for float32."""
    x = x.clip(-1e100, 1e100)  # its square is finite
    for _ in range(_N_HALVINGS):
        x = x / ((x * x + 1.0).sqrt() + 1.0)
    square = x * x
    series = graph.constant((-1.0) ** _N_SERIES_TERMS / (2 * _N_SERIES_TERMS + 1))
    for n in range(_N_SERIES_TERMS - 1, -1, -1):
        series = series * square + (-1.0) ** n / (2 * n + 1)
    return series * x * 2.0**_N_HALVINGS


#: The largest count of a grid. Sums over more counts would take seconds per row.
MAX_GRID_COUNT = 2.0**18
#: The number of Newton steps that approximate the end of a window from above, for Double Poissons and for Negative
#: Binomials.
_N_NEWTON_STEPS, _N_NEGATIVE_BINOMIAL_STEPS = 4, 8
#: The smallest depth of a window (log weight at the mode minus log weight at the end), even if its distribution has a
#: tiny weight in the mixture.
_MIN_DEPTH = 4.0
#: The number of counts that are added beyond the end of a window.
_EXTRA_COUNTS = 5.0


def find_window_ends(stack: Stack, component_weights: np.ndarray, depth: float) -> Value:
    """Add nodes that find the last count at which the probability of each distribution matters. Shape: (rows, C).

    At this count, the log probability is about `depth` below its value at the mode. If a distribution has a small
    weight in the mixture, the drop is smaller, so that in all cases about e^-depth of the mixture's probability lies
    beyond. `stack` has the C distributions of each row. `component_weights` are the weights of all components in the
    mixture, shape (components,).
    """
    depths = ((stack.weight * component_weights[stack.component][None]).log() + depth).clip(_MIN_DEPTH, depth)
    end = _negative_binomial_end if stack.family == "negative_binomial" else _double_poisson_end
    return end(stack, depths).floor() + _EXTRA_COUNTS


def _double_poisson_end(stack: Stack, depths: Value) -> Value:
    """Add nodes that find the end of the window of each of C Double Poissons. Shape: (rows, C).

    The end is the y above mu, a real number, at which gamma (mu - y + y log(y / mu)) = `depths`. There, the log
    probability is about `depths` below its value at the mode. It is found by Newton's method in sqrt(y), starting above
    the solution. `depths` has shape (rows, C).
    """
    log_mu = stack.log_mu
    mu, target = log_mu.exp(), depths / stack.log_shape.exp()
    s = mu.sqrt() + (target * 0.5).sqrt()
    for _ in range(_N_NEWTON_STEPS):
        log_ratio = s.log() * 2.0 - log_mu
        s = s - (mu - target + s * s * (log_ratio - 1.0)) / (log_ratio * s * 2.0)
    return s * s


def _negative_binomial_end(stack: Stack, depths: Value) -> Value:
    """Add nodes that find the end of the window of each of C Negative Binomials. Shape: (rows, C).

    The end is the y above mu, a real number, at which log p(y; y) - log p(y; mu) = `depths`, where p(y; mu) is the
    probability with mean mu. This is half of the unit deviance. It is found by Newton's method, starting above the
    solution. `depths` has shape (rows, C).
    """
    mu, alpha = stack.log_mu.exp(), stack.log_shape.exp()
    r, ratio = 1.0 / alpha, alpha * mu
    tail = (depths + 1.0) * 4.0 / (1.0 / ratio + 1.0).log()
    y = (mu + tail + (depths * mu * (ratio + 1.0)).sqrt() * 20.0).clip(0.0, 1e15)
    for _ in range(_N_NEGATIVE_BINOMIAL_STEPS):
        log_ratio, log_total_ratio = (y / mu).log(), ((y + r) / (mu + r)).log()
        y = y - (y * log_ratio - (y + r) * log_total_ratio - depths) / (log_ratio - log_total_ratio)
    return y


class Grid(NamedTuple):
    """The counts 0, ..., K - 1, for which pmfs are computed, with logarithms that they need. Shape: (K,) each.

    `y` is the count, `log_y` is log y (0 at y = 0), and `log_h` is y log y - y - log y!.
    """

    y: Value
    log_y: Value
    log_h: Value


def make_grid(graph: Graph, count: Value) -> Grid:
    """Make the grid of the counts 0, ..., `count` - 1. `count` is an integer, a value of shape ()."""
    zero, one = graph.constant(0), graph.constant(1)
    y = graph.op("Range", zero, count, one, kind="i").cast("f")
    log_y = y.clip(1.0, np.inf).log()
    log_factorial = log_y.op("CumSum", zero)
    return Grid(y, log_y, y * (log_y - 1.0) - log_factorial)


def compute_moments(grid: Grid, pmf: Value, axis: int) -> tuple[Value, Value]:
    """Compute the means and variances of pmfs on a grid of counts, and return both.

    `axis` is the axis of the counts, which must be the last one. The results keep it with length 1.
    """
    mean = (pmf * grid.y).sum(axis)
    gap = grid.y - mean
    return mean, (pmf * gap * gap).sum(axis)


class Tabulated(NamedTuple):
    """The C distributions of each row of a stack, evaluated at the K counts of a grid.

    `pmf` has the probabilities, shape (rows, C, K). `mean` and `variance` have shape (rows, C).
    """

    pmf: Value
    mean: Value
    variance: Value


def tabulate(graph: Graph, stack: Stack, grid: Grid) -> Tabulated:
    """Compute the pmf of each distribution of a stack at the counts of a grid, and its mean and variance."""
    log_mu, shape = stack.log_mu.add_axes(2), stack.log_shape.exp().add_axes(2)
    if stack.family == "double_poisson":  # normalised by the sum over the grid
        deviance = (grid.log_y - log_mu) * grid.y + (log_mu.exp() - grid.y)
        log_weight = grid.log_h - shape * deviance
        weight = (log_weight - log_weight.max(2)).exp()
        pmf = weight / weight.sum(2)
        table = Tabulated(pmf, *(moment.reshape(-1, len(stack.component)) for moment in compute_moments(grid, pmf, 2)))
    else:  # by the ratios p(y) / p(y - 1), which need no log-gamma function
        rise = shape * log_mu.exp()
        at_zero = -log1p(graph, rise) / shape
        before = (grid.y - 1.0).clip(0.0, np.inf)
        ratios = log_mu - grid.log_y + ((shape * before + 1.0) / (rise + 1.0)).log()
        pmf = graph.where(grid.y < 1.0, at_zero, ratios).op("CumSum", graph.constant(2)).exp()
        mu, alpha = stack.log_mu.exp(), stack.log_shape.exp()
        table = Tabulated(pmf, mu, mu + alpha * mu * mu)
    return _exclude_zeros(graph, table, grid, stack.positive) if stack.positive.any() else table


def log1p(graph: Graph, x: Value) -> Value:
    """Compute log(1 + x), accurately for small x. ONNX has no such operator, so Kahan's method is used."""
    u = x + 1.0
    rounded = u - 1.0
    is_small = rounded.equals(0.0)
    return graph.where(is_small, x, u.log() * x / graph.where(is_small, 1.0, rounded))


def _exclude_zeros(graph: Graph, table: Tabulated, grid: Grid, positive: np.ndarray) -> Tabulated:
    """Condition some of the C distributions in `table` on counts above 0, and return all of them.

    `positive`, shape (C,), is True for the distributions to condition. `grid` has the counts at which pmfs are given.
    """
    at_zero = table.pmf.take([0], axis=2)
    positive_pmf = table.pmf * grid.y.clip(0.0, 1.0)
    total = graph.where(at_zero > 0.5, positive_pmf.sum(2), 1.0 - at_zero)
    flat_total = total.reshape(-1, len(positive))
    mean = table.mean / flat_total
    variance = (table.variance + table.mean * table.mean) / flat_total - mean * mean
    mask = positive[None]
    return Tabulated(
        graph.where(graph.constant(mask[..., None]), positive_pmf / total, table.pmf),
        graph.where(graph.constant(mask), mean, table.mean),
        graph.where(graph.constant(mask), variance, table.variance),
    )
