"""Run independent jobs: in this process, in several processes (joblib), or as tasks of a Ray cluster.

A job is a function call whose result is a set of files. A file is a byte string with a name, so that results can be
sent and stored without pickle. Importing this module imports neither torch nor Ray.
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

#: Where jobs run: None or 1 for this process, 4 for four processes, -1 for one process per core, or a cluster.
Workers: TypeAlias = int | RayCluster | None


class JobError(DDPNError, RuntimeError):
    """The error of a job that raised an unexpected exception, or whose process or node was lost."""


@dataclass(frozen=True, eq=False)
class Job:
    """A unit of work for `run`: a function and its arguments.

    - `name` is the name of the job in messages.
    - `work` is a module-level function. It is called as `work(shared, *arguments)`, where `shared` is a value that all
      jobs share, and returns files: byte strings by name.
    - `arguments` are the arguments of `work` after `shared`.
    - `identity` is a JSON value, such as a list or dict of numbers and strings, that contains everything on which the
      result depends. The result is stored under this key. If it is None, the result is not stored.
    """

    name: str
    work: Callable[..., Mapping[str, bytes]]
    arguments: tuple[object, ...] = ()
    identity: object = None


class JobStore(Protocol):
    """The protocol of a store for the results of finished jobs, such as `ddpn.storage.results.ResultStore`."""

    def read(self, identity: object) -> Mapping[str, bytes] | None:
        """Return the stored files of the job with this identity (`Job.identity`); None if none are stored."""

    def write(self, identity: object, files: Mapping[str, bytes], name: str) -> None:
        """Store the files that a job returned under its identity, the JSON value `Job.identity`.

        Files that are already stored under this identity are replaced. `name` describes the job for people.
        """


class Result(NamedTuple):
    """The result of a job: the files that it returned, or the error that ended it.

    - `files` maps names of files to their contents. It is None if the job failed.
    - `error` is None if the job succeeded. Otherwise it is a `DDPNError` that the job raised, or a `JobError` if it
      failed for another reason.
    - `trace` is the traceback of an unexpected exception, and otherwise "".
    """

    job: Job
    files: Mapping[str, bytes] | None
    error: DDPNError | None = None
    trace: str = ""

    def get(self) -> Mapping[str, bytes]:
        """Return the files, or raise the error of the job."""
        if self.error is not None:
            raise self.error
        assert self.files is not None
        return self.files


def count_slots(n_jobs: Workers) -> int:
    """Return how many jobs the argument `n_jobs` allows to run at the same time.

    >>> count_slots(None), count_slots(3), count_slots(-1) == count_cores()
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


def runs_in_this_process(n_jobs: Workers) -> bool:
    """Return True if the argument `n_jobs` means that jobs run in this process, one after the other."""
    return not isinstance(n_jobs, RayCluster) and count_slots(n_jobs) == 1


def run(
    jobs: Iterable[Job],
    shared: object = None,
    n_jobs: Workers = None,
    store: "JobStore | None" = None,
    on_start: Callable[[Job], object] = lambda job: None,
) -> Iterator[Result]:
    """Run jobs, and yield the result of each as soon as it is ready. Stored results come first.

    If a job fails, the others continue. An exception in the caller's loop, such as Ctrl-C, ends all jobs.

    `n_jobs` is the number of processes, each with one thread: None or 1 means this process, and -1 means one process
    per core. It may also be a `RayCluster`. `shared` is the first argument of every job. If `store` is given, results
    are kept in it, so that a program that was killed can continue. `on_start` is called with each job when it begins,
    or when it is sent to a cluster.

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


def _results(
    jobs: Sequence[Job], shared: object, n_jobs: Workers, on_start: Callable[[Job], object]
) -> Iterator[Result]:
    if isinstance(n_jobs, RayCluster):
        yield from _run_on_cluster(n_jobs, jobs, shared, on_start)
    elif not runs_in_this_process(n_jobs):
        yield from _run_in_processes(jobs, shared, count_slots(n_jobs), on_start)
    else:
        for job in jobs:
            on_start(job)
            yield Result(job, *_attempt(job, shared))


#: The fields of a `Result` after the job.
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


def _run_in_processes(
    jobs: Sequence[Job], shared: object, number: int, on_start: Callable[[Job], object]
) -> Iterator[Result]:
    """Run jobs in `number` processes, and yield their results. `shared` and `on_start` are as for `run`.

    If a process dies, the unfinished jobs are repeated one at a time, so that only the job that ends its process fails.
    """
    # An array of bytes is written once, to a file that all processes map. Unlike mapped arrays, those that a process
    # unpickles from it can be modified.
    content = np.frombuffer(pickle.dumps(shared, protocol=pickle.HIGHEST_PROTOCOL), dtype=np.uint8)
    unfinished = list(jobs)
    try:
        for result in _run_in_pool(jobs, content, number, on_start):
            unfinished.remove(result.job)
            yield result
    except BrokenProcessPool:
        for job in unfinished:  # one at a time, so that only the job that ends its process fails
            try:
                yield from _run_in_pool([job], content, 2, on_start)  # with 1, joblib runs it in this process
            except BrokenProcessPool as error:
                yield Result(job, None, _make_error(job, _describe_broken_pool(error)))


def _describe_broken_pool(error: BrokenProcessPool) -> str:
    """Say why a worker process could not run its job: it was killed, or it could not import the job's function."""
    if error.__cause__ is None:
        return ": its process was killed, perhaps because memory ran out. Run fewer jobs at a time"
    cause = str(error.__cause__.args[0]).strip().splitlines()[-1]
    return (
        f": another process cannot load it ({cause}). Define classes and functions of yours in a module that can be "
        "imported, or leave out n_jobs"
    )


