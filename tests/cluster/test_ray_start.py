"""A cluster of two nodes, each started by `ray start`, and `ddpn reproduce --cluster` on it."""

import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from uuid import uuid4

import pytest
import torch

from ddpn.paper.experiments.catalogue import select
from ddpn.paper.experiments.results import folder_of, state_of
from ddpn.paper.experiments.rows import rows_of
from ddpn.paper.experiments.runner import execute
from ddpn.storage.tensor_files import read

pytestmark = pytest.mark.last
SMALL = ["--num-cpus", "1", "--object-store-memory", "80000000", "--min-worker-port", "0", "--max-worker-port", "0"]
SMALL += ["--include-log-monitor", "false"]  # ddpn keeps the logs of workers quiet
ARGUMENTS = ["reproduce", "misspecified-poisson", "--only", "poisson,gaussian", "--max-steps", "5", "--device", "cpu"]


def free_ports(number):
    with ExitStack() as opened:
        sockets = [opened.enter_context(socket.socket()) for _ in range(number)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [str(each.getsockname()[1]) for each in sockets]


@pytest.fixture(scope="module")
def environment(ray):
    """That of the nodes and of the program: a token of their own, whatever this machine has for other clusters."""
    return os.environ | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": uuid4().hex, "COLUMNS": "99"}


@pytest.fixture(scope="module")
def address(environment):
    """The address of the head; each node is a program that ends when it is told to."""
    port, client, *agents = free_ports(4)
    start = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats", *SMALL]
    without = ["--include-dashboard", "false", "--no-monitor"]  # no pages, and no autoscaler
    head = [*start, "--head", "--port", port, "--ray-client-server-port", client, *without]
    found = f"127.0.0.1:{port}"
    nodes = [[*head, "--node-ip-address", "127.0.0.1"], [*start, "--address", found]]
    running = []
    try:
        for command, agent in zip(nodes, agents, strict=True):
            command += ["--dashboard-agent-listen-port", agent]
            running.append(
                subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
            )
            end = time.monotonic() + 30
            while time.monotonic() < end:
                try:
                    socket.create_connection(("127.0.0.1", int(port))).close()
                    break
                except OSError:
                    time.sleep(0.2)
        yield found
    finally:
        for process in reversed(running):
            process.terminate()
        for process in running:
            process.wait(30)


def test_the_program_writes_what_one_process_does(address, environment, tmp_path):
    command = [sys.executable, "-m", "ddpn.cli", *ARGUMENTS, "--out", str(tmp_path / "cluster")]
    found = subprocess.run(
        [*command, "--cluster", address],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
    )
    assert found.returncode == 0, found.stderr + found.stdout
    assert "raylet" not in found.stdout + found.stderr, "Ray is quiet"
    assert "misspecified-poisson-dry poisson running" in found.stdout
    assert "misspecified-poisson-dry gaussian done" in found.stdout
    (experiment,) = select(["misspecified-poisson"], only=["poisson", "gaussian"], max_steps=5)
    runs = [run for run in experiment.runs() if run.method.name in ("poisson", "gaussian")]
    assert [state_of(folder_of(run, tmp_path / "cluster"), run) for run in runs] == ["done", "done"]
    execute(runs[0], rows_of(experiment), folder_of(runs[0], tmp_path / "here"), "cpu")
    there, here = (read(folder_of(runs[0], tmp_path / name) / "weights.safetensors")[0] for name in ("cluster", "here"))
    assert there.keys() == here.keys()
    assert all(torch.equal(there[name], here[name]) for name in here)
