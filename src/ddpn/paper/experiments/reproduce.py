"""Running experiments and writing their tables and figures, with their state on the console."""

import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress, ProgressColumn, Task, TimeElapsedColumn
from rich.text import Text

from ddpn.networks.training.runtime import pick_device
from ddpn.paper.datasets import data_folder
from ddpn.paper.experiments import results
from ddpn.paper.experiments.experiment import Experiment, Run
from ddpn.paper.experiments.figures import write_figures
from ddpn.paper.experiments.rows import rows_of
from ddpn.paper.experiments.tables import write_tables
from ddpn.paper.experiments.workers import execute_all, message_of, noted
from ddpn.runtime.cluster import RayCluster
from ddpn.runtime.errors import ConfigError, DDPNError
from ddpn.runtime.jobs import Where
from ddpn.runtime.threads import cores
from ddpn.storage.files import lock

#: Two programs would delete each other's checkpoints.
_BUSY = "Another program is running this experiment ({path}). Wait for it, or choose another folder with --out."
#: Why a finished run is repeated.
_AGAIN = {"changed": "its settings or rows have changed", "damaged": "its files are damaged"}


def processes(jobs: int | None, device: str) -> int:
    """The number of runs at the same time: `jobs`, else one per core on a CPU and one on a GPU or under torchrun."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        if jobs not in (None, 1):
            raise ConfigError(f"jobs must be 1 under torchrun, whose processes share every run, got {jobs}.")
        return 1
    return jobs or (cores() if pick_device(device).type == "cpu" else 1)


def reproduce(
    experiments: Sequence[Experiment],
    out: Path,
    console: Console,
    only: Sequence[str],
    device: str,
    n_jobs: Where,
) -> bool:
    """Do the runs that are missing, write tables and figures, print the tables; returns whether everything succeeded.

    `only` names the methods to run; tables show all methods that are finished. An experiment that fails is reported,
    and the others are still run. Ctrl-C (KeyboardInterrupt) passes through: finished runs and checkpoints stay on disk,
    and what is finished is shown. `n_jobs` is the number of runs at the same time, by default one per core on a CPU and
    one on a GPU, or a cluster.
    """
    # Under torchrun every process takes part in every training, and one of them prints and writes.
    is_main, succeeded = int(os.environ.get("RANK", "0")) == 0, True
    n_jobs = n_jobs if isinstance(n_jobs, RayCluster) else processes(n_jobs, device)
    console = console if is_main else Console(quiet=True)
    for experiment in experiments:
        runs = [run for run in experiment.runs() if not only or run.method.name in only]
        try:
            with lock(out / experiment.name / ".lock", wait=False, busy=_BUSY) if is_main else nullcontext():
                succeeded &= _run(experiment, runs, out, device, n_jobs, console)
        except (DDPNError, OSError) as error:
            console.out(f"{experiment.name}: {message_of(error)}", highlight=False)
            succeeded = False
        finally:
            if is_main:
                succeeded &= _show(experiment, out, console)
    return succeeded


def _run(
    experiment: Experiment, runs: Sequence[Run], out: Path, device: str, n_jobs: int | RayCluster, console: Console
) -> bool:
    states, parts = _states(runs, out), None
    if any(state != "done" for state in states.values()) or _may_be_stale(experiment, runs, out):
        # Every worker holds the rows; this process does, and has them as bytes, too.
        copies = n_jobs + 2 if isinstance(n_jobs, int) and n_jobs > 1 else 1
        parts = rows_of(experiment, device, out / results.FEATURES, copies)
        states = _states(runs, out, parts.identity)
    for name, state in states.items():
        if state in _AGAIN:
            console.out(f"{experiment.name}: {name} was done, but {_AGAIN[state]}; it is run again.", highlight=False)
    missing = [run for run in runs if states[run.name] != "done"]
    if parts is None or not missing:
        if runs:
            console.out(f"{experiment.name}: nothing to run, all {len(runs)} runs are done.", highlight=False)
        return True
    with _Status(out / experiment.name, states, console) as status:
        execute_all(missing, parts, out, device, n_jobs, status.report)
    for name, error in status.failed.items():
        console.out(f"{experiment.name}: {name} failed: {error}", highlight=False)
    return not status.failed


class _State(ProgressColumn):
    """The state of a run; while it runs, what it has noted in its folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def render(self, task: Task) -> Text:
        state = task.fields["state"]
        return Text((state == "running" and noted(self._folder / task.description)) or state)


class _Status(Progress):
    """The state of every run and its time: redrawn on a terminal, a line per change of state elsewhere."""

    def __init__(self, folder: Path, states: Mapping[str, str], console: Console) -> None:
        columns = ("{task.description}", _State(folder), TimeElapsedColumn())
        super().__init__(*columns, console=console, disable=not console.is_terminal)
        self._title, self.failed = folder.name, dict[str, str]()
        shown = {name: "was done" if state == "done" else "waiting" for name, state in states.items()}
        self._runs = {name: self.add_task(name, start=False, state=state) for name, state in shown.items()}

    def report(self, run: Run, state: str, detail: Any) -> None:
        """Show the state of a run: see `workers.Report`."""
        task, shown = self._runs[run.name], state
        if state == "running":
            self.start_task(task)
        else:
            self.stop_task(task)
        if state == "failed":
            self.failed[run.name] = detail
        if state == "done":
            scores = {name: values[0] for name, values in detail["scores"]["ours"]["ensemble"].items()}
            shown = f"done in {detail['seconds']:.0f} s, MAE {scores['mae']:.3f}, CRPS {scores['crps']:.3f}"
        self.update(task, state=shown)
        if self.disable:
            self.console.out(f"{self._title} {run.name} {shown}", highlight=False)


def _may_be_stale(experiment: Experiment, runs: Sequence[Run], out: Path) -> bool:
    """Whether a file of the data is newer than a finished run; reading all rows to compare them takes much longer."""
    names = [name for name in ((experiment.data or {}).get("name"), experiment.ood) if name is not None]
    ended = [(results.folder_of(run, out) / results.DONE).stat().st_mtime for run in runs]
    paths = [path for name in names for path in (data_folder() / name).rglob("*")]
    try:
        return bool(ended) and any(path.stat().st_mtime > min(ended) for path in paths)
    except FileNotFoundError:  # deleted in the meantime
        return True


def _states(runs: Sequence[Run], out: Path, identity: list[int] | None = None) -> dict[str, str]:
    return {run.name: results.state_of(results.folder_of(run, out), run, identity) for run in runs}


def _show(experiment: Experiment, out: Path, console: Console) -> bool:
    """Write tables and figures of what is finished and print the tables; returns whether all files could be read."""
    runs = experiment.runs()
    if runs and "done" not in _states(runs, out).values():
        return True
    try:
        for path in write_tables(experiment, out) if runs else []:
            if path.suffix == ".md":
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
