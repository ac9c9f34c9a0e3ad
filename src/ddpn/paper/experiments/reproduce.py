"""Run experiments, write their tables and figures, and print the progress."""

import json
import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

from rich.console import Console

from ddpn.networks.training.config import pick_device
from ddpn.paper.datasets import data_folder
from ddpn.paper.experiments.experiment import Experiment, Run
from ddpn.paper.experiments.figures import write_figures
from ddpn.paper.experiments.rows import ExperimentRows, load_rows
from ddpn.paper.experiments.runs import DONE, RESULT, check_run, execute, run_folder
from ddpn.paper.experiments.tables import write_tables
from ddpn.runtime.errors import ConfigError, DDPNError, describe_os_error
from ddpn.runtime.jobs import Job
from ddpn.runtime.jobs import run as run_jobs
from ddpn.runtime.threads import count_cores
from ddpn.storage.files import lock

#: The error if another program runs the same experiment: the programs would delete each other's checkpoints.
_BUSY = "Another program is running this experiment. Wait for it, or write the results to another folder."
#: The reasons why a finished run is repeated.
_AGAIN = {"changed": "its settings or rows have changed", "damaged": "its files are damaged"}


def count_simultaneous_runs(jobs: int | None, device: str) -> int:
    """Return the number of runs to execute at the same time.

    This is `jobs` if it is given. By default (None) it is one per core on a CPU, and 1 on a GPU. Under torchrun it is
    1, because all processes share each training run; then any other number in `jobs` raises a `ConfigError`. `device`
    is "auto", "cpu" or a device of torch such as "cuda".
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        if jobs not in (None, 1):
            must = "be 1 under torchrun, whose processes share every run"
            raise ConfigError(argument="jobs", must=must, got=str(jobs))
        return 1
    return jobs or (count_cores() if pick_device(device).type == "cpu" else 1)


def reproduce(
    experiments: Sequence[Experiment],
    out: Path,
    console: Console,
    only: Sequence[str],
    device: str,
    jobs: int | None = None,
) -> bool:
    """Execute the unfinished runs of experiments, and write tables and figures; return True if all succeeded.

    `only` lists the methods to run; if it is empty, all methods are run. The tables and figures show every finished
    method, and the tables are printed on `console`. `out` is the folder of all results. `device` is "auto", "cpu" or a
    device of torch such as "cuda". `jobs` is the number of simultaneous runs (see `count_simultaneous_runs`).

    If an experiment fails, the error is printed and the next experiment begins. After Ctrl-C, the tables and figures of
    the current experiment are written before the `KeyboardInterrupt` is raised. Finished runs and checkpoints stay on
    disk.
    """
    # Under torchrun, every process takes part in every training, but only one prints and writes.
    is_main, succeeded = int(os.environ.get("RANK", "0")) == 0, True
    jobs = count_simultaneous_runs(jobs, device)
    console = console if is_main else Console(quiet=True)
    for experiment in experiments:
        runs = [run for run in experiment.runs() if not only or run.method.name in only]
        try:
            with lock(out / experiment.name / ".lock", wait=False, busy=_BUSY) if is_main else nullcontext():
                succeeded &= _run_unfinished_runs(experiment, runs, out, device, jobs, console)
        except (DDPNError, OSError) as error:
            message = describe_os_error(error) if isinstance(error, OSError) else str(error)
            console.out(f"{experiment.name}: {message}", highlight=False)
            succeeded = False
        finally:
            if is_main:
                succeeded &= _show(experiment, out, console)
    return succeeded


def _run_unfinished_runs(
    experiment: Experiment, runs: Sequence[Run], out: Path, device: str, jobs: int, console: Console
) -> bool:
    """Execute the runs in `runs` that are not finished; return True if all succeeded.

    A finished run is executed again if its settings or the rows of the experiment have changed, or if its files are
    damaged. The rows are loaded only if a run is not finished or a data file is newer than one of the runs. `jobs` is
    the number of simultaneous runs. `out` is the folder of all results, and `device` is "auto", "cpu" or a device of
    torch such as "cuda". Lines of text about the progress are printed on `console`.
    """

    def say(line: str) -> None:
        console.out(f"{experiment.name}: {line}", highlight=False)

    states, parts = _states(runs, out), None
    if any(state != "done" for state in states.values()) or _may_be_stale(experiment, runs, out):
        # Every worker holds the rows. This process holds them twice, as tensors and as bytes.
        parts = load_rows(experiment, device, copies=jobs + 2 if jobs > 1 else 1)
        states = _states(runs, out, parts.identity)
    for name, state in states.items():
        if state in _AGAIN:
            say(f"{name} was done, but {_AGAIN[state]}; it is run again.")
    missing = [run for run in runs if states[run.name] != "done"]
    if parts is None or not missing:
        if runs:
            say(f"nothing to run, all {len(runs)} runs are done.")
        return True
    return execute_all(missing, parts, out, device, jobs, say)


def execute_all(
    runs: Sequence[Run], parts: ExperimentRows, out: Path, device: str, jobs: int, say: Callable[[str], None]
) -> bool:
    """Execute `runs` in processes with one thread each, `jobs` at a time; return True if all succeeded.

    `parts` has the training, validation and test rows of the experiment. `out` is the folder of all results. Each run
    writes to its own folder there, from which an interrupted run resumes. `device` is "auto", "cpu" or a device of
    torch such as "cuda". `say` is called with a line of text when a run begins, ends or fails. If a run fails, the
    others continue.
    """
    succeeded = True
    todo = [Job(run.name, _execute, (run, str(out), device)) for run in runs]
    for done in run_jobs(todo, parts, jobs if len(runs) > 1 else 1, on_start=lambda job: say(f"{job.name} is running")):
        if done.error is not None:
            why = done.trace or str(done.error).removeprefix(f"{done.job.name} failed: ")
            say(f"{done.job.name} failed: {why}")
            succeeded = False
            continue
        result = json.loads(done.get()[RESULT])
        mae, crps = (result["scores"]["ours"]["ensemble"][name][0] for name in ("mae", "crps"))
        say(f"{done.job.name} is done in {result['seconds']:.0f} s, MAE {mae:.3f}, CRPS {crps:.3f}")
    return succeeded


def _execute(parts: ExperimentRows, run: Run, out: str, device: str) -> dict[str, bytes]:
    return {RESULT: json.dumps(execute(run, parts, run_folder(run, Path(out)), device)).encode()}


def _may_be_stale(experiment: Experiment, runs: Sequence[Run], out: Path) -> bool:
    """Return True if a data file of the experiment is newer than one of `runs`, so that the rows may have changed.

    All `runs` must be finished.
    `out` is the folder of all results. Comparing modification times is much faster than comparing all rows.
    """
    names = [name for name in ((experiment.data or {}).get("name"), experiment.ood) if name is not None]
    ended = [(run_folder(run, out) / DONE).stat().st_mtime for run in runs]
    paths = [path for name in names for path in (data_folder() / name).rglob("*")]
    try:
        return bool(ended) and any(path.stat().st_mtime > min(ended) for path in paths)
    except FileNotFoundError:  # deleted in the meantime
        return True


def _states(runs: Sequence[Run], out: Path, identity: list[int] | None = None) -> dict[str, str]:
    return {run.name: check_run(run_folder(run, out), run, identity) for run in runs}


def _show(experiment: Experiment, out: Path, console: Console) -> bool:
    """Write the tables and figures of finished runs and print the tables; return False if a table cannot be made.

    `out` is the folder of all results. If no run of the experiment is finished, nothing is written, and True is
    returned. Figures that cannot be drawn are only reported on `console`.
    """
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
