"""Runs as jobs: one after the other, several at once in processes of one thread each, or on a cluster.

A run writes to its own folder, and a training that was interrupted or killed resumes from there. A node of a cluster
that does not see that folder writes to a temporary one and returns the files, which the main process writes.
"""

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from ddpn.executors import Executor, InProcess, Job, LocalProcesses
from ddpn.executors.job import Progress
from ddpn.experiments.experiment import Run
from ddpn.experiments.inputs import Parts, rows_of
from ddpn.experiments.results import DONE, FEATURES, PREDICTIONS, RESULT, WEIGHTS, folder_of
from ddpn.experiments.runner import execute
from ddpn.files import lock, write_bytes, write_text
from ddpn.runtime.errors import DDPNError, machine_error

#: Gets a run, its state and a detail: "running" and its progress, "done" and its result, or "failed" and the error.
Report = Callable[[Run, str, Any], object]
#: What a finished run consists of, in the order of writing.
_FILES = (PREDICTIONS, WEIGHTS, RESULT, DONE)
#: A file with a random text in the folder of an experiment, by which a node finds out whether it sees that folder.
_TOKEN = ".cluster"


def execute_all(
    runs: Sequence[Run],
    parts: Parts,
    out: Path,
    device: str,
    jobs: int,
    report: Report,
    cluster: Executor | None = None,
) -> None:
    """Do all runs of one experiment, `jobs` at a time or on a cluster; the others go on if one fails.

    `report` is called when a run begins, after each of its epochs, and when it ends.
    """
    work: Callable[..., dict[str, bytes]] = _here
    where: tuple[Any, ...] = (str(out), device)
    if cluster is not None:
        executor, token = cluster, uuid4().hex
        write_text(out / runs[0].experiment.name / _TOKEN, token)
        work, where = _on_a_node, (*where, token)
    else:
        # A run that ends its process is not repeated: it would probably end the next one, too.
        executor = LocalProcesses(jobs, retries=0) if jobs > 1 and len(runs) > 1 else InProcess(retries=0)
    data = executor.share(parts, partial(rows_of, runs[0].experiment, device, out / FEATURES, jobs + 1))
    by_job = {Job(run.name, work, (run, data, *where)): run for run in runs}

    def pass_on(job: Job, state: str, detail: Any) -> None:
        run = by_job[job]
        if state == "done":
            report(run, state, _result(run, detail.get(), out))
        elif state == "failed":
            report(run, state, detail.trace or message_of(detail.error).removeprefix(f"{job.name} failed: "))
        elif state == "retried":
            report(run, "running", f"again: {detail}")
        else:
            report(run, state, detail)

    try:
        for _ in executor.run(by_job, pass_on):
            pass
    finally:
        (out / runs[0].experiment.name / _TOKEN).unlink(missing_ok=True)


def message_of(error: DDPNError | OSError) -> str:
    """The error as a sentence for the user."""
    return machine_error(error) if isinstance(error, OSError) else str(error)


def _here(progress: Progress, run: Run, parts: Parts, out: str, device: str) -> dict[str, bytes]:
    """Do a run in its own folder; the result."""
    return {RESULT: json.dumps(execute(run, parts, folder_of(run, Path(out)), device, progress)).encode()}


def _on_a_node(progress: Progress, run: Run, parts: Parts, out: str, device: str, token: str) -> dict[str, bytes]:
    """Do a run on a node: in its own folder if the node sees it, else in a temporary one, with all files returned."""
    folder = folder_of(run, Path(out))
    known = folder.parent / _TOKEN
    if known.is_file() and known.read_text(encoding="utf-8") == token:
        # An attempt on a node that was taken for dead may still be running.
        with lock(folder / ".lock"):
            return _here(progress, run, parts, out, device)
    with tempfile.TemporaryDirectory(prefix="ddpn-") as place:
        execute(run, parts, Path(place), device, progress)
        return {name: (Path(place) / name).read_bytes() for name in _FILES}


def _result(run: Run, files: Mapping[str, bytes], out: Path) -> dict[str, Any]:
    """The result of a run, whose files are written if they come from another machine."""
    if DONE in files:
        for name in _FILES:
            write_bytes(folder_of(run, out) / name, files[name])
    found: dict[str, Any] = json.loads(files[RESULT])
    return found
