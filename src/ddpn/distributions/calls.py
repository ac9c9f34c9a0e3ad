"""Call compiled kernels for many rows, in blocks of rows and on several threads."""

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
    """Call `task(block)` for every block, on as many threads as torch uses.

    The task writes its results to arrays, because its return value is ignored. Threads run in parallel, because kernels
    release the GIL.
    """
    threads = min(torch.get_num_threads(), len(blocks))
    if threads <= 1:
        for block in blocks:
            task(block)
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(task, blocks))


def call_per_row(
    function: Callable[..., None], family: type[Family], columns: Sequence[np.ndarray], n_results: int
) -> np.ndarray:
    """Call a kernel that computes `n_results` numbers for each of many distributions of one family.

    Parameters
    ----------
    function : function
        The kernel, which takes the arrays `inputs` and `results`, such as `kernels.loops.compute_log_probs`.
    family : type
        The family, see `kernels.family`.
    columns : sequence of array, (rows,)
        The inputs in float64: arguments such as counts first, then the parameters of the family.
    n_results : int
        The number of results per distribution.

    Returns
    -------
    array, (n_results, rows)
        The results that the kernel wrote.
    """
    n_rows = len(columns[0])
    inputs = np.zeros((len(columns) + 2, n_rows))  # kernels read three parameters, and every family has at least one
    for j, column in enumerate(columns):
        inputs[j] = column
    outputs = np.empty((n_results, n_rows))
    kernel = compile_kernel(function, family)
    if n_rows <= BLOCK_COMPONENTS:
        kernel(inputs, outputs)
        return outputs

    def task(index: slice) -> None:
        part = np.empty((n_results, index.stop - index.start))
        kernel(np.ascontiguousarray(inputs[:, index]), part)
        outputs[:, index] = part

    run_blocks(task, [slice(i, min(i + BLOCK_COMPONENTS, n_rows)) for i in range(0, n_rows, BLOCK_COMPONENTS)])
    return outputs
