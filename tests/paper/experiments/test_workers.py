"""Runs in several processes: their own, and those of torchrun. Each process imports torch, so they are few."""

import importlib.util
import json
import os
import signal
import socket
import threading
import time

import psutil
import pytest
import torch

from ddpn.paper.experiments import workers
from ddpn.paper.experiments.catalogue import parse, select
from ddpn.paper.experiments.results import RESULT, folder_of, state_of
from ddpn.paper.experiments.rows import rows_of
from ddpn.paper.experiments.runner import execute
from ddpn.paper.experiments.workers import execute_all, noted
from ddpn.runtime.cluster import RayCluster
from ddpn.runtime.errors import TrainingError
from ddpn.runtime.jobs import run as jobs_here
from ddpn.storage.tensor_files import read

CONTENT = {
    "title": "A test",
    "paper": "none",
    "simulation": {"name": "poisson"},
    "methods": ["poisson", "gaussian"],
    "minutes": 1,
    "training": {
        "epochs": 2, "batch_size": 200, "lr": 1e-2, "weight_decay": 0.0, "hidden": [4], "members": 1
    },
}  # fmt: skip
LONG = 100_000


def workers_of_this_process():
    found = psutil.Process().children()
    return [child for child in found if "popen_loky_posix" in " ".join(child.cmdline())]


class Scenario:
    """Kills the process of one long run once both train, and interrupts the program when that run trains again."""

    def __init__(self, long, out):
        self.reports, self.killed, self.processes = [], None, []
        self.folders = {run.name: folder_of(run, out) for run in long}
        threading.Thread(target=self.kill, daemon=True).start()

    def __call__(self, run, state, detail):
        self.reports.append((run, state, detail))

    def kill(self):
        while not all(noted(folder) for folder in self.folders.values()):
            time.sleep(0.05)
        self.processes = workers_of_this_process()
        self.processes[0].kill()
        while [state for _, state, _ in self.reports].count("running") < 5:  # four began, and one again
            time.sleep(0.05)
        for folder in self.folders.values():
            (folder / "progress").unlink(missing_ok=True)
        while not any(map(noted, self.folders.values())):
            time.sleep(0.05)
        self.processes += workers_of_this_process()
        os.kill(os.getpid(), signal.SIGINT)

    def states(self, run):
        return [state for each, state, _ in self.reports if each == run]


def test_processes_do_what_this_one_does_survive_each_other_and_end_with_an_interrupt(tmp_path):
    # Few test rows: a simulation by its name has 10,000.
    shelves = {"data": {"name": "shelves", "beams": 40, "points": 16}, "grid": {"epochs": [2, LONG]}}
    content = CONTENT | shelves | {"backbone": {"name": "countnet3d", "widths": [4, 8]}}
    experiment = parse("tiny", {key: value for key, value in content.items() if key != "simulation"})
    short, long = ([run for run in experiment.runs() if run.training.epochs == epochs] for epochs in (2, LONG))
    parts, out = rows_of(experiment), tmp_path / "two"
    scenario = Scenario(long, out)
    with pytest.raises(KeyboardInterrupt):
        execute_all([*short, *long], parts, out, "cpu", 2, scenario)
    assert not psutil.wait_procs(scenario.processes, timeout=10.0)[1], "processes end with the interrupt"
    again = [run for run in long if scenario.states(run) == ["running", "running"]]
    assert again, "a run is repeated if a process dies"
    assert all(state_of(folder_of(run, out), run) == "missing" for run in long)
    assert (folder_of(again[0], out) / "config.json").exists()
    for run in short:
        assert scenario.states(run) == ["running", "done"]
        execute(run, parts, folder_of(run, tmp_path / "one"), "cpu")
        there, here = (read(folder_of(run, tmp_path / name) / "weights.safetensors")[0] for name in ("two", "one"))
        # A sum by several threads may differ in its last bit.
        torch.testing.assert_close(there, here)


