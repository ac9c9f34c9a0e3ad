"""Add splits of small tables, whose few test rows leave the difference of two models to chance."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .models import MODELS
from .summary import Results

NOTE = (
    "A table with few rows has few test rows, and three splits leave much to chance. Here some models were fitted to "
    "more splits of the same tables (`python -m benchmarks.tables --tables NAME --models NAMES --splits 20`), which "
    "are used in no other table on this page. Ratio: the mean CRPS of our default divided by that of the peer, with "
    "the standard error over splits; below 1, ours is better."
)


@dataclass(frozen=True)
class Ratio:
    """The mean CRPS of our model over that of a peer, on all splits of a table and on the further ones alone."""

    table: str
    peer: str
    splits: int
    ratio: float
    error: float
    worse: int
    further: float
    further_error: float


def select_splits(results: Results, is_selected: Callable[[int], bool]) -> Results:
    """Return the results of the selected splits."""
    return {
        table: {model: {n: fit for n, fit in fits.items() if is_selected(n)} for model, fits in models.items()}
        for table, models in results.items()
    }


def compute_ratios(results: Results, ours: str | None, number: int) -> list[Ratio]:
    """Compare our model with each peer, on tables for which both have at least `number` + 2 splits."""
    ratios = []
    for table, models in results.items():
        our_crps = _select_crps(models.get(ours or "", {}))
        for peer in (name for name in MODELS if name in models and not MODELS[name].is_ours):
            pairs = np.array(list(_pair_splits(our_crps, _select_crps(models[peer]))))
            if len(pairs) >= number + 2:
                worse, further = int((pairs[:, 1] > pairs[:, 2]).sum()), pairs[pairs[:, 0] >= number, 1:]
                every = ratio_of_means(pairs[:, 1:])
                ratios.append(Ratio(table, peer, len(pairs), *every, worse, *ratio_of_means(further)))
    return ratios


def format_ratios(ratios: list[Ratio]) -> str:
    """Format one line per table and peer."""
    lines = [
        "| table | peer | splits | ratio | standard error | ours worse on | further splits alone | standard error |",
        "|---" * 8 + "|",
    ]
    for one in ratios:
        cells = [one.table, MODELS[one.peer].label, str(one.splits), f"{one.ratio:.3f}", f"{one.error:.3f}"]
        lines.append(
            "| " + " | ".join([*cells, str(one.worse), f"{one.further:.3f}", f"{one.further_error:.3f}"]) + " |"
        )
    return "\n".join(lines)


def describe_worst_ratio(ratios: list[Ratio], table: str) -> str:
    """Describe our model against the best peer on further splits of a table; "" if there are none."""
    table_ratios = [one for one in ratios if one.table == table]
    if not table_ratios:
        return ""
    worst = max(table_ratios, key=lambda one: one.ratio)
    return (
        f" On {worst.splits} splits of {table} it is {worst.ratio - 1:+.1%} with a standard error of {worst.error:.1%} "
        f"(against {MODELS[worst.peer].label}; see [more splits](#more-splits-of-small-tables))."
    )


def ratio_of_means(pairs: np.ndarray) -> tuple[float, float]:
    """Return mean of first column / mean of second, and its standard error. Shape of pairs: (splits, 2)."""
    first, second = pairs.T
    ratio = first.mean() / second.mean()
    return float(ratio), float((first - ratio * second).std(ddof=1) / np.sqrt(len(pairs)) / second.mean())


def _select_crps(fits: dict[int, dict[str, Any]]) -> dict[int, float]:
    return {split: one["crps"] for split, one in fits.items() if one["status"] == "done"}


def _pair_splits(ours: dict[int, float], theirs: dict[int, float]) -> Iterator[tuple[int, float, float]]:
    for split in sorted(ours.keys() & theirs.keys()):
        yield split, ours[split], theirs[split]
