"""Columns that hold means of the target: by group (target encoding), or over neighbouring rows (rolling means)."""

from typing import Any

import numpy as np

#: Levels of several rows at least, and the largest p-value of level means as even as these by chance.
_MIN_LEVELS, _MAX_P_VALUE = 10, 1e-6
#: Level means vary by less than this share of what the rows of a level make them vary.
_MAX_NOISE = 0.1
#: Rows before and after that a rolling mean may have, and the share of the column that they must explain.
_WINDOW, _MIN_EXPLAINED = 15, 0.99
#: Rows of the table that rolling means are looked for in, and fewer that show nothing.
_MAX_ROLLING_ROWS, _MIN_ROLLING_ROWS = 4_000, 200
#: The least weight of the row's own count or of a later one, as a share of the largest weight.
_MIN_WEIGHT = 0.2


def is_group_mean(x: np.ndarray, y: np.ndarray) -> bool:
    """Return True if the mean of the target within each value of a column is a function of the value without noise.

    The mean of n counts varies by a n-th of their variance, whatever the column is; only a column that is made of these
    means follows them more closely. Each mean is compared with the line through the means of the two neighbouring
    values, so that shrunk means are found as well.
    """
    from scipy.stats import chi2  # slow to import

    codes, sizes = _level_codes(x)
    if (sizes > 1).sum() < _MIN_LEVELS + 2:
        return False
    kept = (sizes > 1)[codes]
    values, codes, sizes = np.unique(x[kept], return_inverse=True, return_counts=True)
    counts = y[kept]
    means = np.bincount(codes, counts) / sizes
    within = np.bincount(codes, (counts - means[codes]) ** 2).sum() / (len(counts) - len(values))
    if not within:
        return False
    # Large counts vary more: the variance of a level is in proportion to its mean.
    spread = within * np.maximum(means, 0.1 * means.mean()) / np.average(means, weights=sizes) / sizes
    left = (values[2:] - values[1:-1]) / (values[2:] - values[:-2])
    rest = means[1:-1] - left * means[:-2] - (1 - left) * means[2:]
    expected = spread[1:-1] + left**2 * spread[:-2] + (1 - left) ** 2 * spread[2:]
    noise = rest**2 / expected
    # Neighbouring comparisons share two means, so that every third one is independent.
    return bool(noise.mean() < _MAX_NOISE and chi2.cdf(noise.sum() / 3.0, len(noise) / 3.0) < _MAX_P_VALUE)


def _level_codes(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    _, codes, sizes = np.unique(x, return_inverse=True, return_counts=True)
    return codes, sizes


def find_rolling_means(X: Any, y: np.ndarray) -> list[str]:
    """Return the columns of a polars frame that are sums over the counts of neighbouring rows, this or later ones too.

    Rows are in the order of the table. Sums of earlier counts alone are known before the count.
    """
    rows = min(len(y), _MAX_ROLLING_ROWS)
    if rows < _MIN_ROLLING_ROWS or not np.ptp(y[:rows]):
        return []
    names = [series.name for series in X.iter_columns() if series.dtype.is_numeric()]
    numbers = {name: X[name][:rows].cast(float).to_numpy() for name in names}
    columns = {name: values for name, values in numbers.items() if np.ptp(np.nan_to_num(values)) > 0}
    windows = np.lib.stride_tricks.sliding_window_view(y[:rows], 2 * _WINDOW + 1)
    windows = windows - windows.mean(axis=0)
    return [name for name, values in columns.items() if _is_rolling(values[_WINDOW : rows - _WINDOW], windows)]


def _is_rolling(values: np.ndarray, windows: np.ndarray) -> bool:
    kept = ~np.isnan(values)
    if kept.sum() < _MIN_ROLLING_ROWS - 2 * _WINDOW or not np.ptp(values[kept]):
        return False
    centred, basis = values[kept] - values[kept].mean(), windows[kept]
    weights = np.linalg.lstsq(basis.T @ basis, basis.T @ centred, rcond=None)[0]
    left = centred - basis @ weights
    if left @ left > (1.0 - _MIN_EXPLAINED) * (centred @ centred):
        return False
    largest, current = np.abs(weights).max(), np.abs(weights[_WINDOW:])
    # One count alone is a copy, or the count of an earlier or later row.
    return bool(current.max() >= _MIN_WEIGHT * largest and (np.abs(weights) >= _MIN_WEIGHT * largest).sum() > 1)
