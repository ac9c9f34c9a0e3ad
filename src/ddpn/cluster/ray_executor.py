"""Jobs on the nodes of a Ray cluster."""

import pickle
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ddpn.cluster.connection import connect, disconnect, import_ray
from ddpn.executors import Executor, Job, Result, Shared
from ddpn.executors.job import RETRIES, Failure, Report, attempt
from ddpn.runtime.errors import ConfigError
from ddpn.runtime.threads import limit_threads
from ddpn.runtime.validation import check_integer, is_number

#: Seconds between two checks of the progress of jobs, and between two lines that one job sends.
_OFTEN = 0.5
#: Data that a worker keeps in memory, at most so many pieces.
_KEPT = 2
_DATA: dict[str, Any] = {}


class RayExecutor(Executor):
    """Runs jobs as tasks of a Ray cluster. Data are put into its object store once.

    A job whose worker or node dies is repeated elsewhere, as is one that raises an error that is not one of ddpn's own.

    Parameters
    ----------
    address : str
        "auto" for the cluster that this machine belongs to (or that of RAY_ADDRESS), HOST:PORT, ray://HOST:PORT, or
        "local" for one that is started here and ends with the executor.
    cpus : int
        CPU cores of a job; it has as many threads.
    gpus : float
        GPUs of a job. With 0.25, four jobs share one.
    retries, store
        As for `Executor`.
    """

    def __init__(
        self, address: str = "auto", *, cpus: int = 1, gpus: float = 0.0, retries: int = RETRIES, store: Any = None
    ) -> None:
        super().__init__(retries, store)
        self.cpus = check_integer("cpus", cpus, minimum=1)
        if not is_number(gpus) or gpus < 0 or (gpus > 1 and gpus != int(gpus)):
            raise ConfigError(f"gpus must be a share of a GPU or an integer, got {gpus!r}.")
        self.gpus, self._ray = float(gpus), import_ray()
        self._connected = connect(address)
        self._references: dict[str, Any] = {}
        found = self._ray.cluster_resources()
        if found.get("CPU", 0.0) < self.cpus or found.get("GPU", 0.0) < self.gpus:
            has = f"{found.get('CPU', 0.0):g} CPU cores and {found.get('GPU', 0.0):g} GPUs"
            self.close()
            raise ConfigError(f"A job needs {self.cpus} CPU cores and {self.gpus:g} GPUs, but the cluster has {has}.")

    @property
    def slots(self) -> int:
        """How many jobs the cluster has room for at present."""
        found = self._ray.cluster_resources()
        by_gpu = found.get("GPU", 0.0) / self.gpus if self.gpus else float("inf")
        return max(1, int(min(found.get("CPU", 0.0) // self.cpus, by_gpu)))

    def _run(self, jobs: Sequence[Job], report: Report) -> Iterator[Result]:
        ray, board = self._ray, _Board(self._ray)
        attempts, running, begun = dict.fromkeys(jobs, 0), dict[Any, Job](), set[Job]()
        numbers = {str(number): job for number, job in enumerate(jobs)}
        names = {job: number for number, job in numbers.items()}
        # Spread, as Ray fills a node to one half first; repeated by us, so that every executor counts alike.
        how = {"num_cpus": self.cpus, "num_gpus": self.gpus, "max_retries": 0, "scheduling_strategy": "SPREAD"}
        work = ray.remote(**how)(_task)

        def submit(job: Job) -> None:
            attempts[job] += 1
            given = [self._sent(each) for each in job.arguments]
            running[work.remote(job.work, given, names[job], board.actor, self.cpus)] = job

        try:
            for job in jobs:
                submit(job)
            while running:
                ready, _ = ray.wait([*running], num_returns=1, timeout=_OFTEN)
                for number, text in board.lines():
                    if (job := numbers[number]) in running.values():
                        if text and job not in begun:
                            report(job, "running", "")
                        begun.add(job)
                        report(job, "running", text)
                for reference in ready:
                    job, found = running.pop(reference), self._received(reference)
                    if not isinstance(found, Failure):
                        yield Result(job, found)
                    elif found.final is not None or attempts[job] > self.retries:
                        yield self.failed(job, found, attempts[job])
                    else:
                        report(job, "retried", found.message)
                        submit(job)
        finally:
            for reference in running:
                ray.cancel(reference, force=True)
            board.close()

    def _sent(self, argument: Any) -> Any:
        if not isinstance(argument, Shared):
            return argument
        if argument.key not in self._references:
            # As bytes: arrays that Ray maps from its store cannot be written to, and torch wants to.
            content = pickle.dumps(argument.value, protocol=pickle.HIGHEST_PROTOCOL)
            self._references[argument.key] = self._ray.put(content)
        return _Put(argument.key, self._references[argument.key])

    def _received(self, reference: Any) -> Any:
        """The files of a task, or its failure."""
        errors = self._ray.exceptions
        try:
            return self._ray.get(reference)
        except errors.RayTaskError as error:  # raised before `attempt` was entered
            cause = getattr(error, "cause", error)
            if isinstance(cause, ModuleNotFoundError):
                remedy = "Install the same packages on every node"
                return Failure("", final=ConfigError(f"A node of the cluster has no module {cause.name}. {remedy}."))
            return Failure(_first_line(cause))
        except errors.RuntimeEnvSetupError as error:
            return Failure("", final=ConfigError(f"A node of the cluster cannot be prepared: {_first_line(error)}"))
        except errors.OutOfMemoryError:
            return Failure("its node was short of memory. Give each job more CPU cores, so that fewer run at once")
        except errors.RayError as error:
            return Failure(f"its worker or node was lost ({type(error).__name__})")

    def close(self) -> None:
        """Free the shared data, and disconnect if it was this executor that connected."""
        self._references.clear()
        if self._connected:
            self._connected = False
            disconnect()


class _Put:
    """Shared data in the object store of the cluster."""

    def __init__(self, key: str, reference: Any) -> None:
        self.key, self.reference = key, reference


class _Lines:
    """The last line on the progress of each job: an actor beside the driver."""

    def __init__(self) -> None:
        self._lines: dict[str, str] = {}

    def post(self, number: str, text: str) -> None:
        self._lines[number] = text

    def take(self) -> dict[str, str]:
        found, self._lines = self._lines, {}
        return found


class _Board:
    """Where tasks leave lines on their progress."""

    def __init__(self, ray: Any) -> None:
        self._ray, self._asked = ray, None
        here = ray.get_runtime_context().get_node_id()
        beside = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(here, soft=True)
        self.actor = ray.remote(num_cpus=0, max_restarts=-1, scheduling_strategy=beside)(_Lines).remote()

    def lines(self) -> list[tuple[str, str]]:
        """New lines since the last call, without waiting for them."""
        found: list[tuple[str, str]] = []
        if self._asked is not None:
            if not self._ray.wait([self._asked], timeout=0)[0]:
                return found
            with suppress(self._ray.exceptions.RayError):
                found = [*self._ray.get(self._asked).items()]
        self._asked = self.actor.take.remote()
        return found

    def close(self) -> None:
        self._ray.kill(self.actor)


def _task(work: Callable[..., Mapping[str, bytes]], given: list[Any], number: str, board: Any, cpus: int) -> Any:
    """What a worker runs."""
    limit_threads(cpus)
    said = 0.0

    def progress(text: str) -> None:
        nonlocal said
        if time.monotonic() - said >= _OFTEN:
            said = time.monotonic()
            board.post.remote(number, text)

    board.post.remote(number, "")
    return attempt(work, progress, [_value(each) if isinstance(each, _Put) else each for each in given])


def _value(put: _Put) -> Any:
    """The data, read once by every worker process."""
    if put.key not in _DATA:
        while len(_DATA) >= _KEPT:
            _DATA.pop(next(iter(_DATA)))
        _DATA[put.key] = pickle.loads(import_ray().get(put.reference))
    return _DATA[put.key]


def _first_line(error: Any) -> str:
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or ['no message'])[0]}"
