"""Measure the CPU seconds and memory of `ddpn evaluate`, `report`, `explain`, `monitor` and `diagnose` on long tables.

    python benchmarks/large_tables.py --out benchmarks/results

Fits a model with the defaults of `ddpn fit` to 20,000 rows: 8 numbers, 5% of them missing, 4 categories, one of them
with 5,000 levels, and Gamma-Poisson counts. Then every command runs in a process of its own on new rows of the same
kind. CPU seconds are user and system time; memory is the peak of the process. The number of rows is what the command
says that it used. Writes large_tables.md after every command.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

FITTED_ROWS = 20_000
ROWS = (100_000, 1_000_000)
#: The numbers of levels of the categories, and the standard deviations of their effects.
LEVELS, EFFECTS = (3, 8, 40, 5_000), (0.3, 0.2, 0.2, 0.3)


class Cost(NamedTuple):
    """A line of the results; `used` says how many rows were used for what."""

    command: str
    rows: int
    seconds: float
    megabytes: float
    used: str


def generate_table(rows: int, seed: int) -> pl.DataFrame:
    """Make rows whose counts depend on most columns; the effects of levels are the same for every seed."""
    rng, effect_rng = np.random.default_rng(seed), np.random.default_rng(99)
    numbers = rng.normal(size=(rows, 8)).round(4)
    codes = [rng.integers(0, count, rows) for count in LEVELS]
    effects = [effect_rng.normal(scale=scale, size=count) for count, scale in zip(LEVELS, EFFECTS, strict=True)]
    log_mean = 1.0 + 0.4 * numbers[:, 0] + 0.3 * np.sin(2.0 * numbers[:, 1]) + 0.2 * numbers[:, 2] * numbers[:, 3]
    log_mean += 0.1 * np.abs(numbers[:, 4]) + sum(effect[code] for effect, code in zip(effects, codes, strict=True))
    y = rng.poisson(np.exp(log_mean) * rng.gamma(3.0, 1.0 / 3.0, rows))
    numbers[rng.random(numbers.shape) < 0.05] = np.nan
    columns = {f"x{j}": pl.Series(numbers[:, j]).fill_nan(None) for j in range(numbers.shape[1])}
    columns |= {
        f"c{j}": pl.Series([f"L{j}_{code}" for code in column_codes.tolist()]) for j, column_codes in enumerate(codes)
    }
    return pl.DataFrame(columns | {"y": y})


def run_command(folder: Path, *arguments: str) -> tuple[str, float, float]:
    """Run a command in a process of its own; return its output, CPU seconds and peak memory in MB."""
    script = (
        "import resource, subprocess, sys\n"
        "done = subprocess.run([sys.executable, '-m', 'ddpn.cli', *sys.argv[1:]], stdout=subprocess.PIPE)\n"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "sys.stderr.write(f'\\n{done.returncode} {used.ru_utime + used.ru_stime} {used.ru_maxrss / 1024}')\n"
        "sys.stdout.buffer.write(done.stdout)\n"
    )
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    code, seconds, megabytes = done.stderr.splitlines()[-1].split()
    # `ddpn monitor` ends with status 3 if the rows differ from the training rows.
    if int(code) not in (0, 3):
        raise RuntimeError(f"{' '.join(arguments)}: {done.stderr}")
    return done.stdout, float(seconds), float(megabytes)


def describe_used_rows(command: str, output: str) -> str:
    """Describe the rows that a command used, by its JSON output; for `report`, by that of `evaluate`."""
    if command == "report":
        return "those of evaluate and explain"
    draw: dict[str, Any] = json.loads(output)["draw"]
    parts = {"": draw} if "rows" in draw and not isinstance(draw["rows"], dict) else draw
    labels = {"rows": "columns", "rows_with_counts": "counts"}
    return ", ".join(f"{labels.get(name, name)} {part['rows']:,}".strip() for name, part in parts.items())


def measure_commands(folder: Path, model: Path | None) -> Iterator[Cost]:
    """Fit a model unless one is passed, and measure every command on every table."""
    if model is None:
        generate_table(FITTED_ROWS, 0).write_parquet(folder / "fit.parquet")
        run_command(folder, "fit", "fit.parquet", "--target", "y", "-o", "model")
    else:
        shutil.copytree(model, folder / "model")
    for rows in ROWS:
        table = f"rows{rows}.parquet"
        generate_table(rows, 1).write_parquet(folder / table)
        for command, arguments in {
            "evaluate": ["evaluate", "model", table, "--json"],
            "report": ["report", "model", table, "-o", "report.html", "--overwrite"],
            "explain": ["explain", "model", table, "--json"],
            "monitor": ["monitor", "model", table, "--json"],
            "diagnose": ["diagnose", table, "--target", "y", "--json"],
        }.items():
            output, seconds, megabytes = run_command(folder, *arguments)
            yield Cost(command, rows, seconds, megabytes, describe_used_rows(command, output))


def format_page(costs: list[Cost]) -> str:
    """Format the results as Markdown."""
    machine = f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, one thread"
    lines = [
        "# What commands cost on long tables", "",
        f"`python benchmarks/large_tables.py`, {machine}. A model of {FITTED_ROWS:,} rows and 12 columns; Parquet.", "",
        "| command | rows of the table | CPU seconds | memory, MB | rows used |",
        "|---|---:|---:|---:|---|",
    ]  # fmt: skip
    lines += [f"| {c.command} | {c.rows:,} | {c.seconds:.1f} | {c.megabytes:,.0f} | {c.used} |" for c in costs]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--model", type=Path, help="a model of such rows, which is not fitted again")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    costs = list[Cost]()
    with tempfile.TemporaryDirectory() as folder:
        for cost in measure_commands(Path(folder), args.model):
            costs.append(cost)
            print(cost, flush=True)
            (args.out / "large_tables.md").write_text(format_page(costs))


if __name__ == "__main__":
    main()
