"""The components of a mixture, those of mixtures within it included, side by side in plain arrays.

A mixture of mixtures has the same quantiles as one mixture of all their components, each with the product of the
weights on its way. Where all of these are Double Poissons and Negative Binomials, `MixtureTables` compute what
predictions need.
"""

from collections.abc import Iterator
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ddpn.distributions.double_poisson import normalizer
from ddpn.distributions.double_poisson.distribution import DoublePoisson
from ddpn.distributions.double_poisson.rows import DoublePoissonRows
from ddpn.distributions.mixture_rows import MixtureRows
from ddpn.distributions.mixture_tables import Components, MixtureTables
from ddpn.distributions.negative_binomial import NegativeBinomial, NegativeBinomialRows
from ddpn.distributions.poisson import Poisson

_FAMILIES = (DoublePoisson, Poisson, NegativeBinomial)


class Leaf(NamedTuple):
    """A stack of components of one family, and their weights in the whole mixture. Shape: weights (rows, k)."""

    dist: Any
    weight: np.ndarray


def leaves_of(mixture: Any, shape: torch.Size) -> list[Leaf] | None:
    """All components of a mixture after `expand(shape)`; None if one is of another family, or not on a CPU."""
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return None
    found = []
    for dist, weight in _walk(mixture, None):
        if type(dist) not in _FAMILIES or dist._parameters()[0].device.type != "cpu":
            return None
        own = weight.expand((*shape, *weight.shape[len(mixture.batch_shape) :]))
        found.append(Leaf(dist, own.reshape(shape.numel(), -1).numpy()))
    return found


def _walk(mixture: Any, outer: Tensor | None) -> Iterator[tuple[Any, Tensor]]:
    """Stacks that are no mixtures, and the weights of their components, of the stack's batch shape."""
    weights = mixture._weights
    if weights is None:
        weights = torch.full((mixture.size,), 1.0 / mixture.size, dtype=torch.float64)
    weights = weights.detach()
    if outer is not None:
        weights = outer.unsqueeze(-1) * weights
    weights = weights.expand((*mixture.batch_shape, mixture.size))
    sizes = [stack.batch_shape[-1] for stack in mixture._stacks]
    for stack, own in zip(mixture._stacks, weights.split(sizes, -1) if len(sizes) > 1 else [weights], strict=True):
        if hasattr(stack, "_stacks"):
            yield from _walk(stack, own)
        else:
            yield stack, own


def rows_of_leaves(leaves: list[Leaf], shape: torch.Size, axes: int) -> MixtureRows:
    """Rows of the mixture after `expand(shape)`; `axes` is the number of its batch axes."""
    parts = [(isinstance(leaf.dist, NegativeBinomial), _parameters(leaf, shape, axes)) for leaf in leaves]
    doubles, others = (_joined([part for is_other, part in parts if is_other is which]) for which in (False, True))
    known = [x or (np.empty((shape.numel(), 0)),) * 3 for x in (doubles, others)]
    tables = MixtureTables(Components(*known[0], *known[1]))
    stacks: list[Any] = []
    # Neighbours of one family are one stack.
    joined = [(is_other, _joined([part for _, part in run])) for is_other, run in groupby(parts, lambda x: x[0])]
    for is_other, (first, second, _) in joined:
        kind: Any = NegativeBinomialRows if is_other else DoublePoissonRows
        stacks.append(kind(torch.from_numpy(first.reshape(-1)), torch.from_numpy(second.reshape(-1))))
    weights = [part[2] for _, part in joined]
    weight = weights[0] if len(weights) == 1 else np.concatenate(weights, axis=1)
    sizes = tuple(part.shape[1] for part in weights)
    return MixtureRows(tuple(stacks), sizes, torch.from_numpy(weight), from_zero=tables)


def _parameters(leaf: Leaf, shape: torch.Size, axes: int) -> tuple[np.ndarray, ...]:
    """Both parameters, a Poisson's second one included, and the weights of components. Shape: (rows, k) each."""
    dist, weight = leaf
    both = dist._parameters() if len(dist._names) == 2 else (dist.mu, torch.ones_like(dist.mu))
    wide = (x.detach().double().expand((*shape, *x.shape[axes:])) for x in both)
    return *(x.reshape(weight.shape).numpy() for x in wide), weight


def _joined(parts: list[tuple[np.ndarray, ...]]) -> tuple[np.ndarray, ...]:
    """Components side by side; empty where there are none."""
    if len(parts) < 2:
        return parts[0] if parts else ()
    return tuple(np.concatenate(column, axis=1) for column in zip(*parts, strict=True))


def _moments(tables: MixtureTables) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of all Double Poissons, those included that have no table. Shape: (rows, D) each."""
    mean, variance = tables.moments()
    missing = np.isnan(variance)
    if missing.any():
        with torch.no_grad():
            found = normalizer.mean_variance(*(torch.from_numpy(x[missing]) for x in tables.parts[:2]))
        mean[missing], variance[missing] = (x.numpy() for x in found)
    return mean, variance


@torch.inference_mode(False)
def mean_of(tables: MixtureTables) -> Tensor:
    """Means of the mixture. Shape: (rows,)."""
    parts = tables.parts
    each = (parts.weight * _moments(tables)[0]).sum(axis=1)
    return torch.from_numpy(each + (parts.share * parts.mean).sum(axis=1))


@torch.inference_mode(False)
def keep_moments(mixture: Any, tables: MixtureTables) -> None:
    """Let the Double Poissons among the components know their moments, which the tables of a mixture have."""
    mean, variance = _moments(tables)
    start = 0
    for dist in _stacks_in(mixture):
        if isinstance(dist, NegativeBinomial):
            continue
        own = slice(start, start + dist.batch_shape.numel() // max(len(mean), 1))
        start = own.stop
        if type(dist) is DoublePoisson and "_constant_moments" not in vars(dist):
            pair = (torch.from_numpy(np.ascontiguousarray(x[:, own])) for x in (mean, variance))
            vars(dist)["_constant_moments"] = tuple(x.reshape(dist.batch_shape).to(dist.mu.dtype) for x in pair)


def _stacks_in(mixture: Any) -> Iterator[Any]:
    """Stacks that are no mixtures, in the order of `leaves_of`; mixtures that they are in know their moments then."""
    for stack in mixture._stacks:
        if hasattr(stack, "_stacks"):
            stack._has_moments = True
            yield from _stacks_in(stack)
        else:
            yield stack
