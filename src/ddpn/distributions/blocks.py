"""Blocks of rows, as arrays that kernels take: components of families, and tables of probabilities."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ddpn.distributions.calls import BLOCK_COMPONENTS
from ddpn.distributions.components import Part
from ddpn.distributions.kernels import loops
from ddpn.distributions.kernels.compiling import compile_kernel
from ddpn.distributions.kernels.family import Family

if TYPE_CHECKING:
    from ddpn.distributions.count import CountDistribution


#: Probabilities per block of rows with tables.
_TABLE_BLOCK_COUNTS = 1 << 20
#: Depth in nats of the bracket in which a distribution without a kernel is tabulated.
TABLE_DEPTH = 37.0


class RowBlock(NamedTuple):
    """A block of rows, in the arrays that kernels take.

    Parameters
    ----------
    weights : array, (rows, K)
    families : list of (Family, array, int)
        Each family, its components (rows, k, 5) as in `kernels.loops`, and the column of the first component in
        `weights`.
    tables : list of (array, array, int)
        First counts (rows,) and probabilities (rows, n) of a table, and its column in `weights`.
    """

    weights: np.ndarray
    families: list[tuple[type[Family], np.ndarray, int]]
    tables: list[tuple[np.ndarray, np.ndarray, int]]

    def call(self, function: Callable[..., None], *args: np.ndarray) -> None:
        """Call a kernel once per family, with its components, weights, first column and further arguments."""
        for family, components, column in self.families:
            compile_kernel(function, family)(components, self.weights, column, *args)

    def fill(
        self, part: slice, limit: int, arena: np.ndarray, slices: np.ndarray, walks: np.ndarray, is_long: np.ndarray
    ) -> int:
        """Append the weights of some rows to the arena by `loops.fill_arena`; return its length, -1 if it is full."""
        weights, used = self.weights[part], 0
        for family, components, column in self.families:
            fill = compile_kernel(loops.fill_arena, family)
            used = fill(components[part], weights, column, limit, arena, used, slices, walks, is_long)
            if used < 0:
                return -1
        for first, pmf, column in self.tables:
            count, n = len(weights), pmf.shape[1]
            if used + count * n > len(arena):
                return -1
            arena[used : used + count * n] = pmf[part].ravel()
            slices[:, column, 0] = used + n * np.arange(count)
            slices[:, column, 1] = np.where(weights[:, column] <= 0.0, 0, n)
            walks[:, column] = np.stack([first[part], np.ones(count), first[part] + pmf[part].argmax(1)], axis=1)
            used += count * n
        return used


def make_block(parts: Sequence[Part], index: slice | np.ndarray, count: int) -> RowBlock:
    """Arrange the components of some rows, `count` in number, as a block."""
    block = RowBlock(np.ones((count, sum(part.size for part in parts))), [], [])
    column = 0
    for part in parts:
        if part.weight is not None:
            block.weights[:, column : column + part.size] = part.weight[index]
        if part.family is None:
            block.tables.extend((*table, column + j) for j, table in enumerate(tabulate_columns(part, index)))
        else:
            components = np.zeros((count, part.size, 5))
            for j, parameter in enumerate(part.parameters):
                components[:, :, j] = parameter[index]
            components[:, :, 4] = np.inf
            for j, bound in ((3, part.low), (4, part.high)):
                if bound is not None:
                    components[:, :, j] = bound[index]
            block.families.append((part.family, components, column))
        column += part.size
    # Families without a ratio take longer, so they skip rows in which another family has too many counts.
    block.families.sort(key=lambda x: not hasattr(x[0], "ratio"))
    return block


def tabulate_columns(part: Part, index: slice | np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Tabulate rows of a part; return first counts and probabilities for each of its k columns."""
    assert part.table is not None
    positions = torch.arange(part.table.batch_shape[0]).reshape(-1, part.size)[index]
    return [tuple(x.numpy() for x in tabulate_pmf(part.table.rows(column))) for column in positions.unbind(1)]  # type: ignore[misc]


def tabulate_pmf(dist: "CountDistribution") -> tuple[Tensor, Tensor]:
    """Tabulate a distribution; return each row's first count, and n probabilities from this count on, with sum 1."""
    first, last = (x.double() for x in dist.bracket(TABLE_DEPTH))
    size = int((last - first).max().item()) + 1 if len(first) else 1
    y = first + torch.arange(float(size), dtype=torch.float64).unsqueeze(1)
    pmf = dist.log_prob(torch.minimum(y, last)).double().exp().T
    pmf = torch.where(last.unsqueeze(1) >= y.T, pmf, 0.0)
    return first, (pmf / pmf.sum(1, keepdim=True)).contiguous()


def split_rows(parts: Sequence[Part], count: int) -> list[slice]:
    """Split rows into blocks whose components and tables fit into a processor's cache."""
    size = max(BLOCK_COMPONENTS // max(sum(part.size for part in parts), 1), 1)
    for part in parts:
        if part.table is not None and count:
            first, last = part.table.bracket(TABLE_DEPTH)
            size = min(size, max(int(_TABLE_BLOCK_COUNTS / (part.size * (float((last - first).max()) + 1.0))), 1))
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]
