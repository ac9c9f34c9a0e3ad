"""The deployment on Ray Serve: the same answers as the app has in this process."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
from starlette.testclient import TestClient

from ddpn.runtime.errors import ConfigError
from ddpn.serving import Limits
from ddpn.serving.ray_deployment import app_builder, build

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install 'ray[serve]'")

#: In a process of its own: Ray starts threads and processes, and warns about much.
SCRIPT = """
import json, sys, httpx, ray
from ray import serve
from ddpn.serving.ray_deployment import build

ray.init(num_cpus=1, include_dashboard=False, logging_level="error", configure_logging=False)
serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[3])})
serve.run(build({"models": "patients=" + sys.argv[1]}), route_prefix="/")
response = httpx.post(f"http://127.0.0.1:{sys.argv[3]}/predict", json=json.loads(sys.argv[2]), timeout=60)
print("ANSWER", json.dumps([response.status_code, response.json()]))
serve.shutdown()
ray.shutdown()
"""


def test_what_ray_sends_to_a_replica_makes_the_app(saved, row, client):
    cloudpickle = pytest.importorskip("ray.cloudpickle")
    sent = cloudpickle.dumps(app_builder({"patients": saved}, Limits()))
    assert len(sent) < 10_000
    with TestClient(cloudpickle.loads(sent)()) as replica:
        body = {"rows": [row]}
        assert replica.post("/predict", json=body).json() == client.post("/predict", json=body).json()


def test_the_deployment_has_its_replicas(saved):
    pytest.importorskip("ray.serve", reason="Ray Serve is not installed: pip install 'ray[serve]'")
    deployment = build({"models": str(saved), "replicas": "3"})._bound_deployment
    assert (deployment.num_replicas, deployment.max_ongoing_requests) == (3, Limits().max_queue)


@pytest.mark.skipif("DDPN_RAY" not in os.environ, reason="starts Ray, 20 s of CPU: set DDPN_RAY=1")
def test_a_replica_answers_as_the_app_does(saved, row, client, free_port):
    body = {"rows": [row]}
    command = [sys.executable, "-c", SCRIPT, str(saved), json.dumps(body), str(free_port)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    line = next((line for line in done.stdout.splitlines() if line.startswith("ANSWER")), None)
    assert line is not None, done.stderr[-2000:]
    status, answer = json.loads(line.removeprefix("ANSWER "))
    assert status == 200
    assert answer == client.post("/predict", json=body).json()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "models must name"),
        ({"models": "a", "replicas": "0"}, "replicas must"),
        ({"model": "a"}, "Unknown argument"),
    ],
)
def test_bad_arguments_are_reported(arguments, words):
    with pytest.raises(ConfigError, match=words):
        build(arguments)
