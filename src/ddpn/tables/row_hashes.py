"""Hash the rows of a table, to find equal rows in tables of any size and type."""

import hashlib
from collections.abc import Sequence

import numpy as np
import polars as pl

from ddpn.tables.columns import Column

#: The constants of the random number generator splitmix64, whose final steps mix all bits.
_GOLDEN, _MIX_1, _MIX_2 = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
#: The text that stands for a missing cell; cells of files never contain it.
MISSING_TEXT = "\0"


def hash_rows(columns: Sequence[np.ndarray], rows: int) -> np.ndarray:
    """Combine the hashes of cells into one hash per row. Shape: (rows,), uint64.

    `columns` has the hashes of the cells of each column, and `rows` is the number of rows. The result depends on the
    order of the columns.
    """
    hashes = np.zeros(rows, dtype=np.uint64)
    for codes in columns:
        hashes = _mix_bits((hashes + _GOLDEN) ^ codes)
    return hashes


def hash_cells(series: pl.Series) -> np.ndarray:
    """Return a hash of each cell of a polars column of text, numbers or booleans.

    Numbers are rounded to float32 first.
    """
    if series.dtype.is_numeric() or str(series.dtype) == "Boolean":
        return hash_numbers(series.cast(float).to_numpy().astype(np.float64))
    text = series.fill_null(MISSING_TEXT)
    levels = text.unique().to_list()
    positions = text.replace_strict(levels, list(range(len(levels))), return_dtype=pl.Int64).to_numpy()
    return hash_texts(levels)[positions]


def hash_column(column: Column) -> np.ndarray:
    """Return a hash of each cell of a `Column`, which is the same as that of `hash_cells` for a polars series."""
    if not column.is_category:
        return hash_numbers(column.values)
    return column.compute_per_level(hash_texts, hash_texts, hash_texts([MISSING_TEXT])[0])


def hash_texts(levels: Sequence[str]) -> np.ndarray:
    """Return a hash of 64 bits of each text, so that texts can be compared without being stored."""
    digests = b"".join(
        hashlib.blake2b(level.encode(errors="surrogatepass"), digest_size=8).digest() for level in levels
    )
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


def hash_numbers(values: np.ndarray) -> np.ndarray:
    """Return a hash of each number, rounded to float32. All missing numbers have the same hash."""
    with np.errstate(over="ignore"):
        short = values.astype("<f4") + np.float32(0.0)  # no -0.0
    short[np.isnan(short)] = np.nan  # one bit pattern for all NaNs
    return _mix_bits(short.view("<u4").astype(np.uint64) + _GOLDEN)


def _mix_bits(codes: np.ndarray) -> np.ndarray:
    """Mix the bits of 64-bit integers as splitmix64 does, so that similar integers get unrelated hashes."""
    codes = (codes ^ (codes >> np.uint64(30))) * _MIX_1
    codes = (codes ^ (codes >> np.uint64(27))) * _MIX_2
    return codes ^ (codes >> np.uint64(31))
