"""Time predictions of the default model: bare forward pass against full predictions, single rows, and whole files.

    python benchmarks/prediction.py --out benchmarks/results

One process and one thread. The model is `DDPNRegressor` with default networks (five of them, each a mixture of two
Double Poissons and a Negative Binomial) after one epoch: the time of a prediction does not depend on the training.
"Bare" is the float32 forward pass of the five networks on encoded inputs; "full" is a table of mean, median, 90%
interval and both parts of the variance from a data frame, and "recalibrated" the same after a map of the cdf. They take
turns, and the best of five turns counts, so that a busy machine slows down all of them alike. Times are CPU seconds of
this process: a shared machine has slow minutes. `ddpn predict` runs in a process of its own from CSV to CSV; its memory
is the largest of that process. Distributions: 2,000 mixtures of 15 components for each size of counts. Writes
prediction.json and prediction.md.
"""

import argparse
import copy
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import polars as pl
import torch

from ddpn import DDPNRegressor
from ddpn.distributions import DoublePoisson, Mixture, NegativeBinomial, Recalibrated
from ddpn.distributions.recalibrated import MonotoneMap

COLUMNS, COMPONENTS = 8, 15
#: Medians in ms that the project asks for, and the least ratio of full predictions to bare passes, in rows per second.
ASKED = {"mean of one row": 1.5, "interval of one row": 2.0, "full / bare": 0.5}


def table(rows: int) -> tuple[pl.DataFrame, np.ndarray]:
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(rows, COLUMNS - 1))
    y = rng.poisson(np.exp(1.5 + 0.6 * numbers[:, 0] + rng.normal(0.0, 0.5, rows)))
    frame = pl.DataFrame({f"x{j}": numbers[:, j] for j in range(COLUMNS - 1)})
    return frame.with_columns(ward=pl.Series(rng.choice(["A", "B", "C"], rows))), y


def cpu_seconds(*calls: Callable[[], object], repeat: int = 3) -> list[float]:
    """The shortest times of calls that take turns."""
    best = [float("inf")] * len(calls)
    for _ in range(repeat):
        for i, call in enumerate(calls):
            started = time.process_time()
            call()
            best[i] = min(best[i], time.process_time() - started)
    return best


def each_row(call: Callable[[pl.DataFrame], object], frame: pl.DataFrame, calls: int) -> tuple[float, float]:
    """Median and 99th percentile of single rows, in ms."""
    took = []
    for i in range(calls + 10):
        row = frame[i % frame.height : i % frame.height + 1]
        started = time.process_time()
        call(row)
        took.append(time.process_time() - started)
    median, high = np.percentile(took[10:], [50, 99]) * 1e3
    return float(median), float(high)


def predictions(model: DDPNRegressor, frame: pl.DataFrame, calls: int) -> Iterator[dict]:
    """The full table of many rows against the networks alone, and single rows."""
    member = model.predictor_.members["networks"]
    inputs = torch.from_numpy(member.encoder.transform(frame))
    single, rows = copy.deepcopy(member.model).float(), frame.height
    knots = np.linspace(0.0, 1.0, 21)
    change = MonotoneMap.of(knots, knots + 0.06 * knots * np.sin(2.0 * np.pi * knots))

    def networks() -> None:
        for part in inputs.split(4096):
            single.raw(part)

    def full(is_changed: bool = False) -> None:
        for base in model.predictor_.blocks(frame):
            model.predictor_.described(Recalibrated(base, change) if is_changed else base, 0.9)

    with torch.no_grad():
        bare, whole, changed = cpu_seconds(networks, full, lambda: full(True), repeat=5)
    yield {"what": "bare forward pass, float32", "rows/s": rows / bare}
    yield {"what": "mean, median, interval, variance", "rows/s": rows / whole, "full / bare": bare / whole}
    yield {"what": "the same, recalibrated", "rows/s": rows / changed, "us per row": changed / rows * 1e6}
    for name, call in (("mean", model.predict), ("interval", model.predict_interval)):
        median, high = each_row(call, frame, calls)
        yield {"what": f"{name} of one row", "median ms": median, "99% ms": high}


