"""Test a cluster of two nodes, each started by `ray start`, and `ddpn fit --cluster` on it."""

import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from uuid import uuid4

import numpy as np
import pandas as pd
import pytest

#: test_on_ray.py also shows that a fit on a cluster saves the model of a local fit.
pytestmark = [pytest.mark.last, pytest.mark.slow]
SMALL = ["--num-cpus", "1", "--object-store-memory", "80000000", "--min-worker-port", "0", "--max-worker-port", "0"]
SMALL += ["--include-log-monitor", "false"]  # ddpn keeps the logs of workers quiet
ARGUMENTS = ["fit", "visits.csv", "--target", "visits", "--networks", "1", "--epochs", "2", "--mix-with", "glm"]


def find_free_ports(number):
    with ExitStack() as opened:
        sockets = [opened.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [str(one.getsockname()[1]) for one in sockets]


@pytest.fixture(scope="module")
def environment(ray):
    """The environment of the nodes and of the program: a token of their own, whatever else this machine has."""
    return os.environ | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": uuid4().hex, "COLUMNS": "99"}


@pytest.fixture(scope="module")
def address(environment):
    """The address of the head; the nodes are programs that end when they are told to."""
    port, client, *agents = find_free_ports(4)
    start = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats", *SMALL]
    without = ["--include-dashboard", "false", "--no-monitor"]  # no pages, and no autoscaler
    head = [*start, "--head", "--port", port, "--ray-client-server-port", client, *without]
    head_address = f"127.0.0.1:{port}"
    nodes = [[*head, "--node-ip-address", "127.0.0.1"], [*start, "--address", head_address]]
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
        yield head_address
    finally:
        for process in reversed(running):
            process.terminate()
        for process in running:
            process.wait(30)


def test_the_program_writes_what_one_process_does(address, environment, tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.uniform(0, 2, 300)})
    table.assign(visits=rng.poisson(np.exp(table["age"]))).to_csv(tmp_path / "visits.csv", index=False)
    for name, where in (("cluster", ["--cluster", address]), ("here", [])):
        command = [sys.executable, "-m", "ddpn.cli", *ARGUMENTS, "-o", name, *where]
        options = {"capture_output": True, "text": True, "timeout": 120, "env": environment, "cwd": tmp_path}
        result = subprocess.run(command, **options)
        assert result.returncode == 0, result.stderr + result.stdout
        assert "raylet" not in result.stdout + result.stderr, "Ray is quiet"
        command = [sys.executable, "-m", "ddpn.cli", "predict", name, "visits.csv", "-o", f"{name}.csv"]
        assert subprocess.run(command, **options).returncode == 0
    on_cluster, locally = (pd.read_csv(tmp_path / f"{name}.csv") for name in ("cluster", "here"))
    pd.testing.assert_frame_equal(on_cluster, locally)
