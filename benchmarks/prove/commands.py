"""Commands that can be killed, started by a process that has imported everything."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.prove.proof import ROOT, environment


class Ended(NamedTuple):
    """How a command ended: exit code (negative for a signal), seconds, changes of files, what it printed."""

    code: int
    seconds: float
    changes: int
    output: str


class Commands:
    """Runs commands one after the other."""

    def __init__(self, process: "subprocess.Popen[str]", logs: Path) -> None:
        self._process, self._logs = process, logs

    def run(self, folder: Path, words: list[str], after: float | None = None, at: int | None = None) -> Ended:
        """Run a command; kill it after some seconds, or before a file operation, if wanted."""
        log = self._logs / "command.log"
        job = {"folder": str(folder), "words": words, "log": str(log), "last": at}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        number, start = int(self._process.stdout.readline()), time.perf_counter()
        timer = None if after is None else threading.Timer(after, _kill, [number])
        if timer is not None:
            timer.start()
        code, changes = json.loads(self._process.stdout.readline())
        if timer is not None:
            timer.cancel()
        return Ended(code, time.perf_counter() - start, changes, log.read_text(errors="replace"))


def _kill(number: int) -> None:
    try:
        os.kill(number, signal.SIGKILL)
    except ProcessLookupError:
        return  # it has just ended


@contextmanager
def commands(logs: Path) -> Iterator[Commands]:
    """Start the process that forks; `logs` is a folder outside the folders that commands work in."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.prove.forked"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment(),
        cwd=ROOT,
    )
    assert process.stdout is not None
    try:
        if process.stdout.readline() != "ready\n":
            raise RuntimeError("The process that forks commands did not start.")
        yield Commands(process, logs)
    finally:
        process.kill()
        process.communicate()
