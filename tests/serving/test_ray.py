"""Test the example of a deployment on Ray Serve: it answers as the app does in this process."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from starlette.testclient import TestClient

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [
    pytest.mark.last,
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install 'ray[serve]'"),
]

#: In a process of its own: Ray starts threads and processes, and warns about much.
SCRIPT = """
import json, sys, httpx, ray
from ray import serve
from examples.serve_on_ray import build

# "local": a cluster of its own, whatever runs, or ran, on this machine
ray.init("local", num_cpus=1, include_dashboard=False, logging_level="error", configure_logging=False)
serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[3])})
serve.run(build({"models": "patients=" + sys.argv[1]}), route_prefix="/")
response = httpx.post(f"http://127.0.0.1:{sys.argv[3]}/predict", json=json.loads(sys.argv[2]), timeout=60)
print("ANSWER", json.dumps([response.status_code, response.json()]))
serve.shutdown()
ray.shutdown()
"""


@pytest.fixture
def example():
    """The example, which Ray Serve sends to replicas: they need not find it."""
    spec = spec_from_file_location("__main__", ROOT / "examples" / "serve_on_ray.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_builder_that_ray_sends_to_a_replica_makes_the_app(example, model_path, row, client):
    cloudpickle = pytest.importorskip("ray.cloudpickle")
    sent = cloudpickle.dumps(example.make_app_builder({"patients": model_path}))
    assert len(sent) < 10_000
    with TestClient(cloudpickle.loads(sent)()) as replica:
        body = {"rows": [row]}
        assert replica.post("/predict", json=body).json() == client.post("/predict", json=body).json()


@pytest.mark.skipif("DDPN_RAY" not in os.environ, reason="starts Ray, 20 s of CPU: set DDPN_RAY=1")
def test_a_replica_answers_as_the_app_does(model_path, row, client, free_port):
    body = {"rows": [row]}
    command = [sys.executable, "-c", SCRIPT, str(model_path), json.dumps(body), str(free_port)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, cwd=ROOT)
    line = next((line for line in done.stdout.splitlines() if line.startswith("ANSWER")), None)
    assert line is not None, done.stderr[-2000:]
    status, answer = json.loads(line.removeprefix("ANSWER "))
    assert status == 200
    assert answer == client.post("/predict", json=body).json()
