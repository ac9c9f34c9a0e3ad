"""What changes with time, where rows are split by time: columns that follow it, and counts that trend with it.

Later rows are expected to leave what the model has seen in such columns.

Imports no torch.
"""

from typing import Any, NamedTuple

import numpy as np

from ddpn.sample import Sample
from ddpn.workflow.quick_model import QuickModel, most_rows

#: A column of numbers that rises or falls with time has a rank correlation with it of this size or more.
_MONOTONE = 0.95
#: Values of a column such as the year or the season last for this share of the rows or longer, each time they occur.
_STRETCH = 0.02
#: Fewer rows do not show a trend.
_MIN_ROWS = 100
#: The share of the rows that a quick model is fitted to, the earliest ones; it predicts the others.
_EARLY = 0.7
#: Successive blocks of later rows: within one, rows need not be independent.
_BLOCKS = 10
#: The least relative difference of the later counts that is reported, and its least size in standard errors of the
#: blocks: chance exceeds that in 0.3% of tables (Student's t with 9 degrees of freedom).
_LEAST, _CLEAR = 0.1, 4.0


class Trend(NamedTuple):
    """`change` is how much higher later counts are than predicted, as a share; `is_input` if the model has the time."""

    time: str
    change: float
    is_input: bool

    @property
    def sentence(self) -> str:
        """The warning."""
        side = "higher" if self.change > 0 else "lower"
        remedy = "" if self.is_input else f" --use {self.time} makes the time an input, too."
        return (
            f"Counts trend with {self.time}: those of the latest training and validation rows are "
            f"{abs(self.change):.0%} {side} than a quick model of the earlier rows predicts. Test rows, and rows to "
            f"predict, may be as far off: trees and networks do not extrapolate a trend. Fit again as new rows come "
            f"in.{remedy}"
        )


def find_trend(sample: Sample, times: Any, time: str, is_input: bool) -> Trend | None:
    """How far later counts are from what a quick model of earlier rows predicts, if that is clear.

    Parameters
    ----------
    sample : Sample
        The rows that are known, test rows left out.
    times : polars Series
        The time of each row.
    time : str
        The name of the column of times.
    is_input : bool
        Whether the model has the time as an input.
    """
    if len(sample) < _MIN_ROWS or not np.ptp(sample.y):
        return None
    order = times.arg_sort().to_numpy()
    most = most_rows(sample.X.width)
    if len(order) > most:
        order = order[np.linspace(0, len(order) - 1, most).astype(np.int64)]
    sample = sample.rows(order)
    early, late = np.split(np.arange(len(sample)), [round(_EARLY * len(sample))])
    if not sample.y[early].any():
        return None
    mean = QuickModel(sample).predict([(early, late)]).mean[late]
    weight, y = sample.weight_or_ones[late], sample.y[late]
    excess = np.array([block.sum() for block in np.array_split(weight * (y - mean), _BLOCKS)])
    change = float(excess.sum() / (weight * mean).sum())
    error = float(excess.std(ddof=1) * np.sqrt(_BLOCKS))
    is_clear = abs(excess.sum()) > _CLEAR * error and abs(change) >= _LEAST
    return Trend(time, change, is_input) if is_clear else None


def time_columns(X: Any, times: Any) -> list[str]:
    """Names of the columns that are monotone in time, or constant over long stretches of it; `X` is a polars frame.

    `times` is a series of the times of its rows. Nothing could be said about a row without all of its columns, so that
    none is returned where all columns follow time.

    >>> import polars as pl
    >>> days = pl.Series(range(100))
    >>> X = pl.DataFrame({"year": days // 50, "trend": days + 0.5, "weekday": days % 7})
    >>> time_columns(X, days)
    ['year', 'trend']
    """
    order = times.arg_sort()
    ranks = times.gather(order).rank("average").to_numpy()
    found = [name for name in X.columns if _follows(X[name].gather(order), ranks)]
    return found if len(found) < len(X.columns) else []


def _follows(series: Any, ranks: np.ndarray) -> bool:
    codes = series.rank("dense").fill_null(0).to_numpy().astype(np.int64)
    if not np.ptp(codes):
        return False
    is_number = series.dtype.is_numeric() and not series.null_count()
    return (is_number and _is_monotone(series.rank("average").to_numpy(), ranks)) or _has_stretches(codes)


def _is_monotone(values: np.ndarray, ranks: np.ndarray) -> bool:
    return bool(np.ptp(ranks) and abs(np.corrcoef(values, ranks)[0, 1]) >= _MONOTONE)


def _has_stretches(codes: np.ndarray) -> bool:
    """Whether the stretches of equal values are long for every value, on average."""
    starts = np.flatnonzero(np.r_[True, codes[1:] != codes[:-1]])
    _, rows = np.unique(codes, return_counts=True)
    _, stretches = np.unique(codes[starts], return_counts=True)
    return bool((rows / stretches).min() >= max(_STRETCH * len(codes), 2.0))
