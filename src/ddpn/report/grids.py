"""What a report says besides its figures and its verdict: tables and sentences, made of numbers only."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ddpn.features.table import Column
from ddpn.report.dispersion import Dispersion, Pearson
from ddpn.report.evidence import LEVEL, Evidence
from ddpn.report.figures.calibration import Pit
from ddpn.report.groups import Group
from ddpn.report.numbers import fmt, mean, percent, plural, quantile
from ddpn.report.tables import value_of
from ddpn.report.verdict import Rival

#: Columns described in the table of columns, and of a single row.
_COLUMNS, _CELLS = 40, 12


class Grid(NamedTuple):
    """A table: headings, rows of text, and which cells are the best of their column."""

    headings: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    best: frozenset[tuple[int, int]] = frozenset()


class Single(NamedTuple):
    """One row of the data: facts about its prediction, and its columns."""

    row: int
    facts: list[tuple[str, str]]
    cells: list[tuple[str, str]]


# Data ------------------------------------------------------------------------------------------------------------


def data_facts(evidence: Evidence, target: str) -> list[tuple[str, str]]:
    """The counts in a few numbers."""
    y, weight = evidence.y, evidence.weight
    centre = mean(y, weight)
    rows = plural(len(y), "row")
    facts = [
        ("Rows judged", rows if len(y) == evidence.total else f"{rows} of {evidence.total:,}"),
        (f"Mean {target}", fmt(centre)),
        ("Variance", fmt(mean(np.square(y - centre), weight))),
        ("Smallest, median, largest", " · ".join(fmt(v) for v in (y.min(), quantile(y, weight, 0.5), y.max()))),
        ("Zeros", percent(mean((y == 0).astype(float), weight))),
        ("Columns", _kinds(evidence.columns)),
    ]
    if evidence.exposure is not None:
        facts.append(("Exposure", f"{fmt(evidence.exposure.min())} to {fmt(evidence.exposure.max())}"))
    if evidence.weighted:
        facts.append(("Weights", f"{fmt(weight.min())} to {fmt(weight.max())}"))
    return facts


def _kinds(columns: list[Column]) -> str:
    words = {"number": ("number", "numbers"), "flag": ("yes/no", "yes/no"), "category": ("category", "categories")}
    found = [(plural(n, *words[kind])) for kind in words if (n := sum(c.kind == kind for c in columns))]
    return ", ".join(found)


def column_grid(columns: list[Column]) -> tuple[Grid, str]:
    """Every column's kind, values and gaps; and a sentence where some are left out."""
    rows = []
    for column in columns[:_COLUMNS]:
        missing = column.values < 0 if column.kind == "category" else np.isnan(column.values)
        rows.append((column.name, column.kind, _values(column), percent(float(missing.mean()))))
    left = len(columns) - len(rows)
    return Grid(("Column", "Kind", "Values", "Missing"), rows), f"And {plural(left, 'column')} more." if left else ""


def _values(column: Column) -> str:
    if column.kind == "category":
        codes = column.values[column.values >= 0].astype(int)
        number = np.bincount(codes, minlength=len(column.levels))
        order = sorted(np.flatnonzero(number), key=lambda level: (-number[level], column.levels[level]))
        shown = ", ".join(column.levels[level] for level in order[:4])
        return shown if len(order) <= 4 else f"{shown}, … ({len(order):,} levels)"
    known = column.values[~np.isnan(column.values)]
    if not len(known):
        return "none"
    if column.kind == "flag":
        return f"{percent(float(known.mean()))} yes"
    if np.isin(known, (0.0, 1.0)).all():
        return f"0 or 1, {percent(float(known.mean()))} are 1"
    return f"{known.min():.4g} to {known.max():.4g}, median {np.median(known):.4g}"


def dispersion_words(found: Dispersion, exposure: bool) -> list[str]:
    """Over-, equi- or under-dispersed, with the evidence."""
    around = "one common rate per unit of exposure" if exposure else "their mean"
    marginal, conditional = found.marginal, found.conditional
    inner = {
        "over-dispersed": "Even where the model knows the mean, counts vary more than Poisson's. A Poisson model would "
        "give intervals that are too narrow.",
        "under-dispersed": "Where the model knows the mean, counts vary less than Poisson's. A Poisson or negative "
        "binomial model cannot say that, and would give intervals that are too wide.",
        "equi-dispersed": "Where the model knows the mean, counts vary about as Poisson's do.",
    }[conditional.finding]
    return [
        f"As they are, the counts are {_plain(marginal.finding)}: around {around} the Pearson statistic, "
        f"mean (y - m)² / m, is {_pearson(marginal)}, where a Poisson law has 1.",
        f"Around the model's own means they are {_plain(conditional.finding)}: {_pearson(conditional)}. {inner}",
        f"The model predicts a variance below the mean for {percent(found.share_below)} of rows.",
    ]


