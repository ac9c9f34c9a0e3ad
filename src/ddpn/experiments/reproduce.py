"""From the names of experiments to their tables and figures, telling all the while how far it is."""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table

from ddpn.errors import ConfigError, DDPNError, InputError, machine_error
from ddpn.experiments import runner, settings
from ddpn.experiments.experiment import Experiment, Run
from ddpn.experiments.inputs import rows_of
from ddpn.experiments.machine import changed_after, cores
from ddpn.experiments.naming import known
from ddpn.experiments.status import Board
from ddpn.experiments.tables import write_tables
from ddpn.experiments.workers import copies_of, execute_all
from ddpn.files import lock
from ddpn.training.runtime import pick_device

EVERY = "all"
#: Held while runs are done.
_LOCK = ".lock"
#: Why a finished run is done once more.
_AGAIN = {"changed": "its settings or rows have changed", "damaged": "its files are damaged"}


@dataclass(frozen=True)
class Options:
    """How to run: what the command line says beyond names."""

    out: Path
    members: int | None = None
    seed: int | None = None
    quick: bool = False
    only: tuple[str, ...] = ()
    device: str = "auto"
    jobs: int | None = None
    max_steps: int | None = None

    @property
    def processes(self) -> int:
        """`jobs`, or one a core; on a GPU one, as one run fills it."""
        if self.jobs is not None and self.jobs < 1:
            raise ConfigError(f"jobs must be at least 1, got {self.jobs}. Leave it out for one a core.")
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            if self.jobs not in (None, 1):
                raise ConfigError(
                    f"jobs must be 1 under torchrun, got {self.jobs}. Its processes share every training."
                )
            return 1
        if pick_device(self.device).type != "cpu":
            return self.jobs or 1
        return self.jobs or cores()


def listing() -> Table:
    """Every experiment, with what it needs and how long it takes."""
    table = Table(title="ddpn reproduce NAME")
    for heading in ("experiment", "what it shows", "in the paper", "needs", "minutes"):
        justify: Literal["left", "right"] = "right" if heading == "minutes" else "left"
        table.add_column(heading, no_wrap=heading == "experiment", justify=justify, overflow="fold")
    for name in settings.names():
        found = settings.experiment(name)
        table.add_row(name, settings.title_of(name), found.paper, found.needs, f"{found.minutes:g}")
    table.caption = "Minutes are those of two cores of a CPU; from 600 on they are estimates, and a GPU is wanted."
    return table


def chosen(names: Sequence[str], options: Options) -> list[Experiment]:
    """The experiments as they are to be run, with all their methods."""
    if not names:
        listed = ", ".join([*settings.names(), EVERY])
        raise ConfigError(f"NAME must be one or more of {listed}, got none. Or use --list to see what they are.")
    known("experiments", names, [*settings.names(), EVERY], "the catalogue")
    every = [name for name in settings.names() if not settings.experiment(name).apart] if EVERY in names else []
    wanted = list(dict.fromkeys([*every, *(name for name in names if name != EVERY)]))
    # By their own names: one that shows another's runs again is that other one.
    found = list({each.name: each for each in map(settings.experiment, wanted)}.values())
    there = dict.fromkeys(method.name for each in found for method in each.methods)
    known("methods", options.only, there, " and ".join(wanted))
    if options.max_steps is not None and options.max_steps < 1:
        raise ConfigError(f"max-steps must be at least 1, got {options.max_steps}. Leave it out for a full run.")
    found = [runner.quick(each) if options.quick else each for each in found]
    found = [runner.dry(each, options.max_steps) if options.max_steps else each for each in found]
    changes = {"members": options.members, "seed": options.seed}
    given = {name: value for name, value in changes.items() if value is not None}
    return [each.with_training(**given) for each in found]


