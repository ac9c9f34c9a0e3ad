"""Groups of rows by the values of a column, and means of counts, variances and scores over them."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ddpn.analysis.explanations.grid import make_grid
from ddpn.analysis.report.evidence import Evidence
from ddpn.runtime.display import value_text
from ddpn.statistics import effective_rows, weighted_mean
from ddpn.tables.columns import Column

#: The number of ranges into which a numeric column is divided.
_RANGES = 5


class RowGroup(NamedTuple):
    """Group of rows that share a value or a range of values of a column, with weighted means over these rows.

    Attributes
    ----------
    column : str
        The name of the column.
    label : str
        The value or the range that the rows share.
    rows : int
        The number of rows.
    effective_rows : float
        The effective number of rows, which is smaller than `rows` if weights differ.
    observed : float
        The mean count.
    aleatoric : float
        The mean of the variance that is noise in the counts.
    epistemic : float
        The mean of the variance that is disagreement between the components of the mixture.
    coverage : float
        The share of the counts that lie in their intervals.
    expected : float
        The mean probability of these intervals by the predicted distributions.
    mae : float
        The mean absolute error.
    """

    column: str
    label: str
    rows: int
    effective_rows: float
    observed: float
    aleatoric: float
    epistemic: float
    coverage: float
    expected: float
    mae: float

    @property
    def variance(self) -> float:
        return self.aleatoric + self.epistemic

    @property
    def share(self) -> float:
        """The epistemic share of the predicted variance (disagreement between components / total)."""
        return self.epistemic / self.variance if self.variance > 0 else 0.0


def summarize_group(column: str, label: str, evidence: Evidence, rows: np.ndarray) -> RowGroup:
    """Average counts, variances and scores over a group of rows; `rows` is a mask or has the rows' positions.

    `column` is the name of the column that defines the group, and `label` the value or range that its rows share.
    """
    scores, weight = evidence.scores, evidence.weight[rows]
    values = (evidence.y, evidence.aleatoric, evidence.epistemic, scores.coverage, scores.expected, scores.mae)
    return RowGroup(
        column,
        label,
        len(weight),
        effective_rows(weight),
        *(weighted_mean(column_values[rows], weight) for column_values in values),
    )


def group_by_column(columns: list[Column], position: int, evidence: Evidence) -> list[RowGroup]:
    """Group the rows of a report by the column at `position`: by its values or levels, or by ranges of a number.

    A number with few values has one group per value. The levels of a category beyond the 20 most frequent ones form one
    group, "others". The group of rows with a missing value comes last.
    """
    column, grid = columns[position], make_grid(columns, position, _RANGES)
    is_day = column.name in evidence.inputs.day_columns
    code, labels = grid.code, [value_text(point, is_day) for point in grid.points]
    if not grid.discrete:
        inner = grid.points[1:-1] or grid.points[:1]
        code = np.where(grid.missing, -1, np.searchsorted(inner, column.values))
        ends = [value_text(end, is_day) for end in inner]
        labels = [f"up to {ends[0]}", *(f"{low} to {high}" for low, high in pairwise(ends)), f"above {ends[-1]}"]
    masks = {label: code == index for index, label in enumerate(labels)}
    masks |= {"others": (code < 0) & ~grid.missing, "missing": grid.missing}
    return [summarize_group(column.name, label, evidence, mask) for label, mask in masks.items() if mask.any()]
