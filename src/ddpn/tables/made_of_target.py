"""Columns that are made of the target beyond doubt: copies, functions, parts and flags of it, also with gaps.

A strong predictor is not among them. It leaves different counts for the same value, or has different values for the
same count; a column that is made of the count does neither.
"""

from typing import Any

import numpy as np

#: Rows with a known value at least, and rows that repeat a count, by which a function of it is recognised.
_MIN_ROWS, _REPEATS = 20, 10
#: Significant digits in which values are compared.
_DIGITS = 9
#: An exact line through the counts misses them by no more than this share of their range, and this part of a count.
_OF_RANGE, _OF_COUNT = 1e-6, 0.01
#: Counts below the values of a column that Poisson counts would have at least, where there are none: e^-12 by chance.
_EXPECTED = 12.0
_SHAPES = (
    lambda y: y,
    np.sqrt,
    np.log1p,
    lambda y: np.log(np.maximum(y, 0.5)),
    lambda y: 1.0 / (1.0 + y),
    np.square,
)


def made_of_target(series: Any, y: np.ndarray, is_count: bool = True) -> str:
    """How a column is made of the target, as words that follow its name; "" where it may be a predictor.

    Parameters
    ----------
    series : polars Series
        The column.
    y : array
        The counts, or rates.
    is_count : bool
        Whether `y` are counts, of which a column may be a part or a flag.

    Examples
    --------
    >>> import polars
    >>> y = np.random.default_rng(0).poisson(3.0, 400)
    >>> made_of_target(polars.Series(2 * y + 1), y), made_of_target(polars.Series(y > 0), y)
    ('is {target} times a factor plus a constant', 'says whether {target} is 0')
    """
    values, is_number = _values(series)
    known = ~np.isnan(values)
    gaps = "" if known.all() else ", with missing values"
    if is_count and (way := gaps_made_of_target(series, y)):
        return way
    if known.sum() < _MIN_ROWS or not np.ptp(values[known]) or not np.ptp(y[known]):
        return ""
    x, counts = values[known], y[known]
    if is_number and (x == counts).all():
        return f"is {{target}} itself{gaps}"
    if is_number and _is_line(x, counts):
        return f"is {{target}} times a factor plus a constant{gaps}"
    if (is_number and any(_is_line(x, shape(counts)) for shape in _SHAPES)) or _is_one_to_one(x, counts):
        return f"is a function of {{target}}{gaps}"
    if is_count and len(np.unique(x)) == 2:
        return {True: "says whether {target} is 0", False: "is set only where {target} is above 0", None: ""}[
            _tells_zeros(x == x.max(), counts)
        ]
    return f"is a part of {{target}}{gaps}" if is_count and is_number and _is_part(x, counts) else ""


def _values(series: Any) -> tuple[np.ndarray, bool]:
    """The values as float64, NaN where they are missing; levels and flags as numbers of their own."""
    if series.dtype.is_numeric():
        return series.cast(float).to_numpy().astype(np.float64), True
    codes = series.rank("dense").cast(float).to_numpy().astype(np.float64)
    return codes, False


def _is_line(x: np.ndarray, made: np.ndarray) -> bool:
    """Whether the column is an exact line of the target, or of a function of it."""
    centred, moved = x - x.mean(), made - made.mean()
    length = float(centred @ centred)
    if not np.isfinite(length) or not length:
        return False
    left = np.abs(moved - centred * (centred @ moved) / length).max()
    return bool(left <= min(_OF_RANGE * np.ptp(made), _OF_COUNT))


def _is_one_to_one(x: np.ndarray, y: np.ndarray) -> bool:
    """Whether rows of the same count, of which there are enough, have the same value, and the other way round."""
    scale = 10.0 ** (_DIGITS - 1 - np.floor(np.log10(np.maximum(np.abs(x), 1e-300))))
    values, place = np.unique(np.round(x * scale) / scale, return_inverse=True)
    counts, count = np.unique(y, return_inverse=True)
    if len(values) != len(counts) or len(y) - len(counts) < _REPEATS:
        return False
    return len(np.unique(place * len(counts) + count)) == len(counts)


def _is_part(x: np.ndarray, y: np.ndarray) -> bool:
    """Whether the count is never below the column, although it is as low so often that a Poisson count would be.

    A count of mean m is k - 1 with k / m of the probability of k.
    """
    if (x < 0).any() or (x != np.floor(x)).any() or (x > y).any():
        return False
    _, place, number = np.unique(x, return_inverse=True, return_counts=True)
    mean = (np.bincount(place, weights=y) / number)[place]
    at_bound = (x == y) & (x > y.min())
    return bool((x[at_bound] / mean[at_bound]).sum() >= _EXPECTED)


def gaps_made_of_target(series: Any, y: np.ndarray) -> str:
    """How the missing values of a column are made of the counts, as words that follow its name; "" if they are not.

    Parameters
    ----------
    series : polars Series
        The column.
    y : array
        The counts.
    """
    is_known = ~np.isnan(_values(series)[0])
    if is_known.all() or not is_known.any():
        return ""
    found = _tells_zeros(is_known, y)
    if found is None:
        return ""
    is_low = y[is_known].mean() < y[~is_known].mean()
    what, other = ("known", "missing") if is_low else ("missing", "known")
    return f"is {what} just where {{target}} is 0" if found else f"is {other} only where {{target}} is above 0"


def _tells_zeros(is_set: np.ndarray, y: np.ndarray) -> bool | None:
    """Whether one of two values has the zeros and the other has all other counts; None if both may have zeros.

    False if the first has other counts, too.
    """
    flag = is_set if y[is_set].mean() > y[~is_set].mean() else ~is_set
    return not y[~flag].any() if _is_part(flag.astype(float), y) else None