def reproduce(names: Sequence[str], options: Options, console: Console) -> bool:
    """Run what is missing, write tables and figures, show the tables; whether all of it went well.

    An experiment that fails is told, and does not keep the others from being done.
    """
    experiments, jobs = chosen(names, options), options.processes
    # Under torchrun every process shares every training, and one of them tells and writes.
    is_main, went_well = int(os.environ.get("RANK", "0")) == 0, True
    console = console if is_main else Console(quiet=True)
    for experiment in experiments:
        try:
            with _alone(options.out / experiment.name, is_main):
                went_well &= _run(experiment, options, jobs, console)
        except DDPNError as error:
            console.print(f"{experiment.name}: {error}", markup=False, highlight=False, soft_wrap=True)
            went_well = False
        finally:
            # However it ended: what is finished is shown.
            if is_main:
                went_well &= _shown(experiment, options.out, console)
    return went_well


@contextmanager
def _alone(folder: Path, is_main: bool) -> Iterator[None]:
    """No other program works on these runs: two would delete each other's half-done trainings."""
    if not is_main:
        yield
        return
    with ExitStack() as held:
        try:
            busy = (
                f"{folder} must be worked on by one program at a time, got another that is running. "
                "Wait for it, or name another folder with --out."
            )
            held.enter_context(lock(folder / _LOCK, wait=False, busy=busy))
        except OSError as error:
            raise InputError(machine_error(error)) from None
        yield


def _shown(experiment: Experiment, out: Path, console: Console) -> bool:
    """Show tables and figures; files that cannot be read are told."""
    try:
        _show(experiment, out, console)
    except DDPNError as error:
        console.print(f"{experiment.name}: {error}", markup=False, highlight=False, soft_wrap=True)
        return False
    return True


def _run(experiment: Experiment, options: Options, jobs: int, console: Console) -> bool:
    runs = [run for run in experiment.runs() if not options.only or run.method.name in options.only]
    states, parts = _states(runs, options.out), None
    if any(state != "done" for state in states.values()) or _may_be_stale(experiment, runs, options.out):
        parts = rows_of(experiment, options.device, options.out / runner.FEATURES, copies_of(jobs))
        states = _states(runs, options.out, parts.identity)
    board = Board(experiment.title, runs, options.out, states)
    for name, state in states.items():
        if state in _AGAIN:
            console.print(f"{experiment.name}: {name} was done, but {_AGAIN[state]}; it is run again.", soft_wrap=True)
    missing = [run for run in runs if states[run.name] != "done"]
    if parts is None or not missing:
        if runs:
            console.print(f"{experiment.name}: nothing to run, all {len(runs)} runs are done.", highlight=False)
        return True
    with board.shown(console), closing(execute_all(missing, parts, options.out, options.device, jobs)) as events:
        for event in events:
            board.tell(event, console)
    for name, error in board.errors.items():
        console.print(f"{experiment.name}: {name} failed: {error}", markup=False, highlight=False, soft_wrap=True)
    return not board.errors


def _may_be_stale(experiment: Experiment, runs: Sequence[Run], out: Path) -> bool:
    ended = [(runner.folder_of(run, out) / runner.DONE).stat().st_mtime for run in runs]
    return bool(ended) and changed_after(experiment, min(ended))


def _states(runs: Sequence[Run], out: Path, identity: list[int] | None = None) -> dict[str, str]:
    return {run.name: runner.state_of(runner.folder_of(run, out), run, identity) for run in runs}


def _show(experiment: Experiment, out: Path, console: Console) -> None:
    """Write tables and figures of all that is finished, and show the tables."""
    if any(state == "done" for state in _states(experiment.runs(), out).values()):
        for path in write_tables(experiment, out):
            if path.suffix == ".md":
                console.print(path.read_text(encoding="utf-8"), markup=False, highlight=False, soft_wrap=True)
    elif experiment.runs():
        return
    if experiment.figures:
        _draw(experiment, out, console)
    console.print(f"Tables and figures: {out / experiment.name}", markup=False, highlight=False, soft_wrap=True)


def _draw(experiment: Experiment, out: Path, console: Console) -> None:
    from ddpn.experiments.figures import write_figures

    try:
        write_figures(experiment, out)
    except DDPNError as error:
        console.print(f"Not every figure: {error}", markup=False, highlight=False, soft_wrap=True)
