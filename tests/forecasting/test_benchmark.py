"""The page of the benchmark reports losses, and measured cells are kept; no forecasting library is needed."""

import importlib
import json
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
SETTINGS = dict.fromkeys(("horizon", "samples", "hidden", "batch", "epochs", "batches"), 2) | {"steps": 9}
GLUONTS, DARTS = "GluonTS, SimpleFeedForward", "darts, RNNModel (LSTM)"


@pytest.fixture
def benchmark(monkeypatch):
    pytest.importorskip("pandas")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("forecasting")


def row(model, seed, ours, theirs, **more):
    key = {"model": model, "series": "bike rentals", "seed": seed, "settings": SETTINGS | {"versions": {"torch": "2"}}}
    times = {f"{name}, s": 1.0 for name in ("Double Poisson", "Negative Binomial", *more)}
    return key | {"Double Poisson": ours, "Negative Binomial": theirs} | more | times


def test_the_page_reports_losses(benchmark):
    link = "Negative Binomial, log link"
    rows = [row(GLUONTS, 3, 2.0, 1.0), row(GLUONTS, 4, 4.0, 3.0), row(DARTS, 3, 5.0, 6.0, **{link: 4.0})]
    page = benchmark.page(rows, ["bike rentals"])
    name = "bike rentals per hour of the day"
    assert f"| {GLUONTS} | {name} | 3.000 | **2.000** | +50.0% | 0 of 2 |  |" in page
    assert f"| {DARTS} | {name} | **5.000** | 6.000 | -16.7% | 1 of 1 |  |" in page
    assert f"| {name} | 5.000 | **4.000** | 6.000 |  |" in page
    words = " ".join(page.split())
    assert "better for every seed in 1 of 2 rows, the Negative Binomial in 1; in 0 rows seeds disagree" in words
    assert "its Negative Binomial is better than the Double Poisson in 1 of 1 rows" in words


def test_cells_are_measured_once_per_settings(benchmark, monkeypatch, tmp_path):
    current = SETTINGS | {"versions": {"torch": "2"}}
    monkeypatch.setattr(benchmark, "settings", lambda library: current)
    monkeypatch.setattr(benchmark.logging, "disable", lambda level: None)
    measured = []

    def measure(model, series, seed):
        measured.append(seed)
        return row(model, seed, 2.0, 1.0) | {"settings": current}

    monkeypatch.setattr(benchmark, "measured", measure)
    options = ["--library", "gluonts", "--series", "bike rentals", "--out", str(tmp_path), "--page", str(tmp_path)]
    for seeds in (["3"], ["3", "4"]):
        monkeypatch.setattr("sys.argv", ["forecasting.py", *options, "--seeds", *seeds])
        benchmark.main()
    assert measured == [3, 4]
    current = current | {"epochs": 3}
    benchmark.main()
    assert measured == [3, 4, 3, 4]
    assert len(json.loads((tmp_path / "forecasting.json").read_text())) == 2


def test_crps_of_samples_is_that_of_all_pairs(benchmark):
    rng = np.random.default_rng(0)
    samples, y = rng.poisson(4.0, (6, 3, 2)), rng.poisson(4.0, (3, 2))
    pairs = [np.abs(samples[i] - samples[j]).mean() for i in range(6) for j in range(6) if i != j]
    assert benchmark.sample_crps(samples, y) == pytest.approx(np.abs(samples - y).mean() - 0.5 * np.mean(pairs))
