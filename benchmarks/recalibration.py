"""What recalibration of the predicted distributions does on the development tables, by the rule of `ddpn fit`.

    DDPN_DATA=... python benchmarks/recalibration.py --models /tmp/models     (docs/results/recalibration.md)
    ... --likelihood mixed double_poisson --seeds 0 1 2 3 4                   (several likelihoods and splits)

Each development table (see development.py) is fitted as `ddpn fit` does it. The map was learnt from rows that were not
trained on (validation rows or, in small tables, cross-fitted predictions), and the distributions are scored on the test
rows with and without it. "always" uses the map in every fit, "auto", the rule of `ddpn fit`, where it improves the
cross-fitted CRPS of the rows it was learnt from by more than two standard errors. Fitted models are kept in the folder
--models and are used again.
"""

import argparse
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import numpy as np
from development import TABLES  # type: ignore[import-not-found]

SEEDS = (0, 1, 2)


class Result(NamedTuple):
    """What recalibration did to one fit."""

    name: str
    likelihood: str
    seed: int
    found: dict[str, Any]


def fitted(name: str, seed: int, models: Path | None, likelihood: str) -> tuple[Any, Any]:
    """The test rows and the model, from the folder `models` if it is there."""
    from ddpn.workflow.fitting import fit
    from ddpn.workflow.model_folder import load
    from ddpn.workflow.plan import Plan
    from ddpn.workflow.preparing import prepare

    table, target, drop = TABLES[name]
    plan = Plan(target=target, drop=drop, seed=seed, compare_with=("constant",), model={"likelihood": likelihood})
    prepared, path = prepare(table(), plan), None if models is None else models / f"{name}-{likelihood}-{seed}"
    if path is None or not path.exists():
        folder = fit(prepared, {}).folder
        if path is not None:
            folder.save(path)
        return prepared.test, folder.model
    return prepared.test, load(path, mixed_only=True).model


def scores(dist: Any, y: Any) -> dict[str, float]:
    """Means over the test rows."""
    from ddpn.metrics import crps, nll, pit_unevenness

    means = {"crps": crps(dist, y), "nll": nll(dist, y)}
    return {key: values.double().mean().item() for key, values in means.items()} | {"pit": pit_unevenness(dist, y)}


def measured(name: str, seed: int, models: Path | None, likelihood: str) -> dict[str, Any]:
    """Scores with and without the map of the fit, and the decision of the rule."""
    import torch

    from ddpn.distributions import Recalibrated

    test, model = fitted(name, seed, models, likelihood)
    known = model.predictor_.recalibration
    with torch.no_grad():
        dist, y = model.predictor_.distribution(test.X, test.exposure), torch.from_numpy(test.y)
        plain = dist.base if known.is_used else dist
        before, after = scores(plain, y), scores(Recalibrated(plain, known.map), y)
    return {"rows": known.rows, "gain": known.gain, "error": known.error, "used": known.is_used} | {
        "before": before,
        "after": after,
    }


def page(results: list[Result]) -> str:
    """The results as a page of Markdown: the finding, the table, and how it was measured."""
    likelihoods = list(dict.fromkeys(one.likelihood for one in results))
    seeds = sorted({one.seed for one in results})
    lines = [
        "# Recalibration on the development tables",
        "",
        *(line for likelihood in likelihoods for line in summary(likelihood, results)),
        "",
        "| table | likelihood | seed | rows | gain in their CRPS | used | test CRPS | NLL | PIT |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for one in results:
        old, new = one.found["before"], one.found["after"]
        cells = [f"{old[key]:.4g} → {new[key]:.4g}" for key in ("crps", "nll")]
        cells.append(f"{old['pit']:.2f} → {new['pit']:.2f}")
        start = f"| {one.name} | {one.likelihood} | {one.seed} | {one.found['rows']}"
        gain = f"{one.found['gain']:.4f} ± {one.found['error']:.4f}"
        lines.append(f"{start} | {gain} | {'yes' if one.found['used'] else 'no'} | {' | '.join(cells)} |")
    command = f"--likelihood {' '.join(likelihoods)} --seeds {' '.join(map(str, seeds))}"
    return "\n".join(
        [
            *lines,
            "",
            "PIT is the mean distance of the ten bars of the PIT histogram from 1.",
            "",
            "## How it was measured",
            "",
            f"`python benchmarks/recalibration.py {command}`",
            "writes this page.",
            "",
            *str(__doc__).split("\n\n")[2].strip().splitlines(),
            "",
        ]
    )


def summary(likelihood: str, results: list[Result]) -> list[str]:
    """Sentences about all fits of a likelihood."""
    every = [one.found for one in results if one.likelihood == likelihood]

    def ratio(ones: list[dict[str, Any]], key: str) -> float:
        changes = [np.log(one["after"][key] / one["before"][key]) if one["chosen"] else 0.0 for one in ones]
        return float(np.exp(np.mean(changes)) - 1.0)

    lines = []
    for rule in ("always", "auto"):
        ones = [one | {"chosen": rule == "always" or one["used"]} for one in every]
        gains = [one["before"]["nll"] - one["after"]["nll"] if one["chosen"] else 0.0 for one in ones]
        worst = max((one["after"]["crps"] / one["before"]["crps"] - 1.0 for one in ones if one["chosen"]), default=0.0)
        lines.append(
            f"- {likelihood}, {rule}: used in {sum(one['chosen'] for one in ones)} of {len(ones)} fits; CRPS "
            f"{ratio(ones, 'crps'):+.2%} (geometric mean), at worst {worst:+.2%}; NLL {-mean(gains):+.3f} on average."
        )
    return lines


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/results"), help="folder of recalibration.md")
    parser.add_argument("--models", type=Path, help="folder of fitted models, which are used again")
    parser.add_argument("--likelihood", nargs="+", default=["mixed"], help="of the networks, one or several")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS), help="splits (default: 0 1 2)")
    parser.add_argument("--jobs", type=int, default=1, help="fits at a time (default: 1)")
    parser.add_argument("--only", nargs="+", choices=list(TABLES), help="names of tables; writes no page")
    return parser


def main() -> None:
    args = arguments().parse_args()
    runs = list(product(args.likelihood, args.only or TABLES, args.seeds))
    results = []
    with ProcessPoolExecutor(args.jobs) as pool:
        found = pool.map(measured, *zip(*((name, seed, args.models, like) for like, name, seed in runs), strict=True))
        for (likelihood, name, seed), one in zip(runs, found, strict=True):
            results.append(Result(name, likelihood, seed, one))
            print(name, likelihood, seed, one, flush=True)
    text = page(results)
    print(text)
    if not args.only:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / "recalibration.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
