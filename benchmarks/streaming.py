"""Compare fits of many Parquet files that are streamed with the same fits in memory: peak memory, speed and CRPS.

    python benchmarks/streaming.py generate FOLDER --rows 20000000
    python benchmarks/streaming.py --rows 500000 1000000 --compare 500000

The second command generates tables of each number of rows (40 columns) in a temporary folder, fits each of them as a
stream and those of `--compare` in memory, too, every fit in a process of its own, and writes streaming.md to
benchmarks/results. With `--data FOLDER` tables and finished fits are kept there, and used by the next run. Memory is
the peak resident size of that process above the size after all imports.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

#: Rows per file, and per row group.
PART_ROWS, GROUP_ROWS = 250_000, 50_000
#: Columns: numbers, integers, and text.
NUMBERS, INTEGERS, TEXTS = 30, 6, 4
#: New rows by which both fits are scored: a part that neither has seen.
TEST_ROWS, TEST_PART = 50_000, 10_000_019
_SEED = 7
#: One pass of small networks, mixed with a GLM: reading and encoding count for more than with the default model.
MODEL = {"likelihood": "negative_binomial", "n_networks": 2, "hidden": [64, 64], "epochs": 1, "device": "cpu"}


def make_part(number: int, rows: int) -> Any:
    """Make one part of the table: 40 columns and the target `y`. The same number gives the same part."""
    import polars as pl

    rng = np.random.default_rng([_SEED, number])
    x = rng.normal(size=(rows, NUMBERS))
    k = rng.integers(0, 50, size=(rows, INTEGERS))
    codes = rng.integers(0, 12, size=(rows, TEXTS))
    effects = np.sin(np.arange(12)) * 0.3
    eta = 0.6 + 0.4 * x[:, 0] - 0.3 * np.abs(x[:, 1]) + 0.3 * np.sin(2 * x[:, 2]) * (x[:, 3] > 0)
    eta += 0.01 * k[:, 0] + effects[codes[:, 0]] + 0.05 * x[:, 4:12].sum(axis=1)
    y = rng.poisson(np.exp(eta) * rng.gamma(3.0, 1.0 / 3.0, size=rows))
    columns: dict[str, Any] = {f"x{j}": x[:, j] for j in range(NUMBERS)}
    columns |= {f"k{j}": k[:, j] for j in range(INTEGERS)}
    levels = np.array([f"level {code}" for code in range(12)])
    columns |= {f"t{j}": levels[codes[:, j]] for j in range(TEXTS)}
    return pl.DataFrame(columns | {"y": y})


def generate_table(folder: Path, rows: int, part_rows: int = PART_ROWS) -> None:
    """Write a table of `rows` rows as several files."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, start in enumerate(range(0, rows, part_rows)):
        table = make_part(number, min(part_rows, rows - start))
        table.write_parquet(folder / f"part-{number:05d}.parquet", row_group_size=GROUP_ROWS)


def measure_fit(folder: Path, stream: bool, model: dict[str, Any]) -> dict[str, Any]:
    """Fit in this process; return seconds, CPU seconds, peak memory and the CRPS of new rows."""
    import torch

    import ddpn.workflow.fitting as fitting
    from ddpn.metrics import crps
    from ddpn.workflow.config import FitConfig
    from ddpn.workflow.large_tables import open_table
    from ddpn.workflow.preparing import prepare

    import lightgbm  # noqa: F401  isort: skip

    torch.set_num_threads(1)
    training = _time_networks()
    before = read_resident_bytes()
    started, cpu = time.perf_counter(), time.process_time()
    plan = FitConfig(target="y", **model, compare_with=())
    prepared = prepare(open_table([str(folder)], plan, stream=stream)[0], plan)
    read = time.process_time() - cpu
    fitted = fitting.fit(prepared, {}, on_step=lambda step: print(f"  {step}", file=sys.stderr))
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    test = make_part(TEST_PART, TEST_ROWS)
    roles, predictor = fitted.folder.roles, fitted.folder.model.predictor_
    scores = []
    for start in range(0, TEST_ROWS, 5000):
        some = roles.read_rows(test[start : start + 5000])
        with torch.no_grad():
            scores.append(crps(predictor.distribution(some.X), torch.from_numpy(some.y)))
    networks = predictor.members.get("networks")
    return {
        "seconds": seconds,
        "cpu": cpu,
        "reading": read,
        "training": training[0],
        "trained": 0 if networks is None else networks.n_rows,
        "epochs": 0 if networks is None else len(networks.history.epochs),
        "peak": peak,
        "crps": float(torch.cat(scores).mean()),
        "weights": {name: round(weight, 3) for name, weight in predictor.weights.items()},
    }


