"""Runs one after the other, or several at once in processes of one thread each that end when they are told to."""

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

from ddpn.errors import DDPNError, machine_error
from ddpn.experiments.experiment import Run
from ddpn.experiments.inputs import Parts, rows_of
from ddpn.experiments.runner import FEATURES, execute, folder_of

#: A worker that is told to end writes its state first; the largest of the catalogue takes a second.
_PATIENCE = 20.0


class Event(NamedTuple):
    """What happened to a run: it is "running", "done" with a result, or "failed" with an error."""

    run: Run
    state: str
    result: dict[str, Any] | None = None
    error: str = ""


def execute_all(
    runs: Sequence[Run], parts: Parts, out: Path, device: str = "auto", jobs: int = 1
) -> Generator[Event, None, None]:
    """Do all runs of one experiment, `jobs` at a time, and tell of each when it begins and ends.

    A run that fails does not keep the others from being done. Close the iterator to end the processes it has started.
    """
    if jobs > 1 and len(runs) > 1:
        yield from _Workers(runs, out, device, copies_of(jobs)).events(min(jobs, len(runs)))
        return
    for run in runs:
        yield Event(run, "running")
        yield _attempt(run, parts, out, device)


def copies_of(jobs: int) -> int:
    """How many processes have the rows: every worker, and the one that started them."""
    return jobs + 1 if jobs > 1 else 1


def _attempt(run: Run, parts: Parts, out: Path, device: str) -> Event:
    try:
        return Event(run, "done", execute(run, parts, folder_of(run, out), device))
    except DDPNError as error:
        return Event(run, "failed", error=str(error))
    except OSError as error:
        return Event(run, "failed", error=machine_error(error))
    except Exception:
        return Event(run, "failed", error=traceback.format_exc())


class _Workers:
    """Processes that are given one run after the other."""

    def __init__(self, runs: Sequence[Run], out: Path, device: str, copies: int) -> None:
        self._runs, self._given = runs, (runs, out, device, copies)
        self._processes: dict[Connection, Any] = {}
        self._busy: dict[Connection, int] = {}

    def events(self, jobs: int) -> Iterator[Event]:
        """See `execute_all`."""
        waiting = deque(range(len(self._runs)))
        try:
            while waiting or self._busy:
                while waiting and len(self._busy) < jobs:
                    number = waiting.popleft()
                    self._give(number)
                    yield Event(self._runs[number], "running")
                for connection in wait(list(self._busy)):
                    yield self._answer(connection)  # type: ignore[arg-type]
        finally:
            self._end()

    def _give(self, number: int) -> None:
        idle = [c for c, process in self._processes.items() if c not in self._busy and process.is_alive()]
        connection = idle[0] if idle else self._start()
        connection.send(number)
        self._busy[connection] = number

    def _start(self) -> Connection:
        # Spawned: a fork of a process in which torch has threads can hang.
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        # No daemon: those may not start processes of their own, which read pictures.
        process = context.Process(target=_work, args=(there, *self._given))
        process.start()
        there.close()
        self._processes[here] = process
        return here

    def _answer(self, connection: Connection) -> Event:
        run = self._runs[self._busy.pop(connection)]
        try:
            return connection.recv()._replace(run=run)
        except (EOFError, ConnectionResetError):
            process = self._processes.pop(connection)
            process.join(_PATIENCE)
            return Event(
                run,
                "failed",
                error=f"the process of {run.name} must end with a result, got exit code {process.exitcode}. "
                "Give it more memory, or use fewer jobs.",
            )

    def _end(self) -> None:
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            process.join(_PATIENCE)
            if process.is_alive():
                process.kill()
                process.join()


def _work(connection: Connection, runs: Sequence[Run], out: Path, device: str, copies: int) -> None:
    """A worker: ends when told to by a signal, which is an interrupt to the training, or when its parent is gone."""
    # Ctrl-C reaches every process of a terminal; the parent passes it on, once.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _interrupt)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    with suppress(EOFError, KeyboardInterrupt):
        parts = rows_of(runs[0].experiment, device, out / FEATURES, copies)
        while True:
            connection.send(_attempt(runs[connection.recv()], parts, out, device))


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def _end_with_parent() -> None:
    """Else an orphan would go on writing where the next command writes too."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)
