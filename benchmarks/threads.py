"""Time plain Python calls against the same calls with one thread, on two cores, with and without a busy neighbour.

    python benchmarks/threads.py --out benchmarks/results

A neighbour is another process that computes all the time. Each call runs in a process of its own, once as a user gets
it and once with OMP_NUM_THREADS=1: a fit of 2,000 rows and 8 columns over three epochs with default settings, ten
epochs on 3,500 rows, and predictions of one row. The ratio is the time of the plain call over that with one thread; the
project asks for at most 2, whatever else the machine does. The last lines time products of matrices and boosted trees
with two threads over one, by their size: where `LARGE` and `LARGE_TABLE` in ddpn/runtime/threads.py come from. Writes
threads_cpu.json and .md.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

import numpy as np
import recording
import torch
from sklearn.ensemble import HistGradientBoostingRegressor

from ddpn import DDPNRegressor

CORES, ASKED = 2, 2.0
#: Multiply-adds of the products that are timed, as powers of 2.
SIZES = range(20, 32, 2)
#: Tables that trees are fitted to.
TABLES = ((2_000, 8), (20_000, 8), (100_000, 20))


def table(rows: int, columns: int = 8) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, columns))
    return X, rng.poisson(np.exp(1.0 + 0.5 * X[:, 0]))


def seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def default_fit() -> float:
    return seconds(lambda: DDPNRegressor(epochs=3, random_state=0, device="cpu").fit(*table(2000)))


def ten_epochs() -> float:
    model = DDPNRegressor(epochs=10, numeric="standard", random_state=0, device="cpu")
    return seconds(lambda: model.fit(*table(3500)))


def one_row() -> float:
    X, y = table(300)
    model = DDPNRegressor(epochs=1, numeric="standard", random_state=0, device="cpu").fit(X, y)
    return median(seconds(lambda row=row: model.predict_interval(X[row : row + 1])) for row in range(50))


def products() -> dict[str, float]:
    """Seconds per product of (rows, 128) and (128, 128), five at once as members are, by the multiply-adds of one."""
    found = {}
    for size in SIZES:
        x, weight = torch.randn(5, max(1, 2**size // (5 * 128**2)), 128), torch.randn(5, 128, 128)
        found[f"2^{size}"] = median(seconds(lambda x=x, weight=weight: torch.bmm(x, weight)) for _ in range(9))
    return found


def trees() -> dict[str, float]:
    """Seconds for ten boosted trees, by the size of the table."""
    model = HistGradientBoostingRegressor(loss="poisson", max_iter=10, early_stopping=False)
    return {f"{rows} x {columns}": seconds(lambda: model.fit(*table(rows, columns))) for rows, columns in TABLES}  # noqa: B023


CALLS: dict[str, Callable[[], float]] = {
    "default fit, 2,000 rows, three epochs": default_fit,
    "ten epochs, 3,500 rows": ten_epochs,
    "prediction of one row": one_row,
}
SWEEPS: dict[str, Callable[[], dict[str, float]]] = {"multiply-adds": products, "rows and columns of trees": trees}


@contextmanager
def neighbour(busy: bool) -> Iterator[subprocess.Popen | None]:
    """Another process that computes while the block runs."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if busy else None
    try:
        yield process
    finally:
        if process is not None:
            process.kill()
            process.wait()


def timed(task: str, threads: int | None) -> Any:
    """What a task returns in a process of its own, with so many threads or as a user gets them."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "MKL_"))}
    environment |= {} if threads is None else {"OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, __file__, "--task", task]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(ended.stdout.splitlines()[-1])


def compared(task: str, repeat: int) -> Iterator[dict]:
    for busy in (False, True):
        with neighbour(busy):
            runs = [(timed(task, None), timed(task, 1)) for _ in range(repeat)]
        plain, alone = (min(column) for column in zip(*runs, strict=True))
        where = "busy neighbour" if busy else "idle"
        yield {"what": f"{task}, {where}", "seconds": plain, "with one thread": alone, "ratio": plain / alone}


def crossover(sweep: str) -> Iterator[dict]:
    for busy in (False, True):
        with neighbour(busy):
            two, one = timed(sweep, CORES), timed(sweep, 1)
        ratios = {size: two[size] / one[size] for size in one}
        yield {"what": f"two threads / one by {sweep}, {'busy neighbour' if busy else 'idle'}", **ratios}


def measured(repeat: int) -> list[dict]:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    rows = [row for call in CALLS for row in compared(call, repeat)]
    return rows + [row for sweep in SWEEPS for row in crossover(sweep)]


def arguments() -> argparse.ArgumentParser:
    parser = recording.parser(__doc__)
    parser.set_defaults(device="cpu")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--task", choices=CALLS | SWEEPS, help="time one task in this process, and print the seconds")
    return parser


def main() -> None:
    args = arguments().parse_args()
    if args.task:
        print(json.dumps((CALLS | SWEEPS)[args.task]()))
        return
    asked = {f"{call}, {where}": ASKED for call in CALLS for where in ("idle", "busy neighbour")}
    recording.record("threads", args, lambda device: measured(args.repeat), asked, f"{CORES} cores")


if __name__ == "__main__":
    main()
