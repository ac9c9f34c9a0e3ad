"""`Job`, `Result` and the contract of executors."""

import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self
from uuid import uuid4

from ddpn.executors.store import ResultStore
from ddpn.runtime.errors import DDPNError, machine_error
from ddpn.runtime.validation import check_integer

#: Attempts beyond the first, for faults of machines and for errors that may not happen again.
RETRIES = 3

#: Called by a job with a line on its progress.
Progress = Callable[[str], object]
#: Gets a job, its state and a detail: "running" and its progress, "retried" and why, "done" or "failed" and the result.
Report = Callable[["Job", str, Any], object]


class JobError(DDPNError, RuntimeError):
    """A job that failed as often as it may be repeated."""


@dataclass(frozen=True, eq=False)
class Shared:
    """Data that many jobs read, sent once to every process; `Executor.share` makes it.

    Attributes
    ----------
    value : object
        The data, in the process that shared them.
    rebuild : callable, optional
        How another process of this machine gets them by itself, instead of being sent them.
    key : str
        A name that no other data have.
    """

    value: Any
    rebuild: Callable[[], Any] | None = None
    key: str = field(default_factory=lambda: uuid4().hex)


@dataclass(frozen=True, eq=False)
class Job:
    """A part of the work.

    Attributes
    ----------
    name : str
        What messages call it.
    work : callable
        A function of a module. Its first argument is a function to call with a line on the progress; it returns files:
        bytes by name.
    arguments : tuple
        Its further arguments. Those that are `Shared` are replaced by their value.
    identity : object, optional
        What the result depends on, as values that JSON can hold. Results of jobs without it are not stored.
    """

    name: str
    work: Callable[..., Mapping[str, bytes]]
    arguments: tuple[Any, ...] = ()
    identity: Any = None


class Result(NamedTuple):
    """How a job ended.

    Attributes
    ----------
    job : Job
        The job.
    files : dict of bytes or None
        What it returned.
    error : DDPNError or None
        Why it failed: an error of ddpn as it was raised, else a `JobError` with one sentence.
    trace : str
        Where it failed, for errors that nobody expected.
    """

    job: Job
    files: Mapping[str, bytes] | None
    error: DDPNError | None = None
    trace: str = ""

    def get(self) -> Mapping[str, bytes]:
        """The files, or the error is raised."""
        if self.error is not None:
            raise self.error
        assert self.files is not None
        return self.files


class Failure(NamedTuple):
    """An attempt that failed. It is `final` where another one would fail the same way."""

    message: str
    final: DDPNError | None = None
    trace: str = ""


def attempt(work: Callable[..., Mapping[str, bytes]], progress: Progress, arguments: Sequence[Any]) -> Any:
    """Run the function of a job; its files, or a `Failure`."""
    try:
        return dict(work(progress, *arguments))
    except DDPNError as error:
        return Failure(str(error), final=error)
    except OSError as error:
        return Failure(machine_error(error))
    except Exception as error:
        text = str(error).strip().splitlines()
        return Failure(f"{type(error).__name__}: {text[0] if text else 'no message'}", trace=traceback.format_exc())


class Executor(ABC):
    """Runs jobs.

    Parameters
    ----------
    retries : int
        How often a job is repeated after a fault of its machine or an error that is not one of ddpn's own.
    store : path, optional
        A folder that results are kept in: a program that is killed and started again continues with those it has.
    """

    def __init__(self, retries: int = RETRIES, store: Any = None) -> None:
        self.retries = check_integer("retries", retries, minimum=0)
        self.store = None if store is None else ResultStore(store)

    @property
    @abstractmethod
    def slots(self) -> int:
        """How many jobs run at the same time."""

    @abstractmethod
    def _run(self, jobs: Sequence[Job], report: Report) -> Iterator[Result]:
        """Results as they come."""

    def run(
        self,
        jobs: Iterable[Job],
        report: Report = lambda job, state, detail: None,
        store: ResultStore | None = None,
    ) -> Iterator[Result]:
        """Run jobs and yield their results as they come, those that are stored already first.

        A job that fails does not end the others. An exception in the caller's loop, such as Ctrl-C, ends all.

        Parameters
        ----------
        jobs : iterable of Job
            What to run.
        report : callable, optional
            Called with a job, its state and a detail: "running" and its progress, "retried" and why, "done" or "failed"
            and the result.
        store : ResultStore, optional
            Where results of these jobs are kept. Default: the store of the executor, if it has one.

        Yields
        ------
        Result
            The files of a job, or its error.
        """
        missing, store = [], self.store if store is None else store
        for job in jobs:
            files = None if store is None else store.read(job.identity)
            if files is None:
                missing.append(job)
                continue
            report(job, "done", found := Result(job, files))
            yield found
        for result in self._run(missing, report) if missing else ():
            if store is not None and result.files is not None:
                store.write(result.job.identity, result.files, result.job.name)
            report(result.job, "done" if result.error is None else "failed", result)
            yield result

    def share(self, value: Any, rebuild: Callable[[], Any] | None = None) -> Shared:
        """Data for the arguments of many jobs.

        Parameters
        ----------
        value : object
            The data.
        rebuild : callable, optional
            How another process of this machine gets them by itself, instead of being sent them.
        """
        return Shared(value, rebuild)

    def failed(self, job: Job, failure: Failure, attempts: int) -> Result:
        """The result of a job that is not repeated."""
        times = "" if attempts == 1 else f" {attempts} times, the last time"
        error = failure.final or JobError(f"{job.name} failed{times}: {failure.message.rstrip('.')}.")
        return Result(job, None, error, failure.trace)

    def __deepcopy__(self, memo: object) -> Self:
        return self  # a place, not a value: an estimator's copy runs there, too

    def close(self) -> None:  # noqa: B027
        """Release what the executor holds."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