def files(model: DDPNRegressor, rows: int) -> dict:
    """`ddpn predict` from CSV to CSV, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        model.save(path / "model")
        table(rows)[0].write_csv(path / "new.csv")
        command = [sys.executable, "-m", "ddpn.cli", "predict", "model", "new.csv", "-o", "out.csv"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"what": "ddpn predict, CSV to CSV", "rows": rows, "rows/s": rows / seconds, "MB": after.ru_maxrss / 1024}


def mixture(scale: float, rows: int) -> tuple[Mixture, torch.Tensor]:
    """Mixtures like those of five networks, whose means differ by 15%, and counts."""
    generator = torch.Generator().manual_seed(0)

    def normal(columns: int) -> torch.Tensor:
        return torch.randn(rows, columns, generator=generator)

    base, doubles = scale * torch.exp(0.7 * normal(1)), 2 * COMPONENTS // 3
    gamma = (0.5 if scale < 50 else 0.15) * torch.exp(0.4 * normal(doubles))
    alpha = 0.3 * torch.exp(0.4 * normal(COMPONENTS - doubles))
    stacks = [
        DoublePoisson(base * torch.exp(0.15 * normal(doubles)), gamma),
        NegativeBinomial(base * torch.exp(0.15 * normal(COMPONENTS - doubles)), alpha),
    ]
    weights = torch.rand(rows, COMPONENTS, generator=generator).double() + 0.1
    y = torch.poisson(base.squeeze(1) * torch.exp(0.5 * normal(1).squeeze(1)), generator=generator)
    return Mixture.concatenate(stacks, weights / weights.sum(1, keepdim=True)), y


def distributions(rows: int) -> Iterator[dict]:
    """Microseconds per row of scores and quantiles."""
    for scale in (2.0, 20.0, 200.0, 2000.0):
        dist, y = mixture(scale, rows)
        # Expanded, so that each call is one of a mixture that knows nothing from the call before.
        calls: dict[str, Callable[[], object]] = {
            "crps": lambda dist=dist, y=y: dist.expand(dist.batch_shape).crps(y),
            "cdf": lambda dist=dist, y=y: dist.expand(dist.batch_shape).cdf(y),
            "log_prob": lambda dist=dist, y=y: dist.expand(dist.batch_shape).log_prob(y),
            "interval": lambda dist=dist: dist.expand(dist.batch_shape).interval(0.9),
            "mode": lambda dist=dist: dist.expand(dist.batch_shape).mode,
        }
        with torch.no_grad():
            took = {f"{name} us": cpu_seconds(call, repeat=2)[0] / rows * 1e6 for name, call in calls.items()}
        yield {"what": f"{COMPONENTS} components, counts around {scale:g}", **took}


def measured(rows: int, calls: int, file_rows: int, mixtures: int) -> list[dict]:
    frame, y = table(rows)
    few = min(rows, 2000)
    model = DDPNRegressor(epochs=1, random_state=0, device="cpu").fit(frame.head(few), y[:few])
    found = [*predictions(model, frame, calls), *distributions(mixtures)]
    return [*found, files(model, file_rows)] if file_rows else found


def lines(results: list[dict]) -> Iterator[str]:
    for row in results:
        shown = (f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v:,}" for k, v in row.items() if k != "what")
        asked = [f"{value:g}" for name, value in ASKED.items() if name == row["what"] or name in row]
        yield f"- {row['what']}: {', '.join(shown)}" + (f" (asked: {', '.join(asked)})" if asked else "")


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--rows", type=int, default=16_384)
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--file-rows", type=int, default=200_000)
    parser.add_argument("--mixtures", type=int, default=2000)
    return parser


def main() -> None:
    args = arguments().parse_args()
    torch.set_num_threads(1)
    results = measured(args.rows, args.calls, args.file_rows, args.mixtures)
    machine = platform.processor() or platform.machine()
    load = ", ".join(f"{x:.1f}" for x in os.getloadavg())
    title = f"Predictions on {machine}, torch {torch.__version__}, one thread, CPU seconds"
    title += f", load averages {load} on {os.cpu_count()} cores"
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "prediction.json").write_text(json.dumps({"title": title, "results": results}, indent=1) + "\n")
    text = "\n".join([f"# {title}", "", *lines(results)]) + "\n"
    (args.out / "prediction.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
