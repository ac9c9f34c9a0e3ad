"""Arrange the mixtures of a block of rows as arrays, which compiled kernels take as inputs."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ddpn.distributions.calls import BLOCK_COMPONENTS
from ddpn.distributions.components import ComponentStack
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
    """A block of rows as the arrays that kernels take. Each row is a mixture of K components.

    All components of the same family are in one array. A component without a family is given by a table of its
    probabilities.

    Parameters
    ----------
    weights : array, (rows, K)
        Mixture weights.
    families : list of (Family, array, int)
        One entry per family, with three elements: the family; its k components as an array (rows, k, 5), see
        `kernels.loops`; and the column of `weights` that belongs to the first of these components.
    tables : list of (array, array, int)
        One entry per component without a family, with three elements: the first count in each row's table (rows,); the
        probabilities of this count and the following ones (rows, n); and the component's column of `weights`.
    """

    weights: np.ndarray
    families: list[tuple[type[Family], np.ndarray, int]]
    tables: list[tuple[np.ndarray, np.ndarray, int]]

    def call(self, function: Callable[..., None], *args: np.ndarray) -> None:
        """Call a kernel once for each family in the block.

        The call is `function(family, components, weights, column, *args)`: an entry of `families`, the mixture weights,
        and further arrays. The kernel, such as `kernels.loops.add_tails`, usually adds its results to one of these
        arrays. It is compiled for the family first.
        """
        for family, components, column in self.families:
            compile_kernel(function, family)(components, self.weights, column, *args)

    def fill_arena(
        self, rows: slice, limit: int, arena: np.ndarray, slices: np.ndarray, walks: np.ndarray, is_long: np.ndarray
    ) -> int:
        """Write the unnormalised probabilities of all components of some rows to one long array, the arena.

        Parameters
        ----------
        rows : slice
            The rows.
        limit : int
            The most counts of a component. Rows with a longer component are skipped. Tables of probabilities are
            written whatever their length.
        arena : array, (size,)
            The array to write to.
        slices : array of int, (rows, K, 2)
            Receives for each component the index of its first probability in the arena, and how many it has there. The
            number is 0 for a component whose mixture weight is 0.
        walks : array, (rows, K, 3)
            Receives for each component the count of its first probability, the sum of its unnormalised probabilities,
            and a probable count.
        is_long : array of bool, (rows,)
            Must be False at first. Receives True for the rows that were skipped.

        Returns
        -------
        int
            The used length of the arena, or -1 if the arena is too short. In that case, call again with a longer arena.
        """
        weights, used = self.weights[rows], 0
        for family, components, column in self.families:
            fill = compile_kernel(loops.fill_arena, family)
            used = fill(components[rows], weights, column, limit, arena, used, slices, walks, is_long)
            if used < 0:
                return -1
        for first, pmf, column in self.tables:
            n_rows, n = len(weights), pmf.shape[1]
            if used + n_rows * n > len(arena):
                return -1
            arena[used : used + n_rows * n] = pmf[rows].ravel()
            slices[:, column, 0] = used + n * np.arange(n_rows)
            slices[:, column, 1] = np.where(weights[:, column] <= 0.0, 0, n)
            walks[:, column] = np.stack([first[rows], np.ones(n_rows), first[rows] + pmf[rows].argmax(1)], axis=1)
            used += n_rows * n
        return used


def make_block(stacks: Sequence[ComponentStack], index: slice | np.ndarray, n_rows: int) -> RowBlock:
    """Arrange the mixtures of some rows as a `RowBlock`.

    Parameters
    ----------
    stacks : sequence of ComponentStack
        The components of all rows.
    index : slice or array of int
        The rows to arrange.
    n_rows : int
        The number of these rows.
    """
    block = RowBlock(np.ones((n_rows, sum(stack.size for stack in stacks))), [], [])
    column = 0
    for stack in stacks:
        if stack.weight is not None:
            block.weights[:, column : column + stack.size] = stack.weight[index]
        if stack.family is None:
            block.tables.extend((*table, column + j) for j, table in enumerate(tabulate_stack(stack, index)))
        else:
            components = np.zeros((n_rows, stack.size, 5))
            for j, parameter in enumerate(stack.parameters):
                components[:, :, j] = parameter[index]
            components[:, :, 4] = np.inf
            for j, bound in ((3, stack.low), (4, stack.high)):
                if bound is not None:
                    components[:, :, j] = bound[index]
            block.families.append((stack.family, components, column))
        column += stack.size
    # Families without a ratio take longer, so they skip rows in which another family has too many counts.
    block.families.sort(key=lambda x: not hasattr(x[0], "ratio"))
    return block


def tabulate_stack(stack: ComponentStack, index: slice | np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Compute the probabilities of components without a family, for the rows `index` (a slice or positions).

    The distributions of these components are in `stack.table`. Return a list with a pair of arrays per component: the
    first count of each row (rows,), and the probabilities of n counts from there on (rows, n). n may differ between
    components.
    """
    assert stack.table is not None
    positions = torch.arange(stack.table.batch_shape[0]).reshape(-1, stack.size)[index]
    return [tuple(x.numpy() for x in tabulate_pmf(stack.table.rows(column))) for column in positions.unbind(1)]  # type: ignore[misc]


def tabulate_pmf(dist: "CountDistribution") -> tuple[Tensor, Tensor]:
    """Compute the probabilities of consecutive counts for each distribution of a batch (rows,).

    The counts are those of the window that `dist.bracket` returns. Return the first count of each row (rows,), and the
    probabilities of n counts from there on (rows, n), where n is the length of the widest window. In rows with a
    shorter window, the probabilities beyond its end are 0. Probabilities are rescaled so that they sum to 1 in each
    row.
    """
    first, last = (x.double() for x in dist.bracket(TABLE_DEPTH))
    size = int((last - first).max().item()) + 1 if len(first) else 1
    y = first + torch.arange(float(size), dtype=torch.float64).unsqueeze(1)
    pmf = dist.log_prob(torch.minimum(y, last)).double().exp().T
    pmf = torch.where(last.unsqueeze(1) >= y.T, pmf, 0.0)
    return first, (pmf / pmf.sum(1, keepdim=True)).contiguous()


def split_rows(stacks: Sequence[ComponentStack], n_rows: int) -> list[slice]:
    """Split `n_rows` rows into slices that are small enough for a processor's cache.

    The size of a row depends on the number of its components in `stacks`, and on the lengths of their tables of
    probabilities.
    """
    size = max(BLOCK_COMPONENTS // max(sum(stack.size for stack in stacks), 1), 1)
    for stack in stacks:
        if stack.table is not None and n_rows:
            first, last = stack.table.bracket(TABLE_DEPTH)
            size = min(size, max(int(_TABLE_BLOCK_COUNTS / (stack.size * (float((last - first).max()) + 1.0))), 1))
    return [slice(start, min(start + size, n_rows)) for start in range(0, n_rows, size)]
