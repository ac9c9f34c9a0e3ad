"""Runs in several processes: their own, and those of torchrun. Each process imports torch, so they are few."""

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing

import pytest
import torch

from ddpn.errors import TrainingError
from ddpn.experiments import inputs, workers
from ddpn.experiments.catalogue import Options, parse, select
from ddpn.experiments.inputs import rows_of
from ddpn.experiments.runner import RESULT, execute, folder_of, state_of
from ddpn.experiments.workers import execute_all
from ddpn.training.checkpoint import read

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


def wait_for(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_processes_do_what_one_would_and_end_when_one_dies_or_all_are_closed(tmp_path):
    """Two workers do two short runs, then two long ones; one worker is killed, and the iterator is closed."""
    experiment = parse("tiny", CONTENT | {"grid": {"epochs": [2, LONG]}})
    short, long = ([run for run in experiment.runs() if run.training.epochs == epochs] for epochs in (2, LONG))
    parts, out = rows_of(experiment), tmp_path / "two"
    with closing(execute_all([*short, *long], parts, out, "cpu", jobs=2)) as events:
        begun = [next(events), next(events)]
        assert [(event.run, event.state) for event in begun] == [(run, "running") for run in short]
        found = events.gi_yieldfrom.gi_frame.f_locals["workers"]
        assert not any(worker.process.daemon for worker in found), "they start processes that read images"
        after = [next(events) for _ in range(4)]
        assert sorted(event.state for event in after) == ["done", "done", "running", "running"]
        assert len(found) == 2, "workers are reused"
        wait_for(lambda: all((folder_of(run, out) / "config.json").exists() for run in long))
        time.sleep(0.5)  # until they train
        busy = events.gi_yieldfrom.gi_frame.f_locals["busy"]
        (killed, lost), (other, kept) = busy.values()
        os.kill(killed.process.pid, signal.SIGKILL)
        event = next(events)
        assert (event.run, event.state) == (lost, "failed")
        assert "exit code -9" in event.error
        assert other.process.is_alive()
    assert not any(worker.process.is_alive() for worker in found)
    assert (folder_of(kept, out) / "members-0.state").exists()
    assert state_of(folder_of(kept, out), kept) == "missing"
    for run in short:
        execute(run, parts, folder_of(run, tmp_path / "one"), "cpu")
        there, here = (read(folder_of(run, tmp_path / name) / "weights.safetensors")[0] for name in ("two", "one"))
        # A sum by several threads may differ in its last bit.
        torch.testing.assert_close(there, here)


def test_runs_are_done_one_after_the_other_in_this_process(tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "TEST_ROWS", 100)
    experiment = parse("tiny", CONTENT)
    events = list(execute_all(experiment.runs(), rows_of(experiment), tmp_path, "cpu"))
    assert [(e.run.name, e.state) for e in events] == [
        ("poisson", "running"), ("poisson", "done"), ("gaussian", "running"), ("gaussian", "done")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (TrainingError("It cannot go on."), "It cannot go on."),
        (ZeroDivisionError("odd"), "ZeroDivisionError: odd"),
        (OSError(28, "No space left"), "full"),
    ],
)
def test_the_other_runs_go_on_if_one_fails(tmp_path, monkeypatch, error, message):
    experiment = parse("tiny", CONTENT)

    def execute(run, *rest):
        if run.method.name == "poisson":
            raise error
        return {}

    monkeypatch.setattr(workers, "execute", execute)
    ended = [e for e in execute_all(experiment.runs(), None, tmp_path, "cpu") if e.state != "running"]
    assert [e.state for e in ended] == ["failed", "done"]
    assert message in ended[0].error


@pytest.mark.skipif(importlib.util.find_spec("accelerate") is None, reason="needs ddpn[distributed]")
def test_two_processes_of_torchrun_write_what_one_does(tmp_path):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "ddpn.cli", "reproduce", "misspecified-poisson", "--max-steps", "5"]
    command += ["--only", "ddpn", "--device", "cpu", "--jobs", "1", "--out", str(tmp_path / "two")]
    shared = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}
    shared |= {"MASTER_PORT": str(port), "LOCAL_WORLD_SIZE": "2"}
    processes = [
        subprocess.Popen(
            command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=os.environ | shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in (0, 1)
    ]  # fmt: skip
    outputs = [process.communicate(timeout=300) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert [output.count("Tables and figures:") for output, _ in outputs] == [1, 0]
    (experiment,) = select(["misspecified-poisson"], Options(tmp_path / "two", only=("ddpn",), max_steps=5))
    run = next(run for run in experiment.runs() if run.method.name == "ddpn")
    one = execute(run, rows_of(experiment), folder_of(run, tmp_path / "one"), "cpu")
    two = json.loads((folder_of(run, tmp_path / "two") / RESULT).read_text())
    crps = [result["scores"]["ours"]["ensemble"]["crps"] for result in (one, two)]
    assert crps[1] == pytest.approx(crps[0], rel=1e-4)
