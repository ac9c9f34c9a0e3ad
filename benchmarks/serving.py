"""Time `ddpn serve` against a bare FastAPI app around `Predictor.distribution`, on this machine.

    python benchmarks/serving.py --out benchmarks/results

Requests have one row each and come from 64 connections of a client in a process of its own, over loopback; each
connection sends its next request when it has received the last answer. Both servers answer with the mean and the 90%
interval of a model that `ddpn fit` made. The bare app builds a data frame of the row, calls `Predictor.distribution`
and reads the outputs from it, without micro-batching, as one would write it in twenty lines: once as a function that
FastAPI runs in its threads, once in the event loop; the better one counts. Servers run in turn.
Then `ddpn serve` is measured alone: with the default outputs; the CPU time per request of a single connection; with 5%
of the bodies malformed; and its memory over many requests. A broken connection is an error, as is any status other than
200 for a valid body and 4xx for a malformed one. Writes serving.md.
"""

import argparse
import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import psutil

CONNECTIONS, MALFORMED = 64, 0.05
#: Networks, a GLM and boosted trees, each in the mixture only if it improves it.
FIT = ["--networks", "2", "--epochs", "20", "--mix-with", "glm,trees", "--compare-with", "constant"]
LEAN = ["mean", "lower", "upper"]
BAD = [
    b'{"rows": [{"age": "old"}]}', b'{"rows": [{"age": NaN}]}', b"{", b"\xff\xfe", b'{"rows": []}', b"[" * 2000,
    b'{"rows": [{"age": 1' + b"0" * 400 + b"}]}", b'{"rows": [{"unknown": 1}]}',
]  # fmt: skip


def simulate_patients(rows: int = 1500) -> pl.DataFrame:
    """Simulate patients: numbers with gaps, a category, a flag, a date and an exposure."""
    rng = np.random.default_rng(0)
    age, ward, smoker = rng.uniform(18, 90, rows), rng.choice(list("ABCD"), rows), rng.random(rows) < 0.3
    years = rng.uniform(0.5, 3.0, rows)
    mean = years * np.exp(0.3 + 0.015 * age + 0.5 * (ward == "B") + 0.4 * smoker)
    days = pl.date(2022, 1, 1) + pl.duration(days=pl.Series(rng.integers(0, 600, rows)))
    cells = {"age": age.round(1), "ward": ward, "smoker": smoker, "score": rng.integers(1, 6, rows), "years": years}
    frame = pl.DataFrame(cells).with_columns(admitted=days)
    return frame.with_columns(visits=pl.Series(rng.negative_binomial(5, 5 / (5 + mean))))


# The bare app ------------------------------------------------------------------------------------------------------


def serve_bare_app(model: Path, port: int) -> None:
    """Serve predictions without micro-batching."""
    import torch
    import uvicorn
    from fastapi import FastAPI

    from ddpn.workflow.model_folder import load

    torch.set_num_threads(1)
    folder = load(model, mixed_only=True)
    predictor, roles, app = folder.model.predictor_, folder.roles, FastAPI()

    def predict(body: dict) -> dict:
        frame = pl.DataFrame(body["rows"]).with_columns(pl.col("admitted").str.to_date())
        with torch.no_grad():
            dist = predictor.distribution(roles.parse(frame), roles.read_exposure(frame))
            low, high, _ = predictor.wrap(dist).interval_with_probability(0.9)
        columns = {"mean": dist.mean.tolist(), "lower": low.tolist(), "upper": high.tolist()}
        return {"predictions": [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]}

    @app.post("/predict")
    async def predict_in_loop(body: dict) -> dict:
        return predict(body)

    app.post("/threads")(predict)
    uvicorn.run(app, port=port, log_level="warning", access_log=False)


