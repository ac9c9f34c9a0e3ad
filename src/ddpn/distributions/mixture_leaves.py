"""The components of a mixture, those of mixtures within it included, side by side in plain arrays.

A mixture of mixtures has the same quantiles as one mixture of all their components, each with the product of the
weights on its way. Where all of these are Double Poissons and Negative Binomials, `MixtureTables` compute what
predictions need.
"""

from collections.abc import Iterator
from functools import cached_property, reduce
from itertools import groupby
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ddpn.distributions.double_poisson import normalizer
from ddpn.distributions.double_poisson.distribution import DoublePoisson
from ddpn.distributions.double_poisson.rows import DoublePoissonRows
from ddpn.distributions.grid_summary import Summary, quantiles_and_mode
from ddpn.distributions.keeping import kept, versions
from ddpn.distributions.mixture_rows import MixtureRows
from ddpn.distributions.mixture_tables import FEW, LONGEST, MANY, Components, MixtureTables
from ddpn.distributions.negative_binomial import NegativeBinomial, NegativeBinomialRows
from ddpn.distributions.poisson import Poisson
from ddpn.distributions.rows import MARGIN
from ddpn.distributions.weighted_sums import sum_of_few

_FAMILIES = (DoublePoisson, Poisson, NegativeBinomial)
#: Up to so many rows of another shape than the batch shape are kept for the next method.
_WIDE = 20_000


class Leaf(NamedTuple):
    """Components of one family: both parameters, also a Poisson's second one, and weights. Shape: (rows, k) each."""

    is_negative: bool
    first: np.ndarray
    second: np.ndarray
    weight: np.ndarray


class LeafRows(MixtureRows):
    """Rows of a mixture of all components, with tables; stacks are made where tables do not serve.

    Parameters
    ----------
    leaves : list of Leaf
        The components in their order.
    rows : int
        The number of rows.
    """

    def __init__(self, leaves: list[Leaf], rows: int) -> None:
        self._leaves, self._count = leaves, rows
        self._even, self._windows = False, None
        families = [_side_by_side([x for x in leaves if x.is_negative is which], rows) for which in (False, True)]
        self.from_zero = MixtureTables(Components(*(part for family in families for part in family)))

    def __len__(self) -> int:
        return self._count

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    def upper_bound(self) -> Tensor:
        return torch.from_numpy(self.from_zero.upper_bound)

    def window_from_zero(self) -> tuple[Tensor, Tensor] | None:
        if len(self) > FEW or not self.from_zero.upper_bound.max(initial=0.0) < LONGEST - MARGIN:
            return None
        last = self.upper_bound()
        return torch.zeros_like(last), last

    def pmf_table(self, n: int) -> Tensor:
        found = self.from_zero.pmf(n)
        return super().pmf_table(n) if found is None else torch.from_numpy(found)

    @cached_property
    def _runs(self) -> list[tuple[bool, tuple[np.ndarray, ...]]]:
        """Neighbours of one family together."""
        runs = groupby(self._leaves, lambda leaf: leaf.is_negative)
        return [(which, _side_by_side(list(run), self._count)) for which, run in runs]

    @cached_property
    def stacks(self) -> tuple[Any, ...]:  # type: ignore[override]
        kinds: dict[bool, Any] = {False: DoublePoissonRows, True: NegativeBinomialRows}
        return tuple(
            kinds[which](*(torch.from_numpy(np.require(x, np.float64, ["C", "W"]).reshape(-1)) for x in parts[:2]))
            for which, parts in self._runs
        )

    @cached_property
    def sizes(self) -> tuple[int, ...]:  # type: ignore[override]
        return tuple(parts[2].shape[1] for _, parts in self._runs)

    @cached_property
    def weights(self) -> Tensor:  # type: ignore[override]
        return torch.from_numpy(np.concatenate([parts[2] for _, parts in self._runs], axis=1, dtype=np.float64))


def _side_by_side(leaves: list[Leaf], rows: int) -> tuple[np.ndarray, ...]:
    if len(leaves) == 1:
        return leaves[0][1:]
    if not leaves:
        return (np.empty((rows, 0)),) * 3
    return tuple(np.concatenate(column, axis=1) for column in list(zip(*leaves, strict=True))[1:])


