"""Independent jobs: one after the other here, in processes of this machine (joblib), or as tasks of a Ray cluster.

A job is a function with its arguments that returns files, so that results travel and are stored without pickles.
Importing this module imports neither torch nor Ray.
"""

import multiprocessing
import os
import pickle
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import NamedTuple, Protocol, TypeAlias

import joblib
import numpy as np

from ddpn.runtime.cluster import RayCluster
from ddpn.runtime.errors import ConfigError, DDPNError, describe_error
from ddpn.runtime.threads import count_cores, limit_threads
from ddpn.runtime.validation import is_integer

#: Where jobs run, as in scikit-learn: None or 1 is this process, 4 are four processes, -1 is one per core.
Where: TypeAlias = int | RayCluster | None


class JobError(DDPNError, RuntimeError):
    """A job that failed, and is not repeated any more."""


@dataclass(frozen=True, eq=False)
class Job:
    """A part of the work, and what messages call it.

    `work` is a function of a module; its first argument is what all jobs share, and it returns files: bytes by name.
    `identity` is what the result depends on, as values that JSON can hold: results of jobs without it are not stored.
    """

    name: str
    work: Callable[..., Mapping[str, bytes]]
    arguments: tuple[object, ...] = ()
    identity: object = None


class JobStore(Protocol):
    """Keeps the files of finished jobs: a `ddpn.storage.results.ResultStore`."""

    def read(self, identity: object) -> Mapping[str, bytes] | None:
        """Return the files of a job, None if there are none."""

    def write(self, identity: object, files: Mapping[str, bytes], name: str) -> None:
        """Keep the files of a job."""


class Result(NamedTuple):
    """How a job ended: the files that it returned, or why it failed.

    An `error` is one of ddpn as it was raised, else a `JobError` with one sentence; for errors that nobody expected,
    `trace` says where.
    """

    job: Job
    files: Mapping[str, bytes] | None
    error: DDPNError | None = None
    trace: str = ""

    def get(self) -> Mapping[str, bytes]:
        """Return the files, or raise the error."""
        if self.error is not None:
            raise self.error
        assert self.files is not None
        return self.files


def slots(n_jobs: Where) -> int:
    """Return how many jobs run at the same time.

    >>> slots(None), slots(3), slots(-1) == count_cores()
    (1, 3, True)
    """
    if n_jobs is None:
        return 1
    if isinstance(n_jobs, RayCluster):
        return n_jobs.slots
    if not is_integer(n_jobs) or n_jobs == 0:
        must = "be a number of processes, -1 for all cores, or a RayCluster"
        raise ConfigError(argument="n_jobs", must=must, got=repr(n_jobs))
    return int(n_jobs) if n_jobs > 0 else max(1, count_cores() + 1 + int(n_jobs))


def is_here(n_jobs: Where) -> bool:
    """Return True if jobs run in this process, one after the other."""
    return not isinstance(n_jobs, RayCluster) and slots(n_jobs) == 1


def run(
    jobs: Iterable[Job],
    shared: object = None,
    n_jobs: Where = None,
    store: "JobStore | None" = None,
    on_start: Callable[[Job], object] = lambda job: None,
) -> Iterator[Result]:
    """Run jobs and yield their results as they come, those that are stored already first.

    A job that fails does not end the others. An exception in the caller's loop, such as Ctrl-C, ends all. `n_jobs` is
    None or 1 for this process, one after the other; another number for so many processes of one thread each, -1 for one
    per core; or a cluster. A `ddpn.storage.results.ResultStore` keeps results: a program that is killed and started
    again continues with those it has. `on_start` is called with each job that begins, or is sent to a cluster.

    >>> def greet(greeting, name):
    ...     return {"text": f"{greeting} {name}".encode()}
    >>> [result] = run([Job("a greeting", greet, ("you",))], "Hello")
    >>> result.get()
    {'text': b'Hello you'}
    """
    missing = []
    for job in jobs:
        files = None if store is None else store.read(job.identity)
        if files is None:
            missing.append(job)
        else:
            yield Result(job, files)
    for result in _results(missing, shared, n_jobs, on_start) if missing else ():
        if store is not None and result.files is not None:
            store.write(result.job.identity, result.files, result.job.name)
        yield result


def _results(jobs: Sequence[Job], shared: object, n_jobs: Where, on_start: Callable[[Job], object]) -> Iterator[Result]:
    if isinstance(n_jobs, RayCluster):
        yield from _on_cluster(n_jobs, jobs, shared, on_start)
    elif not is_here(n_jobs):
        yield from _in_processes(jobs, shared, slots(n_jobs), on_start)
    else:
        for job in jobs:
            on_start(job)
            yield Result(job, *_attempt(job, shared))


#: What a `Result` has beside the job.
_Outcome = tuple[Mapping[str, bytes] | None, DDPNError | None, str]


def _attempt(job: Job, shared: object) -> _Outcome:
    try:
        return dict(job.work(shared, *job.arguments)), None, ""
    except DDPNError as error:
        return None, error, ""
    except OSError as error:
        return None, _make_error(job, f": {describe_error(error)}"), ""
    except Exception as error:
        return None, _make_error(job, f": {describe_error(error)}"), traceback.format_exc()


