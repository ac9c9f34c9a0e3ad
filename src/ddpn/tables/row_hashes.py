"""Hash rows by their cells, to find rows that belong together and rows that a model was fitted to."""

import hashlib
import math
from collections.abc import Sequence
from typing import NamedTuple

import narwhals as nw
import numpy as np
import polars as pl
from narwhals.typing import IntoSeries
from numpy.typing import ArrayLike
from safetensors.numpy import load, save

from ddpn.rows.count_rows import CountRows
from ddpn.rows.groups import is_by_inputs
from ddpn.rows.splits import FOLDS
from ddpn.runtime.errors import InputError
from ddpn.statistics import Z
from ddpn.tables.cells import clean_text
from ddpn.tables.columns import Column
from ddpn.tables.levels import canonical_number
from ddpn.tables.near_rows import find_clumps, find_continuous_columns, scale_points

#: The constants of splitmix64, whose last steps spread every bit over all others.
_GOLDEN, _MIX_1, _MIX_2 = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))

#: In place of a missing text: no text of a file.
MISSING_TEXT = "\0"


def hash_rows(columns: Sequence[np.ndarray], rows: int) -> np.ndarray:
    """Combine the hashes of cells into a hash per row. Shape: (rows,), uint64.

    The order of the columns matters.
    """
    hashes = np.zeros(rows, dtype=np.uint64)
    for codes in columns:
        hashes = _mix_bits((hashes + _GOLDEN) ^ codes)
    return hashes


def hash_cells(series: pl.Series) -> np.ndarray:
    """Hash each cell of a column of text, numbers or booleans; numbers count as float32, so nine digits agree."""
    if series.dtype.is_numeric() or str(series.dtype) == "Boolean":
        return hash_numbers(series.cast(float).to_numpy().astype(np.float64))
    text = series.fill_null(MISSING_TEXT)
    levels = text.unique().to_list()
    positions = text.replace_strict(levels, list(range(len(levels))), return_dtype=pl.Int64).to_numpy()
    return hash_texts(levels)[positions]


def hash_column(column: Column) -> np.ndarray:
    """Hash each cell of a parsed column, as `hash_cells` does for the raw cells."""
    if not column.is_category:
        return hash_numbers(column.values)
    return column.map_names(hash_texts, hash_texts, hash_texts([MISSING_TEXT])[0])


def hash_texts(levels: Sequence[str]) -> np.ndarray:
    """Hash each text to 64 bits, which identify it without keeping it."""
    digests = b"".join(
        hashlib.blake2b(level.encode(errors="surrogatepass"), digest_size=8).digest() for level in levels
    )
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


def hash_numbers(values: np.ndarray) -> np.ndarray:
    """Hash numbers as float32; all missing numbers have the same hash."""
    with np.errstate(over="ignore"):
        short = values.astype("<f4") + np.float32(0.0)  # no -0.0
    short[np.isnan(short)] = np.nan  # one of the many NaNs
    return _mix_bits(short.view("<u4").astype(np.uint64) + _GOLDEN)


def _mix_bits(codes: np.ndarray) -> np.ndarray:
    codes = (codes ^ (codes >> np.uint64(30))) * _MIX_1
    codes = (codes ^ (codes >> np.uint64(27))) * _MIX_2
    return codes ^ (codes >> np.uint64(31))


# Groups of rows that belong together, by the columns of `--group` -----------------------------------------------------


def label_groups(
    frame: pl.DataFrame, columns: Sequence[str], missing: Sequence[str], X: pl.DataFrame | None, join_near: bool = True
) -> np.ndarray | None:
    """Label each row's group: labels are equal if all group columns are; None if the table lacks these columns.

    Labels are hashes, the same for the same values in any table. A row with a missing value (one of the words
    `missing`) is a group of its own. `EQUAL_INPUTS` in place of columns compares all of `X`, the inputs of the model.
    With `join_near`, rows whose numbers are nearly equal are one group.
    """
    if X is not None and is_by_inputs(columns, frame.columns):
        return label_equal_rows(X, join_near)
    if not columns or not set(columns) <= set(frame.columns):
        return None
    cells = [_to_clean_text(frame[name], missing) for name in columns]
    labels = hash_rows([hash_cells(series) for series in cells], frame.height)
    labels = _join_near_rows(frame.select(columns), labels) if join_near else labels
    alone = np.flatnonzero(np.any([series.is_null().to_numpy() for series in cells], axis=0))
    # Text of a column has no such character.
    row_names = pl.Series([f"\0{row}" for row in alone.tolist()], dtype=pl.String)
    labels[alone] = hash_cells(row_names) if len(alone) else labels[alone]
    return labels


def label_equal_rows(X: pl.DataFrame, join_near: bool = True) -> np.ndarray:
    """Label the rows of a polars frame: labels are equal if all cells are, or (`join_near`) nearly are.

    The label is the hash of the cells, and the smallest hash in a group of nearly equal rows.
    """
    labels = hash_rows([hash_cells(series) for series in X.iter_columns()], X.height)
    return _join_near_rows(X, labels) if join_near else labels