def test_runs_are_done_one_after_the_other_in_this_process(tmp_path, monkeypatch):
    monkeypatch.setattr("ddpn.paper.experiments.rows.TEST_ROWS", 100)
    monkeypatch.setattr(workers, "_OFTEN", 0.0)
    experiment, reports, notes = parse("tiny", CONTENT), [], []

    def follow(run, parts, folder, device, note):
        def on_epoch(text):
            note(text)
            notes.append(noted(folder))

        return execute(run, parts, folder, device, on_epoch)

    monkeypatch.setattr(workers, "execute", follow)
    execute_all(experiment.runs(), rows_of(experiment), tmp_path, "cpu", 1, lambda *report: reports.append(report))
    assert [run.name for run, _, _ in reports] == ["poisson"] * 2 + ["gaussian"] * 2
    assert [state for _, state, _ in reports] == ["running", "done"] * 2
    assert [text[:7] for text in notes] == ["epoch 1", "epoch 2"] * 2
    assert not any(noted(folder_of(run, tmp_path)) for run in experiment.runs())
    assert reports[1][2]["method"] == "poisson"


def test_a_node_of_a_cluster_returns_the_files(tmp_path, monkeypatch):
    monkeypatch.setattr("ddpn.paper.experiments.rows.TEST_ROWS", 100)
    experiment, reports, seen = parse("tiny", CONTENT), [], []
    run, out = experiment.runs()[0], tmp_path / "out"

    def follow(run, parts, folder, *rest):
        seen.append(folder)
        return execute(run, parts, folder, *rest)

    monkeypatch.setattr(workers, "execute", follow)
    monkeypatch.setattr(workers, "run_jobs", lambda jobs, parts, cluster, on_start: jobs_here(jobs, parts, None))
    execute_all([run], rows_of(experiment), out, "cpu", RayCluster(), lambda *report: reports.append(report))
    assert not seen[0].exists(), "a temporary folder"
    assert state_of(folder_of(run, out), run) == "done"
    assert reports[-1][2]["method"] == "poisson"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (TrainingError("It cannot go on."), "It cannot go on."),
        (ZeroDivisionError("odd"), "ZeroDivisionError: odd"),
        (OSError(28, "No space left"), "full"),
    ],
)
def test_the_other_runs_go_on_if_one_fails(tmp_path, monkeypatch, error, message):
    experiment, reports = parse("tiny", CONTENT), []

    def execute(run, *rest):
        if run.method.name == "poisson":
            raise error
        return {}

    monkeypatch.setattr(workers, "execute", execute)
    execute_all(experiment.runs(), None, tmp_path, "cpu", 1, lambda *report: reports.append(report))
    assert [state for _, state, _ in reports] == ["running", "failed", "running", "done"]
    assert message in reports[1][2]


@pytest.mark.skipif(importlib.util.find_spec("accelerate") is None, reason="needs ddpn[distributed]")
def test_two_processes_of_torchrun_write_what_one_does(tmp_path, program):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    command = ["reproduce", "misspecified-poisson", "--max-steps", "5", "--only", "poisson", "--device", "cpu"]
    command += ["--jobs", "1", "--out", str(tmp_path / "two")]
    shared = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}
    shared |= {"MASTER_PORT": str(port), "LOCAL_WORLD_SIZE": "2"}
    processes = [program(*command, **shared, RANK=rank, LOCAL_RANK=rank) for rank in ("0", "1")]
    assert [process.wait(300.0) for process in processes] == [0, 0], [each.err.read_text() for each in processes]
    assert [process.out.read_text().count("Tables and figures:") for process in processes] == [1, 0]
    (experiment,) = select(["misspecified-poisson"], max_steps=5)
    run = next(run for run in experiment.runs() if run.method.name == "poisson")
    one = execute(run, rows_of(experiment), folder_of(run, tmp_path / "one"), "cpu")
    two = json.loads((folder_of(run, tmp_path / "two") / RESULT).read_text())
    crps = [result["scores"]["ours"]["ensemble"]["crps"] for result in (one, two)]
    assert crps[1] == pytest.approx(crps[0], rel=1e-4)
