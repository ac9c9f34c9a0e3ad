"""Servers under faults: killed while they reload, writers killed while they replace a model, SIGTERM in requests."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from benchmarks.prove.fuzz_models import rewritten
from benchmarks.prove.proof import Place, Result, ddpn, environment, listing

from ddpn.storage.model_files import read_files, read_manifest

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
print("ready", flush=True)
number = 0
while True:
    write_model(Path("served.model"), *known[number % 2], overwrite=True)
    number += 1
    print(number, flush=True)
    time.sleep(float(sys.argv[3]))
"""


@contextmanager
def serving(path: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
    """A server of one model folder that answers, and a client."""
    command = [*ddpn("serve", path, "--port", "0", "--log-level", "warning"), *options]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(), start_new_session=True
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        address = re.search(r"http://\S+", line)
        if address is None:
            process.kill()
            raise RuntimeError(f"The server did not start: {line}{process.communicate()[1][-600:]}")
        with httpx.Client(base_url=address[0], timeout=60.0) as client:
            yield process, client
    finally:
        process.kill()
        process.communicate()


@contextmanager
def replacing(folder: Path, models: list[Path], pause: float = 0.0) -> Iterator[subprocess.Popen[str]]:
    """A process that replaces the model again and again."""
    command = [sys.executable, "-c", REPLACE, *map(str, models), str(pause)]
    process = subprocess.Popen(command, cwd=folder, env=environment(), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def two_models(place: Place) -> list[Path]:
    """Two versions of one model, which predict alike."""
    other = place.folder / "other.model"
    if not other.exists():
        shutil.copytree(place.model, other)
        task = json.loads((other / "task.json").read_text()) | {"date": "later"}
        rewritten(other, {"task.json": json.dumps(task).encode()})
    return [place.model, other]


def asked(client: httpx.Client, number: int, wrong: list[str], versions: set[str]) -> None:
    """Send requests; every answer must be that of a whole model."""
    for _ in range(number):
        answer = client.post("/predict", json={"rows": [ROW]})
        if answer.status_code != 200 or answer.json()["version"] not in versions:
            wrong.append(f"{answer.status_code}: {answer.text[:200]}")


def prove_reload(place: Place) -> Result:
    """Kill the process that replaces the model, and the server that loads it, at random moments."""
    models, wrong = two_models(place), []
    versions = {read_manifest(path)["checksum"][:12] for path in models}
    folder = place.fresh("reload")
    served = folder / "served.model"
    shutil.copytree(models[0], served)
    names, writers, servers = listing(folder), place.times(10), place.times(10)
    with serving(served, "--reload-every", "0.02") as (_, client):
        for _ in range(writers):
            with replacing(folder, models) as process:
                time.sleep(place.rng.uniform(0.0, 0.4))
                process.kill()
            asked(client, 20, wrong, versions)
        reloads = re.findall(r'ddpn_reloads_total\{.*result="(\w+)"\} (\d+)', client.get("/metrics").text)
    for _ in range(servers):
        with replacing(folder, models, 0.5), serving(served, "--reload-every", "0.02") as (process_, client):
            asked(client, 2, wrong, versions)
            time.sleep(place.rng.uniform(0.0, 0.5))
            process_.kill()
    with serving(served) as (_, client):
        asked(client, 5, wrong, versions)
    read_files(served, read_manifest(served))
    with replacing(folder, models) as process:  # the next writer removes what killed ones have left
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGSTOP)
        left = [name for name in listing(folder) if name.endswith(".draft")][1:]
    if left:
        wrong.append(f"files were left: {left}")
    tried = f"{writers} kills of writers, {servers} of servers"
    if not reloads:
        wrong.append("no new version was loaded")
    words = "; ".join(wrong[:2]) or "the server answered all requests, before and after a restart: " + ", ".join(
        f"{number} reloads {how}" for how, number in reloads
    )
    return Result(not wrong, tried, words, {"wrong": wrong, "names": names})


def prove_replacing(place: Place) -> Result:
    """A model that is replaced again and again while the server loads it: no failed request."""
    models, wrong, seconds = two_models(place), [], 20.0 * place.share
    versions = {read_manifest(path)["checksum"][:12] for path in models}
    folder, seen, number = place.fresh("replace"), set(), 0
    served = folder / "served.model"
    shutil.copytree(models[0], served)
    with serving(served, "--reload-every", "0.02") as (_, client), replacing(folder, models):
        until = time.monotonic() + max(3.0, seconds)
        while time.monotonic() < until:
            answer = client.post("/predict", json={"rows": [ROW]})
            number += 1
            if answer.status_code != 200 or answer.json()["version"] not in versions:
                wrong.append(f"{answer.status_code}: {answer.text[:200]}")
            else:
                seen.add(answer.json()["version"])
        loaded = re.search(r'ddpn_reloads_total\{.*result="loaded"\} (\d+)', client.get("/metrics").text)
    reloads = 0 if loaded is None else int(loaded[1])
    found = "; ".join(wrong[:2]) or f"no failed request; {reloads} new versions were loaded meanwhile"
    return Result(not wrong and reloads > 0, f"{number:,} requests", found, {"wrong": wrong, "versions": len(seen)})


def prove_sigterm(place: Place) -> Result:
    """SIGTERM while requests are predicted: they are answered, and the process ends with exit code 0."""
    wrong, trials, answered = [], place.times(3), 0
    for trial in range(trials):
        with serving(place.model, "--batch-window", "300") as (process, client):
            answers: list[Any] = []

            def ask(client: httpx.Client = client, answers: list[Any] = answers) -> None:
                try:
                    answers.append(client.post("/predict", json={"rows": [ROW]}).status_code)
                except httpx.HTTPError as error:
                    answers.append(repr(error))

            threads = [threading.Thread(target=ask) for _ in range(8)]
            for thread in threads:
                thread.start()
            until = time.monotonic() + 20.0
            while "ddpn_queue_requests 8.0" not in client.get("/metrics").text and time.monotonic() < until:
                if answers:
                    break  # too late: the batch has ended
            os.kill(process.pid, signal.SIGTERM)
            for thread in threads:
                thread.join()
            code = process.wait(60)
            answered += answers.count(200)
            if answers != [200] * 8 or code:
                wrong.append(f"trial {trial}: answers {answers}, exit code {code}")
    found = "; ".join(wrong) or f"{answered} requests that were waiting were answered; exit code 0"
    return Result(not wrong, f"{trials} signals", found, {"wrong": wrong})