def _join_near_rows(X: pl.DataFrame, labels: np.ndarray) -> np.ndarray:
    """Give one label to rows whose numbers are far closer than chance and whose other cells are equal.

    Only continuous numbers may differ within a group. If no rows are closer than chance, labels stay unchanged.
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
    """Describe the missing values of each group column that has some."""
    counts = {name: _to_clean_text(frame[name], missing).null_count() for name in columns if name in frame.columns}
    return [
        f"Column {name} is missing in {count:,} rows: each of these rows is treated as a group of its own."
        for name, count in counts.items()
        if count
    ]


def _to_clean_text(series: pl.Series, missing: Sequence[str]) -> pl.Series:
    """Convert cells to text, null where missing."""
    cells = series.fill_nan(None) if series.dtype.is_float() else series
    return clean_text(cells.cast(pl.String), missing)


def name_interval_groups(values: IntoSeries | ArrayLike, rows: int | None = None) -> np.ndarray:
    """Name each row's group: 1, 1.0 and "1" are the same, and rows without a value are "missing".

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


# Rows that a model was fitted to, in a table of any order and any file format -----------------------------------------


def hash_sample_rows(sample: CountRows) -> np.ndarray:
    """Hash each row's inputs, exposure and count. Shape: (rows,), uint64.

    The order of columns, which a model decides, is part of the hash.
    """
    numbers = [hash_numbers(np.asarray(v, dtype=np.float64)) for v in (sample.exposure, sample.y) if v is not None]
    return hash_rows([*map(hash_column, sample.X), *numbers], len(sample))


class SeenRows(NamedTuple):
    """Sorted hashes of the rows that a model was fitted to, and how often other rows equal one of them by chance.

    `equal` of `tested` test rows equal a training row although they were not used: in tables of few values equal rows
    occur. Without test rows, some training rows are compared with the others. `total` is the sum of the hashes of all
    rows, test rows included; it identifies the table in any order.
    """

    hashes: np.ndarray
    equal: int
    tested: int
    total: int

    @classmethod
    def from_sample(cls, sample: CountRows, test: np.ndarray) -> "SeenRows":
        """Hash the rows of a table that was fitted to, all but the rows at the positions `test`.

        Without test rows, every fifth row stands in for them when chance matches are counted.

        Without test rows, every fifth row stands in for these: how many of them equal one of the others is chance, too.
        """
        hashes = hash_sample_rows(sample)
        used = np.sort(np.delete(hashes, test))
        tested = test if len(test) else np.arange(0, len(hashes), FOLDS)
        others = used if len(test) else np.delete(hashes, tested)
        return cls(used, int(np.isin(hashes[tested], others).sum()), len(tested), sum_hashes(hashes))

    def to_bytes(self) -> bytes:
        numbers = np.array(self[1:], dtype=np.uint64)
        return save({"hashes": self.hashes.view(np.int64), "numbers": numbers.view(np.int64)})

    @classmethod
    def from_bytes(cls, content: bytes) -> "SeenRows":
        arrays = load(content)
        return cls(arrays["hashes"].view(np.uint64), *arrays["numbers"].view(np.uint64).tolist())

    def find_unseen(self, hashes: np.ndarray) -> tuple[np.ndarray, str]:
        """Return a mask of rows that the model was not fitted to, and a sentence if it was fitted to some.

        If fit had n copies of a row, n copies of it are left out. All rows are kept if they equal training rows no more
        often than the test rows of fit did by chance.
        """
        order = np.argsort(hashes, kind="stable")
        ordered = hashes[order]
        copy = np.arange(len(ordered)) - np.searchsorted(ordered, ordered)
        had = np.searchsorted(self.hashes, ordered, "right") - np.searchsorted(self.hashes, ordered)
        mask = np.zeros(len(hashes), dtype=bool)
        mask[order] = copy < had
        number, total = int(mask.sum()), len(hashes)
        if not number:
            return ~mask, ""
        if self.equal and sum_hashes(hashes) != self.total:
            share, usual = float(np.isin(hashes, self.hashes).mean()), self.equal / self.tested
            error = math.sqrt(usual * (1.0 - usual) * (1.0 / total + 1.0 / self.tested))
            if share <= usual + Z * error:
                statement = f"{number:,} of {total:,} rows equal rows that the model was fitted to"
                words = f"{statement}. Rows of its own table equal each other as often, so all rows are scored."
                return np.ones(total, dtype=bool), words
        if number == total:
            raise InputError(
                f"All {total:,} rows were used to fit the model, so scores on them say nothing about new rows. "
                "Use rows that were not part of the fit."
            )
        were, are = ("was", "is") if number == 1 else ("were", "are")
        note = f"{number:,} of {total:,} rows {were} used to fit the model and {are} left out of the scores."
        return ~mask, note


def sum_hashes(hashes: np.ndarray) -> int:
    """Sum hashes modulo 2^64."""
    return int(hashes.sum(dtype=np.uint64))
