"""Whether `ddpn fit --budget` keeps to its time: random pairs of a table and a budget, beside a busy neighbour.

    python benchmarks/budgets.py --prepared DIR --pairs 100 --out benchmarks/results

DIR is a folder of `python -m benchmarks.tables --prepare DIR`. Every fit has two cores, on which another process runs
all the time; with more cores, several fits run at once. A fit is late if it takes more than 5% longer than its budget
from the start of the program to its end. Each saved model is read again and predicts.
"""

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

import numpy as np

#: Budgets are log-uniform between these, in seconds.
SHORTEST, LONGEST = 10.0, 60.0
#: How much longer than its budget a fit may take.
TOLERANCE = 0.05
#: Fits run on the CPU, also where there is a GPU.
_WITHOUT_GPU = {"CUDA_VISIBLE_DEVICES": ""}


@dataclass(frozen=True)
class Pair:
    """A table, a budget, and what came of them."""

    table: str
    budget: float
    seconds: float = 0.0
    error: str = ""
    weights: str = ""
    scored: int = 0

    @property
    def ratio(self) -> float:
        """Time taken, in units of the budget."""
        return self.seconds / self.budget


def pairs_of(tables: list[str], number: int, seed: int) -> list[Pair]:
    """Random pairs; budgets have one decimal."""
    rng = np.random.default_rng(seed)
    budgets = np.exp(rng.uniform(np.log(SHORTEST), np.log(LONGEST), number)).round(1)
    return [Pair(str(rng.choice(tables)), float(budget)) for budget in budgets]


def run(pair: Pair, folder: Path, cores: list[int]) -> Pair:
    """Fit on these cores, and read the saved model again."""
    about = json.loads((folder / f"{pair.table}.json").read_text(encoding="utf-8"))
    categories = [column["name"] for column in about["columns"] if column["kind"] == "category"]
    with tempfile.TemporaryDirectory() as work:
        model = Path(work) / "model"
        command = [sys.executable, "-m", "ddpn.cli", "fit", str(folder / f"{pair.table}.csv")]
        command += ["--target", about["target"], "-o", str(model), "--budget", f"{pair.budget}s", "--json"]
        command += ["--category", ",".join(categories)] if categories else []
        started = time.monotonic()
        done = _run(command, cores)
        seconds = time.monotonic() - started
        if done.returncode:
            return Pair(pair.table, pair.budget, seconds, done.stderr.strip().splitlines()[-1])
        test = json.loads(done.stdout)["test"]
        weights = ", ".join(f"{e['name']} {e['weight']:.2f}" for e in test["entries"] if e["weight"])
        out = Path(work) / "predictions.csv"
        check = [sys.executable, "-m", "ddpn.cli", "predict", str(model), str(folder / f"{pair.table}.csv"), "-o"]
        checked = _run([*check, str(out)], cores)
        error = "" if not checked.returncode and out.exists() else checked.stderr.strip().splitlines()[-1]
        return Pair(pair.table, pair.budget, seconds, error, weights, test["rows"])


def _run(command: list[str], cores: list[int]) -> "subprocess.CompletedProcess[str]":
    pin = ["taskset", "--cpu-list", ",".join(map(str, cores))]
    return subprocess.run(
        [*pin, *command], capture_output=True, text=True, env={**os.environ, **_WITHOUT_GPU}, check=False
    )


def be_busy(core: int) -> None:
    """Use a core until the program ends."""
    os.sched_setaffinity(0, {core})
    while True:
        sum(range(100_000))


def measure(pairs: list[Pair], folder: Path) -> list[Pair]:
    """All pairs, two cores for each, with a busy process on one of them."""
    cores = sorted(os.sched_getaffinity(0))
    free: Queue[list[int]] = Queue()
    neighbours = []
    for first in range(0, len(cores) - 1, 2):
        own = cores[first : first + 2]
        free.put(own)
        neighbours.append(multiprocessing.Process(target=be_busy, args=(own[0],), daemon=True))
    for process in neighbours:
        process.start()

    def one(pair: Pair) -> Pair:
        own = free.get()
        try:
            found = run(pair, folder, own)
        finally:
            free.put(own)
        print(f"{found.table:24s} {found.budget:6.1f} s: {found.ratio:.3f} {found.weights} {found.error}", flush=True)
        return found

    with ThreadPoolExecutor(len(neighbours)) as pool:
        done = list(pool.map(one, pairs))
    for process in neighbours:
        process.terminate()
    return done


def page(done: list[Pair], command: str) -> str:
    """The result as Markdown."""
    ratios = np.array([pair.ratio for pair in done])
    late = [pair for pair in done if pair.ratio > 1.0 + TOLERANCE]
    failed = [pair for pair in done if pair.error]
    lines = [
        "# Whether a time budget is kept",
        "",
        f"{len(done)} random pairs of a table and a budget of {SHORTEST:.0f} to {LONGEST:.0f} s, beside a process that "
        f"uses one of two cores all the time: {len(late)} took more than {TOLERANCE:.0%} longer than the budget, "
        f"{len(failed)} failed. Time taken / budget: median {np.median(ratios):.2f}, largest {ratios.max():.2f}.",
        "",
        f"`{command}`",
        "",
        "| table | budget, s | time / budget | test rows scored | mixture |",
        "| --- | --- | --- | --- | --- |",
    ]
    for pair in sorted(done, key=lambda pair: -pair.ratio):
        told = pair.error or pair.weights
        lines.append(f"| {pair.table} | {pair.budget:.1f} | {pair.ratio:.2f} | {pair.scored:,} | {told} |")
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prepared", type=Path, required=True, help="folder of tables")
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="folder for budgets.md")
    given = parser.parse_args()
    tables = sorted(path.stem for path in given.prepared.glob("*.json"))
    done = measure(pairs_of(tables, given.pairs, given.seed), given.prepared)
    text = page(done, f"python benchmarks/budgets.py --pairs {given.pairs} --seed {given.seed}")
    if given.out is None:
        print(text)
    else:
        given.out.mkdir(parents=True, exist_ok=True)
        (given.out / "budgets.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
