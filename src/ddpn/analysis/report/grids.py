"""The tables and facts of a report as text."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ddpn.analysis.report.columns import description, is_missing, value_text
from ddpn.analysis.report.evidence import LEVEL, Evidence
from ddpn.analysis.report.groups import Group
from ddpn.analysis.report.numbers import fmt, mean, percent, plural, quantile
from ddpn.tables.encoding.table import Column

#: Columns listed in the table of columns, and for a single row.
_COLUMNS, _CELLS = 40, 12
_PERCENT = percent(LEVEL, 0)
_KINDS = {"number": ("number", "numbers"), "flag": ("yes/no", "yes/no"), "category": ("category", "categories")}


class Grid(NamedTuple):
    """A table: headings, rows of text, and the cells (row, column) that are the best of their column."""

    headings: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    best: frozenset[tuple[int, int]] = frozenset()


def data_facts(evidence: Evidence, target: str) -> list[tuple[str, str]]:
    """The counts and columns in a few numbers."""
    y, weight = evidence.y, evidence.weight
    centre, rows = mean(y, weight), plural(len(y), "row")
    number = Counter(column.kind for column in evidence.columns)
    kinds = ", ".join(plural(number[kind], *words) for kind, words in _KINDS.items() if number[kind])
    facts = [
        ("Rows evaluated", rows if len(y) == evidence.total else f"{rows} of {evidence.total:,}"),
        (f"Mean {target}", fmt(centre)),
        ("Variance", fmt(mean(np.square(y - centre), weight))),
        ("Minimum, median, maximum", " · ".join(fmt(v) for v in (y.min(), quantile(y, weight, 0.5), y.max()))),
        ("Zeros", percent(mean((y == 0).astype(float), weight))),
        ("Columns", kinds),
    ]
    if evidence.exposure is not None:
        facts.append(("Exposure", f"{fmt(evidence.exposure.min())} to {fmt(evidence.exposure.max())}"))
    if evidence.weighted:
        facts.append(("Weights", f"{fmt(weight.min())} to {fmt(weight.max())}"))
    return facts


def column_grid(columns: list[Column]) -> tuple[Grid, str]:
    """Kind, values and missing values of every column; and a sentence where some are left out."""
    rows = [(c.name, _KINDS[c.kind][0], description(c), percent(is_missing(c).mean())) for c in columns[:_COLUMNS]]
    left = len(columns) - len(rows)
    return Grid(("Column", "Kind", "Values", "Missing"), rows), f"And {plural(left, 'more column')}." if left else ""


_decimal = partial(fmt, integers=False)
#: Scores in the order of their columns: the heading, and the text of a value.
_SCORES: dict[str, tuple[str, Callable[[float], str]]] = {
    "weight": ("Weight", lambda share: percent(share, 0)),
    "mae": ("MAE", _decimal),
    "crps": ("CRPS", _decimal),
    "nll": ("NLL", _decimal),
    "coverage": (f"{_PERCENT} coverage", percent),
    "width": (f"{_PERCENT} width", _decimal),
    "seconds": ("Seconds", _decimal),
}


def score_grid(rows: Sequence[Mapping[str, Any]]) -> Grid:
    """Candidates by "label" or "name", with every known score that any of them has; missing ones are a dash.

    The smallest "mae", "crps" and "nll" is marked, and the "coverage" nearest to the nominal one. A narrow interval
    alone is no merit, so widths have no best.
    """
    names = [name for name in _SCORES if any(row.get(name) is not None for row in rows)]
    values = np.array([[row.get(name) for name in names] for row in rows], dtype=float)
    losses = {name: values[:, j] for j, name in enumerate(names) if name in ("mae", "crps", "nll", "coverage")}
    if "coverage" in names:
        losses["coverage"] = np.abs(losses["coverage"] - LEVEL)
    texts = [["–" if np.isnan(v) else _SCORES[n][1](v) for n, v in zip(names, each, strict=True)] for each in values]
    best = {(int(i), 1 + names.index(n)) for n, loss in losses.items() for i in np.flatnonzero(loss == np.nanmin(loss))}
    return Grid(
        ("Model", *(_SCORES[name][0] for name in names)),
        [(str(row.get("label") or row.get("name", "")), *cells) for row, cells in zip(rows, texts, strict=True)],
        frozenset(best if len(rows) > 1 else ()),
    )


def group_grid(found: Sequence[Group]) -> Grid:
    """The uncertainty in each group of a column."""
    headings = (found[0].column, "Rows", "Mean count", "Std. dev.", "MAE", "Epistemic share", f"{_PERCENT} coverage")
    rows = []
    for g in found:
        means = (_decimal(value) for value in (g.observed, g.variance**0.5, g.mae))
        rows.append((g.label, f"{g.rows:,}", *means, percent(g.share), percent(g.coverage)))
    return Grid(headings, rows)


def extremes(evidence: Evidence, number: int = 3) -> tuple[list[int], list[int]]:
    """The rows with the smallest and with the largest CRPS, no row in both."""
    order = np.argsort(evidence.model.crps, kind="stable").tolist()
    number = min(number, len(order) // 2)
    return order[:number], order[len(order) - number :][::-1]


def row_title(evidence: Evidence, row: int) -> str:
    """What the user's table calls a row, with the column that identifies rows."""
    title = f"Row {evidence.labels[row]}"
    return title if evidence.ids is None else f"{title}, {evidence.ids[0]} {evidence.ids[1][row]}"


def row_facts(evidence: Evidence, row: int) -> list[tuple[str, str]]:
    """The prediction for one row and its scores."""
    model = evidence.model
    facts = [
        ("Observed", fmt(evidence.y[row])),
        ("Predicted mean", fmt(model.mean[row])),
        (f"{_PERCENT} interval", f"{fmt(model.low[row])} to {fmt(model.high[row])}"),
        ("Probability of the observed count", percent(float(np.exp(-model.nll[row])))),
        ("CRPS", fmt(model.crps[row])),
    ]
    return facts if evidence.exposure is None else [*facts, ("Exposure", fmt(evidence.exposure[row]))]


def row_cells(evidence: Evidence, row: int, order: Sequence[int]) -> list[tuple[str, str]]:
    """The columns of one row, those in `order` first."""
    rest = [j for j in range(len(evidence.columns)) if j not in set(order)]
    chosen = [evidence.columns[j] for j in [*order, *rest][:_CELLS]]
    return [(column.name, value_text(column, row)) for column in chosen]