def leaf_rows(mixture: Any, shape: torch.Size) -> LeafRows | None:
    """Rows of a mixture after `expand(shape)`; None if a component is of another family, or not on a CPU."""
    if mixture._like.device.type != "cpu" or torch._C._functorch.peek_interpreter_stack() is not None:
        return None
    axes, rows, found = len(mixture.batch_shape), shape.numel(), []
    same = shape == mixture.batch_shape
    # In float32 only where all parameters are, and rows are many.
    kept = np.float32 if mixture._like.dtype == torch.float32 and rows >= MANY else np.float64

    def flat(x: np.ndarray) -> np.ndarray:
        wide = x.astype(kept, copy=False)
        wide = wide if same else np.broadcast_to(wide, (*shape, *x.shape[axes:]))
        size = prod(x.shape[axes:])
        if rows >= MANY and len(shape) == 1 and wide.strides[0] == wide.itemsize:  # rows lie side by side, and stay so
            return np.moveaxis(wide, 0, -1).reshape(size, rows).T
        return wide.reshape(rows, size)

    for dist, weight in _walk(mixture, None):
        if type(dist) not in _FAMILIES:
            return None
        first, *more = (x.detach().numpy() for x in dist._parameters())
        second = more[0] if more else np.ones_like(first)
        if weight.shape != first.shape:
            weight = np.broadcast_to(weight, first.shape)
        found.append(Leaf(isinstance(dist, NegativeBinomial), *map(flat, (first, second, weight))))
    return LeafRows(found, rows)


def _walk(mixture: Any, outer: np.ndarray | None) -> Iterator[tuple[Any, np.ndarray]]:
    """Stacks that are no mixtures, and weights of their components that broadcast with their batch shape."""
    weights, size = mixture._weights, mixture.size
    own = np.full(size, 1.0 / size) if weights is None else weights.detach().numpy()
    own = own if outer is None else outer[..., None] * own
    start = 0
    for stack in mixture._stacks:
        part = own[..., start : start + stack.batch_shape[-1]]
        start += stack.batch_shape[-1]
        if hasattr(stack, "_stacks"):
            yield from _walk(stack, part)
        else:
            yield stack, part


