"""From raw columns to numeric inputs: the parts that feature sets are put together from."""

from collections.abc import Collection, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from ddpn.datasets.table import Column, Table
from ddpn.errors import InputError

Columns = dict[str, Column]


def one_hot(table: Table, name: str, levels: Sequence[str | float]) -> Columns:
    """One column a level, 1 in its rows; an error for a level that was not listed."""
    column = table[name]
    strange = np.flatnonzero(~np.isin(column, np.array(levels, dtype=column.dtype)))
    if len(strange):
        raise InputError(
            f"{name} must hold {', '.join(map(str, levels))}, got {column[strange[0]]} in row {strange[0] + 1}. "
            f"Mend that row or use the raw columns."
        )
    return {
        f"{name}_{level:g}" if isinstance(level, float | int) else f"{name}_{level}": (column == level).astype(float)
        for level in levels
    }


def as_they_are(table: Table, names: Iterable[str]) -> Columns:
    """Columns of numbers, untouched."""
    return {name: table[name] for name in names}


def standardised(table: Table, names: Iterable[str], rows: NDArray[np.int64] | None, ddof: int = 0) -> Columns:
    """Columns less their mean over `rows` (None: all), over their standard deviation there."""
    return {
        name: _standardised(table[name], table[name] if rows is None else table[name][rows], ddof) for name in names
    }


def _standardised(column: Column, seen: Column, ddof: int) -> Column:
    spread = seen.std(ddof=ddof)
    return (column - seen.mean()) / (spread if spread > 0 else 1.0)


def total(table: Table, names: Collection[str], name: str) -> Columns:
    """The sum of columns, as one column."""
    return {name: np.sum([table[part] for part in names], axis=0)}


def round_the_circle(table: Table, name: str) -> Columns:
    """Sine and cosine, once round from the column's smallest value to its largest, so that those two meet."""
    column = table[name]
    angle = 2 * np.pi * (column - column.min()) / max(np.ptp(column), 1e-300)
    return {f"{name}_sin": np.sin(angle), f"{name}_cos": np.cos(angle)}
