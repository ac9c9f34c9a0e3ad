"""Find changes over time or over the order of rows: trends, columns that follow time, and slow drifts."""

import numpy as np
import polars as pl

from ddpn.rows.count_rows import CountRows
from ddpn.tables.checks.findings import FindingKind, TableFinding
from ddpn.tables.checks.groups import Candidate, explain_groups
from ddpn.tables.checks.quick_model import MIN_ROWS, QuickModel, count_quick_model_rows

#: The least absolute rank correlation with time of a column that rises or falls with time.
_MIN_TIME_CORRELATION = 0.95
#: Values of a column such as the year or the season last, whenever they occur, for at least this share of the rows.
_MIN_STRETCH = 0.02
#: The share of the earliest rows, to which a quick model is fitted that predicts the later rows.
_EARLY_SHARE = 0.7
#: The number of blocks of successive later rows. Rows within a block need not be independent.
_BLOCKS = 10
#: The least relative difference of later counts that is reported, absolute and in standard errors of the blocks. By
#: chance, 0.3% of tables exceed the latter (Student's t with 9 degrees of freedom).
_MIN_CHANGE, _MIN_STANDARD_ERRORS = 0.1, 4.0


def find_trend(sample: CountRows, times: pl.Series) -> float:
    """Return by how much later counts differ from the predictions of a quick model that was fitted to earlier rows.

    The difference is relative: 0.5 means that later counts are 50% above the predictions. The result is 0 if the
    difference is small or may be due to chance, or if there are too few rows. `sample` has the rows, with inputs in a
    polars frame, and `times` the time of each row.
    """
    if len(sample) < MIN_ROWS or not np.ptp(sample.y):
        return 0.0
    sample = _thin_rows(sample, times.arg_sort().to_numpy())
    early, late = np.split(np.arange(len(sample)), [round(_EARLY_SHARE * len(sample))])
    if not sample.y[early].any():
        return 0.0
    mean = QuickModel(sample).predict_means([(early, late)])[late]
    weight, y = sample.weight_or_ones[late], sample.y[late]
    excess = np.array([block.sum() for block in np.array_split(weight * (y - mean), _BLOCKS)])
    change = float(excess.sum() / (weight * mean).sum())
    error = float(excess.std(ddof=1) * np.sqrt(_BLOCKS))
    is_clear = abs(excess.sum()) > _MIN_STANDARD_ERRORS * error and abs(change) >= _MIN_CHANGE
    return change if is_clear else 0.0


def _thin_rows(sample: CountRows, order: np.ndarray) -> CountRows:
    """Return the rows of `sample` in the order of `order`, their positions.

    If there are too many for a quick model, only rows at equal distances in this order are returned.
    """
    max_rows = count_quick_model_rows(sample.X.width)
    if len(order) > max_rows:
        order = order[np.linspace(0, len(order) - 1, max_rows).astype(np.int64)]
    return sample.rows(order)


def find_time_columns(X: pl.DataFrame, times: pl.Series) -> list[str]:
    """Find columns of a polars frame that follow time: they rise or fall with it, or are constant over long periods.

    `times` has the time of each row. If all columns follow time, an empty list is returned, because a model needs some
    column.

    >>> import polars as pl
    >>> days = pl.Series(range(100))
    >>> X = pl.DataFrame({"year": days // 50, "trend": days + 0.5, "weekday": days % 7})
    >>> find_time_columns(X, days)
    ['year', 'trend']
    """
    order = times.arg_sort()
    ranks = times.gather(order).rank("average").to_numpy()
    names = [name for name in X.columns if _follows_time(X[name].gather(order), ranks)]
    return names if len(names) < len(X.columns) else []


