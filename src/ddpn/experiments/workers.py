"""Runs one after the other, or several at once in processes of one thread each.

Ctrl-C is a KeyboardInterrupt in the main process. It ends `execute_all`, which sends SIGTERM to every worker; there the
signal raises KeyboardInterrupt, too, and a training saves its checkpoint before it ends.
"""

import multiprocessing
import os
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch

from ddpn.errors import DDPNError, machine_error
from ddpn.experiments.experiment import Experiment, Run
from ddpn.experiments.inputs import Parts, rows_of
from ddpn.experiments.results import FEATURES, folder_of
from ddpn.experiments.runner import execute

#: Seconds that a worker has to write its checkpoint; the largest of the catalogue takes one.
_PATIENCE = 20.0


#: Gets a run, its state and a detail: "running" and its progress, "done" and its result, or "failed" and the error.
Report = Callable[[Run, str, Any], object]


def execute_all(runs: Sequence[Run], parts: Parts, out: Path, device: str, jobs: int, report: Report) -> None:
    """Do all runs of one experiment, `jobs` at a time; the others go on if one fails.

    `report` is called when a run begins, after each of its epochs, and when it ends.
    """
    if jobs > 1 and len(runs) > 1:
        _in_processes(runs, report, jobs, runs[0].experiment, out, device, jobs + 1)
        return
    for run in runs:
        report(run, "running", "")
        report(run, *_attempt(run, parts, out, device, partial(report, run, "running")))


def message_of(error: DDPNError | OSError) -> str:
    """The error as a sentence for the user."""
    return machine_error(error) if isinstance(error, OSError) else str(error)


def _attempt(run: Run, parts: Parts, out: Path, device: str, on_epoch: Callable[[str], object]) -> tuple[str, Any]:
    try:
        return "done", execute(run, parts, folder_of(run, out), device, on_epoch)
    except (DDPNError, OSError) as error:
        return "failed", message_of(error)
    except Exception:
        return "failed", traceback.format_exc()


def _in_processes(runs: Sequence[Run], report: Report, jobs: int, *given: Any) -> None:
    # Spawned: a fork of a process in which torch has threads can hang.
    context = multiprocessing.get_context("spawn")
    waiting, processes, busy = deque(runs), dict[Any, Any](), dict[Any, Run]()
    try:
        while waiting or busy:
            while waiting and len(busy) < jobs:
                idle = [each for each, process in processes.items() if each not in busy and process.is_alive()]
                connection, there = (idle[0], None) if idle else context.Pipe()
                if there is not None:
                    # Not a daemon: a daemon may not start processes of its own, which read images.
                    processes[connection] = context.Process(target=_work, args=(there, *given))
                    processes[connection].start()
                    there.close()
                busy[connection] = waiting.popleft()
                connection.send(busy[connection])
                report(busy[connection], "running", "")
            ready: list[Any] = wait(list(busy))
            for connection in ready:
                try:
                    state, detail = connection.recv()
                except (EOFError, ConnectionResetError):
                    processes[connection].join(_PATIENCE)
                    code = processes[connection].exitcode
                    state, detail = "failed", f"its process ended with exit code {code}. Try fewer jobs."
                run = busy[connection] if state == "running" else busy.pop(connection)
                report(run, state, detail)
    finally:
        for process in processes.values():
            process.terminate()
        for process in processes.values():
            process.join(_PATIENCE)
            process.kill()
            process.join()


def _work(connection: Connection, experiment: Experiment, out: Path, device: str, copies: int) -> None:
    """The main function of a worker."""
    # A terminal sends Ctrl-C to every process; the main process passes it on as SIGTERM, once.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    with suppress(EOFError, KeyboardInterrupt):
        parts = rows_of(experiment, device, out / FEATURES, copies)
        while True:
            run = connection.recv()
            connection.send(_attempt(run, parts, out, device, lambda text: connection.send(("running", text))))


def _end_with_parent() -> None:
    """An orphan would go on writing where the next command writes, too."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)
