"""Count models side by side on real tables, each peer in its own environment.

    make bench-tables                                                  (docs/results/tables.md, .svg and .csv)
    python -m benchmarks.tables --tables quakes,solder --models lightgbm_nb,sklearn_hgb --splits 1
    python -m benchmarks.tables --prepare DIR                          (only write the tables as CSV, to take elsewhere)
    python -m benchmarks.tables --prepared DIR --python current --models ddpn,lightgbm_nb     (no network, no packages)

A fit that is done is skipped when the command runs again, so that it can be interrupted. A model whose packages cannot
be installed or imported is skipped with the reason; a fit that fails is recorded as failed; --retry tries both again.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from .catalogue import ROLES, prepare_tables, read_catalogue
from .models import MODELS
from .running import Run, Setup, run_all, select_waiting_runs


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", help="names in tables.toml, with commas (default: all of the roles)")
    parser.add_argument("--role", default="reported,apart", help=f"of {', '.join(ROLES)} (default: reported,apart)")
    parser.add_argument("--models", help=f"names, with commas (default: all): {', '.join(MODELS)}")
    parser.add_argument("--splits", type=int, default=3, help="splits of each table (default: 3)")
    parser.add_argument("--jobs", type=int, default=1, help="fits at a time (default: 1)")
    parser.add_argument("--threads", type=int, default=1, help="threads of a fit (default: 1)")
    parser.add_argument("--timeout", type=float, default=1800.0, help="seconds until a fit has failed (default: 1800)")
    parser.add_argument("--python", choices=("venv", "current"), default="venv", help="whose packages peers use")
    parser.add_argument("--work", type=Path, default=Path(".bench"), help="tables, environments, results (.bench)")
    parser.add_argument("--out", type=Path, help="results, one JSON file per fit (default: WORK/results)")
    parser.add_argument("--prepare", type=Path, metavar="DIR", help="write the tables to this folder and stop")
    parser.add_argument("--prepared", type=Path, metavar="DIR", help="folder of --prepare (default: WORK/tables)")
    parser.add_argument("--retry", action="store_true", help="run again what failed or was skipped")
    parser.add_argument("--page", type=Path, metavar="DIR", help="write tables.md, .svg and .csv to this folder")
    parser.add_argument("--note", default="", help="sentences for the page, such as how many fits ran at a time")
    return parser


def choose_names(names: str | None, choices: Any, what: str) -> list[str]:
    """Split names at commas, in their order; return all choices if `names` is None."""
    if names is None:
        return list(choices)
    selected = [name.strip() for name in names.split(",") if name.strip()]
    if unknown := [name for name in selected if name not in choices]:
        sys.exit(f"No {what} named {', '.join(unknown)}. There are: {', '.join(choices)}.")
    return selected


def main(argv: list[str] | None = None) -> None:
    args = make_parser().parse_args(argv)
    entries, roles = read_catalogue(), choose_names(args.role, ROLES, "role")
    every = [name for name, entry in entries.items() if entry.role in roles]
    tables = every if args.tables is None else choose_names(args.tables, entries, "table")
    folder = args.prepare or args.prepared or args.work / "tables"
    prepare_tables([entries[name] for name in tables], folder)
    if args.prepare:
        return
    setup = Setup(
        tables=folder,
        environments=args.work / "envs",
        out=args.out or args.work / "results",
        python=args.python,
        threads=args.threads,
        timeout=args.timeout,
        retry=args.retry,
    )
    models = choose_names(args.models, MODELS, "model")
    runs = [Run(table, number, model) for number in range(args.splits) for table in tables for model in models]
    waiting = select_waiting_runs(runs, setup)
    print(f"{len(runs)} fits, {len(runs) - len(waiting)} of them done before.", flush=True)
    for count, (run, result) in enumerate(run_all(waiting, setup, args.jobs), start=1):
        print(
            f"[{count}/{len(waiting)}] {run.table}, split {run.split}, {run.model}: {describe_result(result)}",
            flush=True,
        )
    if args.page:
        from .page import write_page

        write_page(setup.out, folder, [entries[name] for name in tables], args.page, args.splits, args.note)


def describe_result(result: dict[str, Any]) -> str:
    """Describe a result in one line."""
    if result["status"] != "done":
        return f"{result['status']}: {result['reason'].splitlines()[-1]}"
    cost = f"{result['fit_seconds']:.1f} s, CPU {result['fit_cpu_seconds']:.1f} s"
    return f"CRPS {result['crps']:.4f}, coverage {result['coverage']:.1%}, fitted in {cost}"


if __name__ == "__main__":
    main()
