"""From experiments to tables on the console, and runs in processes."""

import importlib.util
import io
import json
import multiprocessing
import os
import signal
import socket
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch
from filelock import FileLock
from rich.console import Console

from ddpn.networks.training import config
from ddpn.paper.experiments import reproduce as module
from ddpn.paper.experiments.catalogue import parse, select
from ddpn.paper.experiments.reproduce import execute_all, processes, reproduce
from ddpn.paper.experiments.rows import rows_of
from ddpn.paper.experiments.runs import execute, folder_of, state_of
from ddpn.runtime.errors import ConfigError, InputError, TrainingError
from ddpn.storage.tensor_files import read

RESULT = {"seconds": 12.4, "scores": {"ours": {"ensemble": {"mae": [0.4567], "crps": [0.3214]}}}}


@pytest.fixture
def console():
    return Console(file=io.StringIO(), force_terminal=False, width=100, color_system=None)


def run(names, out, console, **options):
    """Whether it succeeded, and what was printed."""
    succeeded = reproduce(select(names), out, console, **({"only": [], "device": "cpu", "jobs": None} | options))
    return succeeded, console.file.getvalue()


def test_one_job_per_core_is_the_default_and_one_under_torchrun(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2}, raising=False)
    assert (processes(None, "cpu"), processes(2, "cpu")) == (3, 2)
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert processes(None, "cpu") == 1
    with pytest.raises(ConfigError, match=r"^jobs must be 1 under torchrun, .*got 2"):
        processes(2, "cpu")


def test_an_experiment_that_cannot_be_read_is_reported_and_the_next_one_done(tmp_path, monkeypatch, console):
    def unreadable(experiment, out):
        raise InputError("It is damaged.")

    monkeypatch.setattr(module, "write_tables", unreadable)
    monkeypatch.setattr(module, "_run", lambda *given: True)
    monkeypatch.setattr(module, "_states", lambda runs, out: {run.name: "done" for run in runs})
    found = run(["wave", "bikes"], tmp_path, console)
    assert found == (False, "wave: It is damaged.\nbikes: It is damaged.\n")


def test_two_programs_do_not_run_the_same_experiment(tmp_path, console):
    (tmp_path / "wave").mkdir()
    with FileLock(tmp_path / "wave" / ".lock"):  # as another program would hold it
        succeeded, output = run(["wave"], tmp_path, console)
    assert not succeeded
    assert output.startswith("wave: Another program is running this experiment")
    assert "--out" in output


@pytest.fixture
def finished_bikes(tmp_path, monkeypatch):
    """A run of bikes that is done, with data older than it; its rows and runs are not real."""
    monkeypatch.setenv("DDPN_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(
        module,
        "_states",
        lambda runs, out, *identity: {run.name: "changed" if identity else "done" for run in runs},
    )
    monkeypatch.setattr(module, "rows_of", lambda *given, **more: SimpleNamespace(identity=[1]))
    monkeypatch.setattr(module, "execute_all", lambda *given: True)
    monkeypatch.setattr(module, "_show", lambda *given: True)
    done = tmp_path / "bikes" / "poisson" / "DONE"
    done.parent.mkdir(parents=True)
    done.touch()
    os.utime(done, (2000.0, 2000.0))
    file = tmp_path / "data" / "bike_sharing" / "below" / "hour.csv"
    file.parent.mkdir(parents=True)
    file.touch()
    for path in (file, file.parent):
        os.utime(path, (1000.0, 1000.0))
    return file


def test_data_that_is_newer_than_finished_runs_is_read_again(finished_bikes, tmp_path, console):
    options = {"only": ["poisson"], "jobs": 1}
    assert run(["bikes"], tmp_path, console, **options) == (True, "bikes: nothing to run, all 1 runs are done.\n")
    os.utime(finished_bikes, (3000.0, 3000.0))
    _, output = run(["bikes"], tmp_path, console, **options)
    assert "poisson was done, but its settings or rows have changed; it is run again" in output


# Runs in several processes: their own, and those of torchrun ---------------------------------------------------------

TINY = {
    "title": "A test",
    "paper": "none",
    "data": {"name": "shelves", "beams": 40, "points": 16},
    "backbone": {"name": "countnet3d", "widths": [4, 8]},
    "methods": ["poisson", "gaussian"],
    "minutes": 1,
    "training": {"epochs": 2, "batch_size": 200, "lr": 1e-2, "weight_decay": 0.0, "hidden": [4], "members": 1},
}
LONG = 100_000


