"""How many threads torch and scikit-learn use: one where operations are small, the user's setting where they are large.

An operation that is split over threads ends when the last of them does. If another program uses the core of one of
them, that thread waits for a time slice of some milliseconds, and the others spin meanwhile. That multiplies the time
of small operations, and hardly matters for those that take longer than a time slice.
"""

import os
import platform
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from threading import Lock

from threadpoolctl import ThreadpoolController, threadpool_limits

#: Multiply-adds from which an operation is worth several threads. On two cores that other programs use too,
#: two threads need 3.2 times as long as one at 2^24 multiply-adds (1 ms), 1.6 times at 2^26, 1.15
#: times at 2^28 (19 ms) and 1.07 times at 2^30; a training step has some twenty smaller operations beside its largest.
LARGE = 2**28
#: Rows times columns from which boosted trees are worth several threads. On the same machine two threads need 74
#: times as long as one for 2,000 x 8, 20 times for 20,000 x 8, and 1.2 times for 100,000 x 20.
LARGE_TABLE = 2**21
#: Modules that bring thread pools of their own.
_WITH_POOLS = ("numpy", "scipy.linalg", "sklearn.ensemble", "lightgbm", "torch")
#: oneDNN on ARM keeps to the number of threads that the process began with, whatever torch is set to.
_ONEDNN_IS_APART = platform.machine() in ("aarch64", "arm64")


def count_cores() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def limit_threads(number: int) -> None:
    """Limit the threads of this process, for good: for a worker process that has so many cores for itself."""
    os.environ |= {name: str(number) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    if "torch" in sys.modules:  # imported later, it reads the variables; jobs without it need not wait for it
        import torch

        torch.set_num_threads(number)
    threadpool_limits(number)


@contextmanager
def single_thread() -> Iterator[None]:
    """Run torch's operations on the CPU in one thread, and restore the user's setting afterwards."""
    import torch  # not above: trees and encodings do without it

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with _WITHOUT_ONEDNN if _ONEDNN_IS_APART else nullcontext():
            yield
    finally:
        torch.set_num_threads(threads)


class _WithoutOneDNN:
    """Keeps oneDNN switched off while any Python thread is inside: torch has one switch for the whole process."""

    def __init__(self) -> None:
        self._lock, self._inside, self._before = Lock(), 0, True

    def __enter__(self) -> None:
        import torch

        with self._lock:
            self._before = self._before if self._inside else bool(torch.backends.mkldnn.enabled)
            self._inside += 1
            torch.backends.mkldnn.enabled = False  # type: ignore[assignment]

    def __exit__(self, *error: object) -> None:
        import torch

        with self._lock:
            self._inside -= 1
            if not self._inside:
                torch.backends.mkldnn.enabled = self._before  # type: ignore[assignment]


_WITHOUT_ONEDNN = _WithoutOneDNN()


def threads_for(multiply_adds: float) -> AbstractContextManager[None]:
    """Use one thread of torch if the largest operation has fewer than `LARGE` multiply-adds, else the user's setting.

    `CountModel.multiply_adds` estimates them.
    """
    return nullcontext() if multiply_adds >= LARGE else single_thread()


def single_blas_thread() -> AbstractContextManager[object]:
    """Use one thread in the BLAS of numpy and scipy.

    With two threads and a busy core, the eigenvalues of a matrix of 404 columns take 3 s instead of 0.05 s.
    """
    return _find_pools().limit(limits=1, user_api="blas")


def tree_threads_for(cells: int) -> AbstractContextManager[object]:
    """Use one thread of scikit-learn and BLAS for fewer than `LARGE_TABLE` cells, else the user's setting."""
    return nullcontext() if cells >= LARGE_TABLE else _find_pools().limit(limits=1)


def _find_pools() -> ThreadpoolController:
    """Return the thread pools of the libraries that are loaded, cached because the search takes some milliseconds."""
    return _controller(tuple(name in sys.modules for name in _WITH_POOLS))


@cache
def _controller(loaded: tuple[bool, ...]) -> ThreadpoolController:
    return ThreadpoolController()
