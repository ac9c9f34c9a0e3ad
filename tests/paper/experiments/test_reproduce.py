"""From experiments to tables on the console, and runs in processes."""

import importlib.util
import io
import json
import multiprocessing
import os
import re
import signal
import socket
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch
from rich.console import Console

from ddpn.networks.training import config
from ddpn.paper.experiments import reproduce as module
from ddpn.paper.experiments.catalogue import experiment, parse, select
from ddpn.paper.experiments.reproduce import Status, execute_all, processes, reproduce
from ddpn.paper.experiments.rows import rows_of
from ddpn.paper.experiments.runs import execute, folder_of, state_of
from ddpn.runtime.errors import ConfigError, InputError, TrainingError
from ddpn.storage.files import lock
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
    with lock(tmp_path / "wave" / ".lock"):
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
    monkeypatch.setattr(module, "execute_all", lambda *given: None)
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


@pytest.mark.parametrize("terminal", [False, True])
def test_the_state_of_every_run_is_shown(terminal):
    runs = experiment("wave").runs()[:4]
    states = dict.fromkeys([run.name for run in runs], "missing") | {runs[3].name: "done"}
    console = Console(file=io.StringIO(), force_terminal=terminal, width=100, color_system=None)
    with Status("wave", states, console) as status:
        status.began(runs[0])
        status.began(runs[1])
        status.failed(runs[1], "It broke.")
        status.ended(runs[0], RESULT)
    assert status.errors == {runs[1].name: "It broke."}
    output = console.file.getvalue()
    done = f"{runs[0].name} done in 12 s, MAE 0.457, CRPS 0.321"
    if terminal:
        shown = [re.sub(" +", " ", line) for line in output.splitlines()[-5:-1]]
        starts = [done, f"{runs[1].name} failed", f"{runs[2].name} waiting", f"{runs[3].name} was done"]
        assert all(start in line for line, start in zip(shown, starts, strict=True)), shown
    else:
        lines = [f"{runs[0].name} running", f"{runs[1].name} running", f"{runs[1].name} failed", done]
        assert output.splitlines() == [f"wave {line}" for line in lines]


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


class Reports:
    """What is reported of runs, instead of a `Status`."""

    def __init__(self):
        self.states = []

    def began(self, run):
        self.states.append((run, "running", ""))

    def ended(self, run, result):
        self.states.append((run, "done", result))

    def failed(self, run, error):
        self.states.append((run, "failed", error))

    def of(self, run):
        return [state for each, state, _ in self.states if each == run]


class Scenario(Reports):
    """Kills the process of one long run once both train, and interrupts the program when that run trains again."""

    def __init__(self, long, out):
        super().__init__()
        self.processes, self.folders = [], [folder_of(run, out) for run in long]
        threading.Thread(target=self.kill, daemon=True).start()

    def kill(self):
        while not all((folder / "members-0.state").exists() for folder in self.folders):
            time.sleep(0.05)
        self.processes = workers_of_this_process()
        self.processes[0].kill()
        while [state for _, state, _ in self.states].count("running") < 5:  # four began, and one again
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
        execute_all([*short, *long], parts, out, "cpu", 2, scenario)
    assert not psutil.wait_procs(scenario.processes, timeout=10.0)[1], "processes end with the interrupt"
    again = [run for run in long if scenario.of(run) == ["running", "running"]]
    assert again, "a run is repeated if a process dies"
    assert all(state_of(folder_of(run, out), run) == "missing" for run in long)
    assert (folder_of(again[0], out) / "config.json").exists()
    for run in short:
        assert scenario.of(run) == ["running", "done"]
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
    tiny, reports = parse("tiny", TINY), Reports()

    def execute(run, *rest):
        if run.method.name == "poisson":
            raise error
        return {"method": run.method.name}

    monkeypatch.setattr(module, "execute", execute)
    execute_all(tiny.runs(), None, tmp_path, "cpu", 1, reports)
    names = [(run.method.name, state) for run, state, _ in reports.states]
    assert names == [("poisson", "running"), ("poisson", "failed"), ("gaussian", "running"), ("gaussian", "done")]
    assert message in reports.states[1][2]
    assert reports.states[3][2] == {"method": "gaussian"}


def shared(rank: int, port: int, out: Path) -> None:
    """What torchrun would start as process `rank` of two."""
    torch.set_num_threads(1)  # threads of the parent are not there in a fork
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ |= {name: str(value) for name, value in place.items()} | {"LOCAL_WORLD_SIZE": "2"}
    with (out / f"{rank}.txt").open("w") as file:
        reproduce(select(["misspecified-poisson"], max_steps=5), out, Console(file=file), ["poisson"], "cpu", 1)
    config._leave()


@pytest.mark.skipif(importlib.util.find_spec("accelerate") is None, reason="needs ddpn[distributed]")
def test_two_processes_of_torchrun_write_what_one_does(tmp_path, monkeypatch):
    import accelerate  # noqa: F401  (once, and not in every process)

    monkeypatch.setattr("ddpn.paper.experiments.rows.TEST_ROWS", 200)
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
    (found,) = select(["misspecified-poisson"], max_steps=5)
    run = next(run for run in found.runs() if run.method.name == "poisson")
    one = execute(run, rows_of(found), folder_of(run, tmp_path / "one"), "cpu")
    two = json.loads((folder_of(run, tmp_path) / "run.json").read_text())
    crps = [result["scores"]["ours"]["ensemble"]["crps"] for result in (one, two)]
    assert crps[1] == pytest.approx(crps[0], rel=1e-4)
