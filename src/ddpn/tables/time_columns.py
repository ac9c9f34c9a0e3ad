"""Find columns that follow time: later rows are expected to leave the values that training rows had in them."""

from typing import Any

import numpy as np

#: A column of numbers that rises or falls with time has a rank correlation with it of this size or more.
_MONOTONE = 0.95
#: Values of a column such as the year or the season last for this share of the rows or longer, each time they occur.
_STRETCH = 0.02


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
