"""Call kernels for rows, in blocks and threads."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import torch

from ddpn.distributions.kernels.compiling import compile_kernel
from ddpn.distributions.kernels.family import Family

Block = TypeVar("Block")
#: Components per block: with five numbers per component, a block fits into a processor's cache.
BLOCK_COMPONENTS = 1 << 14


def run_blocks(task: Callable[[Block], None], blocks: Sequence[Block]) -> None:
    """Run a task for every block, in as many threads as torch uses; kernels release the GIL."""
    threads = min(torch.get_num_threads(), len(blocks))
    if threads <= 1:
        for block in blocks:
            task(block)
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(task, blocks))


def call_per_row(
    function: Callable[..., None], family: type[Family], columns: Sequence[np.ndarray], results: int
) -> np.ndarray:
    """Call a kernel of one family with columns (rows,) of float64, the parameters last. Shape: (results, rows)."""
    count = len(columns[0])
    inputs = np.zeros((len(columns) + 2, count))  # kernels read three parameters, and every family has at least one
    for j, column in enumerate(columns):
        inputs[j] = column
    outputs = np.empty((results, count))
    kernel = compile_kernel(function, family)
    if count <= BLOCK_COMPONENTS:
        kernel(inputs, outputs)
        return outputs

    def task(index: slice) -> None:
        part = np.empty((results, index.stop - index.start))
        kernel(np.ascontiguousarray(inputs[:, index]), part)
        outputs[:, index] = part

    run_blocks(task, [slice(i, min(i + BLOCK_COMPONENTS, count)) for i in range(0, count, BLOCK_COMPONENTS)])
    return outputs