def _make_error(job: Job, reason: str) -> JobError:
    return JobError(f"{job.name} failed{reason.rstrip('.')}.")


def _in_processes(
    jobs: Sequence[Job], shared: object, number: int, on_start: Callable[[Job], object]
) -> Iterator[Result]:
    """Run jobs in processes. If one dies, joblib ends all, and jobs without a result are repeated one at a time."""
    # As bytes in an array, which joblib writes once to a file that all processes map: unpickled arrays can be changed.
    content = np.frombuffer(pickle.dumps(shared, protocol=pickle.HIGHEST_PROTOCOL), dtype=np.uint8)
    unfinished = list(jobs)
    try:
        for result in _run_in_pool(jobs, content, number, on_start):
            unfinished.remove(result.job)
            yield result
    except BrokenProcessPool:
        for job in unfinished:  # by itself, so that only the job to blame fails
            try:
                yield from _run_in_pool([job], content, 2, on_start)  # with 1, joblib runs it in this process
            except BrokenProcessPool:
                reason = ": its process was ended, perhaps because memory was short. Try fewer jobs"
                yield Result(job, None, _make_error(job, reason))


def _run_in_pool(
    jobs: Sequence[Job], content: np.ndarray, number: int, on_start: Callable[[Job], object]
) -> Iterator[Result]:
    """Run jobs in processes that joblib keeps for later calls; raise `BrokenProcessPool` if one of them dies."""

    def tasks() -> Iterator[object]:
        for index, job in enumerate(jobs):
            on_start(job)
            yield joblib.delayed(_in_worker)(index, job, content, os.getpid(), method)

    method = multiprocessing.get_start_method(allow_none=True)
    # Each task is taken when a process is free for it.
    parallel = joblib.Parallel(number, "loky", return_as="generator_unordered", batch_size=1, pre_dispatch="n_jobs")
    outcomes = parallel(tasks())
    try:
        for index, outcome in outcomes:
            yield Result(jobs[index], *outcome)
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about results that nobody waits for
            outcomes.close()


def _in_worker(index: int, job: Job, content: np.ndarray, parent: int, method: str | None) -> tuple[int, _Outcome]:
    _end_with(parent)
    # A job may start processes of its own: not by the method that joblib sets.
    multiprocessing.set_start_method(method, force=True)
    limit_threads(1)
    return index, _attempt(job, pickle.loads(content.data))


@cache
def _end_with(parent: int) -> None:
    """End this process when its parent does: an orphan would go on writing where the next command writes, too."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _on_cluster(
    cluster: RayCluster, jobs: Sequence[Job], shared: object, on_start: Callable[[Job], object]
) -> Iterator[Result]:
    """Run jobs as tasks of Ray, which repeats those whose worker or node dies or that raise unexpected errors."""
    ray = cluster.connect()
    # Spread, as Ray fills a node to one half first.
    task = ray.remote(
        num_cpus=cluster.cpus, num_gpus=cluster.gpus, max_retries=cluster.retries, retry_exceptions=True,
        scheduling_strategy="SPREAD",
    )(_on_node)  # fmt: skip
    # As bytes: arrays that Ray maps from its store cannot be written to, and torch wants to.
    content = ray.put(pickle.dumps(shared, protocol=pickle.HIGHEST_PROTOCOL))
    running = {task.remote(job, content, cluster.cpus): job for job in jobs}
    try:
        for job in jobs:
            on_start(job)
        while running:
            for reference in ray.wait([*running], timeout=1.0)[0]:
                yield _get_result(ray, reference, running.pop(reference), cluster.retries)
    finally:
        for reference in running:
            ray.cancel(reference, force=True)


def _on_node(job: Job, content: bytes, cpus: int) -> tuple[Mapping[str, bytes] | None, DDPNError | None]:
    """Run a job on a worker; return errors of ddpn, because Ray would repeat a task that raises, in vain."""
    limit_threads(cpus)
    try:
        return dict(job.work(pickle.loads(content), *job.arguments)), None
    except DDPNError as error:
        return None, error


def _get_result(ray: ModuleType, reference: object, job: Job, retries: int) -> Result:
    """Return the result of a finished task."""
    errors, times = ray.exceptions, f" {retries + 1} times, the last time: " if retries else ": "
    try:
        return Result(job, *ray.get(reference))
    except errors.RayTaskError as error:
        if isinstance(error.cause, ModuleNotFoundError):
            what = f"A node of the cluster has no module {error.cause.name}"
            return Result(job, None, ConfigError(f"{what}. Install the same packages on every node."))
        return Result(job, None, _make_error(job, times + describe_error(error.cause)), str(error))
    except errors.RuntimeEnvSetupError as error:
        return Result(job, None, ConfigError(f"A node of the cluster cannot be prepared: {describe_error(error)}"))
    except errors.OutOfMemoryError:
        reason = "its node was short of memory. Give each job more CPU cores, so that fewer run at once"
    except errors.RayError as error:
        reason = f"its worker or node was lost ({type(error).__name__})"
    return Result(job, None, _make_error(job, times + reason))
