"""Label the groups of rows that belong together, by group columns or by equal inputs."""

from collections.abc import Sequence

import narwhals as nw
import numpy as np
import polars as pl
from narwhals.typing import IntoSeries
from numpy.typing import ArrayLike

from ddpn.rows.groups import is_grouped_by_inputs
from ddpn.runtime.errors import InputError
from ddpn.tables.cells import clean_text
from ddpn.tables.levels import canonical_number
from ddpn.tables.near_rows import find_clumps, find_continuous_columns, scale_points
from ddpn.tables.row_hashes import hash_cells, hash_rows


def label_groups(
    frame: pl.DataFrame, columns: Sequence[str], missing: Sequence[str], X: pl.DataFrame | None, join_near: bool = True
) -> np.ndarray | None:
    """Label rows so that rows with equal values of the group columns share a label.

    Labels are hashes of the values, so they agree between tables. `missing` are the words for missing values. A row
    with a missing value is a group of its own. If `columns` is the word "equal-inputs", rows with equal model inputs
    `X` share a label. With `join_near`, rows whose numbers are nearly equal share a label as well. Return None if there
    are no group columns, or if the table lacks one.
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
    """Label the rows of a polars frame so that rows with equal cells share a label.

    The label is the hash of the cells. With `join_near`, nearly equal rows share a label as well, which is the smallest
    of their hashes.
    """
    labels = hash_rows([hash_cells(series) for series in X.iter_columns()], X.height)
    return _join_near_rows(X, labels) if join_near else labels


def _join_near_rows(X: pl.DataFrame, labels: np.ndarray) -> np.ndarray:
    """Give one label to rows whose continuous numbers are nearly equal and whose other cells are equal.

    Nearly equal means far closer than chance explains. The common label is the smallest of the rows' labels. If no rows
    are nearly equal, labels stay unchanged.
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
    """Describe the missing values of group columns, in one sentence per column that has missing values."""
    counts = {name: _to_clean_text(frame[name], missing).null_count() for name in columns if name in frame.columns}
    return [
        f"Column {name} is missing in {count:,} rows: each of these rows is treated as a group of its own."
        for name, count in counts.items()
        if count
    ]


def _to_clean_text(series: pl.Series, missing: Sequence[str]) -> pl.Series:
    """Convert cells to text, with null for missing values."""
    cells = series.fill_nan(None) if series.dtype.is_float() else series
    return clean_text(cells.cast(pl.String), missing)


def name_interval_groups(values: IntoSeries | ArrayLike, rows: int | None = None) -> np.ndarray:
    """Name the group of each row, within which intervals are calibrated.

    If `rows` is not None, there must be that many values. 1, 1.0 and "1" have the same name, and missing values are
    named "missing".

    >>> name_interval_groups([1, 2.0, None, "b"]).tolist()
    ['1', '2', 'missing', 'b']
    """
    series = nw.from_native(values, series_only=True, pass_through=True)
    plain = series.to_list() if isinstance(series, nw.Series) else np.asarray(values, dtype=object).tolist()
    if not isinstance(plain, list) or any(isinstance(value, list) for value in plain[:1]):
        raise InputError(argument="groups", must="hold one label per row of X", got=f"{values!r:.60}")
    if rows not in (None, len(plain)):
        got = f"{len(plain)} for {rows} rows"
        raise InputError(argument="groups", must="have one label per row of X", got=got)
    names = {value: "missing" if value is None or value != value else canonical_number(value) for value in set(plain)}
    return np.array([names[value] for value in plain], dtype=object)
