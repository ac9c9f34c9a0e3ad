"""Find columns that number or name the rows. A model cannot learn anything about new rows from them."""

import re

import numpy as np
import polars as pl

from ddpn.tables.checks.findings import are_whole_numbers

#: A categorical column identifies rows from this share of distinct values on, if there are at least this many rows.
_MIN_ID_SHARE, _MIN_ID_ROWS = 0.9, 20
#: Limits for row numbers with gaps: the fewest rows, the largest mean step, the largest first number in mean steps, and
#: the least correlation with the position (about 0.98 for 50 rows chosen at random).
_MIN_GAP_ROWS, _MAX_STEP, _MAX_START, _MIN_CORRELATION = 50, 50.0, 10.0, 0.95
_TIME_NAMES = re.compile(
    r"(^|[^a-z])(t|times?|days?|dates?|weeks?|months?|quarters?|years?|hours?|minutes?|seconds?|periods?)([^a-z]|$)"
)


def describe_identifier(series: pl.Series, is_category: bool) -> str:
    """Describe in a phrase why a column seems to identify rows, such as "row numbers"; return "" if it does not."""
    present = len(series) - series.null_count()
    if is_category:
        distinct = series.drop_nulls().n_unique()
        is_id = present >= _MIN_ID_ROWS and distinct > _MIN_ID_SHARE * present
        return f"nearly every value is different ({distinct:,} of {present:,}), like names or ids" if is_id else ""
    if not series.dtype.is_numeric() or present < len(series):
        return ""
    numbers = series.to_numpy()
    # The cheapest test comes first: most columns have decimals or repeated values.
    is_counted = are_whole_numbers(numbers) and series.n_unique() == len(series)
    return _describe_row_numbers(numbers, series.name) if is_counted else ""


def _describe_row_numbers(numbers: np.ndarray, name: str) -> str:
    """Return a phrase if the distinct integers of the column `name` look like row numbers, else "".

    Row numbers are either consecutive, in any order, or increase with gaps because rows were dropped. With gaps, they
    must start near 0, be nearly a linear function of the position, and increase by exactly 1 at least a quarter as
    often as if rows had been dropped at random. Columns with a name that suggests time do not count as row numbers with
    gaps.
    """
    rows = len(numbers)
    if rows >= _MIN_ID_ROWS and np.ptp(numbers) == rows - 1:
        return "row numbers"
    steps = np.diff(numbers)
    if rows < _MIN_GAP_ROWS or steps.min() < 1 or _TIME_NAMES.search(name.lower()):
        return ""
    step = float(steps.mean())
    is_dense = step <= _MAX_STEP and numbers[0] <= _MAX_START * step and 4.0 * (steps == 1).mean() * step >= 1.0
    is_straight = np.corrcoef(numbers, np.arange(rows))[0, 1] >= _MIN_CORRELATION
    return "they increase from row to row, with gaps, like row numbers" if is_dense and is_straight else ""
