"""Servers under faults: killed while they reload, writers killed while they replace a model, SIGTERM in requests."""

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
def serving(program):
    """Serves a model folder, and gives the process and a client."""

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
def served(models, tmp_path):
    """The folder that is served, and alone in its own."""
    path = tmp_path / "folder" / "served.model"
    shutil.copytree(models[0], path)
    return path


@pytest.fixture
def replacing(python, models, served):
    """Replaces the served model again and again."""

    @contextmanager
    def start(pause=0.0):
        words = ["-c", REPLACE, *map(str, models), str(pause)]
        process = python(*words, folder=served.parent)
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
def ask(models):
    """Sends a request; the answer must be that of a whole model."""
    versions = {read_manifest(path)["checksum"][:12] for path in models}

    def send(client):
        answer = client.post("/predict", json={"rows": [ROW]})
        assert answer.status_code == 200, answer.text
        assert answer.json()["version"] in versions

    return send


def loaded(client) -> int:
    """New versions that a server has loaded."""
    found = re.search(r'ddpn_reloads_total\{.*result="loaded"\} (\d+)', client.get("/metrics").text)
    return int(found[1]) if found else 0


@pytest.mark.proof("Faults", "kill -9 of a server that reloads, or of the writer")
def test_killed_writers_and_servers(serving, replacing, served, ask, proved):
    rng = np.random.default_rng(0)
    with serving(served, "--reload-every", "0.02") as (_, client):
        for _ in range(10):
            with replacing():
                time.sleep(rng.uniform(0.0, 0.4))
            for _ in range(20):
                ask(client)
        reloads = loaded(client)
    assert reloads > 0
    for _ in range(10):
        with replacing(0.5), serving(served, "--reload-every", "0.02") as (_, client):
            ask(client)
            time.sleep(rng.uniform(0.0, 0.5))
    with serving(served) as (_, client):
        ask(client)
    read_files(served, read_manifest(served))
    with replacing() as process:  # the next writer removes what killed ones have left
        process.send_signal(signal.SIGSTOP)
        drafts = [path.name for path in served.parent.iterdir() if path.name.endswith(".draft")]
        assert len(drafts) <= 1
    words = f"the server answered all requests, before and after a restart: {reloads} reloads"
    proved("10 kills of writers, 10 of servers", words)


@pytest.mark.proof("Faults", "a model is replaced while the server loads it: no failed request")
def test_a_model_is_replaced_while_the_server_loads_it(serving, replacing, served, ask, proved):
    number, end = 0, time.monotonic() + 20.0
    with serving(served, "--reload-every", "0.02") as (_, client), replacing():
        while time.monotonic() < end or number < 100:
            ask(client)
            number += 1
        reloads = loaded(client)
    assert reloads > 0
    proved(f"{number:,} requests", f"no failed request; {reloads} new versions were loaded meanwhile")


@pytest.mark.proof("Faults", "SIGTERM while requests wait: they are answered")
def test_sigterm_while_requests_wait(serving, model, proved):
    for _ in range(3):
        with serving(model) as (process, client), ThreadPoolExecutor(8) as threads:
            long = {"rows": [ROW] * 300}  # one at a time
            jobs = [threads.submit(client.post, "/predict", json=long) for _ in range(8)]
            while "ddpn_queue_requests 0.0" in client.get("/metrics").text:
                assert not all(job.done() for job in jobs), "too late: all are answered"
            process.send_signal(signal.SIGTERM)
            assert [job.result().status_code for job in jobs] == [200] * 8
            assert process.wait(60) == 0
    proved("3 signals", "24 requests that were waiting were answered; exit code 0")
