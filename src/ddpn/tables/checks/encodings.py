"""Find columns that were computed from the target as means: of groups (target encoding) or of successive rows."""

import numpy as np
import polars as pl

from ddpn.tables.checks.sampling import choose_groups, count_checked_rows, hash_values

#: The fewest levels with several rows, and the largest p-value of the hypothesis that level means are even by chance.
_MIN_LEVELS, _MAX_P_VALUE = 10, 1e-6
#: The most levels of a column that are checked.
_MAX_CHOSEN_LEVELS = 200
#: The largest variance of level means around the line, as a share of the variance that sampling explains.
_MAX_NOISE = 0.1
#: How many rows before and after a row its rolling mean may cover, and the least R^2 of the mean.
_WINDOW, _MIN_EXPLAINED = 15, 0.99
#: The most rows in which rolling means are searched, and the fewest.
_MAX_ROLLING_ROWS, _MIN_ROLLING_ROWS = 4_000, 200
#: Smaller eigenvalues, as a share of the largest one, are rounding errors.
_MIN_EIGENVALUE = 1e-10
#: The least weight of the row's own count or of a later one, as a share of the largest weight.
_MIN_WEIGHT = 0.2


def is_group_mean(x: np.ndarray, y: np.ndarray) -> bool:
    """Return True if a column was computed from the mean counts of groups, which are the rows with one value of `x`.

    A column is suspicious if the mean count is nearly a function of its values. Means of n counts vary by chance: their
    variance is that of the counts divided by n. An honest predictor leaves at least this variance, and only a column
    that was computed from the same means leaves less. The mean at each value of `x` is compared with the line through
    the means at the two neighbouring values, so that a target encoding with shrinkage is recognised as well.

    Parameters
    ----------
    x, y : array, shape (rows,)
        The column and the counts.
    """
    from scipy.stats import chi2  # slow to import

    values, codes, sizes = np.unique(x, return_inverse=True, return_counts=True)
    is_repeated = sizes > 1
    if is_repeated.sum() < _MIN_LEVELS + 2:
        return False
    kept = is_repeated[codes]
    values, sizes, codes = values[is_repeated], sizes[is_repeated], (np.cumsum(is_repeated) - 1)[codes[kept]]
    counts = y[kept]
    means = np.bincount(codes, counts) / sizes
    within = np.bincount(codes, (counts - means[codes]) ** 2).sum() / (len(counts) - len(values))
    if not within:
        return False
    # Large counts vary more: the variance of a level is in proportion to its mean.
    spread = within * np.maximum(means, 0.1 * means.mean()) / np.average(means, weights=sizes) / sizes
    left = (values[2:] - values[1:-1]) / (values[2:] - values[:-2])
    residual = means[1:-1] - left * means[:-2] - (1 - left) * means[2:]
    expected = spread[1:-1] + left**2 * spread[:-2] + (1 - left) ** 2 * spread[2:]
    noise = residual**2 / expected
    # Neighbouring comparisons share two means, so that every third one is independent.
    return bool(noise.mean() < _MAX_NOISE and chi2.cdf(noise.sum() / 3.0, len(noise) / 3.0) < _MAX_P_VALUE)


def choose_levels(series: pl.Series, n_columns: int) -> np.ndarray:
    """Choose values of a column for the test by `is_group_mean`; return a mask of the rows that have these values.

    All rows with a chosen value are used. All values are chosen if the table is small, which depends on `n_columns`,
    the number of columns of the table.
    """
    rows, max_rows = len(series), count_checked_rows(n_columns)
    if rows <= max_rows:
        return np.ones(rows, dtype=bool)
    n_values = int(series.to_frame().select(pl.all().approx_n_unique()).item())
    share = max(max_rows / rows, _MAX_CHOSEN_LEVELS / max(1, n_values))
    return choose_groups(hash_values(series), share)


def find_rolling_means(X: pl.DataFrame, y: np.ndarray) -> list[str]:
    """Find columns of a polars frame that are weighted sums of the counts `y` in neighbouring rows.

    Rows must be in the order of the table. Sums are reported only if they include the count of the row itself or of
    later rows. Sums of earlier counts alone are legitimate features, because these counts are known before a
    prediction.
    """
    rows = min(len(y), _MAX_ROLLING_ROWS)
    if rows < _MIN_ROLLING_ROWS or not np.ptp(y[:rows]):
        return []
    windows = np.lib.stride_tricks.sliding_window_view(y[:rows], 2 * _WINDOW + 1)
    windows = windows - windows.mean(axis=0)
    products = windows.T @ windows
    # All columns without missing values share a factorization.
    solve = np.linalg.pinv(products, rcond=_MIN_EIGENVALUE, hermitian=True)
    names = []
    for series in X.iter_columns():
        if not series.dtype.is_numeric():
            continue
        values = series[_WINDOW : rows - _WINDOW].cast(float).to_numpy()
        is_missing = np.isnan(values)
        if (~is_missing).sum() < _MIN_ROLLING_ROWS - 2 * _WINDOW:
            continue
        if is_missing.any():
            left_out, complete = windows[is_missing], windows[~is_missing]
            solve_known = np.linalg.pinv(products - left_out.T @ left_out, rcond=_MIN_EIGENVALUE, hermitian=True)
            weights = _find_weights(values[~is_missing], complete, solve_known)
        else:
            weights = _find_weights(values, windows, solve)
        names += [series.name] if _includes_current_count(weights) else []
    return names


def _find_weights(column: np.ndarray, windows: np.ndarray, inverse: np.ndarray) -> np.ndarray | None:
    """Regress a column on the counts in a window around each row, and return the weights of the counts.

    Return None if the counts explain less than 99% of the column's variance.

    Parameters
    ----------
    column : array, shape (rows,)
        The column.
    windows : array, shape (rows, counts)
        The counts in the window around each row, minus the mean over all rows.
    inverse : array, shape (counts, counts)
        The pseudo-inverse of `windows.T @ windows`.
    """
    centred = column - column.mean()
    weights: np.ndarray = inverse @ (windows.T @ centred)
    residual = centred - windows @ weights
    return weights if residual @ residual < (1.0 - _MIN_EXPLAINED) * (centred @ centred) else None


def _includes_current_count(weights: np.ndarray | None) -> bool:
    """Return True if a column is a sum over several rows, including the row itself or a later row.

    `weights` are the results of `_find_weights`, from the earliest row of the window to the latest. At least two
    weights must be large, among them the weight of the row itself or of a later row. If `weights` is None, the result
    is False.
    """
    if weights is None:
        return False
    # A single weight means a copy of the count, or of the count of an earlier or later row.
    is_large = np.abs(weights) >= _MIN_WEIGHT * np.abs(weights).max()
    return bool(is_large[_WINDOW:].any() and is_large.sum() > 1)
