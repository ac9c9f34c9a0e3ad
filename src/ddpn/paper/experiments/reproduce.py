"""Running experiments and writing their tables and figures, with their state on the console."""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress, TimeElapsedColumn

from ddpn.networks.training.config import pick_device
from ddpn.paper.datasets import data_folder
from ddpn.paper.experiments.catalogue import Experiment, Run
from ddpn.paper.experiments.figures import write_figures
from ddpn.paper.experiments.rows import ExperimentRows, rows_of
from ddpn.paper.experiments.runs import DONE, FEATURES, RESULT, execute, folder_of, state_of
from ddpn.paper.experiments.tables import write_tables
from ddpn.runtime.errors import ConfigError, DDPNError, machine_error
from ddpn.runtime.jobs import Job
from ddpn.runtime.jobs import run as run_jobs
from ddpn.runtime.threads import cores
from ddpn.storage.files import lock

#: Two programs would delete each other's checkpoints.
_BUSY = "Another program is running this experiment. Wait for it, or choose another folder with --out."
#: Why a finished run is repeated.
_AGAIN = {"changed": "its settings or rows have changed", "damaged": "its files are damaged"}


def processes(jobs: int | None, device: str) -> int:
    """The number of runs at the same time: `jobs`, else one per core on a CPU and one on a GPU or under torchrun."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        if jobs not in (None, 1):
            must = "be 1 under torchrun, whose processes share every run"
            raise ConfigError(argument="jobs", must=must, got=str(jobs))
        return 1
    return jobs or (cores() if pick_device(device).type == "cpu" else 1)


def reproduce(
    experiments: Sequence[Experiment],
    out: Path,
    console: Console,
    only: Sequence[str],
    device: str,
    jobs: int | None = None,
) -> bool:
    """Do the runs that are missing, write tables and figures, print the tables; returns whether everything succeeded.

    `only` names the methods to run; tables show all methods that are finished. An experiment that fails is reported,
    and the others are still run. Ctrl-C (KeyboardInterrupt) passes through: finished runs and checkpoints stay on disk,
    and what is finished is shown. `jobs` is the number of runs at the same time, by default one per core on a CPU and
    one on a GPU.
    """
    # Under torchrun every process takes part in every training, and one of them prints and writes.
    is_main, succeeded = int(os.environ.get("RANK", "0")) == 0, True
    jobs = processes(jobs, device)
    console = console if is_main else Console(quiet=True)
    for experiment in experiments:
        runs = [run for run in experiment.runs() if not only or run.method.name in only]
        try:
            with lock(out / experiment.name / ".lock", wait=False, busy=_BUSY) if is_main else nullcontext():
                succeeded &= _run(experiment, runs, out, device, jobs, console)
        except (DDPNError, OSError) as error:
            message = machine_error(error) if isinstance(error, OSError) else str(error)
            console.out(f"{experiment.name}: {message}", highlight=False)
            succeeded = False
        finally:
            if is_main:
                succeeded &= _show(experiment, out, console)
    return succeeded


def _run(experiment: Experiment, runs: Sequence[Run], out: Path, device: str, jobs: int, console: Console) -> bool:
    """Do the runs that are missing; whether all succeeded."""
    states, parts = _states(runs, out), None
    if any(state != "done" for state in states.values()) or _may_be_stale(experiment, runs, out):
        # Every worker holds the rows; this process does, and has them as bytes, too.
        copies = jobs + 2 if jobs > 1 else 1
        parts = rows_of(experiment, device, out / FEATURES, copies)
        states = _states(runs, out, parts.identity)
    for name, state in states.items():
        if state in _AGAIN:
            console.out(f"{experiment.name}: {name} was done, but {_AGAIN[state]}; it is run again.", highlight=False)
    missing = [run for run in runs if states[run.name] != "done"]
    if parts is None or not missing:
        if runs:
            console.out(f"{experiment.name}: nothing to run, all {len(runs)} runs are done.", highlight=False)
        return True
    with Status(experiment.name, states, console) as status:
        execute_all(missing, parts, out, device, jobs, status)
    for name, error in status.errors.items():
        console.out(f"{experiment.name}: {name} failed: {error}", highlight=False)
    return not status.errors


def execute_all(
    runs: Sequence[Run], parts: ExperimentRows, out: Path, device: str, jobs: int, status: "Status"
) -> None:
    """Do all runs of one experiment, so many at a time in processes of one thread each; the others go on if one fails.

    A run writes to its own folder, and a training that was interrupted or killed resumes from there.
    """
    by_job = {Job(run.name, _execute, (run, str(out), device)): run for run in runs}
    for result in run_jobs(by_job, parts, jobs if len(runs) > 1 else 1, on_start=lambda job: status.began(by_job[job])):
        run = by_job[result.job]
        if result.error is None:
            status.ended(run, json.loads(result.get()[RESULT]))
        else:
            status.failed(run, result.trace or str(result.error).removeprefix(f"{run.name} failed: "))


def _execute(parts: ExperimentRows, run: Run, out: str, device: str) -> dict[str, bytes]:
    return {RESULT: json.dumps(execute(run, parts, folder_of(run, Path(out)), device)).encode()}


class Status(Progress):
    """The state of every run and its time: redrawn on a terminal, a line per change of state elsewhere."""

    def __init__(self, title: str, states: Mapping[str, str], console: Console) -> None:
        columns = ("{task.description}", "{task.fields[state]}", TimeElapsedColumn())
        super().__init__(*columns, console=console, disable=not console.is_terminal)
        self._title, self.errors = title, dict[str, str]()
        shown = {name: "was done" if state == "done" else "waiting" for name, state in states.items()}
        self._runs = {name: self.add_task(name, start=False, state=state) for name, state in shown.items()}

    def began(self, run: Run) -> None:
        """Show that a run has begun."""
        self.start_task(self._runs[run.name])
        self._show(run, "running")

    def ended(self, run: Run, result: Mapping[str, Any]) -> None:
        """Show the scores of a run."""
        scores = {name: values[0] for name, values in result["scores"]["ours"]["ensemble"].items()}
        self.stop_task(self._runs[run.name])
        self._show(run, f"done in {result['seconds']:.0f} s, MAE {scores['mae']:.3f}, CRPS {scores['crps']:.3f}")

    def failed(self, run: Run, error: str) -> None:
        """Keep the error of a run."""
        self.errors[run.name] = error
        self.stop_task(self._runs[run.name])
        self._show(run, "failed")

    def _show(self, run: Run, state: str) -> None:
        self.update(self._runs[run.name], state=state)
        if self.disable:
            self.console.out(f"{self._title} {run.name} {state}", highlight=False)


def _may_be_stale(experiment: Experiment, runs: Sequence[Run], out: Path) -> bool:
    """Whether a file of the data is newer than a finished run; reading all rows to compare them takes much longer."""
    names = [name for name in ((experiment.data or {}).get("name"), experiment.ood) if name is not None]
    ended = [(folder_of(run, out) / DONE).stat().st_mtime for run in runs]
    paths = [path for name in names for path in (data_folder() / name).rglob("*")]
    try:
        return bool(ended) and any(path.stat().st_mtime > min(ended) for path in paths)
    except FileNotFoundError:  # deleted in the meantime
        return True


def _states(runs: Sequence[Run], out: Path, identity: list[int] | None = None) -> dict[str, str]:
    return {run.name: state_of(folder_of(run, out), run, identity) for run in runs}


def _show(experiment: Experiment, out: Path, console: Console) -> bool:
    """Write tables and figures of what is finished and print the tables; returns whether all files could be read."""
    runs = experiment.runs()
    if runs and "done" not in _states(runs, out).values():
        return True
    try:
        for path in write_tables(experiment, out) if runs else []:
            console.out(path.read_text(encoding="utf-8"), highlight=False)
    except DDPNError as error:
        console.out(f"{experiment.name}: {error}", highlight=False)
        return False
    try:
        write_figures(experiment, out)
    except DDPNError as error:
        console.out(f"Figures are missing: {error}", highlight=False)
    console.out(f"Tables and figures: {out / experiment.name}", highlight=False)
    return True
