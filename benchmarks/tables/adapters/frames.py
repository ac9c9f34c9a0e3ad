"""Rows as a data frame of pandas, for packages that need one."""

from typing import Any

import numpy as np

from .common import Columns


def make_frame(columns: Columns) -> Any:
    """Make a data frame: numbers as floats, and categories as pandas' categoricals with all their levels."""
    import pandas

    cells: dict[str, Any] = {}
    for name, levels, values in zip(columns.names, columns.levels, columns.values, strict=True):
        if levels is None:
            cells[name] = values
        else:
            cells[name] = pandas.Categorical.from_codes(np.asarray(values, dtype=int), categories=levels)
    return pandas.DataFrame(cells)
