"""Numeric inputs from raw columns: the parts that feature sets are put together from."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddpn.errors import InputError
from ddpn.validation import at_rows, listed

Columns = dict[str, NDArray[np.float64]]


def one_hot(table: Any, name: str, levels: Sequence[str | float]) -> Columns:
    """One column per level, 1 in its rows; an error for a level that is not listed."""
    column = table[name].to_numpy()
    unknown = np.flatnonzero(~np.isin(column, np.array(levels, dtype=column.dtype)))
    if len(unknown):
        raise InputError(
            f"{name} must be one of {listed(levels, 40)}, got {column[unknown[0]]} {at_rows((unknown + 1).tolist())}."
        )
    return {
        f"{name}_{level:g}" if isinstance(level, float) else f"{name}_{level}": (column == level).astype(float)
        for level in levels
    }


def unchanged(table: Any, names: Iterable[str]) -> Columns:
    """Columns of numbers as they are."""
    return {name: table[name].to_numpy() for name in names}


def standardized(columns: Columns, rows: NDArray[np.int64] | slice = slice(None), ddof: int = 0) -> Columns:
    """Columns less their mean over `rows`, divided by their standard deviation there."""
    return {name: _standardized(column, column[rows], ddof) for name, column in columns.items()}


def _standardized(column: NDArray[np.float64], known: NDArray[np.float64], ddof: int) -> NDArray[np.float64]:
    deviation = known.std(ddof=ddof)
    return (column - known.mean()) / (deviation if deviation > 0 else 1.0)


def total(table: Any, names: Collection[str]) -> NDArray[np.float64]:
    """The sum of columns."""
    return np.sum([table[name].to_numpy() for name in names], axis=0)


def cyclic(table: Any, name: str) -> Columns:
    """Sine and cosine of an angle that makes one turn between the column's smallest and largest value."""
    column = table[name].to_numpy()
    angle = 2 * np.pi * (column - column.min()) / max(np.ptp(column), 1e-300)
    return {f"{name}_sin": np.sin(angle), f"{name}_cos": np.cos(angle)}
