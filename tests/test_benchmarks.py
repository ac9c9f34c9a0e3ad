"""Test that the benchmarks start, and that a small run gives figures."""

import importlib
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.fixture
def benchmark_module(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


@pytest.mark.parametrize(
    "path", sorted(set(BENCHMARKS.glob("*.py")) - {BENCHMARKS / "recording.py"}), ids=lambda path: path.stem
)
def test_options_are_shown(benchmark_module, monkeypatch, capsys, path):
    """Importing a benchmark shows that what it measures still exists."""
    module = benchmark_module(path.stem)
    monkeypatch.setattr("sys.argv", [path.name, "--help"])
    with pytest.raises(SystemExit):
        module.main()
    assert "--out" in capsys.readouterr().out


def test_a_small_benchmark_of_predictions_gives_figures(benchmark_module):
    prediction = benchmark_module("prediction")
    rows = {row["what"]: row for row in prediction.measure(rows=60, calls=2, file_rows=0)}
    assert rows["mean, median, interval, variance"]["full / bare"] > 0.0
    assert rows["interval of one row"]["99% ms"] >= rows["interval of one row"]["median ms"] > 0.0
    assert set(prediction.ASKED) <= set(rows) | {"ddpn predict, CSV to CSV"}  # of a file, which has no rows here
