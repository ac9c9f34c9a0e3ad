"""Make data frames in the library of the user's table: pandas or polars."""

from collections.abc import Mapping
from typing import Any

import narwhals as nw
import numpy as np


def library_name(table: object) -> str:
    """Return the name of the data frame library of a table: "pandas" for a pandas data frame, otherwise "polars".

    >>> library_name([[1.0]])
    'polars'
    """
    return "pandas" if nw.dependencies.is_pandas_dataframe(nw.to_native(table, pass_through=True)) else "polars"


def make_frame(columns: Mapping[str, Any], library: str = "polars", index: np.ndarray | None = None) -> Any:
    """Make a data frame from a mapping of names to columns; `library` is "pandas" or "polars".

    A pandas frame has the row labels `index`, by default 0, 1, 2, ... In polars, rows have no labels, and `index` is
    ignored.
    """
    if library == "pandas":
        import pandas as pd

        return pd.DataFrame(dict(columns), index=index)
    import polars as pl  # slow to import

    return pl.DataFrame(dict(columns), strict=False)
