"""Find columns that hold means of the target: by group (target encoding) or of neighbouring rows (rolling means)."""

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
    """Return True if a column `x` was computed from the mean targets of the groups of rows with equal values of `x`.

    The mean of n counts has sampling variance: their variance divided by n. Only a column that was computed from these
    means follows them more closely than that. Each mean is compared with the line through the means of the two
    neighbouring values, so that shrunk means are recognised as well.
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

    All values are chosen if the table has few rows. The limit depends on `n_columns`, the number of its columns.
    """
    rows, max_rows = len(series), count_checked_rows(n_columns)
    if rows <= max_rows:
        return np.ones(rows, dtype=bool)
    n_values = int(series.to_frame().select(pl.all().approx_n_unique()).item())
    share = max(max_rows / rows, _MAX_CHOSEN_LEVELS / max(1, n_values))
    return choose_groups(hash_values(series), share)


def find_rolling_means(X: pl.DataFrame, y: np.ndarray) -> list[str]:
    """Find columns of a polars frame that are weighted sums of the target over neighbouring rows.

    Sums are reported only if they include the row itself or later rows. Sums of earlier counts alone are legitimate
    features, because these counts are known in time for a prediction. Rows are in the order of the table.
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
        names += [series.name] if _include_this_row(weights) else []
    return names


def _find_weights(column: np.ndarray, windows: np.ndarray, inverse: np.ndarray) -> np.ndarray | None:
    """Regress a column on the counts in a window around each row; return the weights.

    Return None if the counts explain less than 99% of the column's variance. `windows` has the centred counts of each
    window, shape (rows, counts), and `inverse` is the pseudo-inverse of `windows.T @ windows`.
    """
    centred = column - column.mean()
    weights: np.ndarray = inverse @ (windows.T @ centred)
    residual = centred - windows @ weights
    return weights if residual @ residual < (1.0 - _MIN_EXPLAINED) * (centred @ centred) else None


def _include_this_row(weights: np.ndarray | None) -> bool:
    """Return True if at least two weights are large, one of them that of the row itself or of a later row.

    `weights` are the weights of the counts in a window around the row, or None if the column is no weighted sum of
    them.
    """
    if weights is None:
        return False
    # A single weight means a copy of the count, or of the count of an earlier or later row.
    is_large = np.abs(weights) >= _MIN_WEIGHT * np.abs(weights).max()
    return bool(is_large[_WINDOW:].any() and is_large.sum() > 1)
