"""Recognise rows that a model was fitted to, in any order and any file format."""

import math
from typing import NamedTuple

import numpy as np
from safetensors.numpy import load, save

from ddpn.rows.count_rows import CountRows
from ddpn.rows.splits import FOLDS
from ddpn.runtime.errors import InputError
from ddpn.statistics import Z
from ddpn.tables.row_hashes import hash_column, hash_numbers, hash_rows


def hash_sample_rows(sample: CountRows) -> np.ndarray:
    """Return a hash of each row's inputs, exposure and count. Shape: (rows,), uint64.

    The hash depends on the order of the columns, which must be that of fit.
    """
    numbers = [hash_numbers(np.asarray(v, dtype=np.float64)) for v in (sample.exposure, sample.y) if v is not None]
    return hash_rows([*map(hash_column, sample.X), *numbers], len(sample))


class SeenRows(NamedTuple):
    """Hashes of the rows that a model was fitted to, so that training rows can be found in other tables.

    In tables with few distinct values, a row may equal a training row by chance. How often this happens is measured
    with rows of the same table.

    Attributes
    ----------
    hashes : array of uint64, shape (training rows,)
        The sorted hashes of the training rows.
    n_matches : int
        How many of the compared rows equal a training row by chance.
    n_compared : int
        How many rows were compared with the training rows (other than themselves).
    hash_sum : int
        The sum of the hashes of all rows of the table, test rows included. It identifies the table, whatever the order
        of its rows.
    """

    hashes: np.ndarray
    n_matches: int
    n_compared: int
    hash_sum: int

    @classmethod
    def from_sample(cls, sample: CountRows, test: np.ndarray) -> "SeenRows":
        """Hash the training rows, which are all rows except those at the positions `test`.

        To count matches by chance, test rows are compared with the training rows. Without test rows, every fifth row is
        compared with all other rows.
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
        """Find the rows of a table that are not training rows, from the hashes of its rows.

        If a row occurred n times among the training rows, up to n copies of it are recognised as training rows. If rows
        equal training rows no more often than by chance, all rows count as unseen. An `InputError` is raised if all
        rows are training rows.

        Returns
        -------
        is_unseen : array of bool, shape (rows,)
        sentence : str
            A message for the user; "" if no row equals a training row.
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
        if self.n_matches and sum_hashes(hashes) != self.hash_sum:
            share, usual = float(np.isin(hashes, self.hashes).mean()), self.n_matches / self.n_compared
            error = math.sqrt(usual * (1.0 - usual) * (1.0 / total + 1.0 / self.n_compared))
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
    """Return the sum of hashes modulo 2^64, which does not depend on their order."""
    return int(hashes.sum(dtype=np.uint64))
