"""Runs in several processes: their own, and those of torchrun. Each process imports torch, so they are few."""

import importlib.util
import json
import multiprocessing
import socket

import pytest
import torch

from ddpn.executors import InProcess
from ddpn.experiments import inputs, workers
from ddpn.experiments.catalogue import parse, select
from ddpn.experiments.inputs import rows_of
from ddpn.experiments.results import RESULT, folder_of, state_of
from ddpn.experiments.runner import execute
from ddpn.experiments.workers import execute_all
from ddpn.runtime.errors import TrainingError
from ddpn.tensor_files import read

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


class Scenario:
    """Kills the worker of one long run as soon as both train, and interrupts the program when that is reported."""

    def __init__(self):
        self.reports, self.training, self.processes = [], set(), []

    def __call__(self, run, state, detail):
        if state == "running" and detail:
            assert detail.startswith("epoch ")
            self.training |= {run.name} if run.training.epochs == LONG else set()
        else:
            self.reports.append((run, state, detail))
        if len(self.training) == 2 and not self.processes:
            self.processes = multiprocessing.active_children()
            self.processes[0].kill()
        if state == "failed":
            assert self.processes[1].is_alive()
            raise KeyboardInterrupt

    def states(self, run):
        return [state for each, state, _ in self.reports if each == run]


def test_workers_do_what_one_process_does_survive_each_other_and_end_with_an_interrupt(tmp_path, monkeypatch):
    # Forked, not spawned (which tests/executors cover): each would import torch.
    fork = multiprocessing.get_context("fork")
    monkeypatch.setattr(multiprocessing, "get_context", lambda name: fork)
    # Few test rows: a simulation by its name has 10,000.
    shelves = {"data": {"name": "shelves", "beams": 40, "points": 16}, "grid": {"epochs": [2, LONG]}}
    content = CONTENT | shelves | {"backbone": {"name": "countnet3d", "widths": [4, 8]}}
    experiment = parse("tiny", {key: value for key, value in content.items() if key != "simulation"})
    short, long = ([run for run in experiment.runs() if run.training.epochs == epochs] for epochs in (2, LONG))
    parts, out = rows_of(experiment), tmp_path / "two"
    scenario = Scenario()
    with pytest.raises(KeyboardInterrupt):
        execute_all([*short, *long], parts, out, "cpu", 2, scenario)
    assert len(scenario.processes) == 2, "workers are reused"
    assert not any(process.daemon for process in scenario.processes), "they start processes that read images"
    assert not any(process.is_alive() for process in scenario.processes)
    lost, state, error = scenario.reports[-1]
    assert (state, scenario.states(lost)) == ("failed", ["running", "failed"])
    assert "exit code -9" in error
    (kept,) = (run for run in long if run != lost)
    assert scenario.states(kept) == ["running"]
    assert (folder_of(kept, out) / "members-0.state").exists()
    assert state_of(folder_of(kept, out), kept) == "missing"
    for run in short:
        assert scenario.states(run) == ["running", "done"]
        execute(run, parts, folder_of(run, tmp_path / "one"), "cpu")
        there, here = (read(folder_of(run, tmp_path / name) / "weights.safetensors")[0] for name in ("two", "one"))
        # A sum by several threads may differ in its last bit.
        torch.testing.assert_close(there, here)


def test_runs_are_done_one_after_the_other_in_this_process(tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "TEST_ROWS", 100)
    experiment, reports = parse("tiny", CONTENT), []
    execute_all(experiment.runs(), rows_of(experiment), tmp_path, "cpu", 1, lambda *report: reports.append(report))
    assert [run.name for run, _, _ in reports] == ["poisson"] * 4 + ["gaussian"] * 4
    assert [state for _, state, _ in reports] == ["running", "running", "running", "done"] * 2
    assert [detail[:7] for _, state, detail in reports if state == "running"] == ["", "epoch 1", "epoch 2"] * 2
    assert reports[3][2]["method"] == "poisson"


@pytest.mark.parametrize("sees_the_folder", [True, False])
def test_a_node_of_a_cluster_writes_to_the_folder_or_returns_the_files(tmp_path, monkeypatch, sees_the_folder):
    monkeypatch.setattr(inputs, "TEST_ROWS", 100)
    experiment, reports = parse("tiny", CONTENT), []
    run, out = experiment.runs()[0], tmp_path / "out"
    on_a_node, seen = workers._on_a_node, []

    def on_another_machine(progress, run, parts, out, *rest):
        return on_a_node(progress, run, parts, "/nothing/here", *rest)

    def follow(run, parts, folder, *rest):
        seen.append(folder)
        return execute(run, parts, folder, *rest)

    monkeypatch.setattr(workers, "execute", follow)
    if not sees_the_folder:
        monkeypatch.setattr(workers, "_on_a_node", on_another_machine)
    execute_all([run], rows_of(experiment), out, "cpu", 1, lambda *report: reports.append(report), InProcess())
    assert (seen == [folder_of(run, out)]) == sees_the_folder
    assert state_of(folder_of(run, out), run) == "done"
    assert reports[-1][2]["method"] == "poisson"
    assert sorted(path.name for path in (out / "tiny").iterdir()) == ["poisson"], "nothing else is left"


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