def _plain(finding: str) -> str:
    return f"{finding} (not to be told from Poisson's)" if finding == "equi-dispersed" else finding


def _pearson(found: Pearson) -> str:
    return f"{fmt(found.value)} (95% interval {fmt(found.low)} to {fmt(found.high)}, bootstrap)"


# Scores ----------------------------------------------------------------------------------------------------------


def score_grid(evidence: Evidence, against: list[Rival]) -> Grid:
    """Model and baselines, the best score of each column marked; coverage is best nearest to what was promised.

    That is the level where intervals were calibrated, else what each law expects, in brackets.
    """
    laws = {"This model": evidence.model} | {rival.name: evidence.baselines[rival.name] for rival in against}
    scores = [judged.scores(evidence.y, evidence.weight) for judged in laws.values()]
    rows = [
        (
            name,
            *(fmt(s[key]) for key in ("mae", "crps", "nll")),
            percent(s["coverage"]) + ("" if evidence.calibrated else f" ({percent(s['expected'])})"),
            fmt(s["width"]),
        )
        for name, s in zip(laws, scores, strict=True)
    ]
    best: set[tuple[int, int]] = set()
    if len(rows) > 1:
        # The narrowest interval is no virtue by itself, so widths have no best.
        losses = [[s[key] for s in scores] for key in ("mae", "crps", "nll")]
        losses.append([abs(s["coverage"] - (LEVEL if evidence.calibrated else s["expected"])) for s in scores])
        best = {
            (int(row), 1 + j) for j, column in enumerate(losses) for row in np.flatnonzero(column == np.min(column))
        }
    level = percent(LEVEL, 0)
    coverage = f"{level} coverage" + ("" if evidence.calibrated else " (expected)")
    headings = ("Model", "MAE", "CRPS", "NLL", coverage, f"{level} width")
    return Grid(headings, rows, frozenset(best))


def pit_shape(pit: Pit) -> str:
    """What the shape of the PIT histogram says, where it is more than chance."""
    h = pit.heights
    half = len(h) // 2
    ends, slope = 0.5 * (h[0] + h[-1]) - 1.0, float(h[half:].mean() - h[:half].mean())
    if np.abs(h - 1.0).max() <= pit.chance:
        return "No bar of the PIT histogram leaves the band of chance: nothing speaks against the predicted laws."
    # Chance moves a difference of halves by sqrt(2 / 5) of what it moves one bar, the mean of two bars by sqrt(1 / 2).
    if abs(slope) > 0.63 * pit.chance and abs(slope) > abs(ends):
        side = "larger" if slope > 0 else "smaller"
        return f"The PIT histogram slopes: counts are {side} than predicted more often than they should be."
    if ends > 0.71 * pit.chance:
        return "The PIT histogram has a valley: counts fall at the ends of the laws too often. The laws are too narrow."
    if ends < -0.71 * pit.chance:
        return "The PIT histogram has a hill: counts fall in the middle of the laws too often. The laws are too wide."
    return "Some bars of the PIT histogram leave the band of chance, with neither a clear slope, valley nor hill."


# Groups and single rows ------------------------------------------------------------------------------------------


def group_grid(name: str, found: Sequence[Group]) -> Grid:
    """How sure the model is in each group of a column."""
    level = percent(LEVEL, 0)
    headings = (name, "Rows", "Mean count", "Std. deviation", "Epistemic share", f"{level} coverage", "MAE")
    rows = [
        (
            g.label,
            f"{g.rows:,}",
            fmt(g.observed),
            fmt(g.variance**0.5),
            percent(g.share),
            percent(g.coverage),
            fmt(g.mae),
        )
        for g in found
    ]
    return Grid(headings, rows)


def extremes(evidence: Evidence, number: int = 3) -> tuple[list[int], list[int]]:
    """The rows with the smallest and with the largest CRPS, no row in both."""
    order = np.argsort(evidence.model.crps, kind="stable").tolist()
    number = min(number, len(order) // 2)
    return order[:number], order[len(order) - number :][::-1]


def single(evidence: Evidence, row: int, order: Sequence[int]) -> Single:
    """One row; its columns in `order`, the most important first."""
    model = evidence.model
    facts = [
        ("Observed", fmt(evidence.y[row])),
        ("Predicted mean", fmt(model.mean[row])),
        (f"{percent(LEVEL, 0)} interval", f"{fmt(model.low[row])} to {fmt(model.high[row])}"),
        ("Its probability", percent(float(np.exp(-model.nll[row])))),
        ("CRPS", fmt(model.crps[row])),
    ]
    if evidence.exposure is not None:
        facts.append(("Exposure", fmt(evidence.exposure[row])))
    rest = [j for j in range(len(evidence.columns)) if j not in set(order)]
    chosen = [*order, *rest][:_CELLS]
    cells = [(evidence.columns[j].name, value_of(evidence.columns[j], row)) for j in chosen]
    return Single(int(evidence.rows[row]), facts, cells)
