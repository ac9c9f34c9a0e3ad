"""Time predictions of the default networks: forward pass against full predictions, single rows, and whole files.

    python benchmarks/prediction.py --out benchmarks/results

One process and one thread. The model is `DDPNRegressor`, the five networks of the paper with a Double Poisson each,
after one epoch: the time of a prediction does not depend on the training.

"Bare" is the float32 forward pass of the five networks on encoded inputs. "Full" is a table of mean, median, 90%
interval and both parts of the variance from a data frame, and "recalibrated" the same with a recalibrated model. The
three take turns, and the shortest time of five turns counts, so that a busy machine slows down all of them alike. Times
are CPU seconds of this process. `ddpn predict` runs in a process of its own from CSV to CSV, and its memory is the peak
of that process. Writes prediction_cpu.json and .md.
"""

import copy
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import polars as pl
import recording
import torch

from ddpn import DDPNRegressor
from ddpn.distributions import Recalibrated
from ddpn.distributions.recalibrated import MonotoneMap
from ddpn.prediction.spec import PredictionSpec

COLUMNS = 8
#: Medians in ms that the project asks for, the least ratio of full predictions to bare passes, and rows per second.
ASKED = {
    "mean of one row": 0.6,
    "interval of one row": 0.8,
    "mean, median, interval, variance": 0.5,
    "ddpn predict, CSV to CSV": 30_000,
}


def simulate_table(rows: int) -> tuple[pl.DataFrame, np.ndarray]:
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(rows, COLUMNS - 1))
    y = rng.poisson(np.exp(1.5 + 0.6 * numbers[:, 0] + rng.normal(0.0, 0.5, rows)))
    frame = pl.DataFrame({f"x{j}": numbers[:, j] for j in range(COLUMNS - 1)})
    return frame.with_columns(ward=pl.Series(rng.choice(["A", "B", "C"], rows))), y


def time_in_turns(*calls: Callable[[], object], repeat: int = 3) -> list[float]:
    """Return the shortest time of each call; the calls take turns."""
    best = [float("inf")] * len(calls)
    for _ in range(repeat):
        for i, call in enumerate(calls):
            started = time.process_time()
            call()
            best[i] = min(best[i], time.process_time() - started)
    return best


def time_single_rows(call: Callable[[pl.DataFrame], object], frame: pl.DataFrame, calls: int) -> tuple[float, float]:
    """Return the median and the 99th percentile of the time of a single row, in ms."""
    took = []
    for i in range(calls + 10):
        row = frame[i % frame.height : i % frame.height + 1]
        started = time.process_time()
        call(row)
        took.append(time.process_time() - started)
    median, high = np.percentile(took[10:], [50, 99]) * 1e3
    return float(median), float(high)


def measure_predictions(model: DDPNRegressor, frame: pl.DataFrame, calls: int) -> Iterator[dict]:
    """Compare the full table of many rows with the networks alone, and time single rows."""
    member = model.predictor_.members["networks"]
    inputs = torch.from_numpy(member.encoder.encode(frame))
    single, rows = copy.deepcopy(member.model).float(), frame.height
    knots = np.linspace(0.0, 1.0, 21)
    change = MonotoneMap.from_knots(knots, knots + 0.06 * knots * np.sin(2.0 * np.pi * knots))

    def run_networks() -> None:
        for part in inputs.split(4096):
            single.raw(part)

    def predict_table(is_changed: bool = False) -> None:
        for base in model.predictor_.blocks(frame):
            model.predictor_.wrap(Recalibrated(base, change) if is_changed else base).to_columns(PredictionSpec())

    with torch.no_grad():
        bare, whole, changed = time_in_turns(run_networks, predict_table, lambda: predict_table(True), repeat=5)
    yield {"what": "bare forward pass, float32", "rows/s": rows / bare}
    yield {"what": "mean, median, interval, variance", "rows/s": rows / whole, "full / bare": bare / whole}
    yield {"what": "the same, recalibrated", "rows/s": rows / changed, "us per row": changed / rows * 1e6}
    for name, call in (("mean", model.predict), ("interval", model.predict_interval)):
        median, high = time_single_rows(call, frame, calls)
        yield {"what": f"{name} of one row", "median ms": median, "99% ms": high}


def measure_files(model: DDPNRegressor, rows: int) -> dict:
    """Measure `ddpn predict` from CSV to CSV, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        model.save(path / "model")
        simulate_table(rows)[0].write_csv(path / "new.csv")
        command = [sys.executable, "-m", "ddpn.cli", "predict", "model", "new.csv", "-o", "out.csv"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"what": "ddpn predict, CSV to CSV", "rows": rows, "rows/s": rows / seconds, "MB": after.ru_maxrss / 1024}


def measure(rows: int, calls: int, file_rows: int) -> list[dict]:
    frame, y = simulate_table(rows)
    few = min(rows, 2000)
    model = DDPNRegressor(epochs=1, random_state=0, device="cpu").fit(frame.head(few), y[:few])
    results = list(measure_predictions(model, frame, calls))
    return [*results, measure_files(model, file_rows)] if file_rows else results


def main() -> None:
    parser = recording.make_parser(__doc__)
    parser.add_argument("--rows", type=int, default=16_384)
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--file-rows", type=int, default=200_000)
    args = parser.parse_args()
    args.device, sizes = "cpu", (args.rows, args.calls, args.file_rows)
    recording.record("prediction", args, lambda _: measure(*sizes), ASKED, "one thread, CPU seconds")


if __name__ == "__main__":
    main()
