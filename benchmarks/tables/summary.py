"""From results to a summary: mean ranks, CRPS relative to the reference, the worst table, wins and losses, cost."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .models import MODELS, REFERENCE

#: Results by table, model and split.
Results = dict[str, dict[str, dict[int, dict[str, Any]]]]


def read_results(out: Path, tables: Iterable[str]) -> Results:
    """All results in a folder, of the tables in order."""
    found: Results = {}
    for table in tables:
        for path in sorted((out / table).glob("*/*.json")):
            one = json.loads(path.read_text(encoding="utf-8"))
            found.setdefault(table, {}).setdefault(one["model"], {})[one["split"]] = one
    return found


def means(results: Results, key: str) -> dict[str, dict[str, float]]:
    """Means over splits by table and model, for models that are done on every split that the reference is done on."""
    found: dict[str, dict[str, float]] = {}
    for table, models in results.items():
        splits = [n for n, one in models.get(REFERENCE, {}).items() if one["status"] == "done"]
        for model, each in models.items():
            done = [each[n][key] for n in splits if n in each and each[n]["status"] == "done"]
            if splits and len(done) == len(splits) and None not in done:
                found.setdefault(table, {})[model] = float(np.mean(done))
    return found


@dataclass(frozen=True)
class Row:
    """What the summary says about a model."""

    model: str
    tables: int
    rank: float
    ratio: float
    worst: float
    worst_table: str
    behind: float
    behind_table: str
    wins: int
    losses: int
    cpu_ratio: float
    nll_gain: float | None


def headline(results: Results) -> str | None:
    """The model that stands for all of ours: the first in `MODELS` with a result."""
    for name, model in MODELS.items():
        fits = (one for models in results.values() for one in models.get(name, {}).values())
        if model.is_ours and any(one["status"] == "done" for one in fits):
            return name
    return None


def ranks(crps: dict[str, dict[str, float]], model: str, ours: str | None, peers: list[str]) -> list[float]:
    """Ranks of a model per table among the peers and one of ours: itself, or the one that stands for all of ours.

    Equal ones share their mean rank. A model without a result on a table has the last rank there.
    """
    field = [*peers, model] if MODELS[model].is_ours else [*peers, *([ours] if ours else [])]
    found = []
    for scores in crps.values():
        own = scores.get(model, np.inf)
        others = [scores.get(name, np.inf) for name in field if name != model]
        found.append(1.0 + sum(s < own for s in others) + 0.5 * sum(s == own for s in others))
    return found


def summary(results: Results) -> list[Row]:
    """A row per model that has a result on any table, the best mean rank first."""
    crps, cpu, nll = (means(results, key) for key in ("crps", "fit_cpu_seconds", "nll"))
    crps = {table: scores for table, scores in crps.items() if REFERENCE in scores}
    ours = headline(results)
    known = [name for name in MODELS if any(name in scores for scores in crps.values())]
    peers = [name for name in known if not MODELS[name].is_ours]
    rows = [_row(name, crps, cpu, nll, ranks(crps, name, ours, peers), peers) for name in known]
    return sorted(rows, key=lambda row: row.rank)


def _row(name: str, crps: Any, cpu: Any, nll: Any, places: list[float], peers: list[str]) -> Row:
    own = {table: scores[name] for table, scores in crps.items() if name in scores}
    ratios = {table: value / crps[table][REFERENCE] for table, value in own.items()}
    best = {t: min((crps[t][p] for p in peers if p in crps[t] and p != name), default=np.nan) for t in own}
    behind = {table: value / best[table] for table, value in own.items()}
    worst, furthest = max(ratios, key=ratios.__getitem__), max(behind, key=behind.__getitem__)
    gains = [nll[t][name] - nll[t][REFERENCE] for t in own if t in nll and {name, REFERENCE} <= set(nll[t])]
    return Row(
        model=name,
        tables=len(own),
        rank=float(np.mean(places)),
        ratio=geometric(ratios.values()),
        worst=ratios[worst],
        worst_table=worst,
        behind=behind[furthest],
        behind_table=furthest,
        wins=sum(ratio < 1.0 for ratio in ratios.values()),
        losses=sum(ratio > 1.0 for ratio in ratios.values()),
        cpu_ratio=geometric(cpu[table][name] / cpu[table][REFERENCE] for table in own),
        nll_gain=float(np.mean(gains)) if gains else None,
    )


def geometric(values: Iterable[float]) -> float:
    """The geometric mean."""
    return float(np.exp(np.mean(np.log(list(values)))))
