"""Runs as jobs: one after the other, several at once in processes of one thread each, or on a cluster.

On this machine a run writes to its own folder, and a training that was interrupted or killed resumes from there. A node
of a cluster writes to a temporary folder and returns the files, which the main process writes.
"""

import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ddpn.paper.experiments.experiment import Run
from ddpn.paper.experiments.results import DONE, PREDICTIONS, RESULT, WEIGHTS, folder_of
from ddpn.paper.experiments.rows import ExperimentRows
from ddpn.paper.experiments.runner import execute
from ddpn.runtime.cluster import RayCluster
from ddpn.runtime.errors import DDPNError, machine_error
from ddpn.runtime.jobs import Job
from ddpn.runtime.jobs import run as run_jobs
from ddpn.storage.files import write_bytes

#: Gets a run, its state and a detail: "running", "done" and its result, or "failed" and the error.
Report = Callable[[Run, str, Any], object]
#: What a finished run consists of, in the order of writing.
_FILES = (PREDICTIONS, WEIGHTS, RESULT, DONE)
#: A file in the folder of a run with a line on its progress, and the seconds between two of them.
_NOTE, _OFTEN = "progress", 0.5


def execute_all(
    runs: Sequence[Run], parts: ExperimentRows, out: Path, device: str, n_jobs: int | RayCluster, report: Report
) -> None:
    """Do all runs of one experiment, so many at a time or on a cluster; the others go on if one fails.

    `report` is called when a run begins and when it ends.
    """
    is_cluster = isinstance(n_jobs, RayCluster)
    by_job = {Job(run.name, _on_a_node if is_cluster else _here, (run, str(out), device)): run for run in runs}
    where = n_jobs if is_cluster or len(runs) > 1 else 1
    for result in run_jobs(by_job, parts, where, on_start=lambda job: report(by_job[job], "running", "")):
        run = by_job[result.job]
        if result.error is None:
            report(run, "done", _result(run, result.get(), out))
        else:
            error = message_of(result.error).removeprefix(f"{run.name} failed: ")
            report(run, "failed", result.trace or error)


def message_of(error: DDPNError | OSError) -> str:
    """The error as a sentence for the user."""
    return machine_error(error) if isinstance(error, OSError) else str(error)


def noted(folder: Path) -> str:
    """The progress of a run that has this folder; empty if nothing is known."""
    try:
        return (folder / _NOTE).read_text(encoding="utf-8")
    except OSError:
        return ""


def _here(parts: ExperimentRows, run: Run, out: str, device: str) -> dict[str, bytes]:
    """Do a run in its own folder, where its progress is noted now and then; the result."""
    folder, last = folder_of(run, Path(out)), 0.0

    def note(text: str) -> None:
        nonlocal last
        if time.monotonic() - last >= _OFTEN:
            last = time.monotonic()
            (folder / _NOTE).write_text(text, encoding="utf-8")

    try:
        return {RESULT: json.dumps(execute(run, parts, folder, device, note)).encode()}
    finally:
        (folder / _NOTE).unlink(missing_ok=True)


def _on_a_node(parts: ExperimentRows, run: Run, out: str, device: str) -> dict[str, bytes]:
    """Do a run in a temporary folder; all files."""
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
