"""Find target leaks: columns that were computed from the count, and columns that predict it suspiciously well.

Copies, functions, parts and flags of the count are leaks, even if some of their values are missing. A column that
predicts the count well but not exactly may also be an honest predictor. The user is then asked whether it is known
before the count.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, Self

import numpy as np
import polars as pl

from ddpn.runtime.validation import join_words
from ddpn.tables.checks.encodings import choose_levels, find_rolling_means, is_group_mean
from ddpn.tables.checks.findings import FindingKind, TableFinding
from ddpn.tables.checks.sampling import choose_rows
from ddpn.tables.checks.transforms import (
    MIN_ROWS,
    describe_missingness_leak,
    describe_target_transform,
    to_ranked_numbers,
)
from ddpn.tables.dates import DAY

#: The user is asked about several columns if their joint R^2 is at least this. They are leaks if their largest error is
#: below this share of the target's range.
_MIN_JOINT_R2, _MAX_EXACT_ERROR = 0.999, 1e-6
#: The most columns that are tested jointly, absolute and per row.
_MAX_COLUMNS, _COLUMNS_PER_ROW = 200, 0.1
#: The user is asked about a column if some function of it has an R^2 above this.
_MIN_R2 = 0.9
#: Honest predictors of large counts may exceed that R^2, but leave at least the noise of Poisson counts. A leak leaves
#: less than this share of that noise.
_MAX_LEAK_NOISE = 0.5
#: Levels may be ranges of the count: the least rows per level, the least share of the table in such levels, and the
#: least R^2. The ranges must not overlap, the gaps between them must be small, and counts near their ends must be about
#: as frequent as elsewhere, unlike in the tails of a distribution.
_MIN_LEVEL_ROWS, _MIN_TABLE_SHARE, _MIN_LEVEL_R2 = 5, 0.9, 0.5
_MAX_GAP_SHARE, _EDGE_WIDTH, _MIN_EDGE_SHARE = 0.25, 0.1, 0.6
#: With a smaller share of distinct rows, repeated rows are not copies but the result of few distinct values.
_MIN_DISTINCT_SHARE = 0.1
_SEED = 0


def find_leaks(
    X: pl.DataFrame, y: np.ndarray, dates: Mapping[str, str] | None = None, exposure: np.ndarray | None = None
) -> list[TableFinding]:
    """Find columns that were computed from the target, or that predict it nearly without error.

    The target is the count and, if there are exposures, also the count per exposure. Besides single columns, weighted
    sums of several columns are tested. For example, the difference of two dates may equal the target.

    Parameters
    ----------
    X : polars.DataFrame
        The columns to check.
    y : array, shape (rows,)
        The counts.
    dates : mapping of str to str, optional
        The date from which each derived column was computed, such as "start" for the column "start month". Of these
        columns, only days are tested one by one.
    exposure : array, shape (rows,), optional
        The exposures.

    Returns
    -------
    list of TableFinding
        The findings. Empty if there are none, if there are too few rows, or if all counts are equal.
    """
    dates = dates or {}
    if not X.columns:
        return []
    rolling = [] if not len(y) else find_rolling_means(X.select([name for name in X.columns if name not in dates]), y)
    # Distinct rows in random order, so that the neighbours of a row are not copies of it. If rows are repeated very
    # often, the table has few distinct values, and all rows are kept.
    sampled_rows = choose_rows(len(y), X.width, _SEED)
    marked = X[sampled_rows].with_columns(**{"\0count": y[sampled_rows]}).with_row_index("\0row")
    rows = sampled_rows[marked.unique([*X.columns, "\0count"], keep="first", maintain_order=True)["\0row"].to_numpy()]
    rows = rows if len(rows) > _MIN_DISTINCT_SHARE * len(sampled_rows) else sampled_rows
    all_rows, X, y = (X, y), X[rows], y[rows]
    if len(y) < MIN_ROWS or not np.ptp(y):
        return []
    targets = [_Target.from_values("the target", y, np.ones(len(y)))]
    if exposure is not None and np.ptp(exposure[rows]):
        targets.append(_Target.from_values("the target per exposure", y / exposure[rows], 1.0 / exposure[rows]))
    # Dates that are missing if the count is 0, such as the date of the last visit.
    gaps = {dates[name]: describe_missingness_leak(X[name], y) for name in X.columns if name in dates}
    findings = [
        TableFinding(FindingKind.LEAK, f"Column {name} {way.format(target='the target')}.", (name,))
        for name, way in gaps.items()
        if way
    ]
    for name in X.columns:
        date = dates.get(name)
        if date is not None and (gaps[date] or name != f"{date} {DAY}"):
            continue
        ways = (
            []
            if date
            else [(describe_target_transform(X[name], target.values, target.is_count), target) for target in targets]
        )
        if transform := next(((way, target) for way, target in ways if way), None):
            statement = f"Column {name} {transform[0].format(target=transform[1].name)}."
            findings.append(TableFinding(FindingKind.LEAK, statement, (name,)))
        elif name in rolling:
            way = "is a weighted sum of the target over neighbouring rows, including the row itself or later rows"
            findings.append(TableFinding(FindingKind.QUESTION, f"Column {name} {way}.", (name,)))
        elif way := _describe_near_copy(X[name], targets) or _describe_target_mean(name, *all_rows):
            findings.append(TableFinding(FindingKind.QUESTION, way.format(column=date or name), (date or name,)))
    columns = {name: _fill_missing(X[name]) for name in X.columns if X[name].dtype.is_numeric()}
    for target in targets:
        names, is_exact = _find_weighted_sum(columns, target.values)
        if not names:
            continue
        named = tuple(dict.fromkeys(dates.get(name, name) for name in names))
        who = f"Columns {join_words(names)} together"
        if is_exact:
            statement = f"{who} determine {target.name}: a weighted sum of them equals it."
            findings.append(TableFinding(FindingKind.LEAK, statement, named))
        else:
            statement = f"{who} predict {target.name} nearly without error, by a weighted sum."
            findings.append(TableFinding(FindingKind.QUESTION, statement, named))
        break
    return findings


class _Target(NamedTuple):
    """The target to compare columns with: counts, or counts per exposure.

    Attributes
    ----------
    name : str
        The name of the target in messages.
    values : array, shape (rows,)
        The counts, or the counts per exposure.
    unit : array, shape (rows,)
        By how much each value changes if the count changes by 1: 1, or 1 / exposure.
    ranks : array, shape (rows,)
        The ranks of the values.
    """

    name: str
    values: np.ndarray
    unit: np.ndarray
    ranks: np.ndarray

    @classmethod
    def from_values(cls, name: str, values: np.ndarray, unit: np.ndarray) -> Self:
        return cls(name, values, unit, pl.Series(values).rank("average").to_numpy())

    @property
    def is_count(self) -> bool:
        return bool((self.unit == 1.0).all())


def _describe_near_copy(series: pl.Series, targets: Sequence[_Target]) -> str:
    """Describe in a sentence that a column predicts a target nearly without error, or that its values are count ranges.

    Return "" if neither is the case. The sentence has the placeholder {column} for the name of the column.
    """
    values = _fill_missing(series)
    for target in targets:
        share, noise = _measure_explained_share(values, target, series.dtype.is_numeric())
        if share > _MIN_R2 and noise < _MAX_LEAK_NOISE:
            how = f"predicts {target.name} nearly without error (R² {share:.2f} by its values alone)"
            return f"Column {{column}} {how}."
        # Only ranges of integer counts are recognised, not ranges of rates.
        if target.is_count and share > _MIN_LEVEL_R2 and _are_ranges(values, target.values):
            return "Each value of column {column} stands for a range of counts."
    return ""


def _describe_target_mean(name: str, X: pl.DataFrame, y: np.ndarray) -> str:
    """Return a sentence if a column of floats equals the mean count of the rows that share its value, else "".

    `X` and `y` must hold all rows of the table, so that means are exact. The sentence has the placeholder {column} for
    the name of the column.
    """
    series = X[name]
    if not series.dtype.is_float() or series.null_count():
        return ""
    rows = choose_levels(series, X.width)
    values = series.cast(float).to_numpy()[rows]
    is_mean = not np.isnan(values).any() and is_group_mean(values, y[rows])
    return (
        "Column {column} equals the mean target of the rows that share its value, like a target encoding."
        if is_mean
        else ""
    )


def _fill_missing(series: pl.Series) -> np.ndarray:
    """Convert a column to float64 by `to_ranked_numbers`, and replace missing values by a value below all others."""
    values = to_ranked_numbers(series)
    present = values[~np.isnan(values)]
    low, high = (present.min(), present.max()) if len(present) else (0.0, 0.0)
    return np.where(np.isnan(values), low - (high - low) - 1.0, values)


def _measure_explained_share(codes: np.ndarray, target: _Target, is_number: bool) -> tuple[float, float]:
    """Measure how well a column predicts the target, without a model.

    Each target value is compared with those of other rows: of the rows with the nearest values of the column or, if the
    column is not numeric, of the rows with the same level. For numbers, the difference is taken from the line through
    the neighbours on both sides (Gasser, Sroka and Jennen-Steinmetz, 1986, Biometrika 73). Because no function is
    fitted, the result is not too optimistic.

    Parameters
    ----------
    codes : array, shape (rows,)
        The values of the column as numbers.
    target : _Target
        The target.
    is_number : bool
        True if the column is numeric. False if `codes` stand for levels.

    Returns
    -------
    share : float
        The share of the target's variance that the column explains. It is computed from values and from ranks, and the
        larger share is returned, because a few large counts may dominate the variance.
    noise : float
        The variance that the column does not explain, divided by the variance of Poisson counts. For counts per
        exposure of mean m, the Poisson variance is m / exposure.
    """
    order = np.argsort(codes, kind="stable")
    x, counts, unit, ranks = codes[order], target.values[order], target.unit[order], target.ranks[order]
    if is_number:
        width = x[2:] - x[:-2]
        left = np.divide(x[2:] - x[1:-1], width, out=np.full(len(width), 0.5), where=width > 0)
        residuals = [(v[1:-1] - left * v[:-2] - (1 - left) * v[2:]) for v in (counts, ranks)]
        scale, level = 1 + left**2 + (1 - left) ** 2, (counts[1:-1] + counts[:-2] + counts[2:]) / 3
        units, step = (
            unit[1:-1] + left**2 * unit[:-2] + (1 - left) ** 2 * unit[2:],
            (unit[1:-1] + unit[:-2] + unit[2:]) / 3,
        )
    else:
        same = x[1:] == x[:-1]
        residuals = [np.diff(v)[same] for v in (counts, ranks)]
        scale, level = np.full(len(residuals[0]), 2.0), (0.5 * (counts[1:] + counts[:-1]))[same]
        units = (unit[1:] + unit[:-1])[same]
        step = 0.5 * units
    if len(level) < MIN_ROWS:
        return 0.0, np.inf
    shares = [1 - np.mean(r**2 / scale) / v.var() for r, v in zip(residuals, (counts, ranks), strict=True)]
    # Errors are clipped at two standard deviations, so that a few wrong rows do not hide a leak.
    noise = np.minimum(residuals[0] ** 2 / units / np.maximum(level, step), 4.0)
    return float(max(shares)), float(noise.mean())


def _are_ranges(codes: np.ndarray, y: np.ndarray) -> bool:
    """Return True if each value of a column stands for a range of counts, such as "1 to 5" or "6 to 10".

    `codes` has the values of the column as numbers, and `y` has the counts.
    """
    _, level, number = np.unique(codes, return_inverse=True, return_counts=True)
    is_large = number >= _MIN_LEVEL_ROWS
    if is_large.sum() < 2 or number[is_large].sum() < _MIN_TABLE_SHARE * len(y):
        return False
    groups = sorted((y[level == group] for group in np.flatnonzero(is_large)), key=lambda counts: counts.min())
    for lower, higher in pairwise(groups):
        gap, room = higher.min() - lower.max(), _MAX_GAP_SHARE * max(np.ptp(lower), np.ptp(higher))
        if not 0 < gap <= max(room, 1.0):
            return False
    sides = [side for lower, higher in pairwise(groups) for side in (-lower, higher) if np.ptp(side)]
    observed = expected = 0.0
    for counts in sides:
        size = np.ptp(counts) + 1
        edge = max(1.0, np.floor(_EDGE_WIDTH * size))
        # The count at the end of a range is not counted, as it is there by definition.
        observed += (counts < counts.min() + edge).sum() - 1
        expected += (len(counts) - 1) * edge / size
    return bool(expected >= _MIN_LEVEL_ROWS and observed > _MIN_EDGE_SHARE * expected)


def _find_weighted_sum(columns: Mapping[str, np.ndarray], y: np.ndarray) -> tuple[list[str], bool]:
    """Find a minimal set of columns whose weighted sum equals or nearly equals the target.

    Return the names of the columns, and whether the sum equals the target exactly. The list of names is empty if there
    is no such set.
    """
    goal, centred = _normalise(y), {name: _normalise(values) for name, values in columns.items()}
    max_columns = min(_MAX_COLUMNS, int(_COLUMNS_PER_ROW * len(goal)))
    names = sorted(centred, key=lambda name: -abs(centred[name] @ goal))[:max_columns]
    if not names:
        return [], False
    basis = np.column_stack([centred[name] for name in names])
    products, effects = basis.T @ basis, basis.T @ goal

    def explains(columns: list[int]) -> bool:
        """Return True if the regression of the target on these columns has a large enough R^2."""
        return bool(
            effects[columns] @ np.linalg.lstsq(products[np.ix_(columns, columns)], effects[columns])[0] > _MIN_JOINT_R2
        )

    chosen = list(range(len(names)))
    if not explains(chosen):
        return [], False
    for column in reversed(range(len(names))):  # the least correlated first
        fewer = [other for other in chosen if other != column]
        chosen = fewer if fewer and explains(fewer) else chosen
    if len(chosen) < 2:
        return [], False
    left = goal - basis[:, chosen] @ np.linalg.lstsq(basis[:, chosen], goal)[0]
    return [names[column] for column in chosen], bool(np.abs(left).max() <= _MAX_EXACT_ERROR * np.ptp(goal))


def _normalise(values: np.ndarray) -> np.ndarray:
    """Subtract the mean and scale the vector to length 1. If all values are equal, the result is 0."""
    moved = values - values.mean()
    length = np.linalg.norm(moved)
    return moved / length if length > 0 else moved
