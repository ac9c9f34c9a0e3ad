"""Tables made of the cells of another one: every value that an explanation tries out is one that occurs."""

from collections.abc import Mapping
from typing import Any

import narwhals as nw
import numpy as np
from scipy import sparse

from ddpn.sample import take_rows


def in_fit_order(model: Any, X: Any) -> Any:
    """X with its columns in the order of fit."""
    frame, names = nw.from_native(X, pass_through=True), getattr(model, "feature_names_in_", None)
    return frame.select(list(names)).to_native() if isinstance(frame, nw.DataFrame) and names is not None else X


def dense_rows(X: Any, rows: np.ndarray) -> Any:
    """Some rows of a table, as a data frame or an array."""
    part = take_rows(X, rows)
    frame = nw.from_native(part, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        return nw.maybe_reset_index(frame).to_native()
    return part.toarray() if sparse.issparse(part) else np.asarray(part)


def assembled(X: Any, rows: np.ndarray, sources: Mapping[int, np.ndarray]) -> Any:
    """The given rows of a table, with the cells of some columns taken from other rows of it.

    Parameters
    ----------
    X : data frame or array
        What `dense_rows` returns.
    rows : array of int, shape (n,)
        Rows of X, in any order and with repetitions.
    sources : mapping of int to array, shape (n,)
        For a column, by its position, the row of X that each cell is taken from.

    >>> assembled(np.array([[1, 2], [3, 4]]), np.array([0, 0, 1]), {1: np.array([0, 1, 0])}).tolist()
    [[1, 2], [1, 4], [3, 2]]
    """
    frame = nw.from_native(X, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        names = frame.columns
        changed = [nw.maybe_reset_index(frame[names[j]][from_]) for j, from_ in sources.items()]
        return nw.maybe_reset_index(frame[rows]).with_columns(*changed).to_native()
    found = X[rows]
    for j, from_ in sources.items():
        found[:, j] = X[from_, j]
    return found
