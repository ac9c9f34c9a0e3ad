"""Label the groups of rows that belong together, by group columns or by equal inputs."""

from collections.abc import Sequence
from datetime import datetime, time
from typing import Any

import narwhals as nw
import numpy as np
import polars as pl
from narwhals.typing import IntoSeries
from numpy.typing import ArrayLike

from ddpn.rows.checks import to_array
from ddpn.rows.groups import is_grouped_by_inputs
from ddpn.runtime.errors import InputError
from ddpn.tables.cells import clean_text
from ddpn.tables.levels import canonical_number
from ddpn.tables.near_rows import find_clumps, find_continuous_columns, scale_points
from ddpn.tables.row_hashes import hash_cells, hash_rows


def label_groups(
    frame: pl.DataFrame, columns: Sequence[str], missing: Sequence[str], X: pl.DataFrame | None, join_near: bool = True
) -> np.ndarray | None:
    """Label rows by their group, so that rows of the same group have the same label.

    Rows with equal values of the group columns are a group. A row with a missing value is a group of its own. The label
    is a hash of these values, so a group without nearly equal rows has the same label in other tables.

    Parameters
    ----------
    frame : polars.DataFrame
        The table.
    columns : sequence of str
        The group columns. The single word "equal-inputs" instead makes groups of rows with equal model inputs.
    missing : sequence of str
        The words for missing values.
    X : polars.DataFrame or None
        The model inputs, needed for "equal-inputs".
    join_near : bool
        Whether rows whose continuous numbers are nearly equal, in the group columns or (for "equal-inputs") in the
        model inputs, also belong to the same group. The label of such a group is the smallest hash of its rows, so it
        may differ between tables.

    Returns
    -------
    array of uint64, shape (rows,), or None
        The labels. None if there are no group columns, or if the table lacks one.
    """
    if X is not None and is_grouped_by_inputs(columns, frame.columns):
        return label_equal_rows(X, join_near)
    if not columns or not set(columns) <= set(frame.columns):
        return None
    cells = [_to_clean_text(frame[name], missing) for name in columns]
    labels = hash_rows([hash_cells(series) for series in cells], frame.height)
    labels = _join_near_rows(frame.select(columns), labels) if join_near else labels
    alone = np.flatnonzero(np.any([series.is_null().to_numpy() for series in cells], axis=0))
    # Cells never contain this character.
    row_names = pl.Series([f"\0{row}" for row in alone.tolist()], dtype=pl.String)
    labels[alone] = hash_cells(row_names) if len(alone) else labels[alone]
    return labels


def label_equal_rows(X: pl.DataFrame, join_near: bool = True) -> np.ndarray:
    """Label the rows of a polars frame, so that rows with equal cells have the same label. Shape: (rows,), uint64.

    The label is a hash of the cells. With `join_near`, rows whose continuous numbers are nearly equal, and whose other
    cells are equal, also have the same label: the smallest of their hashes.
    """
    labels = hash_rows([hash_cells(series) for series in X.iter_columns()], X.height)
    return _join_near_rows(X, labels) if join_near else labels


def _join_near_rows(X: pl.DataFrame, labels: np.ndarray) -> np.ndarray:
    """Give the same label to rows whose continuous numbers are nearly equal and whose other cells are equal.

    Numbers are nearly equal if they are far closer to each other than chance explains. The label of such rows is the
    smallest of their `labels`. All other labels stay unchanged.
    """
    names = find_continuous_columns(X)
    clumps = find_clumps(scale_points(X, names)) if names else None
    if clumps is None:
        return labels
    others = [hash_cells(X[name]) for name in X.columns if name not in names]
    _, codes = np.unique(hash_rows([clumps.astype(np.uint64), *others], X.height), return_inverse=True)
    smallest = np.full(codes.max() + 1, np.iinfo(np.uint64).max, dtype=np.uint64)
    np.minimum.at(smallest, codes, labels)
    joined: np.ndarray = smallest[codes]
    return joined


def describe_missing_groups(frame: pl.DataFrame, columns: Sequence[str], missing: Sequence[str]) -> list[str]:
    """Return a sentence about each group column that has missing values; the list may be empty.

    `frame` is the table, and `missing` are the words for missing values. Columns that the table lacks are ignored.
    """
    counts = {name: _to_clean_text(frame[name], missing).null_count() for name in columns if name in frame.columns}
    return [
        f"Column {name} is missing in {count:,} rows: each of these rows is treated as a group of its own."
        for name, count in counts.items()
        if count
    ]


def _to_clean_text(series: pl.Series, missing: Sequence[str]) -> pl.Series:
    """Convert cells to text, with null for missing values. `missing` are the words for missing values."""
    cells = series.fill_nan(None) if series.dtype.is_float() else series
    return clean_text(cells.cast(pl.String), missing)


def name_interval_groups(values: IntoSeries | ArrayLike, rows: int | None = None) -> np.ndarray:
    """Convert one value per row to names of the groups within which intervals are calibrated.

    1, 1.0 and "1" have the same name, and so do a date and its midnight. Missing values are named "missing". An
    `InputError` is raised if there are not `rows` values; None skips this check.

    >>> name_interval_groups([1, 2.0, None, "b"]).tolist()
    ['1', '2', 'missing', 'b']
    """
    plain = _list_cells(values)
    if not isinstance(plain, list) or any(isinstance(value, list) for value in plain[:1]):
        raise InputError(argument="groups", must="hold one label per row of X", got=f"{values!r:.60}")
    if rows not in (None, len(plain)):
        got = f"{len(plain)} for {rows} rows"
        raise InputError(argument="groups", must="have one label per row of X", got=got)
    names = {value: "missing" if value is None or value != value else _name_group(value) for value in set(plain)}
    return np.array([names[value] for value in plain], dtype=object)


def _list_cells(values: IntoSeries | ArrayLike) -> Any:
    """List the cells of a series or array. Float32 numbers have the digits that they are written with, such as 0.1."""
    series = nw.from_native(values, series_only=True, pass_through=True)
    if isinstance(series, nw.Series) and series.dtype != nw.Float32:
        return series.to_list()
    array = to_array(values)
    if array.dtype == np.float32 and array.ndim == 1:
        return [float(str(number)) for number in array]
    return np.asarray(values, dtype=object).tolist()


def _name_group(value: object) -> str:
    """Name a group by a value that is not missing. pandas has no dates, only their midnights."""
    if isinstance(value, datetime) and value.time() == time() and value.tzinfo is None:
        return value.date().isoformat()
    return canonical_number(value)
