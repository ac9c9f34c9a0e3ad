"""Rows of a table in random order, read with bounded memory: row groups at random, and a buffer that is shuffled."""

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any

import numpy as np

from ddpn.runtime.errors import InputError
from ddpn.tables.streaming.libraries import polars
from ddpn.tables.streaming.parts import Batch, Parts

#: Row groups that are read at the same time, so that a buffer has rows of many places of a sorted table.
OPEN_GROUPS = 8
#: Rows and bytes of the buffer at most.
BUFFER_ROWS, BUFFER_BYTES = 262_144, 128 * 2**20

#: A table and the numbers of its rows -> which of them to use.
Keep = Callable[[Any, np.ndarray], np.ndarray]


def buffer_rows(parts: Parts, columns: Sequence[str] | None = None) -> int:
    """Rows that the buffer holds."""
    return max(1024, min(BUFFER_ROWS, BUFFER_BYTES // max(1, parts.row_bytes(columns))))


def shuffled_chunks(parts: Parts, columns: Sequence[str], keep: Keep, rows: int, seed: int) -> Iterator[Any]:
    """Tables of exactly `rows` rows, pass after pass without an end; the same for the same seed.

    Parameters
    ----------
    parts : Parts
        The table.
    columns : sequence of str
        Columns to read.
    keep : callable
        Takes rows and their numbers in the table, and returns a mask of those to use.
    rows : int
        Rows per chunk. Those that are left over at the end of a pass begin the next chunk.
    seed : int
        Seed of the order.
    """
    rest: Any = None
    for number in count():
        used = 0
        rng = np.random.default_rng([seed, number])
        for block in _buffers(_interleaved(parts, columns, rng), keep, buffer_rows(parts, columns)):
            used += block.height
            mixed = block[rng.permutation(block.height)]
            mixed = mixed if rest is None else polars().concat([rest, mixed], rechunk=True)
            whole = mixed.height // rows * rows
            for start in range(0, whole, rows):
                yield mixed[start : start + rows]
            rest = mixed[whole:] if whole < mixed.height else None
        if not used:
            raise InputError("The table must have training rows, got none.")


def _interleaved(parts: Parts, columns: Sequence[str], rng: np.random.Generator) -> Iterator[Batch]:
    """Batches of all row groups in random order, several groups in turn."""
    waiting = [parts.groups[place] for place in rng.permutation(len(parts.groups))]
    reading: list[Iterator[Batch]] = []
    while waiting or reading:
        while waiting and len(reading) < OPEN_GROUPS:
            reading.append(parts.batches(columns, [waiting.pop()]))
        for source in list(reading):
            batch = next(source, None)
            if batch is None:
                reading.remove(source)
            else:
                yield batch


def _buffers(batches: Iterator[Batch], keep: Keep, size: int) -> Iterator[Any]:
    """Rows to use, about `size` at a time."""
    held: list[Any] = []
    rows = 0
    for batch in batches:
        mask = keep(batch.frame, np.arange(batch.first_of_all, batch.first_of_all + batch.frame.height))
        held.append(batch.frame if mask.all() else batch.frame.filter(polars().Series(mask)))
        rows += held[-1].height
        if rows >= size:
            yield polars().concat(held, rechunk=True)
            held, rows = [], 0
    if rows:
        yield polars().concat(held, rechunk=True)
