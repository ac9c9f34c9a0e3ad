"""The benchmarks of threads and accelerators start, and their small runs give figures."""

import importlib
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.fixture
def benchmark_module(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


def test_accelerators_on_a_cpu(benchmark_module):
    accelerators = benchmark_module("accelerators")
    args = accelerators.arguments().parse_args(["--device", "cuda", "--repeat", "1"])
    assert (args.device, args.repeat) == ("cuda", 1)
    rows = accelerators.measured("cpu", repeat=1)
    assert len(rows) == 5
    assert all(row["ms"] > 0.0 and row.get("ratio", 1.0) > 0.0 for row in rows)


def test_the_kernel_is_left_out_where_that_is_measured(benchmark_module):
    accelerators = benchmark_module("accelerators")
    before = accelerators.kernel().first_moments
    with accelerators.without_kernel():
        assert accelerators.kernel().first_moments(1.0, 2.0) is None
    assert accelerators.kernel().first_moments is before


def test_threads(benchmark_module):
    threads = benchmark_module("threads")
    args = threads.arguments().parse_args(["--task", "prediction of one row"])
    assert args.task in threads.CALLS
    assert args.device == "cpu"
    with threads.neighbour(busy=True) as process:
        assert process.poll() is None
    assert process.poll() is not None
