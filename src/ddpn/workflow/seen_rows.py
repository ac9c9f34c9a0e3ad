"""Recognise rows that a model was fitted to, in a table of any order and any file format, by a hash of their values."""

import math
from typing import NamedTuple

import numpy as np

from ddpn.analysis.gains import Z
from ddpn.members.member import arrays_from_bytes, arrays_to_bytes
from ddpn.runtime.errors import InputError
from ddpn.sample import Sample
from ddpn.tables.hashing import column_codes, hashed, number_codes


def row_hashes(sample: Sample) -> np.ndarray:
    """A hash per row of its inputs, exposure and count. Shape: (rows,), uint64.

    The order of columns, which a model decides, is part of the hash.
    """
    numbers = [number_codes(np.asarray(v, dtype=np.float64)) for v in (sample.exposure, sample.y) if v is not None]
    return hashed([*(column_codes(series) for series in sample.X.iter_columns()), *numbers], len(sample))


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
