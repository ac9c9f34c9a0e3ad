"""Coverage and width of the default model's intervals on the 16 reported tables, beside the expected coverage.

    python -m benchmarks.intervals --out docs/results

Every table is split once, as in `benchmarks.tables`: the default `CountRegressor` is fitted to four fifths of the rows,
and the rest is scored. No default was chosen by these numbers. Finished tables are kept in a file beside the page, and
are not fitted again.
"""

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.tables.catalogue import Entry, load_frame, read_catalogue, split_rows

LEVELS, KINDS = (0.5, 0.9), ("narrowest", "central")


def measure_table(entry: Entry) -> dict[str, Any]:
    from ddpn import CountRegressor

    frame = load_frame(entry)
    y = frame.pop(entry.target).to_numpy(float)
    for name in entry.categories:
        frame[name] = frame[name].astype(str)
    train, test = split_rows(len(y), entry.role, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the table, such as rows in order of time
        model = CountRegressor(random_state=0).fit(frame.iloc[train], y[train])
    X, counts = frame.iloc[test], y[test]
    row: dict[str, Any] = {"table": entry.name, "rows": len(counts), "crps": model.crps(X, counts)}
    for level in LEVELS:
        for kind in KINDS:
            interval, probability = model.predict_interval(X, level, kind=kind, return_probability=True)
            inside = (interval[:, 0] <= counts) & (counts <= interval[:, 1])
            width = float((interval[:, 1] - interval[:, 0]).mean())
            numbers = float(inside.mean()), float(probability.mean()), float(probability.min()), width
            row[f"{kind} {level}"] = dict(zip(("coverage", "expected", "least", "width"), numbers, strict=True))
    return row


def format_page(rows: list[dict[str, Any]]) -> str:
    """Format the page: one table per level, and the means."""
    lines = [
        "# Coverage of intervals",
        "",
        f"Intervals of the default model on {len(rows)} tables. Their scores chose one default (the encoding of",
        "numbers by steps), and their coverage chose nothing. The columns: the share of test rows inside (coverage),",
        "the mean probability of the intervals by their own distributions (expected), the smallest such probability",
        "of a row (least), and the mean of upper minus lower end (width).",
        "`python -m benchmarks.intervals --out docs/results` writes this page.",
    ]
    for level in LEVELS:
        lines += ["", f"## {level:.0%} asked", ""]
        lines += ["| table | test rows | coverage | expected | least | width | coverage, central | width, central |"]
        lines += ["|---|---|---|---|---|---|---|---|"]
        results = [(row["table"], row["rows"], *(row[f"{kind} {level}"] for kind in KINDS)) for row in rows]
        for name, number, narrow, central in results:
            shares = " | ".join(f"{narrow[key]:.1%}" for key in ("coverage", "expected", "least"))
            more = f"{narrow['width']:.2f} | {central['coverage']:.1%} | {central['width']:.2f}"
            lines.append(f"| {name} | {number:,} | {shares} | {more} |")
        mean = {key: np.mean([narrow[key] for _, _, narrow, _ in results]) for key in ("coverage", "expected", "width")}
        other = {key: np.mean([central[key] for *_, central in results]) for key in ("coverage", "width")}
        lines.append(
            f"| **mean** | | {mean['coverage']:.1%} | {mean['expected']:.1%} | | {mean['width']:.2f} | "
            f"{other['coverage']:.1%} | {other['width']:.2f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="the folder of the page")
    out = parser.parse_args().out / "interval_coverage.md"
    kept = out.with_suffix(".jsonl")
    rows = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    for entry in read_catalogue().values():
        if entry.role == "reported" and entry.name not in {row["table"] for row in rows}:
            rows.append(measure_table(entry))
            with kept.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
            print(entry.name, rows[-1]["narrowest 0.9"], flush=True)
    out.write_text(format_page(sorted(rows, key=lambda row: row["table"])), encoding="utf-8")
    kept.unlink()


if __name__ == "__main__":
    main()
