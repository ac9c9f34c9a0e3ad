"""Groups of rows with equal or nearly equal inputs, for `fit(..., groups=)`."""

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from ddpn.tables.cells import polars
from ddpn.tables.dates import DateColumns
from ddpn.tables.encoding.table import Column, read_table
from ddpn.tables.row_hashes import label_equal_rows


def group_similar_rows(X: Any) -> np.ndarray:
    """Return the number of each row's group: rows with equal inputs, or with numbers far closer than chance.

    Use it for `groups` of `CountRegressor.fit` if no column says which rows belong together: copies with tiny noise, or
    measurements of one place with jittered coordinates. Only numbers with many different values may differ within a
    group. Groups are found in the rows that are passed: pass all of them at once.

    Parameters
    ----------
    X : array-like or data frame
        The rows, or some columns of them, such as longitude and latitude.

    Returns
    -------
    array of int, shape (rows,)

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> places = np.repeat(rng.uniform(0, 10, (100, 2)), 4, axis=0)
    >>> groups = group_similar_rows(places + rng.normal(0, 0.001, places.shape))
    >>> len(np.unique(groups))
    100
    """
    dates = DateColumns.find(X)
    columns = read_table(BaseEstimator(), dates.read(X, lambda sentence: None), reset=True)
    codes: np.ndarray = np.unique(label_equal_rows(frame_of_columns(columns)), return_inverse=True)[1]
    return codes


def frame_of_columns(columns: list[Column]) -> Any:
    """Return columns that were read as a polars frame: numbers, booleans and text, null where missing."""
    return polars().DataFrame([_series_of_column(column) for column in columns])


def _series_of_column(column: Column) -> Any:
    library = polars()
    if column.kind == "category":
        levels = np.array([*column.levels, None], dtype=object)  # the last entry serves code -1
        return library.Series(column.name, levels[column.values].tolist(), dtype=library.String)
    numbers = library.Series(column.name, np.asarray(column.values, dtype=np.float64), nan_to_null=True)
    return numbers.cast(library.Boolean) if column.kind == "flag" else numbers
