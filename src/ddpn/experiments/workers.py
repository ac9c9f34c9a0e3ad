"""Runs one after the other, or several at once in processes of one thread each.

Ctrl-C is a KeyboardInterrupt in the main process. It closes the iterator of `execute_all`, which sends SIGTERM to every
worker; there the signal raises KeyboardInterrupt, too, and a training saves its checkpoint before it ends.
"""

import multiprocessing
import os
import signal
import threading
import traceback
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ddpn.errors import DDPNError, of_the_machine
from ddpn.experiments.experiment import Experiment, Run
from ddpn.experiments.inputs import Parts, rows_of
from ddpn.experiments.runner import FEATURES, execute, folder_of

#: Seconds that a worker has to write its checkpoint; the largest of the catalogue takes one.
_PATIENCE = 20.0


class Event(NamedTuple):
    """A change of a run's state: it is "running", "done" with a result, or "failed" with an error."""

    run: Run
    state: str
    result: dict[str, Any] | None = None
    error: str = ""


def execute_all(
    runs: Sequence[Run], parts: Parts, out: Path, device: str = "auto", jobs: int = 1
) -> Generator[Event, None, None]:
    """Do all runs of one experiment, `jobs` at a time; yields an event when each begins and ends.

    The other runs go on if one fails. Close the iterator to end the processes that it has started.
    """
    if jobs > 1 and len(runs) > 1:
        yield from _in_processes(runs, jobs, runs[0].experiment, out, device, copies_of(jobs))
        return
    for run in runs:
        yield Event(run, "running")
        yield _attempt(run, parts, out, device)


def copies_of(jobs: int) -> int:
    """The number of processes that hold the rows: every worker and the main process."""
    return jobs + 1 if jobs > 1 else 1


def message_of(error: DDPNError | OSError) -> str:
    """The error as a sentence for the user."""
    return of_the_machine(error) if isinstance(error, OSError) else str(error)


def _attempt(run: Run, parts: Parts, out: Path, device: str) -> Event:
    try:
        return Event(run, "done", execute(run, parts, folder_of(run, out), device))
    except (DDPNError, OSError) as error:
        return Event(run, "failed", error=message_of(error))
    except Exception:
        return Event(run, "failed", error=traceback.format_exc())


class _Worker:
    """A process that does one run after the other."""

    def __init__(self, *given: Any) -> None:
        # Spawned: a fork of a process in which torch has threads can hang.
        context = multiprocessing.get_context("spawn")
        self.connection, there = context.Pipe()
        # Not a daemon: a daemon may not start processes of its own, which read images.
        self.process = context.Process(target=_work, args=(there, *given))
        self.process.start()
        there.close()

    def result(self, run: Run) -> Event:
        """Receive how the run ended."""
        try:
            return self.connection.recv()
        except (EOFError, ConnectionResetError):
            self.process.join(_PATIENCE)
            code = self.process.exitcode
            message = f"its process ended with exit code {code}. Use fewer jobs if memory ran out."
            return Event(run, "failed", error=message)


def _in_processes(runs: Sequence[Run], jobs: int, *given: Any) -> Iterator[Event]:
    waiting, workers = deque(runs), list[_Worker]()
    busy: dict[Any, tuple[_Worker, Run]] = {}
    try:
        while waiting or busy:
            while waiting and len(busy) < jobs:
                idle = [each for each in workers if each.connection not in busy and each.process.is_alive()]
                if not idle:
                    idle = [_Worker(*given)]
                    workers += idle
                busy[idle[0].connection] = idle[0], waiting[0]
                idle[0].connection.send(waiting[0])
                yield Event(waiting.popleft(), "running")
            for connection in wait(list(busy)):
                worker, run = busy.pop(connection)
                yield worker.result(run)
    finally:
        for process in (worker.process for worker in workers):
            process.terminate()
        for process in (worker.process for worker in workers):
            process.join(_PATIENCE)
            process.kill()
            process.join()


def _work(connection: Connection, experiment: Experiment, out: Path, device: str, copies: int) -> None:
    """The main function of a worker."""
    # A terminal sends Ctrl-C to every process; the main process passes it on as SIGTERM, once.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _interrupt)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    with suppress(EOFError, KeyboardInterrupt):
        parts = rows_of(experiment, device, out / FEATURES, copies)
        while True:
            connection.send(_attempt(connection.recv(), parts, out, device))


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def _end_with_parent() -> None:
    """An orphan would go on writing where the next command writes, too."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)