def _moments(tables: MixtureTables) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of all Double Poissons, those included that have no table. Shape: (rows, D) each."""
    mean, variance = tables.moments()
    missing = np.isnan(variance)
    if missing.any():
        with torch.no_grad():
            found = normalizer.mean_variance(*(torch.from_numpy(x[missing]).double() for x in tables.given[:2]))
        mean[missing], variance[missing] = (x.numpy() for x in found)
    return mean, variance


def moments_by_stack(mixture: Any, tables: MixtureTables) -> dict[int, tuple[Tensor, Tensor]]:
    """Mean and variance of Double Poissons in mixtures that take them from tables, by the id of their stack."""
    mean, variance = _moments(tables)
    start, found = 0, {}
    for dist, parent in stacks_in(mixture):
        if isinstance(dist, NegativeBinomial):
            continue
        own = slice(start, start + dist.batch_shape.numel() // max(len(mean), 1))
        start = own.stop
        if parent.moments_by_table and type(dist) is DoublePoisson:
            with torch.inference_mode(False):
                pair = (
                    torch.from_numpy(x[:, own]).reshape(dist.batch_shape).to(dist.mu.dtype) for x in (mean, variance)
                )
                found[id(dist)] = (next(pair), next(pair))
    return found


def stacks_in(mixture: Any) -> Iterator[tuple[Any, Any]]:
    """Stacks that are no mixtures, in the order of `leaf_rows`, and the mixture that each is a stack of."""
    for stack in mixture._stacks:
        if hasattr(stack, "_stacks"):
            yield from stacks_in(stack)
        else:
            yield stack, mixture


def _mean_of(stack: Any, known: dict[int, Any]) -> Tensor:
    if id(stack) in known:
        return known[id(stack)][0]
    return stack._by_stack(stack._means(known)) if isinstance(stack, LeafMixture) else stack.mean


def _variance_of(stack: Any, known: dict[int, Any]) -> Tensor:
    if id(stack) in known:
        return known[id(stack)][1]
    if not isinstance(stack, LeafMixture):
        return stack.variance
    return stack._by_stack(stack._variances(known)) + stack._epistemic(known)


class LeafMixture:
    """What a mixture of count distributions computes from the tables of all its components at once."""

    batch_shape: torch.Size
    _stacks: tuple[Any, ...]
    _weights: Tensor | None
    _leaves: Any
    _shaped: Any
    _family_rows: Any
    _device: torch.device
    _dtype: torch.dtype
    _kept: tuple[tuple[Any, Any], ...] = ()
    _known_entropy: tuple[Any, Tensor | None] = (None, None)

    @property
    def mean(self) -> Tensor:
        """Weighted mean of the components' means."""
        return self._by_stack(self._means(self._table_moments))

    @property
    def aleatoric(self) -> Tensor:
        """Weighted mean of the components' variances."""
        return self._by_stack(self._variances(self._table_moments))

    @property
    def epistemic(self) -> Tensor:
        """Weighted variance of the components' means."""
        return self._epistemic(self._table_moments)

    def _epistemic(self, known: dict[int, Any]) -> Tensor:
        means = self._means(known)
        mean = self._by_stack(means).unsqueeze(-1)
        return self._by_stack([(each - mean).square_() for each in means])

    def _means(self, known: dict[int, Any]) -> list[Tensor]:
        """The means of every stack, of which some are `known` from tables. Shape: (..., k_i) each."""
        return [_mean_of(stack, known) for stack in self._stacks]

    def _variances(self, known: dict[int, Any]) -> list[Tensor]:
        """The variances of every stack, likewise."""
        return [_variance_of(stack, known) for stack in self._stacks]

    def _by_stack(self, values: list[Tensor]) -> Tensor:
        """The weighted mean of values of each stack, (..., k_i): components side by side would be a copy of them."""
        sizes = [stack.batch_shape[-1] for stack in self._stacks]
        if self._weights is None:
            return reduce(torch.add, map(sum_of_few, values)) / sum(sizes)
        pairs = zip(values, self._weights.split(sizes, -1), strict=True)
        return reduce(torch.add, (sum_of_few(weight.to(each.dtype) * each) for each, weight in pairs))

    @property
    def _table_moments(self) -> dict[int, tuple[Tensor, Tensor]]:
        """Moments of Double Poissons among the components, found at once, where they are to be taken from tables."""
        if torch.is_grad_enabled() and self._has_leaf_gradient():
            return {}
        return self._constant_table_moments

    @kept
    def _constant_table_moments(self) -> dict[int, tuple[Tensor, Tensor]]:
        if not any(parent.moments_by_table for _, parent in stacks_in(self)):
            return {}
        rows = self._tabulated()
        return {} if rows is None else moments_by_stack(self, rows.from_zero)

    def _tabulated(self) -> Any:
        """Rows of all components that have tables; None where there are none, and where gradients are needed."""
        if torch.is_grad_enabled() and self._has_leaf_gradient():
            return None
        rows = self._flat()
        return rows if rows.from_zero is not None else None

    def _has_leaf_gradient(self) -> bool:
        return any(leaf.requires_grad for leaf in self._leaves())

    def _flat(self, shape: torch.Size | None = None) -> Any:
        shape = self.batch_shape if shape is None else shape
        now = versions(self._leaves())
        for known, rows in self._kept:
            if known == (shape, now):
                return rows
        rows = leaf_rows(self, shape)
        rows = self._family_rows(shape) if rows is None else rows
        is_own = shape == self.batch_shape
        if (is_own or shape.numel() <= _WIDE) and not self._has_leaf_gradient():
            # Those of the own shape, and of the last other one: quantiles at several levels are followed by their cdfs.
            others = (pair for pair in self._kept if is_own or pair[0] == (self.batch_shape, now))
            self._kept = (*others, ((shape, now), rows))
        return rows

    @torch.no_grad()
    def summary(self, levels: Tensor) -> Summary:
        """Quantiles (rows, n) and mode (rows,) at once, which takes about as long as one of them; and the entropy.

        Parameters
        ----------
        levels : Tensor
            Levels in (0, 1) per row, of shape (rows, n), or (n,) for all rows of a batch shape (rows,).
        """
        q = torch.as_tensor(levels, dtype=torch.float64, device=self._device)
        dist = self._flat()
        found, mode = quantiles_and_mode(dist, q.expand(len(dist), q.shape[-1]).contiguous())
        return Summary(found.to(self._dtype), mode.to(self._dtype), self._kept_entropy)

    def _kept_entropy(self) -> Tensor:
        found = self.entropy()
        self._known_entropy = versions(self._leaves()), found
        return found

    def entropy(self) -> Tensor:
        """Entropy -E[log p(Z)] in nats."""
        then, known = self._known_entropy
        now = versions(self._leaves())
        return super().entropy() if known is None or then != now else known  # type: ignore[misc]
