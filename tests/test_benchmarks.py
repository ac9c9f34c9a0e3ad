"""The benchmarks of threads, accelerators and out-of-distribution flags start, and their small runs give figures."""

import gzip
import importlib
from pathlib import Path

import numpy as np
import polars as pl
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
    assert len(rows) == 9
    assert all(row["ms"] > 0.0 and row.get("ratio", 1.0) > 0.0 for row in rows)


def test_threads(benchmark_module):
    threads = benchmark_module("threads")
    args = threads.arguments().parse_args(["--task", "prediction of one row"])
    assert args.task in threads.CALLS
    assert args.device == "cpu"
    with threads.neighbour(busy=True) as process:
        assert process.poll() is None
    assert process.poll() is not None


def test_diagnosis(benchmark_module):
    diagnosis = benchmark_module("diagnosis")
    assert diagnosis.arguments().parse_args([]).runs == 1000
    row = diagnosis.row("Poisson", 2, diagnosis.linear, 1.0, "glm", full=True)
    assert row["runs"] == 2
    assert 0.0 <= row["rejected"] <= 1.0
    rng, mean = np.random.default_rng(0), np.full(100_000, 3.3)
    for dispersion in (0.7, 1.0, 1.4):
        y = diagnosis.counts(rng, mean, dispersion)
        assert abs(y.mean() - 3.3) < 0.03
        assert abs(y.var() / 3.3 - dispersion) < 0.03


def test_ood_tables(benchmark_module):
    tables = benchmark_module("ood_tables")
    rng = np.random.default_rng(0)
    size, plan = rng.normal(size=500), rng.choice(["a", "b"], 500)
    gaps = np.where(rng.random(500) < 0.3, np.nan, size)
    frame = pl.DataFrame({"size": size, "plan": plan, "gaps": gaps, "y": rng.poisson(np.exp(size))})
    tables.TABLES["small"] = tables.Table(lambda: frame, "y")
    results = tables.measured("small", seed=0)
    flagged = {(each.change, each.column): each.flagged for each in results}
    assert flagged["none", ""] < 0.2
    assert min(flagged[change, "size"] for change in ("missing", "+10 sd", "-10 sd")) > 0.9
    assert flagged["unseen level", "plan"] > 0.9
    # Missing values that training rows have too are ordinary.
    assert flagged["missing", "gaps"] < 0.5
    shown = "\n".join(tables.lines(results))
    assert "| small | missing | missing in training too | " in shown
    assert tables.outcome(results)[0].startswith("- small: met (ordinary rows ")


def test_recalibration_of_several_likelihoods_and_seeds(benchmark_module):
    recalibration = benchmark_module("recalibration")
    args = recalibration.arguments().parse_args(["--likelihood", "mixed", "poisson", "--seeds", "0", "3"])
    assert (args.likelihood, args.seeds) == (["mixed", "poisson"], [0, 3])
    assert recalibration.arguments().parse_args([]).likelihood == ["mixed"]
    scores = {"crps": 1.0, "nll": 2.0, "pit": 0.1}
    found = {"rows": 100, "gain": 0.01, "error": 0.002, "before": scores, "after": {**scores, "crps": 0.9}}
    results = [
        recalibration.Result("crime1", name, seed, {**found, "used": seed == 0})
        for name in args.likelihood
        for seed in args.seeds
    ]
    text = recalibration.page(results)
    assert "- poisson, always: used in 2 of 2 fits; CRPS -10.00%" in text
    assert "- mixed, auto: used in 1 of 2 fits; CRPS -5.13%" in text
    assert text.index("- mixed") < text.index("| table |") < text.index("## How it was measured")
    assert "--likelihood mixed poisson --seeds 0 3" in text


def test_stars(benchmark_module, monkeypatch, tmp_path):
    """On 300 simulated reviews: bounds leave nothing outside of 1 to 5."""
    stars = benchmark_module("stars")
    rng = np.random.default_rng(0)
    y = rng.integers(1, 6, 300)
    words = np.array(["awful", "poor", "fine", "good", "lovely"])
    near = np.clip(y[:, None] - 1 + rng.integers(-2, 3, (300, 6)), 0, 4)
    texts = [" ".join(line) for line in words[near]]
    (tmp_path / "reviews").mkdir()
    frame = pl.DataFrame({"Title": "", "Review Text": texts, "Rating": y})
    (tmp_path / "reviews" / "womens_clothing.csv.gz").write_bytes(gzip.compress(frame.write_csv().encode()))
    monkeypatch.setenv("DDPN_DATA", str(tmp_path))
    monkeypatch.setattr(stars, "NETWORK", {**stars.NETWORK, "members": 1, "hidden": (4,), "epochs": 1})
    rows = {row["what"]: row for row in stars.measured("cpu", size=2)}
    assert len(rows) == 8
    for kind in ("GLM", "networks"):
        assert rows[f"{kind}, no bounds"]["outside"] > 0.01
        assert rows[f"{kind}, lower=1, upper=5"]["outside"] < 1e-9
        assert rows[f"{kind}, Double Binomial, k of 4"]["outside"] < 1e-6
    assert rows["GLM, lower=1, upper=5"]["nll"] < rows["GLM, no bounds"]["nll"]


def test_prediction(benchmark_module):
    prediction = benchmark_module("prediction")
    assert prediction.arguments().parse_args(["--file-rows", "0"]).file_rows == 0
    found = {row["what"]: row for row in prediction.measured(rows=60, calls=2, file_rows=0, mixtures=20)}
    assert found["mean, median, interval, variance"]["full / bare"] > 0.0
    assert found["interval of one row"]["99% ms"] >= found["interval of one row"]["median ms"] > 0.0
    assert found["15 components, counts around 200"]["crps us"] > 0.0
    assert any("asked: 0.5" in line for line in prediction.lines(list(found.values())))
