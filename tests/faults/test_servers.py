"""Test servers under faults: killed servers and writers of models, and SIGTERM while requests are answered."""

import json
import re
import shutil
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import numpy as np
import pytest

from ddpn.storage.model_files import read_files, read_manifest

pytestmark = [pytest.mark.last, pytest.mark.slow]
ROW = {"age": 50.0, "ward": "A"}
#: Replaces the model in "served.model" by the one of the first and the second folder in turn, as `ddpn fit` does.
REPLACE = """
import sys, time
from pathlib import Path
from ddpn.storage.model_files import read_files, read_manifest, write_model
known = []
for path in map(Path, sys.argv[1:3]):
    manifest = read_manifest(path)
    rest = {name: value for name, value in manifest.items() if name not in ("files", "checksum")}
    known.append((read_files(path, manifest), rest))
number = 0
while True:
    write_model(Path("served.model"), *known[number % 2], overwrite=True)
    number += 1
    print(number, flush=True)
    time.sleep(float(sys.argv[3]))
"""


@pytest.fixture
def serve(program):
    """Serve a model folder, and yield the process and a client."""

    @contextmanager
    def start(path, *options):
        words = ["serve", str(path), "--port", "0", "--log-level", "warning", *options]
        process = program(*words, OMP_NUM_THREADS="1")
        while not (address := re.search(r"http://\S+\n", process.out.read_text())):
            assert process.poll() is None, process.err.read_text()
            time.sleep(0.01)
        try:
            with httpx.Client(base_url=address[0].strip(), timeout=60.0) as client:
                yield process, client
        finally:
            process.kill()
            process.wait()

    return start


@pytest.fixture
def models(model, rewrite, tmp_path):
    """Two versions of one model, which predict alike."""
    other = tmp_path / "other.model"
    shutil.copytree(model, other)
    task = json.loads((other / "task.json").read_text()) | {"date": "later"}
    rewrite(other, {"task.json": json.dumps(task).encode()})
    return [model, other]


@pytest.fixture
def path_in_use(models, tmp_path):
    """The folder that is served, and alone in its own."""
    path = tmp_path / "folder" / "served.model"
    shutil.copytree(models[0], path)
    return path


@pytest.fixture
def replace_repeatedly(python, models, path_in_use):
    """Replace the served model again and again."""

    @contextmanager
    def start(pause=0.0):
        words = ["-c", REPLACE, *map(str, models), str(pause)]
        process = python(*words, folder=path_in_use.parent)
        while not process.out.read_text():
            assert process.poll() is None, process.err.read_text()
            time.sleep(0.01)
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    return start


@pytest.fixture
def send_request(models):
    """Send a request; the answer must be that of a whole model."""
    versions = {read_manifest(path)["checksum"][:12] for path in models}

    def send(client):
        answer = client.post("/predict", json={"rows": [ROW]})
        assert answer.status_code == 200, answer.text
        assert answer.json()["version"] in versions

    return send


def count_reloads(client) -> int:
    """Return how many new versions a server has loaded."""
    match = re.search(r'ddpn_reloads_total\{.*result="loaded"\} (\d+)', client.get("/metrics").text)
    return int(match[1]) if match else 0


@pytest.mark.proof("Faults", "kill -9 of a server that reloads, or of the writer")
def test_killed_writers_and_servers_leave_a_whole_model(
    serve, replace_repeatedly, path_in_use, send_request, record_proof
):
    rng = np.random.default_rng(0)
    with serve(path_in_use, "--reload-every", "0.02") as (_, client):
        for _ in range(10):
            with replace_repeatedly():
                time.sleep(rng.uniform(0.0, 0.4))
            for _ in range(20):
                send_request(client)
        reloads = count_reloads(client)
    assert reloads > 0
    for _ in range(10):
        with replace_repeatedly(0.5), serve(path_in_use, "--reload-every", "0.02") as (_, client):
            send_request(client)
            time.sleep(rng.uniform(0.0, 0.5))
    with serve(path_in_use) as (_, client):
        send_request(client)
    read_files(path_in_use, read_manifest(path_in_use))
    with replace_repeatedly() as process:  # the next writer removes what killed ones have left
        process.send_signal(signal.SIGSTOP)
        drafts = [path.name for path in path_in_use.parent.iterdir() if path.name.endswith(".draft")]
        assert len(drafts) <= 1
    words = f"the server answered all requests, before and after a restart: {reloads} reloads"
    record_proof("10 kills of writers, 10 of servers", words)


@pytest.mark.proof("Faults", "a model is replaced while the server loads it: no failed request")
def test_a_model_is_replaced_while_the_server_loads_it(
    serve, replace_repeatedly, path_in_use, send_request, record_proof
):
    number, end = 0, time.monotonic() + 20.0
    with serve(path_in_use, "--reload-every", "0.02") as (_, client), replace_repeatedly():
        while time.monotonic() < end or number < 100:
            send_request(client)
            number += 1
        reloads = count_reloads(client)
    assert reloads > 0
    record_proof(f"{number:,} requests", f"no failed request; {reloads} new versions were loaded meanwhile")


@pytest.mark.proof("Faults", "SIGTERM while requests wait: they are answered")
def test_requests_that_wait_are_answered_after_sigterm(serve, model, record_proof):
    for _ in range(3):
        with serve(model) as (process, client), ThreadPoolExecutor(8) as threads:
            long = {"rows": [ROW] * 300}  # one at a time
            jobs = [threads.submit(client.post, "/predict", json=long) for _ in range(8)]
            while "ddpn_queue_requests 0.0" in client.get("/metrics").text:
                assert not all(job.done() for job in jobs), "too late: all are answered"
            process.send_signal(signal.SIGTERM)
            assert [job.result().status_code for job in jobs] == [200] * 8
            assert process.wait(60) == 0
    record_proof("3 signals", "24 requests that were waiting were answered; exit code 0")
