"""Load on a server over loopback, by the client and the bare app of `benchmarks/serving.py`."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.prove.proof import Place, Result, ddpn, environment

from benchmarks import serving

#: Requests over which memory must not grow, and by how much it may: MiB.
MANY, GROWTH = 200_000, 40.0
PORT, BARE = 8921, 8922


def model_of(place: Place) -> Path:
    """A model of the table that the client asks about."""
    path = place.folder / "served" / "visits.model"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        serving.table().write_parquet(path.parent / "visits.parquet")
        words = ["fit", path.parent / "visits.parquet", "--target", "visits", "--exposure", "years", *serving.FIT]
        subprocess.run(ddpn(*words, "-o", path), check=True, capture_output=True, env=environment())
    return path


def bodies(place: Place, name: str, outputs: list[str] | None) -> Path:
    """Requests of one row each, in a file."""
    return serving.written_bodies(place.folder / name, serving.table(), outputs)


def words(run: dict[str, Any]) -> str:
    """A run in one line."""
    times = f"p50 {run['p50']:.0f} ms, p99 {run['p99']:.0f} ms"
    return f"{run['per second']:,.0f} requests/s, {times}, {run['errors']} errors"


def prove_load(place: Place) -> Result:
    """64 connections: good requests, then 5% malformed ones, then more until memory can be compared."""
    model, seconds = model_of(place), max(3.0, 60.0 * place.share)
    os.environ.update(environment())
    full = bodies(place, "full", None)
    with serving.serving([*ddpn("serve", model, "--port", PORT), "--log-level", "warning"], PORT) as process:
        serving.client(PORT, full, 0.05, 3.0)
        memory = [process.memory_info().rss / 2**20]
        good = serving.client(PORT, full, 0.0, seconds)
        place.say(words(good))
        bad = serving.client(PORT, full, serving.MALFORMED, seconds)
        place.say(words(bad))
        number, errors, limit = good["requests"] + bad["requests"], good["errors"] + bad["errors"], 0
        while number < MANY * min(1.0, place.share) and limit < 12:
            more = serving.client(PORT, full, serving.MALFORMED, max(3.0, 20.0 * place.share))
            number, errors, limit = number + more["requests"], errors + more["errors"], limit + 1
        memory.append(process.memory_info().rss / 2**20)
    held = errors == 0 and memory[1] - memory[0] < GROWTH
    grown = f"memory {memory[0]:,.0f} MiB after the warm-up, {memory[1]:,.0f} MiB at the end"
    found = f"{words(good)}; with 5% malformed: {words(bad)}; {grown}"
    return Result(held, f"{number:,} requests", found, {"good": good, "malformed": bad, "memory": memory})


def prove_bare(place: Place) -> Result:
    """The same client and a bare app around `Predictor.distribution`, for comparison."""
    model, seconds = model_of(place), max(3.0, 20.0 * place.share)
    os.environ.update(environment())
    lean = bodies(place, "lean", serving.LEAN)
    alone = [sys.executable, serving.__file__, "--role", "bare", "--model", str(model), "--port", str(BARE)]
    served = [*ddpn("serve", model, "--port", PORT), "--log-level", "warning"]
    runs = {}
    for name, command, port, path in (
        ("ddpn", served, PORT, "/predict"),
        ("in the event loop", alone, BARE, "/predict"),
        ("in threads", alone, BARE, "/threads"),
    ):
        with serving.serving(command, port):
            serving.client(port, lean, 0.0, 2.0, path)
            runs[name] = serving.client(port, lean, 0.0, seconds, path)
        place.say(f"{name}: {words(runs[name])}")
    best = max((runs["in the event loop"], runs["in threads"]), key=lambda run: run["per second"])
    ratio, tail = runs["ddpn"]["per second"] / best["per second"], runs["ddpn"]["p99"] / best["p99"]
    found = f"{ratio:.1f} times the requests per second of the bare app, {tail:.2f} times its p99"
    number = sum(run["requests"] for run in runs.values())
    return Result(ratio > 1.0 and not runs["ddpn"]["errors"], f"{number:,} requests", found, runs)
