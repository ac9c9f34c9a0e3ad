"""The user's table: rows taken and columns shuffled by the library it came from."""

from typing import Any

import narwhals as nw
import numpy as np
from scipy import sparse

from ddpn.datasets import Table
from ddpn.features.table import Column, read_table


def in_fitted_order(model: Any, X: Any) -> Any:
    """X as a narwhals frame, a sparse matrix or an array, with its columns in the order of fit."""
    if isinstance(X, Table):
        return X.matrix
    frame = nw.from_native(X, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        names = getattr(model, "feature_names_in_", None)
        return frame if names is None else frame.select(list(names))
    if sparse.issparse(X):
        return X.tocsr()
    plain = np.asarray(X)
    # Mixed lists would become text.
    return np.asarray(X, dtype=object) if plain.dtype.kind in "US" and not isinstance(X, np.ndarray) else plain


def native(rows: Any) -> Any:
    """What the model is given."""
    return rows.to_native() if isinstance(rows, nw.DataFrame) else rows


def taken(rows: Any, index: np.ndarray) -> Any:
    """These rows, in this order."""
    return rows[index]


def shuffled(rows: Any, column: int, order: np.ndarray) -> Any:
    """The same rows, one column in another order."""
    if isinstance(rows, nw.DataFrame):
        return rows.with_columns(rows[rows.columns[column]][order])
    changed = rows.toarray() if sparse.issparse(rows) else rows.copy()
    changed[:, column] = changed[order, column]
    return changed


def columns_of(model: Any, X: Any) -> list[Column]:
    """Every column as the model reads it; those of a `Table` keep their names."""
    found = read_table(model, X, reset=False)
    names = X.names if isinstance(X, Table) else [column.name for column in found]
    return [column._replace(name=str(name)) for column, name in zip(found, names, strict=True)]


def value_of(column: Column, row: int) -> str:
    """One cell, as a reader wants to see it."""
    value = column.values[row]
    if column.kind == "category":
        return column.levels[int(value)] if value >= 0 else "missing"
    if np.isnan(value):
        return "missing"
    return ("yes" if value else "no") if column.kind == "flag" else f"{value:.6g}"


def fingerprint(columns: list[Column], y: np.ndarray) -> str:
    """sha256 of names, kinds and values: the same for the same data on every machine."""
    return Table({column.name: _values(column) for column in columns}).fingerprint(y)


def _values(column: Column) -> np.ndarray:
    if column.kind != "category":
        return column.values.astype(np.float64)
    return np.array([*column.levels, ""], dtype=object)[column.values]