def _follows_time(series: pl.Series, ranks: np.ndarray) -> bool:
    """Return True if a column rises or falls with time, or keeps its values over long periods.

    `series` is the column sorted by time, and `ranks` has the rank of the time of each of its rows.
    """
    codes = series.rank("dense").fill_null(0).to_numpy().astype(np.int64)
    if not np.ptp(codes):
        return False
    is_number = series.dtype.is_numeric() and not series.null_count() and np.ptp(ranks)
    if is_number and abs(np.corrcoef(series.rank("average").to_numpy(), ranks)[0, 1]) >= _MIN_TIME_CORRELATION:
        return True
    # True if the mean length of stretches of equal values is large for every value.
    starts = np.flatnonzero(np.r_[True, codes[1:] != codes[:-1]])
    _, rows = np.unique(codes, return_counts=True)
    _, stretches = np.unique(codes[starts], return_counts=True)
    return bool((rows / stretches).min() >= max(_MIN_STRETCH * len(codes), 2.0))


# The order of the rows, where no column says when they were recorded --------------------------------------------------

#: The share of successive rows that are left out together.
_BLOCK_SHARE = 1 / 30
_MIN_ORDERED_ROWS = 300
#: The least rank correlation of a column with itself one row later, from which a model can infer the position of a row
#: in the table.
_MIN_DRIFT = 0.8
#: The fewest distinct values from which the position of a row can be inferred.
_MIN_DRIFTING_VALUES = 30
#: The least correlation of the ranks of successive counts, in standard errors.
_COUNT_STANDARD_ERRORS = 4.0
#: The least absolute rank correlation with the position if rows are sorted by the target, and if by a column.
_SORTED_BY_TARGET, _SORTED_BY_COLUMN = 0.8, 0.9


def find_drift(sample: CountRows, seed: int = 0) -> TableFinding | None:
    """Return a finding if rows that follow each other in the table are alike, else None.

    A quick model predicts each row twice: with and without the neighbouring rows in its training set. The predictions
    differ if both the counts and some input change slowly from row to row, as in a table sorted by time. Tables sorted
    by one of their columns are not checked: without its neighbours, a row would be outside the range of the training
    rows.
    """
    if len(sample) < _MIN_ORDERED_ROWS or not np.ptp(sample.y):
        return None
    sample = _thin_rows(sample, np.arange(len(sample)))
    counts = pl.Series(sample.y / sample.exposure_or_ones).rank().to_numpy()
    rows = len(counts)
    if abs(_correlate(counts, np.arange(rows))) >= _SORTED_BY_TARGET:
        return None
    if _correlate(counts[1:], counts[:-1]) < _COUNT_STANDARD_ERRORS / np.sqrt(rows):
        return None
    columns = {series.name: ranks for series in sample.X.iter_columns() if (ranks := _rank_numbers(series)) is not None}
    if any(abs(_correlate(ranks, np.arange(rows))) >= _SORTED_BY_COLUMN for ranks in columns.values()):
        return None
    drifting = [name for name, ranks in columns.items() if _correlate(ranks[1:], ranks[:-1]) >= _MIN_DRIFT]
    if not drifting:
        return None
    labels = (np.arange(rows) / (_BLOCK_SHARE * rows)).astype(np.int64)
    shares = explain_groups(QuickModel(sample, seed), Candidate((), np.arange(rows), labels, are_alike=True))
    if shares is None:
        return None
    statement = (
        f"Rows that follow each other in the table are alike: a quick model explains {max(shares.seen, 0):.0%} of "
        f"their deviance if it has seen the rows around them, {max(shares.new, 0):.0%} if not."
    )
    return TableFinding(FindingKind.ORDER, statement, tuple(drifting))


def _correlate(x: np.ndarray, y: np.ndarray) -> float:
    return float(np.corrcoef(x, y)[0, 1])


def _rank_numbers(series: pl.Series) -> np.ndarray | None:
    """Return the ranks of a numeric column with many distinct values; None for any other column."""
    if not series.dtype.is_numeric() or series.null_count() or series.n_unique() < _MIN_DRIFTING_VALUES:
        return None
    return series.rank().to_numpy()
