"""From raw outputs of a head to the Double Poissons and Negative Binomials that it mixes, as nodes."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import numpy as np
import torch

from ddpn.export.graph import Graph, Operand, Value
from ddpn.networks.heads import HEADS, Head, mixed, zeros
from ddpn.networks.heads.clamps import LOG_ALPHA, LOG_GAMMA, LOG_LARGE, LOG_MU, highest_log_gamma
from ddpn.networks.heads.likelihoods import SHIPPED
from ddpn.runtime.errors import ConfigError

#: Half-angle steps before the series of the arctangent: what is left is below tan(pi / 16), and the first term that is
#: left out below 1e-17.
_HALVINGS, _TERMS = 3, 12


@dataclass(frozen=True)
class Piece:
    """A stack of distributions of one family. Shape: (rows, k) each.

    `family` is "double_poisson" or "negative_binomial", `log_mu` has the exposure included, `log_shape` is the log of
    gamma or alpha, and `weight` the share of each in the distribution of its head; None is 1. `positive` says whether
    zeros are excluded.
    """

    family: str
    log_mu: Value
    log_shape: Value
    weight: Value | None = None
    positive: bool = False

    def scaled(self, weight: Value) -> "Piece":
        """With its weight multiplied."""
        return replace(self, weight=weight if self.weight is None else self.weight * weight)


@dataclass(frozen=True)
class HeadNodes:
    """What one head predicts: pieces, and the probability of a zero of its own, (rows, k), or None."""

    pieces: tuple[Piece, ...]
    zero: Value | None = None

    def scaled(self, weight: Value) -> "HeadNodes":
        """With all weights multiplied."""
        pieces = tuple(piece.scaled(weight) for piece in self.pieces)
        return HeadNodes(pieces, None if self.zero is None else self.zero * weight)


def parts_of(head: Head, raw: Value, log_scale: Value | None) -> HeadNodes:
    """The distributions of a head. Shape: raw (rows, k, P), log_scale (rows, 1).

    Raises a `ConfigError` for a likelihood that has no form in the graph.
    """
    columns = [raw.take(j, axis=2) for j in range(head.n_raw)]
    return _parts(head, columns, log_scale)


def _parts(head: Head, raw: list[Value], log_scale: Value | None) -> HeadNodes:
    if isinstance(head, mixed.MixedHead):
        return _mixed(head, raw, log_scale)
    if isinstance(head, zeros.ZeroHead):
        return _with_zeros(head, raw, log_scale)
    shipped = SHIPPED.get(head.name) == f"{type(head).__module__}:{type(head).__name__}"
    if head.name not in _LINKS or not shipped:
        known = ", ".join([*_LINKS, "the zero-inflated and hurdle forms of these", "mixtures of all"])
        raise ConfigError(f"A model to export must have likelihoods among {known}; got {head.name}.")
    return HeadNodes((_LINKS[head.name](raw, log_scale),))


def _poisson(raw: list[Value], log_scale: Value | None) -> Piece:
    log_mu = _log_mean(raw[0], log_scale)
    return Piece("double_poisson", log_mu, log_mu * 0.0)


def _double_poisson(raw: list[Value], log_scale: Value | None) -> Piece:
    log_mu = _log_mean(raw[0], log_scale)
    # It is log mu plus a constant between two bounds.
    least, constant, most = highest_log_gamma(torch.tensor([-np.inf, 0.0, np.inf], dtype=torch.float64)).tolist()
    highest = (log_mu + constant).clip(least, most)
    lowest = LOG_GAMMA[0] - (log_mu - LOG_LARGE).clip(0.0, np.inf)
    log_gamma = bend(raw[1], lowest, highest)
    return Piece("double_poisson", log_mu, log_gamma if log_scale is None else _mean_preserving(log_gamma, log_mu))


def _mean_preserving(log_gamma: Value, log_mu: Value) -> Value:
    """As `ddpn.networks.heads.clamps.mean_preserving_log_gamma`."""
    mu = log_mu.exp()
    over = (-log_gamma).clip(0.0, np.inf).exp() - 1.0
    under = log_gamma.clip(0.0, np.inf).exp() - 1.0
    over = over / (over * 1.5 * (mu + 1.0) / (mu * mu) + 1.0)
    under = under / (under * 2.0 / (mu * mu * (mu + 1.0)) + 1.0)
    return (under + 1.0).log() - (over + 1.0).log()


def _negative_binomial(raw: list[Value], log_scale: Value | None) -> Piece:
    return Piece("negative_binomial", _log_mean(raw[0], log_scale), bend(raw[1], *LOG_ALPHA))


_LINKS: dict[str, Callable[[list[Value], Value | None], Piece]] = {
    "poisson": _poisson,
    "double_poisson": _double_poisson,
    "negative_binomial": _negative_binomial,
}


def _with_zeros(head: zeros.ZeroHead, raw: list[Value], log_scale: Value | None) -> HeadNodes:
    """Zeros of their own beside the base, which a hurdle restricts to positive counts."""
    base = _parts(head.base, raw[:-1], log_scale)
    logit, is_hurdle = bend(raw[-1], *zeros.LOGIT), isinstance(head, zeros.HurdleHead)
    rest = (-logit).op("Sigmoid")
    pieces = tuple(replace(piece, positive=is_hurdle).scaled(rest) for piece in base.pieces)
    return HeadNodes(pieces, logit.op("Sigmoid"))


def _mixed(head: mixed.MixedHead, raw: list[Value], log_scale: Value | None) -> HeadNodes:
    """The components of each network with their weights."""
    graph, start, found = raw[0].graph, 0, []
    logits = [((each / mixed.LOGIT).op("Tanh") * mixed.LOGIT).unsqueezed(2) for each in raw[-head.size :]]
    weights = graph.concat(logits, axis=2).op("Softmax", axis=2)
    for j, own in enumerate(HEADS[family]() for family in head.families):
        found.append(_parts(own, raw[start : start + own.n_raw], log_scale).scaled(weights.take(j, axis=2)))
        start += own.n_raw
    own = [parts.zero for parts in found if parts.zero is not None]
    return HeadNodes(tuple(piece for parts in found for piece in parts.pieces), reduce(add, own) if own else None)


def _log_mean(raw: Value, log_scale: Value | None) -> Value:
    log_mu = bend(raw, *LOG_MU)
    return log_mu if log_scale is None else log_mu + log_scale


def bend(x: Value, low: Value | float, high: Operand) -> Value:
    """As `ddpn.networks.heads.clamps.bend`."""
    inside = x.clip(low, high)
    return inside + arctangent(x.graph, x - inside)


def arctangent(graph: Graph, x: Value) -> Value:
    """The arctangent in float64, which ONNX Runtime has in float32 only."""
    x = x.clip(-1e100, 1e100)  # its square is finite
    for _ in range(_HALVINGS):
        x = x / ((x * x + 1.0).sqrt() + 1.0)
    square = x * x
    series = graph.constant((-1.0) ** _TERMS / (2 * _TERMS + 1))
    for n in range(_TERMS - 1, -1, -1):
        series = series * square + (-1.0) ** n / (2 * n + 1)
    return series * x * 2.0**_HALVINGS
