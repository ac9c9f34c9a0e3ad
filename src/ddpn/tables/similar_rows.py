"""Group rows with equal or nearly equal inputs, for `fit(..., groups=)`."""

import numpy as np

from ddpn.rows.checks import TableLike
from ddpn.tables.date_columns import DateColumns
from ddpn.tables.groups import label_equal_rows
from ddpn.tables.reading import read_table


def group_similar_rows(X: TableLike) -> np.ndarray:
    """Group rows with equal inputs, or with numbers far closer than chance; return each row's group number.

    Use the result as the argument `groups` of `CountRegressor.fit` if rows belong together but no column says so.
    Examples are copies of rows with tiny noise, and measurements of one place with jittered coordinates. Only numbers
    with many different values may differ within a group. Groups are found among the rows that are passed, so pass all
    of them at once.

    Parameters
    ----------
    X : array-like or data frame
        The rows, or some columns of them, such as longitude and latitude.

    Returns
    -------
    array of int, shape (rows,)
        The group numbers. A row that resembles no other row has a number of its own.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> places = np.repeat(rng.uniform(0, 10, (100, 2)), 4, axis=0)
    >>> groups = group_similar_rows(places + rng.normal(0, 0.001, places.shape))
    >>> len(np.unique(groups))
    100
    """
    dates = DateColumns.find(X)
    table = read_table(dates.read(X, lambda sentence: None))
    codes: np.ndarray = np.unique(label_equal_rows(table.to_polars()), return_inverse=True)[1]
    return codes