def _run_in_pool(
    jobs: Sequence[Job], content: np.ndarray, number: int, on_start: Callable[[Job], object]
) -> Iterator[Result]:
    """Run jobs in joblib's pool of processes; raise `BrokenProcessPool` if a process dies.

    `content` is the pickled value that all jobs share.
    """

    def tasks() -> Iterator[object]:
        for index, job in enumerate(jobs):
            on_start(job)
            yield joblib.delayed(_in_worker)(index, job, content, os.getpid(), method)

    method = multiprocessing.get_start_method(allow_none=True)
    # A task is handed out only when a process is free.
    parallel = joblib.Parallel(number, "loky", return_as="generator_unordered", batch_size=1, pre_dispatch="n_jobs")
    outcomes = parallel(tasks())
    try:
        for index, outcome in outcomes:
            yield Result(jobs[index], *outcome)
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # joblib warns of results that are not collected
            outcomes.close()


def _in_worker(index: int, job: Job, content: np.ndarray, parent: int, method: str | None) -> tuple[int, _Outcome]:
    _end_with_parent(parent)
    # A job may start processes itself, by the user's start method instead of joblib's.
    multiprocessing.set_start_method(method, force=True)
    limit_threads(1)
    return index, _attempt(job, pickle.loads(content.data))


@cache
def _end_with_parent(parent: int) -> None:
    """Start a thread that ends this process when its parent process ends; `parent` is the id of the parent.

    Without it, a worker could outlive its parent and write to files that the user's next command uses.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _run_on_cluster(
    cluster: RayCluster, jobs: Sequence[Job], shared: object, on_start: Callable[[Job], object]
) -> Iterator[Result]:
    """Run jobs as tasks of a Ray cluster, and yield their results. `shared` and `on_start` are as for `run`.

    Ray repeats a job if its node dies or if it raises an unexpected error.
    """
    ray = cluster.connect()
    # By default, Ray would fill half of a node before it uses the next one.
    task = ray.remote(
        num_cpus=cluster.cpus, num_gpus=cluster.gpus, max_retries=cluster.retries, retry_exceptions=True,
        scheduling_strategy="SPREAD",
    )(_run_on_node)  # fmt: skip
    # As bytes: arrays in Ray's store are read-only, and torch needs writable ones.
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


def _run_on_node(job: Job, content: bytes, cpus: int) -> tuple[Mapping[str, bytes] | None, DDPNError | None]:
    """Run a job on a node of the cluster. Return its files, or the `DDPNError` that it raised.

    If the error were raised here, Ray would repeat the task. `content` is the pickled value that all jobs share, and
    `cpus` is the number of threads that the job may use.
    """
    limit_threads(cpus)
    try:
        return dict(job.work(pickle.loads(content), *job.arguments)), None
    except DDPNError as error:
        return None, error


def _get_result(ray: ModuleType, reference: object, job: Job, retries: int) -> Result:
    """Return the result of a job whose Ray task is finished. An exception of the task becomes a `JobError`.

    `reference` is Ray's reference to the task. `retries` is how often Ray repeats a failed task; the message of the
    `JobError` mentions it.
    """
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
        reason = "its node ran out of memory. Give each job more CPU cores, so that fewer run at the same time"
    except errors.RayError as error:
        reason = f"its worker or node was lost ({type(error).__name__})"
    return Result(job, None, _make_error(job, times + reason))