class Scenario:
    """Kills the process of one long run once both train, and interrupts the program when that run trains again."""

    def __init__(self, long, out):
        self.lines, self.processes, self.folders = [], [], [folder_of(run, out) for run in long]
        threading.Thread(target=self.kill, daemon=True).start()

    def of(self, run):
        return [line for line in self.lines if line.startswith(f"{run.name} ")]

    def kill(self):
        while not all((folder / "members-0.state").exists() for folder in self.folders):
            time.sleep(0.05)
        self.processes = workers_of_this_process()
        self.processes[0].kill()
        while sum(line.endswith("running") for line in self.lines) < 5:  # four began, and one again
            time.sleep(0.05)
        self.processes += workers_of_this_process()
        os.kill(os.getpid(), signal.SIGINT)


def workers_of_this_process():
    found = psutil.Process().children()
    return [child for child in found if "popen_loky_posix" in " ".join(child.cmdline())]


@pytest.mark.slow
def test_processes_do_what_this_one_does_survive_each_other_and_end_with_an_interrupt(tmp_path):
    tiny = parse("tiny", TINY | {"grid": {"epochs": [2, LONG]}})
    short, long = ([run for run in tiny.runs() if run.training.epochs == epochs] for epochs in (2, LONG))
    parts, out = rows_of(tiny), tmp_path / "two"
    scenario = Scenario(long, out)
    with pytest.raises(KeyboardInterrupt):
        execute_all([*short, *long], parts, out, "cpu", 2, scenario.lines.append)
    assert not psutil.wait_procs(scenario.processes, timeout=10.0)[1], "processes end with the interrupt"
    again = [run for run in long if scenario.of(run) == [f"{run.name} is running"] * 2]
    assert again, "a run is repeated if a process dies"
    assert all(state_of(folder_of(run, out), run) == "missing" for run in long)
    assert (folder_of(again[0], out) / "config.json").exists()
    for run in short:
        assert scenario.of(run)[-1].startswith(f"{run.name} is done in ")
        execute(run, parts, folder_of(run, tmp_path / "one"), "cpu")
        there, here = (read(folder_of(run, tmp_path / name) / "weights.safetensors")[0] for name in ("two", "one"))
        # A sum by several threads may differ in its last bit.
        torch.testing.assert_close(there, here)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (TrainingError("It cannot go on."), "It cannot go on."),
        (ZeroDivisionError("odd"), "ZeroDivisionError: odd"),
        (OSError(28, "No space left"), "full"),
    ],
)
def test_runs_are_done_one_after_the_other_and_go_on_if_one_fails(tmp_path, monkeypatch, error, message):
    tiny, lines = parse("tiny", TINY), []

    def execute(run, *rest):
        if run.method.name == "poisson":
            raise error
        return RESULT

    monkeypatch.setattr(module, "execute", execute)
    assert not execute_all(tiny.runs(), None, tmp_path, "cpu", 1, lines.append)
    assert (lines[0], lines[2]) == ("poisson is running", "gaussian is running")
    assert lines[1].startswith("poisson failed: ")
    assert message in lines[1]
    assert lines[3:] == ["gaussian is done in 12 s, MAE 0.457, CRPS 0.321"]


def shared(rank: int, port: int, out: Path) -> None:
    """What torchrun would start as process `rank` of two."""
    torch.set_num_threads(1)  # threads of the parent are not there in a fork
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ |= {name: str(value) for name, value in place.items()} | {"LOCAL_WORLD_SIZE": "2"}
    with (out / f"{rank}.txt").open("w") as file:
        reproduce([parse("tiny", TINY)], out, Console(file=file), ["poisson"], "cpu", 1)
    config._leave()


@pytest.mark.skipif(importlib.util.find_spec("accelerate") is None, reason="needs ddpn[distributed]")
def test_two_processes_of_torchrun_write_what_one_does(tmp_path):
    import accelerate  # noqa: F401  (once, and not in every process)

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    fork = multiprocessing.get_context("fork")
    both = [fork.Process(target=shared, args=(rank, port, tmp_path)) for rank in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join(120)
    assert [process.exitcode for process in both] == [0, 0]
    printed = [(tmp_path / f"{rank}.txt").read_text() for rank in range(2)]
    assert [text.count("Tables and figures:") for text in printed] == [1, 0]
    found = parse("tiny", TINY)
    run = found.runs()[0]
    one = execute(run, rows_of(found), folder_of(run, tmp_path / "one"), "cpu")
    two = json.loads((folder_of(run, tmp_path) / "run.json").read_text())
    crps = [result["scores"]["ours"]["ensemble"]["crps"] for result in (one, two)]
    assert crps[1] == pytest.approx(crps[0], rel=1e-4)
