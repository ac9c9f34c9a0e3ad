"""Coverage of calibrated 90% intervals over many random splits: for all rows together, and within groups.

    DDPN_DATA=... python benchmarks/interval_coverage.py     (docs/results/interval_coverage.md, about 6 CPU minutes)

Three of the development tables: crime1 (small counts), RAND (over-dispersed counts), bikes (large counts). In every
split half of the rows train a Poisson GLM, whose intervals are far too narrow on two of the tables, a quarter
calibrates, and a quarter is scored. "predicted" are the central intervals as predicted, "all rows" has one level for
all rows, "groups" one per level of a column, "ranges" one per fifth of the predicted mean; both are shrunk towards that
of all rows as by default. Mean coverage must be within 1 point of 90% (the command fails otherwise).
"""

import argparse
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from development import TABLES  # type: ignore[import-not-found]

SPLITS = 200
COVERAGE = 0.9
#: Most rows of a table: the smaller the calibration set, the harder the task.
ROWS = 2000
#: By name: the column of groups.
GROUPS = {"crime1": "durat", "RAND": "physlm", "bikes": "hr"}
#: How columns of many values become groups.
BANDS: dict[str, Callable[[Any], Any]] = {
    "durat": lambda x: np.where(x > 0, "unemployed", "employed"),
    "physlm": lambda x: np.where(x > 0, "limited", "not limited"),
    "hr": lambda x: np.array(["night", "morning", "day", "evening"])[np.asarray(x).astype(int) // 6],
}
KINDS = ("predicted", "all rows", "groups", "ranges")


def one_split(X: Any, y: np.ndarray, labels: np.ndarray, seed: int) -> dict[str, Any]:
    """Coverage, width, and coverage within groups and within fifths of the predicted mean, for each kind."""
    from ddpn import CountGLM

    order = np.random.default_rng(seed).permutation(len(y))
    train, known, test = np.split(order, [len(y) // 2, 3 * len(y) // 4])
    model = CountGLM(likelihood="poisson").fit(X[train], y[train])
    fifths = np.argsort(np.argsort(model.predict(X[test]), kind="stable")) * 5 // len(test)
    found = {}
    for kind in KINDS:
        groups = {"groups": labels[known], "ranges": 5}.get(kind)
        if kind != "predicted":
            model.fit_intervals(X[known], y[known], groups=groups)
        own = {"groups": labels[test]} if kind == "groups" else {}
        shape = "central" if kind == "predicted" else "calibrated"
        low, high = model.predict_interval(X[test], COVERAGE, kind=shape, **own).T
        inside = (low <= y[test]) & (y[test] <= high)
        by_group = {str(name): inside[labels[test] == name].mean() for name in np.unique(labels)}
        by_fifth = {int(part): inside[fifths == part].mean() for part in range(5)}
        found[kind] = {"coverage": inside.mean(), "width": (high - low).mean(), "group": by_group, "fifth": by_fifth}
    return found


def table_of(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numeric columns, counts and groups of at most `ROWS` rows."""
    load, target, drop = TABLES[name]
    frame = load()
    frame = frame.sample(min(ROWS, frame.height), seed=0)
    labels = BANDS[GROUPS[name]](frame[GROUPS[name]].to_numpy())
    numbers = frame.drop(target, *drop)
    return numbers.cast(float).fill_null(0.0).to_numpy(), frame[target].to_numpy().astype(float), labels


def summary(splits: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    """Means over the splits, and the mean distance of groups from the nominal coverage."""
    each = [split[kind] for split in splits]
    found: dict[str, Any] = {key: float(np.mean([one[key] for one in each])) for key in ("coverage", "width")}
    found["deviation"] = float(np.std([one["coverage"] for one in each], ddof=1))
    for part in ("group", "fifth"):
        names = each[0][part]
        found[part] = {name: float(np.nanmean([one[part][name] for one in each])) for name in names}
    return found


def page(results: dict[str, dict[str, dict[str, Any]]], rows: dict[str, int], splits: int) -> str:
    """The results as a page of Markdown."""
    lines = [
        "# Coverage of calibrated intervals",
        "",
        f"**Calibrated 90% intervals cover {_range(results, 'all rows')} of new rows, where those of a Poisson GLM as",
        f"predicted cover {_range(results, 'predicted')}.** Calibration within groups evens out the groups.",
        "",
        f"Means over {splits} random splits; the standard deviation is that of one split.",
        "",
        "| table | rows | intervals | coverage | standard deviation | width | coverage within groups | within fifths |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, kinds in results.items():
        for kind, one in kinds.items():
            groups = ", ".join(f"{label} {100 * share:.1f}" for label, share in one["group"].items())
            fifths = ", ".join(f"{100 * share:.1f}" for share in one["fifth"].values())
            numbers = f"{one['coverage']:.1%} | {one['deviation']:.1%} | {one['width']:.2f}"
            lines.append(f"| {name} | {rows[name]:,} | {kind} | {numbers} | {groups} | {fifths} |")
    lines += ["", "## How it was measured", "", "`python benchmarks/interval_coverage.py` writes this page.", ""]
    return "\n".join([*lines, *str(__doc__).split("\n\n")[2].strip().splitlines()]) + "\n"


def _range(results: dict[str, dict[str, dict[str, Any]]], kind: str) -> str:
    """The smallest and the largest mean coverage of a table."""
    shares = [kinds[kind]["coverage"] for kinds in results.values()]
    return f"{min(shares):.1%} to {max(shares):.1%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/results"), help="interval_coverage.md")
    parser.add_argument("--splits", type=int, default=SPLITS)
    args = parser.parse_args()
    # A fit that stops just before its maximum is good enough here.
    warnings.simplefilter("ignore")
    results, rows = {}, {}
    for name in GROUPS:
        X, y, labels = table_of(name)
        splits = [one_split(X, y, labels, seed) for seed in range(args.splits)]
        results[name], rows[name] = {kind: summary(splits, kind) for kind in KINDS}, len(y)
    text = page(results, rows, args.splits)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "interval_coverage.md").write_text(text, encoding="utf-8")
    print(text)
    far = {name: kinds["all rows"]["coverage"] for name, kinds in results.items()}
    far = {name: share for name, share in far.items() if abs(share - COVERAGE) > 0.01}
    if far:
        raise SystemExit(f"Mean coverage is more than 1 point from {COVERAGE:.0%}: {far}")


if __name__ == "__main__":
    main()
