"""Recognise rows that a model was fitted to, in a table of any order and any file format, by a hash of their values."""

import hashlib
import math
from typing import Any, NamedTuple

import numpy as np

from ddpn.errors import InputError
from ddpn.members.member import arrays_from_bytes, arrays_to_bytes
from ddpn.sample import Sample
from ddpn.workflow.gains import Z

#: The constants of splitmix64, whose last steps spread every bit over all others.
_GOLDEN, _MIX_1, _MIX_2 = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def row_hashes(sample: Sample) -> np.ndarray:
    """A hash per row of its inputs, exposure and count. Shape: (rows,), uint64.

    Numbers count as float32, so that files with nine digits or more agree; the order of columns, which a model decides,
    is part of the hash. Independent of the machine and of the versions of libraries.
    """
    columns = [_codes(series) for series in sample.X.iter_columns()]
    columns += [_number_codes(np.asarray(v, dtype=np.float64)) for v in (sample.exposure, sample.y) if v is not None]
    found = np.zeros(len(sample), dtype=np.uint64)
    for codes in columns:
        found = _mixed((found + _GOLDEN) ^ codes)
    return found


def _codes(series: Any) -> np.ndarray:
    """The values of a column of inputs: text, numbers or booleans."""
    if series.dtype.is_numeric() or str(series.dtype) == "Boolean":
        return _number_codes(series.cast(float).to_numpy().astype(np.float64))
    text = series.fill_null("\0")  # no text of a file
    levels = text.unique().to_list()
    digests = b"".join(hashlib.blake2b(level.encode(), digest_size=8).digest() for level in levels)
    places = text.replace_strict(levels, list(range(len(levels))), return_dtype=int).to_numpy()
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)[places]


def _number_codes(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        short = values.astype("<f4") + np.float32(0.0)  # no -0.0
    short[np.isnan(short)] = np.nan  # one of the many NaNs
    return _mixed(short.view("<u4").astype(np.uint64) + _GOLDEN)


def _mixed(codes: np.ndarray) -> np.ndarray:
    codes = (codes ^ (codes >> np.uint64(30))) * _MIX_1
    codes = (codes ^ (codes >> np.uint64(27))) * _MIX_2
    return codes ^ (codes >> np.uint64(31))


class SeenRows(NamedTuple):
    """Hashes of the rows that a model was fitted to, sorted; and how many of its `tested` test rows equal one of them.

    The latter is chance: the test rows were not used, but in tables of few values equal rows occur. `total` is the sum
    of the hashes of all rows, test rows included: it identifies the table in any order.
    """

    hashes: np.ndarray
    equal: int
    tested: int
    total: int

    @classmethod
    def of(cls, sample: Sample, test: np.ndarray) -> "SeenRows":
        """Those of a table of which all but the rows at these positions were used."""
        hashes = row_hashes(sample)
        used = np.sort(np.delete(hashes, test))
        return cls(used, int(np.isin(hashes[test], used).sum()), len(test), _sum(hashes))

    def to_bytes(self) -> bytes:
        numbers = np.array(self[1:], dtype=np.uint64)
        return arrays_to_bytes(hashes=self.hashes.view(np.int64), numbers=numbers.view(np.int64))

    @classmethod
    def from_bytes(cls, content: bytes) -> "SeenRows":
        arrays = arrays_from_bytes(content)
        return cls(arrays["hashes"].view(np.uint64), *arrays["numbers"].view(np.uint64).tolist())

    def among(self, hashes: np.ndarray) -> np.ndarray:
        """Mask of the rows that the model was fitted to: of equal rows as many as fit had."""
        order = np.argsort(hashes, kind="stable")
        ordered = hashes[order]
        copy = np.arange(len(ordered)) - np.searchsorted(ordered, ordered)
        had = np.searchsorted(self.hashes, ordered, "right") - np.searchsorted(self.hashes, ordered)
        found = np.zeros(len(hashes), dtype=bool)
        found[order] = copy < had
        return found

    def is_chance(self, hashes: np.ndarray) -> bool:
        """Whether no more rows equal those of fit than by chance, as the test rows of fit show it."""
        if not self.equal or _sum(hashes) == self.total:
            return False
        share, usual = float(np.isin(hashes, self.hashes).mean()), self.equal / self.tested
        error = math.sqrt(usual * (1.0 - usual) * (1.0 / len(hashes) + 1.0 / self.tested))
        return share <= usual + Z * error


def _sum(hashes: np.ndarray) -> int:
    """The sum, modulo 2^64."""
    return int(hashes.sum(dtype=np.uint64))


def unseen_rows(seen: SeenRows, sample: Sample) -> tuple[Sample, str]:
    """The rows that a model was not fitted to, and a sentence where some were."""
    hashes = row_hashes(sample)
    mask = seen.among(hashes)
    number, total = int(mask.sum()), len(sample)
    if not number:
        return sample, ""
    if seen.is_chance(hashes):
        found = f"{number:,} of {total:,} rows equal rows that the model was fitted to"
        return sample, f"{found}. That is as frequent among its own test rows, so all rows are scored."
    if number == total:
        raise InputError(
            f"All {total:,} rows were used to fit the model, so scores on them say nothing about new rows. "
            "Use rows that were not part of the fit."
        )
    were, are = ("was", "is") if number == 1 else ("were", "are")
    note = f"{number:,} of {total:,} rows {were} used to fit the model and {are} left out of the scores."
    return sample.rows(~mask), note