def _time_networks() -> list[float]:
    """Add up the CPU seconds of `Networks.fit` in this process, reading and encoding included.

    The list that is returned has one entry, the sum, which every later fit updates.
    """
    from ddpn.members.networks import Networks

    taken, fit = [0.0], Networks.fit.__func__  # type: ignore[attr-defined]

    def fit_and_time(cls: Any, *rows: Any, **options: Any) -> Any:
        started = time.process_time()
        try:
            return fit(cls, *rows, **options)
        finally:
            taken[0] += time.process_time() - started

    Networks.fit = classmethod(fit_and_time)  # type: ignore[method-assign]
    return taken


def read_resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measure_fits(
    rows: Sequence[int], compare: Sequence[int], model: dict[str, Any], folder: Path
) -> list[dict[str, Any]]:
    """Run all fits, each in its own process; reuse tables and results that are in the folder already."""
    results = []
    for number in sorted({*rows, *compare}):
        data = folder / str(number)
        if not (data / "complete").exists():
            generate_table(data, number)
            (data / "complete").touch()
        for stream in [*([True] if number in rows else []), *([False] if number in compare else [])]:
            word = "stream" if stream else "memory"
            result = folder / f"{number}-{word}.json"
            if not result.exists():
                command = [sys.executable, __file__, "fit", str(data), word, "--model", json.dumps(model)]
                print(f"{number:,} rows, {word}", file=sys.stderr, flush=True)
                output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
                result.write_text(output.splitlines()[-1])
            results.append({"rows": number, "how": word, **json.loads(result.read_text())})
            print(results[-1], file=sys.stderr, flush=True)
    return results


def format_page(results: list[dict[str, Any]], command: str, model: dict[str, Any]) -> str:
    """Format the results as Markdown."""
    machine = platform.processor() or platform.machine()
    lines = [
        "# Fits of many Parquet files", "",
        f"`{command}`, {machine}, {os.cpu_count()} cores, torch on one thread; model: `{json.dumps(model)}`.",
        f"Tables of {NUMBERS + INTEGERS + TEXTS} columns. Memory is the peak resident size above that after imports.",
        f"CRPS is that of {TEST_ROWS:,} new rows. Every fit is a process; on a shared machine compare CPU seconds.",
        "The check reads all rows; the training of networks reads, encodes and trains on all but held-out rows once.",
        "",
        "| rows | fit | seconds | CPU seconds | of which check | of which training | trained rows per CPU second of it "
        "| peak memory | CRPS |",
        "|---:|---|---:|---:|---:|---:|---:|---:|---:|",
    ]  # fmt: skip
    for row in results:
        cells = [f"{row['rows']:,}", row["how"], f"{row['seconds']:.0f}", f"{row['cpu']:.0f}"]
        cells += [f"{row['reading']:.0f}", f"{row['training']:.0f}", f"{row['trained'] / row['training']:,.0f}"]
        cells.append(f"{row['peak'] / 1e9:.2f} GB")
        cells.append(f"{row['crps']:.4f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="*", default=[500_000, 1_000_000])
    parser.add_argument("--compare", type=int, nargs="*", default=[500_000])
    parser.add_argument("--model", type=json.loads, default=MODEL)
    parser.add_argument("--data", type=Path, help="keep tables and results of fits here, and use those that are there")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    if sys.argv[1:2] == ["generate"]:
        parser = argparse.ArgumentParser()
        parser.add_argument("folder", type=Path)
        parser.add_argument("--rows", type=int, required=True)
        args = parser.parse_args(sys.argv[2:])
        generate_table(args.folder, args.rows)
        return
    if sys.argv[1:2] == ["fit"]:
        parser = argparse.ArgumentParser()
        parser.add_argument("folder", type=Path)
        parser.add_argument("how", choices=["stream", "memory"])
        parser.add_argument("--model", type=json.loads, required=True)
        args = parser.parse_args(sys.argv[2:])
        print(json.dumps(measure_fit(args.folder, args.how == "stream", args.model)))
        return
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = measure_fits(args.rows, args.compare, args.model, args.data or Path(folder))
    args.out.mkdir(parents=True, exist_ok=True)
    command = " ".join(["python benchmarks/streaming.py", *sys.argv[1:]])
    (args.out / "streaming.md").write_text(format_page(results, command, args.model))
    print((args.out / "streaming.md").read_text())


if __name__ == "__main__":
    main()
