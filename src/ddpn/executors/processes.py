"""Jobs in processes of this machine, of one thread each.

Ctrl-C is a KeyboardInterrupt in the main process. It ends `run`, which sends SIGTERM to every worker; there the signal
raises KeyboardInterrupt, too, and a training saves its checkpoint before it ends.
"""

import multiprocessing
import os
import pickle
import signal
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any

from ddpn.executors.job import RETRIES, Executor, Failure, Job, Report, Result, Shared, attempt
from ddpn.runtime.threads import cores, limit_threads
from ddpn.runtime.validation import check_integer

#: Seconds that a worker has to write its checkpoint; the largest of the catalogue takes one.
_PATIENCE = 20.0


class LocalProcesses(Executor):
    """Runs jobs in processes of this machine, each with one thread.

    Parameters
    ----------
    jobs : int, optional
        How many run at the same time. Default: one per core.
    retries, store
        As for `Executor`.
    """

    def __init__(self, jobs: int | None = None, retries: int = RETRIES, store: Any = None) -> None:
        super().__init__(retries, store)
        self._slots = cores() if jobs is None else check_integer("jobs", jobs, minimum=1)

    @property
    def slots(self) -> int:
        return self._slots

    def _run(self, jobs: Sequence[Job], report: Report) -> Iterator[Result]:
        waiting, attempts, workers = deque(jobs), dict.fromkeys(jobs, 0), list[_Worker]()
        try:
            while waiting or any(worker.job for worker in workers):
                while waiting and sum(worker.job is not None for worker in workers) < self.slots:
                    worker = next((w for w in workers if w.job is None and w.process.is_alive()), None)
                    if worker is None:
                        workers.append(worker := _Worker())
                    job = waiting.popleft()
                    attempts[job] += 1
                    worker.start(job)
                    report(job, "running", "")
                busy = {worker.connection: worker for worker in workers if worker.job is not None}
                ready: list[Any] = wait(list(busy))
                for worker in map(busy.__getitem__, ready):
                    assert worker.job is not None
                    job, found = worker.job, worker.receive()
                    if isinstance(found, str):
                        report(job, "running", found)
                    elif not isinstance(found, Failure):
                        yield Result(job, found)
                    elif found.final is not None or attempts[job] > self.retries:
                        yield self.failed(job, found, attempts[job])
                    else:
                        report(job, "retried", found.message)
                        waiting.append(job)
        finally:
            for worker in workers:
                worker.process.terminate()
            for worker in workers:
                worker.end()


class _Worker:
    """A process, the job that it has, and the data that it was sent."""

    def __init__(self) -> None:
        # Spawned: a fork of a process in which torch has threads can hang.
        context = multiprocessing.get_context("spawn")
        self.connection, there = context.Pipe()
        # Not a daemon: a daemon may not start processes of its own, which read images.
        self.process = context.Process(target=_work, args=(there,))
        self.process.start()
        there.close()
        self.job: Job | None = None
        self._sent = set[str]()

    def start(self, job: Job) -> None:
        self.job = job
        arguments = [_Sent(each.key) if isinstance(each, Shared) else each for each in job.arguments]
        with suppress(BrokenPipeError, ConnectionResetError):  # `receive` learns of it
            for each in job.arguments:
                if isinstance(each, Shared) and each.key not in self._sent:
                    self._sent.add(each.key)
                    known = (each.key, each.rebuild, None if each.rebuild else each.value)
                    self.connection.send_bytes(pickle.dumps(known, protocol=pickle.HIGHEST_PROTOCOL))
            self.connection.send_bytes(pickle.dumps((None, job.work, arguments), protocol=pickle.HIGHEST_PROTOCOL))

    def receive(self) -> Any:
        """A line on the progress, or the files or the failure of the job, which is then over."""
        try:
            found = pickle.loads(self.connection.recv_bytes())
        except (EOFError, ConnectionResetError):
            self.process.join(_PATIENCE)
            found = Failure(f"its process ended with exit code {self.process.exitcode}. Try fewer jobs.")
        if not isinstance(found, str):
            self.job = None
        return found

    def end(self) -> None:
        self.process.join(_PATIENCE)
        self.process.kill()
        self.process.join()
        self.connection.close()


class _Sent(str):
    """The key of data that the worker was sent before."""


def _work(connection: Connection) -> None:
    """The main function of a worker."""
    # A terminal sends Ctrl-C to every process; the main process passes it on as SIGTERM, once.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    limit_threads(1)
    data = dict[str, Any]()

    def send(found: Any) -> None:
        connection.send_bytes(pickle.dumps(found, protocol=pickle.HIGHEST_PROTOCOL))

    with suppress(EOFError, KeyboardInterrupt, BrokenPipeError):
        while True:
            key, first, second = pickle.loads(connection.recv_bytes())
            if key is None:
                send(attempt(_run_job, send, (first, second, data)))
            else:
                data[key] = (first, second)


def _run_job(progress: Any, work: Any, arguments: list[Any], data: dict[str, Any]) -> Any:
    return work(progress, *(_value(each, data) if isinstance(each, _Sent) else each for each in arguments))


def _value(key: _Sent, data: dict[str, Any]) -> Any:
    rebuild, value = data[key]
    if rebuild is not None:
        data[key] = (None, value := rebuild())
    return value


def _end_with_parent() -> None:
    """An orphan would go on writing where the next command writes, too."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)