@contextmanager
def run_server(command: list[str], port: int) -> Iterator[psutil.Process]:
    """Start a server, yield its process once it answers, and end it afterwards."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    try:
        for _ in range(600):
            if process.poll() is not None:
                raise SystemExit(f"{command} ended with {process.returncode}.")
            try:
                asyncio.run(_connect(port))
                break
            except OSError:
                time.sleep(0.1)
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(30)


async def _connect(port: int) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.close()


# The client --------------------------------------------------------------------------------------------------------


def format_request(body: bytes, path: str) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def send_requests(
    address: tuple[int, str], bodies: list[bytes], bad: float, until: float, seed: int, outcomes: dict[str, Any]
) -> None:
    """Send one request after the other until the time is over."""
    rng, (port, path) = np.random.default_rng(seed), address
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while time.perf_counter() < until:
        is_bad = rng.random() < bad
        body = BAD[rng.integers(len(BAD))] if is_bad else bodies[rng.integers(len(bodies))]
        start = time.perf_counter()
        writer.write(format_request(body, path))
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(re.search(rb"content-length: (\d+)", head, re.I)[1])  # type: ignore[index]
            await reader.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError):
            outcomes["errors"] += 1
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            continue
        status = int(head.split(b" ", 2)[1])
        outcomes["bad" if is_bad else "times"].append(time.perf_counter() - start)
        outcomes["errors"] += not (400 <= status < 500 if is_bad else status == 200)
    writer.close()


async def load_server(
    address: tuple[int, str], bodies: list[bytes], bad: float, seconds: float, connections: int
) -> dict[str, Any]:
    outcomes: dict[str, Any] = {"times": [], "bad": [], "errors": 0}
    start = time.perf_counter()
    senders = (send_requests(address, bodies, bad, start + seconds, seed, outcomes) for seed in range(connections))
    await asyncio.gather(*senders)
    took = time.perf_counter() - start
    p50, p99 = (1000 * float(q) for q in np.quantile(outcomes["times"], (0.5, 0.99)))
    number = len(outcomes["times"]) + len(outcomes["bad"])
    return {"requests": number, "per second": number / took, "p50": p50, "p99": p99, "errors": outcomes["errors"]}


def run_client(
    port: int, bodies: Path, bad: float, seconds: float, path: str = "/predict", connections: int = CONNECTIONS
) -> dict[str, Any]:
    """Run a client in a process of its own, and return its numbers of answers and its times."""
    command = [sys.executable, __file__, "--role", "client", "--port", str(port), "--bodies", str(bodies)]
    command += ["--bad", str(bad), "--seconds", str(seconds), "--path", path, "--connections", str(connections)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


# All of it ---------------------------------------------------------------------------------------------------------


def write_bodies(path: Path, frame: pl.DataFrame, outputs: list[str] | None) -> Path:
    rows = json.loads(frame.head(500).drop("visits").with_columns(pl.col("admitted").dt.to_string()).write_json())
    more = {} if outputs is None else {"outputs": outputs}
    path.write_text("\n".join(json.dumps({"rows": [row], **more}) for row in rows))
    return path


def measure_servers(folder: Path, model: Path, seconds: float, many: float) -> dict[str, Any]:
    frame = simulate_patients()
    lean = write_bodies(folder / "lean", frame, LEAN)
    full = write_bodies(folder / "full", frame, None)
    ddpn = [sys.executable, "-m", "ddpn.cli", "serve", str(model), "--port", "8911", "--log-level", "warning"]
    alone = [sys.executable, __file__, "--role", "bare", "--model", str(model), "--port", "8912"]
    runs: dict[str, Any] = {"served": [], "bare": []}
    for path in ("/threads", "/predict"):
        for name, command, port in (("served", ddpn, 8911), ("bare", alone, 8912)):
            where = path if name == "bare" else "/predict"
            with run_server(command, port):
                run_client(port, lean, 0.0, 2.0, where)  # warm
                runs[name].append(run_client(port, lean, 0.0, seconds, where))
    with run_server(ddpn, 8911) as process:
        run_client(8911, full, 0.0, 2.0)
        runs["default outputs"] = run_client(8911, full, 0.0, seconds)
        used = sum(process.cpu_times()[:2])
        runs["alone"] = run_client(8911, full, 0.0, seconds, connections=1)
        runs["alone CPU, ms"] = 1000 * (sum(process.cpu_times()[:2]) - used) / runs["alone"]["requests"]
        runs["malformed"] = run_client(8911, full, MALFORMED, seconds)
        memory = [process.memory_info().rss / 2**20]
        numbers = [0]
        for _ in range(3):
            numbers.append(numbers[-1] + run_client(8911, full, MALFORMED, many)["requests"])
            memory.append(process.memory_info().rss / 2**20)
        runs["memory"] = list(zip(numbers, memory, strict=True))
    return runs


def format_line(name: str, run: dict[str, Any]) -> str:
    speed = f"{run['per second']:,.0f} | {run['p50']:.1f} | {run['p99']:.1f}"
    return f"| {name} | {run['requests']:,} | {speed} | {run['errors']} |"


def format_page(runs: dict[str, Any], members: str) -> str:
    best = {name: max(runs[name], key=lambda run: run["per second"]) for name in ("served", "bare")}
    ratio = best["served"]["per second"] / best["bare"]["per second"]
    tail = best["served"]["p99"] / best["bare"]["p99"]
    count_cores, busy = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    lines = [
        f"# Serving on {os.uname().machine}, {count_cores} cores (load {busy:.1f} at the end, other programs included)",
        "",
        f"`python {shlex.join(sys.argv)}`",
        "",
        f"Requests of one row from {CONNECTIONS} connections, client and server on the same cores; model: {members}.",
        "",
        "| server | requests | per second | p50, ms | p99, ms | errors |",
        "|---|---:|---:|---:|---:|---:|",
        *(format_line(f"ddpn serve, mean and interval, run {i}", run) for i, run in enumerate(runs["served"], 1)),
        format_line("bare app in threads, mean and interval", runs["bare"][0]),
        format_line("bare app in the event loop, mean and interval", runs["bare"][1]),
        format_line("ddpn serve, default outputs", runs["default outputs"]),
        format_line("ddpn serve, default outputs, one connection", runs["alone"]),
        format_line("ddpn serve, 5% malformed bodies", runs["malformed"]),
        "",
        f"- throughput of the better runs, ddpn serve / bare app: {ratio:.1f} (asked: at least 3)",
        f"- p99 of the same runs, ddpn serve / bare app: {tail:.2f} (asked: at most 1)",
        f"- CPU of the server per request of one connection: {runs['alone CPU, ms']:.1f} ms (asked: at most 8)",
        "- memory of the server: "
        + ", ".join(f"{size:,.0f} MiB after {number:,} requests" for number, size in runs["memory"]),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="the folder to write serving.md to")
    parser.add_argument("--model", type=Path, help="a model of the same table; default: fitted here")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each run")
    parser.add_argument(
        "--many", type=float, default=20.0, help="seconds of each of three runs that memory is read after"
    )
    parser.add_argument("--role", choices=("client", "bare"), help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--bodies", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--path", help=argparse.SUPPRESS)
    parser.add_argument("--bad", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--connections", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.role == "bare":
        serve_bare_app(args.model, args.port)
        return
    if args.role == "client":
        bodies = args.bodies.read_bytes().splitlines()
        address = args.port, args.path
        print(json.dumps(asyncio.run(load_server(address, bodies, args.bad, args.seconds, args.connections))))
        return
    with tempfile.TemporaryDirectory() as name:
        folder, model = Path(name), args.model
        if model is None:
            model = folder / "visits.model"
            simulate_patients().write_parquet(folder / "visits.parquet")
            command = [sys.executable, "-m", "ddpn.cli", "fit", str(folder / "visits.parquet"), "--target", "visits"]
            subprocess.run([*command, "--exposure", "years", *FIT, "-o", str(model)], check=True)
        members = json.loads((model / "model.json").read_text())["members"]
        mixed = ", ".join(f"{member} {facts['weight']:.0%}" for member, facts in members.items() if facts["weight"])
        text = format_page(measure_servers(folder, model, args.seconds, args.many), mixed)
    print(text)
    if args.out is not None:
        (args.out / "serving.md").write_text(text)


if __name__ == "__main__":
    main()
