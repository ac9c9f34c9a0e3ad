"""Set the number of threads of torch and scikit-learn: one for small operations, the user's setting for large ones.

An operation that is split over threads ends when the last thread does. If another program uses the core of one thread,
that thread waits some milliseconds for its turn, while the others wait for it. This multiplies the time of small
operations, but hardly affects operations that take much longer.
"""

import os
import platform
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from threading import Lock

from threadpoolctl import ThreadpoolController, threadpool_limits

#: The fewest multiply-adds of an operation that uses several threads. On two cores that other programs use too, two
#: threads take 3.2 times as long as one at 2^24 multiply-adds (1 ms), 1.6 times at 2^26, 1.15 times at 2^28 (19 ms) and
#: 1.07 times at 2^30. A training step has some twenty smaller operations beside its largest.
MIN_THREADED_MULTIPLY_ADDS = 2**28
#: The fewest cells (rows x columns) of a table for which boosted trees use several threads. On the same machine two
#: threads take 74 times as long as one for 2,000 x 8, 20 times for 20,000 x 8, and 1.2 times for 100,000 x 20.
MIN_THREADED_CELLS = 2**21
#: Modules that have a thread pool once they are imported.
_WITH_POOLS = ("numpy", "scipy.linalg", "sklearn.ensemble", "lightgbm", "torch")
#: True on ARM, where oneDNN ignores torch's number of threads and keeps the one that the process began with.
_ONEDNN_IGNORES_TORCH = platform.machine() in ("aarch64", "arm64")


def count_cores() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def limit_threads(number: int) -> None:
    """Limit the number of threads of this process for good; called in worker processes."""
    os.environ |= {name: str(number) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    if "torch" in sys.modules:  # if torch is imported later, it reads the environment variables
        import torch

        torch.set_num_threads(number)
    threadpool_limits(number)


@contextmanager
def single_thread() -> Iterator[None]:
    """Return a context manager in which torch uses one CPU thread; it restores the user's setting afterwards."""
    import torch  # not at the top: trees and encodings do not need it

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with _WITHOUT_ONEDNN if _ONEDNN_IGNORES_TORCH else nullcontext():
            yield
    finally:
        torch.set_num_threads(threads)


class _WithoutOneDNN:
    """A context manager that turns off torch's oneDNN backend.

    torch has one switch for the whole process. If several threads are in the context, the backend stays off until the
    last one has left it.
    """

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


def limit_torch_threads(multiply_adds: float) -> AbstractContextManager[None]:
    """Return a context manager in which torch uses one thread if operations are small.

    `multiply_adds` is the size of the largest operation, as estimated by `CountModel.estimate_multiply_adds`. If it is
    at least `MIN_THREADED_MULTIPLY_ADDS`, torch uses the user's number of threads.
    """
    return nullcontext() if multiply_adds >= MIN_THREADED_MULTIPLY_ADDS else single_thread()


def single_blas_thread() -> AbstractContextManager[object]:
    """Return a context manager in which the linear algebra (BLAS) of NumPy and SciPy uses one thread.

    With two threads and a busy core, the eigenvalues of a matrix of 404 columns take 3 s instead of 0.05 s.
    """
    return _find_pools().limit(limits=1, user_api="blas")


def limit_tree_threads(cells: int) -> AbstractContextManager[object]:
    """Return a context manager in which boosted trees use one thread if the table is small.

    `cells` is the number of cells of the table. If it is at least `MIN_THREADED_CELLS`, the user's number of threads is
    used.
    """
    return nullcontext() if cells >= MIN_THREADED_CELLS else _find_pools().limit(limits=1)


def _find_pools() -> ThreadpoolController:
    """Return a controller of the thread pools of all loaded libraries. It is cached, because the search takes time."""
    return _controller(tuple(name in sys.modules for name in _WITH_POOLS))


@cache
def _controller(loaded: tuple[bool, ...]) -> ThreadpoolController:
    return ThreadpoolController()
