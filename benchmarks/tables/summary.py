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
    """Read all results in a folder, of the tables in order."""
    results: Results = {}
    for table in tables:
        for path in sorted((out / table).glob("*/*.json")):
            result = json.loads(path.read_text(encoding="utf-8"))
            results.setdefault(table, {}).setdefault(result["model"], {})[result["split"]] = result
    return results


def average_scores(results: Results, key: str) -> dict[str, dict[str, float]]:
    """Average a score over splits by table and model.

    A model has an average for a table if it has a result for every split for which the reference model has one.
    """
    averages: dict[str, dict[str, float]] = {}
    for table, models in results.items():
        splits = [n for n, one in models.get(REFERENCE, {}).items() if one["status"] == "done"]
        for model, fits in models.items():
            done = [fits[n][key] for n in splits if n in fits and fits[n]["status"] == "done"]
            if splits and len(done) == len(splits) and None not in done:
                averages.setdefault(table, {})[model] = float(np.mean(done))
    return averages


@dataclass(frozen=True)
class Row:
    """The line of a model in the summary."""

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


def choose_headline(results: Results) -> str | None:
    """Return the model that stands for all of ours: the first in `MODELS` with a result."""
    for name, model in MODELS.items():
        fits = (one for models in results.values() for one in models.get(name, {}).values())
        if model.is_ours and any(one["status"] == "done" for one in fits):
            return name
    return None


def rank_model(crps: dict[str, dict[str, float]], model: str, ours: str | None, peers: list[str]) -> list[float]:
    """Rank a model on each table among the peers and one model of ours: itself, or the one that stands for ours.

    Models with equal CRPS share their mean rank. A model without a result for a table is ranked last there.
    """
    field = [*peers, model] if MODELS[model].is_ours else [*peers, *([ours] if ours else [])]
    ranks = []
    for scores in crps.values():
        score = scores.get(model, np.inf)
        others = [scores.get(name, np.inf) for name in field if name != model]
        ranks.append(1.0 + sum(s < score for s in others) + 0.5 * sum(s == score for s in others))
    return ranks


def summarize_models(results: Results) -> list[Row]:
    """Summarize each model that has a result on any table, the best mean rank first."""
    crps, cpu, nll = (average_scores(results, key) for key in ("crps", "fit_cpu_seconds", "nll"))
    crps = {table: scores for table, scores in crps.items() if REFERENCE in scores}
    ours = choose_headline(results)
    names = [name for name in MODELS if any(name in scores for scores in crps.values())]
    peers = [name for name in names if not MODELS[name].is_ours]
    rows = [_summarize_model(name, crps, cpu, nll, rank_model(crps, name, ours, peers), peers) for name in names]
    return sorted(rows, key=lambda row: row.rank)


def _summarize_model(name: str, crps: Any, cpu: Any, nll: Any, ranks: list[float], peers: list[str]) -> Row:
    model_crps = {table: scores[name] for table, scores in crps.items() if name in scores}
    ratios = {table: value / crps[table][REFERENCE] for table, value in model_crps.items()}
    best = {t: min((crps[t][p] for p in peers if p in crps[t] and p != name), default=np.nan) for t in model_crps}
    behind = {table: value / best[table] for table, value in model_crps.items()}
    worst, furthest = max(ratios, key=ratios.__getitem__), max(behind, key=behind.__getitem__)
    gains = [nll[t][name] - nll[t][REFERENCE] for t in model_crps if t in nll and {name, REFERENCE} <= set(nll[t])]
    return Row(
        model=name,
        tables=len(model_crps),
        rank=float(np.mean(ranks)),
        ratio=geometric_mean(ratios.values()),
        worst=ratios[worst],
        worst_table=worst,
        behind=behind[furthest],
        behind_table=furthest,
        wins=sum(ratio < 1.0 for ratio in ratios.values()),
        losses=sum(ratio > 1.0 for ratio in ratios.values()),
        cpu_ratio=geometric_mean(cpu[table][name] / cpu[table][REFERENCE] for table in model_crps),
        nll_gain=float(np.mean(gains)) if gains else None,
    )


def geometric_mean(values: Iterable[float]) -> float:
    """Return the geometric mean."""
    return float(np.exp(np.mean(np.log(list(values)))))
