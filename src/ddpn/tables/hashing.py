"""A hash per row of some columns: the same on every machine and with every version of the libraries."""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

#: The constants of splitmix64, whose last steps spread every bit over all others.
_GOLDEN, _MIX_1, _MIX_2 = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))

#: In place of a missing text: no text of a file.
MISSING_TEXT = "\0"


def hashed(columns: Sequence[np.ndarray], rows: int) -> np.ndarray:
    """A hash per row of the codes of its cells, in the order of the columns. Shape: (rows,), uint64."""
    found = np.zeros(rows, dtype=np.uint64)
    for codes in columns:
        found = _mixed((found + _GOLDEN) ^ codes)
    return found


def column_codes(series: Any) -> np.ndarray:
    """A code per cell of a column of text, numbers or booleans. Numbers count as float32: nine digits agree."""
    if series.dtype.is_numeric() or str(series.dtype) == "Boolean":
        return number_codes(series.cast(float).to_numpy().astype(np.float64))
    text = series.fill_null(MISSING_TEXT)
    levels = text.unique().to_list()
    places = text.replace_strict(levels, list(range(len(levels))), return_dtype=int).to_numpy()
    return text_codes(levels)[places]


def text_codes(levels: Sequence[str]) -> np.ndarray:
    """A code per text."""
    digests = b"".join(
        hashlib.blake2b(level.encode(errors="surrogatepass"), digest_size=8).digest() for level in levels
    )
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


def number_codes(values: np.ndarray) -> np.ndarray:
    """A code per number, as float32; all missing numbers have the same one."""
    with np.errstate(over="ignore"):
        short = values.astype("<f4") + np.float32(0.0)  # no -0.0
    short[np.isnan(short)] = np.nan  # one of the many NaNs
    return _mixed(short.view("<u4").astype(np.uint64) + _GOLDEN)


def _mixed(codes: np.ndarray) -> np.ndarray:
    codes = (codes ^ (codes >> np.uint64(30))) * _MIX_1
    codes = (codes ^ (codes >> np.uint64(27))) * _MIX_2
    return codes ^ (codes >> np.uint64(31))
