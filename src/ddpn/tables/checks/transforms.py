"""Recognise columns that are computed from the target: copies, functions, parts and flags."""

import numpy as np
import polars as pl

#: The fewest rows with repeated counts that can show a function of the count, and the significant digits compared.
_MIN_REPEATED_ROWS, _DIGITS = 10, 9
#: The largest error of an exact linear function of the counts, as a share of their range and in counts.
_MAX_RANGE_SHARE, _MAX_COUNT_ERROR = 1e-6, 0.01
#: If no count is below its column's value, Poisson counts must be expected to have at least this many: e^-12 by chance.
_MIN_EXPECTED_BELOW = 12.0
#: Functions of a count that are recognised as leaks.
_SHAPES = (
    lambda y: y,
    np.sqrt,
    np.log1p,
    lambda y: np.log(np.maximum(y, 0.5)),
    lambda y: 1.0 / (1.0 + y),
    np.square,
)
#: The fewest distinct rows that are checked.
MIN_ROWS = 20


def to_ranked_numbers(series: pl.Series) -> np.ndarray:
    """Convert a column to float64, with NaN for missing values.

    Numbers stay unchanged. Text and booleans become their ranks: the first in ascending order is 1.
    """
    return (series if series.dtype.is_numeric() else series.rank("dense")).cast(float).to_numpy().astype(np.float64)


def describe_target_transform(series: pl.Series, y: np.ndarray, is_count: bool = True) -> str:
    """Describe in a phrase how a column was computed from the target; return "" if it may be an honest predictor.

    The phrase follows the name of the column in a sentence, and has the placeholder {target}. `y` has the counts or, if
    `is_count` is False, the counts per exposure. Parts and flags are searched only in counts.

    >>> y = np.random.default_rng(0).poisson(3.0, 400)
    >>> describe_target_transform(pl.Series(2 * y + 1), y), describe_target_transform(pl.Series(y > 0), y)
    ('is {target} times a factor plus a constant', 'says whether {target} is 0')
    """
    values, is_number = to_ranked_numbers(series), series.dtype.is_numeric()
    is_known = ~np.isnan(values)
    gaps = "" if is_known.all() else ", with missing values"
    if is_count and (way := describe_missingness_leak(series, y)):
        return way
    if is_known.sum() < MIN_ROWS or not np.ptp(values[is_known]) or not np.ptp(y[is_known]):
        return ""
    x, counts = values[is_known], y[is_known]
    if is_number and (x == counts).all():
        return f"is {{target}} itself{gaps}"
    if is_number and _is_line(x, counts):
        return f"is {{target}} times a factor plus a constant{gaps}"
    if (is_number and any(_is_line(x, shape(counts)) for shape in _SHAPES)) or _is_one_to_one(x, counts):
        return f"is a function of {{target}}{gaps}"
    if is_count and len(np.unique(x)) == 2:
        return {True: "says whether {target} is 0", False: "is set only where {target} is above 0", None: ""}[
            _isolates_zeros(x == x.max(), counts)
        ]
    return f"is a part of {{target}}{gaps}" if is_count and is_number and _is_part(x, counts) else ""


def _is_line(x: np.ndarray, transformed: np.ndarray) -> bool:
    """Return True if a column `x` is an exact linear function of `transformed`, which is a function of the target."""
    if not np.ptp(transformed):
        return False
    centred, moved = x - x.mean(), transformed - transformed.mean()
    length = float(centred @ centred)
    if not np.isfinite(length) or not length:
        return False
    left = np.abs(moved - centred * (centred @ moved) / length).max()
    return bool(left <= min(_MAX_RANGE_SHARE * np.ptp(transformed), _MAX_COUNT_ERROR))


def _is_one_to_one(x: np.ndarray, y: np.ndarray) -> bool:
    """Return True if the column `x` and the count `y` determine each other.

    There must be enough repeated counts to exclude chance; otherwise the result is False. Shape: (rows,) each.
    """
    scale = 10.0 ** (_DIGITS - 1 - np.floor(np.log10(np.maximum(np.abs(x), 1e-300))))
    values, value = np.unique(np.round(x * scale) / scale, return_inverse=True)
    counts, count = np.unique(y, return_inverse=True)
    if len(values) != len(counts) or len(y) - len(counts) < _MIN_REPEATED_ROWS:
        return False
    return len(np.unique(value * len(counts) + count)) == len(counts)


def _is_part(x: np.ndarray, y: np.ndarray) -> bool:
    """Return True if the column `x` seems to be a part of the count `y`: it never exceeds it, but often equals it.

    If counts were Poisson with mean m, the count k - 1 would be k / m times as frequent as the count k. So if the
    column often equals the count, the count should sometimes be smaller than the column. The result is True if at least
    `_MIN_EXPECTED_BELOW` such counts are expected and there are none. k is the value of the column, and m the mean
    count of the rows with this value.
    """
    if (x < 0).any() or (x != np.floor(x)).any() or (x > y).any():
        return False
    _, value, number = np.unique(x, return_inverse=True, return_counts=True)
    mean = (np.bincount(value, weights=y) / number)[value]
    at_bound = (x == y) & (x > y.min())
    return bool((x[at_bound] / mean[at_bound]).sum() >= _MIN_EXPECTED_BELOW)


def describe_missingness_leak(series: pl.Series, y: np.ndarray) -> str:
    """Describe in a phrase how a column's missing values depend on whether the count is 0; return "" if they do not.

    The phrase follows the name of the column in a sentence, and has the placeholder {target}.
    """
    is_known = ~np.isnan(to_ranked_numbers(series))
    if is_known.all() or not is_known.any():
        return ""
    has_all_zeros = _isolates_zeros(is_known, y)
    if has_all_zeros is None:
        return ""
    is_low = y[is_known].mean() < y[~is_known].mean()
    state, opposite = ("known", "missing") if is_low else ("missing", "known")
    return (
        f"is {state} just where {{target}} is 0" if has_all_zeros else f"is {opposite} only where {{target}} is above 0"
    )


def _isolates_zeros(is_set: np.ndarray, y: np.ndarray) -> bool | None:
    """Return whether the flag `is_set` distinguishes the rows whose count in `y` is 0 from the others.

    True means that the rows with one value of the flag are exactly those with count 0. False means that all rows with
    count 0 have the same value of the flag, but so do rows with other counts. None means that the flag does not
    separate them, or that there are too few rows to exclude chance.
    """
    flag = is_set if y[is_set].mean() > y[~is_set].mean() else ~is_set
    return not y[~flag].any() if _is_part(flag.astype(float), y) else None
