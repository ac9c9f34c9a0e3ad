"""Running experiments and writing their tables and figures, with their state on the console."""

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Column, Table

from ddpn.datasets.source import data_folder
from ddpn.errors import ConfigError, DDPNError
from ddpn.experiments import runner
from ddpn.experiments.catalogue import Options
from ddpn.experiments.experiment import Experiment, Run
from ddpn.experiments.figures import write_figures
from ddpn.experiments.inputs import rows_of
from ddpn.experiments.tables import write_tables
from ddpn.experiments.workers import Event, copies_of, execute_all, message_of
from ddpn.files import lock
from ddpn.threads import cores
from ddpn.training.runtime import pick_device

#: Held while the runs of an experiment are under way: two programs would delete each other's checkpoints.
_LOCK = ".lock"
_BUSY = "Another program is running this experiment ({path}). Wait for it, or choose another folder with --out."
#: Why a finished run is repeated.
_AGAIN = {"changed": "its settings or rows have changed", "damaged": "its files are damaged"}


def processes(options: Options) -> int:
    """The number of runs at the same time: `jobs`, else one per core on a CPU and one on a GPU or under torchrun."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        if options.jobs not in (None, 1):
            raise ConfigError(f"jobs must be 1 under torchrun, whose processes share every run, got {options.jobs}.")
        return 1
    return options.jobs or (cores() if pick_device(options.device).type == "cpu" else 1)


def reproduce(experiments: Sequence[Experiment], options: Options, console: Console) -> bool:
    """Do the runs that are missing, write tables and figures, print the tables; returns whether everything succeeded.

    An experiment that fails is reported, and the others are still run. Ctrl-C (KeyboardInterrupt) passes through:
    finished runs and checkpoints stay on disk, and what is finished is shown.
    """
    # Under torchrun every process takes part in every training, and one of them prints and writes.
    jobs, is_main, succeeded = processes(options), int(os.environ.get("RANK", "0")) == 0, True
    console = console if is_main else Console(quiet=True)
    for experiment in experiments:
        path = options.out / experiment.name / _LOCK
        try:
            with lock(path, wait=False, busy=_BUSY) if is_main else nullcontext():
                succeeded &= _run(experiment, options, jobs, console)
        except (DDPNError, OSError) as error:
            _print(console, f"{experiment.name}: {message_of(error)}")
            succeeded = False
        finally:
            if is_main:
                succeeded &= _show(experiment, options.out, console)
    return succeeded


def _print(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _run(experiment: Experiment, options: Options, jobs: int, console: Console) -> bool:
    runs = [run for run in experiment.runs() if not options.only or run.method.name in options.only]
    states, parts = _states(runs, options.out), None
    if any(state != "done" for state in states.values()) or _may_be_stale(experiment, runs, options.out):
        parts = rows_of(experiment, options.device, options.out / runner.FEATURES, copies_of(jobs))
        states = _states(runs, options.out, parts.identity)
    for name, state in states.items():
        if state in _AGAIN:
            _print(console, f"{experiment.name}: {name} was done, but {_AGAIN[state]}; it is run again.")
    missing = [run for run in runs if states[run.name] != "done"]
    if parts is None or not missing:
        if runs:
            _print(console, f"{experiment.name}: nothing to run, all {len(runs)} runs are done.")
        return True
    status, is_terminal = _Status(experiment.title, runs, options.out, states), console.is_terminal
    live = Live(get_renderable=status.table, console=console, refresh_per_second=2, vertical_overflow="visible")
    with (
        live if is_terminal else nullcontext(),
        closing(execute_all(missing, parts, options.out, options.device, jobs)) as events,
    ):
        for event in events:
            line = status.update(event)
            if not is_terminal:
                _print(console, f"{experiment.name} {line}")
    for name, error in status.errors.items():
        _print(console, f"{experiment.name}: {name} failed: {error}")
    return not status.errors


class _Status:
    """The state of every run, with its seconds, MAE and CRPS, as rows of a table."""

    def __init__(self, title: str, runs: Sequence[Run], out: Path, states: Mapping[str, str]) -> None:
        self._title, self.errors = title, dict[str, str]()
        self._folders, self._started = {run.name: runner.folder_of(run, out) for run in runs}, dict[str, float]()
        results = {name: runner.result_of(folder) for name, folder in self._folders.items() if states[name] == "done"}
        self._rows = {name: ["waiting"] for name in states} | {n: ["was done", *_scores(r)] for n, r in results.items()}

    def update(self, event: Event) -> str:
        """Record a change of a run's state; returns its row as a line."""
        name = event.run.name
        self._rows[name] = [event.state, *_scores(event.result)]
        if event.state == "running":
            self._started[name] = time.monotonic()
        elif event.state == "failed":
            self.errors[name] = event.error
        return " ".join([name, *self._rows[name]])

    def table(self) -> Table:
        """All runs; those under way with their progress."""
        right = (Column(heading, justify="right") for heading in ("seconds", "MAE", "CRPS"))
        table = Table("run", "state", *right, title=self._title)
        for name, row in self._rows.items():
            if row[0] == "running":
                progress, seconds = runner.progress_of(self._folders[name]), time.monotonic() - self._started[name]
                row = [progress or "running", f"{seconds:.0f} s"]
            table.add_row(name, *row)
        return table


def _scores(result: Mapping[str, Any] | None) -> list[str]:
    if result is None:
        return []
    scores = result["scores"]["ours"]["ensemble"]
    return [f"{result['seconds']:.0f} s", f"{scores['mae'][0]:.3f}", f"{scores['crps'][0]:.3f}"]


def _may_be_stale(experiment: Experiment, runs: Sequence[Run], out: Path) -> bool:
    """Whether a file of the data is newer than a finished run; reading all rows to compare them takes much longer."""
    names = [experiment.data["name"]] if experiment.data is not None else []
    names += [experiment.ood] if experiment.ood is not None else []
    ended = [(runner.folder_of(run, out) / runner.DONE).stat().st_mtime for run in runs]
    paths = [path for name in names for path in (data_folder() / name).rglob("*")]
    try:
        return bool(ended) and any(path.stat().st_mtime > min(ended) for path in paths)
    except FileNotFoundError:  # deleted in the meantime
        return True


def _states(runs: Sequence[Run], out: Path, identity: list[int] | None = None) -> dict[str, str]:
    return {run.name: runner.state_of(runner.folder_of(run, out), run, identity) for run in runs}


def _show(experiment: Experiment, out: Path, console: Console) -> bool:
    """Write tables and figures of what is finished and print the tables; returns whether all files could be read."""
    try:
        if any(state == "done" for state in _states(experiment.runs(), out).values()):
            for path in write_tables(experiment, out):
                if path.suffix == ".md":
                    _print(console, path.read_text(encoding="utf-8"))
        elif experiment.runs():
            return True
    except DDPNError as error:
        _print(console, f"{experiment.name}: {error}")
        return False
    try:
        write_figures(experiment, out)
    except DDPNError as error:
        _print(console, f"Figures are missing: {error}")
    _print(console, f"Tables and figures: {out / experiment.name}")
    return True
