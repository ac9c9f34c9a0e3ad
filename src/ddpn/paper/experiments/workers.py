"""Runs as jobs: one after the other, several at once in processes of one thread each, or on a cluster.

A run writes to its own folder, and a training that was interrupted or killed resumes from there. A node of a cluster
that does not see that folder writes to a temporary one and returns the files, which the main process writes.
"""

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from ddpn.paper.experiments.experiment import Run
from ddpn.paper.experiments.inputs import Parts
from ddpn.paper.experiments.results import DONE, PREDICTIONS, RESULT, WEIGHTS, folder_of
from ddpn.paper.experiments.runner import execute
from ddpn.runtime.cluster import RayCluster
from ddpn.runtime.errors import DDPNError, machine_error
from ddpn.runtime.jobs import Job
from ddpn.runtime.jobs import run as run_jobs
from ddpn.storage.files import lock, write_bytes, write_text

#: Gets a run, its state and a detail: "running", "done" and its result, or "failed" and the error.
Report = Callable[[Run, str, Any], object]
#: What a finished run consists of, in the order of writing.
_FILES = (PREDICTIONS, WEIGHTS, RESULT, DONE)
#: A file with a random text in the folder of an experiment, by which a node finds out whether it sees that folder.
_TOKEN = ".cluster"
#: A file in the folder of a run with a line on its progress, and the seconds between two of them.
_NOTE, _OFTEN = "progress", 0.5


def execute_all(
    runs: Sequence[Run], parts: Parts, out: Path, device: str, n_jobs: int | RayCluster, report: Report
) -> None:
    """Do all runs of one experiment, so many at a time or on a cluster; the others go on if one fails.

    `report` is called when a run begins and when it ends.
    """
    token, where = out / runs[0].experiment.name / _TOKEN, n_jobs if len(runs) > 1 else 1
    if isinstance(n_jobs, RayCluster):
        where = n_jobs
        write_text(token, text := uuid4().hex)
        by_job = {Job(run.name, _on_a_node, (run, str(out), device, text)): run for run in runs}
    else:
        by_job = {Job(run.name, _here, (run, str(out), device)): run for run in runs}
    try:
        for result in run_jobs(by_job, parts, where, on_start=lambda job: report(by_job[job], "running", "")):
            run = by_job[result.job]
            if result.error is None:
                report(run, "done", _result(run, result.get(), out))
            else:
                error = message_of(result.error).removeprefix(f"{run.name} failed: ")
                report(run, "failed", result.trace or error)
    finally:
        token.unlink(missing_ok=True)


def message_of(error: DDPNError | OSError) -> str:
    """The error as a sentence for the user."""
    return machine_error(error) if isinstance(error, OSError) else str(error)


def noted(folder: Path) -> str:
    """The progress of a run that has this folder; empty if nothing is known."""
    try:
        return (folder / _NOTE).read_text(encoding="utf-8")
    except OSError:
        return ""


@contextmanager
def _notes(folder: Path) -> Iterator[Callable[[str], None]]:
    """A function that notes the progress of a run in its folder, now and then."""
    last = 0.0

    def note(text: str) -> None:
        nonlocal last
        if time.monotonic() - last >= _OFTEN:
            last = time.monotonic()
            (folder / _NOTE).write_text(text, encoding="utf-8")

    try:
        yield note
    finally:
        (folder / _NOTE).unlink(missing_ok=True)


def _here(parts: Parts, run: Run, out: str, device: str) -> dict[str, bytes]:
    """Do a run in its own folder; the result."""
    folder = folder_of(run, Path(out))
    with _notes(folder) as note:
        return {RESULT: json.dumps(execute(run, parts, folder, device, note)).encode()}


def _on_a_node(parts: Parts, run: Run, out: str, device: str, token: str) -> dict[str, bytes]:
    """Do a run on a node: in its own folder if the node sees it, else in a temporary one, with all files returned."""
    folder = folder_of(run, Path(out))
    known = folder.parent / _TOKEN
    if known.is_file() and known.read_text(encoding="utf-8") == token:
        # An attempt on a node that was taken for dead may still be running.
        with lock(folder / ".lock"):
            return _here(parts, run, out, device)
    with tempfile.TemporaryDirectory(prefix="ddpn-") as place:
        execute(run, parts, Path(place), device)
        return {name: (Path(place) / name).read_bytes() for name in _FILES}


def _result(run: Run, files: Mapping[str, bytes], out: Path) -> dict[str, Any]:
    """The result of a run, whose files are written if they come from another machine."""
    if DONE in files:
        for name in _FILES:
            write_bytes(folder_of(run, out) / name, files[name])
    found: dict[str, Any] = json.loads(files[RESULT])
    return found
