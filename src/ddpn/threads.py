"""How many threads torch uses: one where operations are small, the user's setting where they are large.

An operation that is split over threads ends when the last of them does. If another program uses the core of one of
them, that thread waits for a time slice of some milliseconds, and the others spin until it is done. For an operation of
microseconds that is a slowdown by a factor of hundreds; for one that takes longer than a time slice it does not matter.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

#: Multiply-adds of an operation that is worth several threads: see benchmarks/threads.py.
LARGE = 2**28


@contextmanager
def single_thread() -> Iterator[None]:
    """Run torch's operations on the CPU in one thread, and restore the user's setting afterwards."""
    before = torch.get_num_threads()
    if before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def threads_for(multiply_adds: float) -> AbstractContextManager[None]:
    """One thread where the largest operation has fewer than `LARGE` multiply-adds, else the current setting."""
    return nullcontext() if multiply_adds >= LARGE else single_thread()
