"""Working through many rows: each by the method that suits it, in blocks that bound memory.

Inputs are tensors with one entry per row along their first axis, or `Rows`, which select their rows themselves.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

#: Numbers in one temporary of a block: about a CPU's second-level cache; on a GPU a 128th of its memory.
_CPU_BLOCK = 2**16
_GPU_SHARE = 128


class Case(NamedTuple):
    """Rows where `mask` holds are computed by `method`, which needs `width` numbers per row."""

    mask: Tensor
    method: Callable[..., tuple[Tensor, ...]]
    width: int


def constant(values: np.ndarray | list[float], device: torch.device) -> Tensor:
    """A float64 constant to keep: an ordinary tensor even when first asked for in inference mode or under vmap."""
    with torch.inference_mode(False), temporarily_clear_interpreter_stack():
        return torch.tensor(np.asarray(values, dtype=np.float64), device=device)


def is_host(x: Tensor) -> bool:
    """True where reading values costs nothing, so that work may depend on them."""
    return x.device.type == "cpu"


def take(x: Any, index: Tensor | slice) -> Any:
    """Some rows of a tensor or of `Rows`."""
    if not isinstance(x, Tensor):
        return x.rows(index)
    return x[index] if isinstance(index, slice) else x.index_select(0, index)


@cache
def _block_numbers(device: torch.device) -> int:
    if device.type != "cuda":
        return _CPU_BLOCK
    return torch.cuda.get_device_properties(device).total_memory // (8 * _GPU_SHARE)


def in_blocks(method: Callable[..., tuple[Tensor, ...]], width: int, *inputs: Any) -> tuple[Tensor, ...]:
    """Apply `method` to row-wise `inputs` block by block; results are those of one call."""
    rows, size = len(inputs[0]), max(1, _block_numbers(inputs[0].device) // width)
    if rows <= size:
        return method(*inputs)
    parts = [method(*(take(x, slice(i, i + size)) for x in inputs)) for i in range(0, rows, size)]
    return tuple(torch.cat(column) for column in zip(*parts, strict=True))


def by_case(cases: Sequence[Case], *inputs: Any, sort: bool = False) -> tuple[Tensor, ...]:
    """Every row by the one case whose mask holds; the masks partition the rows.

    On a CPU rows are sorted into their cases. Elsewhere counting them would make the host wait for the device, so
    every method sees every row (its results are dropped where they do not apply) and shapes stay fixed; `sort` is for
    methods so costly that the wait is worth it.
    """
    if sort or is_host(cases[0].mask):
        return _sorted(cases, *inputs)
    results: tuple[Tensor, ...] = ()
    for mask, method, width in cases:
        values = in_blocks(method, width, *inputs)
        results = tuple(torch.where(mask, v, r) for v, r in zip(values, results, strict=True)) if results else values
    return results


def _sorted(cases: Sequence[Case], *inputs: Any) -> tuple[Tensor, ...]:
    rows = len(inputs[0])
    results: tuple[Tensor, ...] = ()
    for mask, method, width in cases:
        index = mask.nonzero().squeeze(1)
        if len(index) == 0 and (results or mask is not cases[-1].mask):
            continue
        if len(index) == rows:
            return in_blocks(method, width, *inputs)
        values = in_blocks(method, width, *(take(x, index) for x in inputs))
        if not results:
            # Rows that belong to no case, as those of NaN, stay NaN.
            results = tuple(v.new_full((rows, *v.shape[1:]), torch.nan if v.is_floating_point() else 0) for v in values)
        for result, value in zip(results, values, strict=True):
            result.index_copy_(0, index, value)
    return results
