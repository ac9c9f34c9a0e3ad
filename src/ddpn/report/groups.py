"""Rows in groups by one column, and how sure the model is in each."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ddpn.features.table import Column
from ddpn.report.evidence import Evidence
from ddpn.report.numbers import effective_rows, mean

#: Groups of a column of numbers; values or levels that are shown one by one.
_BINS, _LEVELS = 5, 8
#: A group that the verdict may speak of: so many rows, and such a share of all.
_MIN_ROWS, _MIN_SHARE = 10, 0.02


class Group(NamedTuple):
    """Some rows and what the model says of them; variances are means over the rows."""

    label: str
    rows: int
    size: float
    observed: float
    predicted: float
    aleatoric: float
    epistemic: float
    coverage: float
    mae: float

    @property
    def variance(self) -> float:
        return self.aleatoric + self.epistemic

    @property
    def share(self) -> float:
        """Of the variance that is epistemic."""
        return self.epistemic / self.variance if self.variance > 0 else 0.0


def group_of(label: str, evidence: Evidence, rows: np.ndarray) -> Group:
    """The group of these rows, a mask."""
    weight, y, model = evidence.weight[rows], evidence.y[rows], evidence.model
    means = (
        y,
        model.mean[rows],
        evidence.aleatoric[rows],
        evidence.epistemic[rows],
        model.inside(evidence.y)[rows],
        np.abs(model.median[rows] - y),
    )
    return Group(label, int(rows.sum()), effective_rows(weight), *(mean(values, weight) for values in means))


def groups(column: Column, evidence: Evidence) -> list[Group]:
    """One group a value, level or range of the column, in their order; those without a value last."""
    codes, labels = coded(column)
    return [group_of(label, evidence, codes == code) for code, label in enumerate(labels) if (codes == code).any()]


def tellable(found: list[Group], total: int) -> list[Group]:
    """Those with enough rows to be spoken of."""
    return [group for group in found if group.rows >= max(_MIN_ROWS, _MIN_SHARE * total)]


def coded(column: Column) -> tuple[np.ndarray, list[str]]:
    """A code a row, and what each stands for."""
    if column.kind == "category":
        return _by_level(column)
    values = column.values
    known = values[~np.isnan(values)]
    each = np.unique(known)
    if column.kind == "flag":
        each, labels = np.array([0.0, 1.0]), ["no", "yes"]
        codes = np.searchsorted(each, values)
    elif len(each) <= _LEVELS:
        labels = [f"{value:.6g}" for value in each]
        codes = np.searchsorted(each, values)
    else:
        codes, labels = _by_range(values, known)
    return np.where(np.isnan(values), len(labels), codes), [*labels, "missing"]


def _by_range(values: np.ndarray, known: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """About equally many rows in each range; a value that many rows share stays whole."""
    inner = np.unique(np.quantile(known, np.arange(1, _BINS) / _BINS, method="inverted_cdf"))
    inner = inner[inner < known.max()]
    ends = [f"{value:.4g}" for value in inner]
    labels = [f"up to {ends[0]}", *(f"{a} to {b}" for a, b in pairwise(ends)), f"above {ends[-1]}"]
    return np.searchsorted(inner, values), labels


def _by_level(column: Column) -> tuple[np.ndarray, list[str]]:
    """The commonest levels by name, the others together."""
    codes = column.values.astype(int)
    number = np.bincount(codes[codes >= 0], minlength=len(column.levels))
    # Levels go by frequency and, where that is the same, by name: data in another order give the same groups.
    order = sorted(np.flatnonzero(number), key=lambda level: (-number[level], column.levels[level]))
    kept = order if len(order) <= _LEVELS else order[: _LEVELS - 1]
    place = np.full(len(column.levels) + 1, len(kept))
    place[kept] = np.arange(len(kept))
    place[-1] = len(kept) + 1
    return place[codes], [*(column.levels[level] for level in kept), "others", "missing"]
