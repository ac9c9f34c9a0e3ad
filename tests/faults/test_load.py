"""Test the load on a server over loopback, with the client of `benchmarks/serving.py`."""

import importlib
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Requests over which memory must not grow, and by how much it may: MiB.
MANY, GROWTH = 200_000, 40.0


@pytest.fixture
def bench(monkeypatch):
    """The module of the benchmark, which starts itself as the client."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return importlib.import_module("serving")


def describe_run(run) -> str:
    """Describe a run in one line."""
    return f"{run['per second']:,.0f} requests/s, p50 {run['p50']:.0f} ms, p99 {run['p99']:.0f} ms"


@pytest.mark.slow
@pytest.mark.proof("Load", "64 connections: no error, flat memory; malformed bodies get 4xx")
def test_64_connections_are_served_without_error_in_flat_memory(bench, program, free_port, tmp_path, record_proof):
    bench.simulate_patients().write_parquet(tmp_path / "visits.parquet")
    words = ["fit", "visits.parquet", "--target", "visits", "--exposure", "years", *bench.FIT, "-o", "m"]
    fit = program(*words, folder=tmp_path)
    assert fit.wait() == 0, fit.err.read_text()
    bodies = bench.write_bodies(tmp_path / "bodies", bench.simulate_patients(), None)
    command = [sys.executable, "-m", "ddpn.cli", "serve", str(tmp_path / "m"), "--port", str(free_port)]
    with bench.run_server([*command, "--log-level", "warning"], free_port) as process:
        bench.run_client(free_port, bodies, 0.05, 3.0)
        warm = process.memory_info().rss / 2**20
        good, bad = (bench.run_client(free_port, bodies, share, 60.0) for share in (0.0, bench.MALFORMED))
        runs = [good, bad]
        while sum(run["requests"] for run in runs) < MANY and len(runs) < 12:
            runs.append(bench.run_client(free_port, bodies, bench.MALFORMED, 20.0))
        end = process.memory_info().rss / 2**20
    assert [run["errors"] for run in runs] == [0] * len(runs)
    assert end - warm < GROWTH
    memory = f"memory {warm:,.0f} MiB after the warm-up, {end:,.0f} MiB at the end"
    requests = sum(run["requests"] for run in runs)
    record_proof(f"{requests:,} requests", f"{describe_run(good)}; with 5% malformed: {describe_run(bad)}; {memory}")
