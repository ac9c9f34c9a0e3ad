"""Tables that are larger than memory: a uniform sample of their rows, and all of them in random order."""

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from ddpn.runtime.errors import InputError
from ddpn.tables.cells import polars
from ddpn.tables.table import Table

#: Rows and bytes of the sample at most: 300,000 rows of up to 100 columns of numbers.
SAMPLE_ROWS, SAMPLE_BYTES = 300_000, 240 * 2**20
#: Rows and bytes of the buffer that is shuffled, at most.
BUFFER_ROWS, BUFFER_BYTES = 262_144, 128 * 2**20
#: The share of the free memory that a table may take: fits make copies of it.
SHARE = 0.5
_MEMINFO = Path("/proc/meminfo")

#: A table and the numbers of its rows -> which of them to use.
Keep = Callable[[Any, np.ndarray], np.ndarray]


def free_memory() -> int | None:
    """Bytes that programs can have without swapping; None where the system does not tell."""
    if _MEMINFO.exists():
        for line in _MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def fits_memory(table: Table) -> bool:
    """Whether a table takes at most half of the free memory; true where that is unknown."""
    free = free_memory()
    return free is None or table.rows * table.row_bytes() <= SHARE * free


def sampled_rows(table: Table, seed: int) -> np.ndarray:
    """Numbers of rows of a table, from 0, drawn uniformly without replacement: fewer of a wide one.

    The rank of a q-quantile of n sampled rows is off by about sqrt(q (1 - q) / n): 0.1% for the median of 200,000.
    """
    size = max(1000, min(SAMPLE_ROWS, SAMPLE_BYTES // table.row_bytes()))
    if size >= table.rows:
        return np.arange(table.rows)
    return np.sort(np.random.default_rng(seed).choice(table.rows, size, replace=False))


def shuffled_chunks(table: Table, columns: Sequence[str], keep: Keep, rows: int, seed: int) -> Iterator[Any]:
    """Frames of exactly `rows` rows, pass after pass without an end; the same for the same seed.

    Blocks are read in random order, and their rows are shuffled in a buffer.

    Parameters
    ----------
    table : Table
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
        for buffer in _buffers(table, columns, keep, rng):
            used += buffer.height
            mixed = buffer[rng.permutation(buffer.height)]
            mixed = mixed if rest is None else polars().concat([rest, mixed], rechunk=True)
            whole = mixed.height // rows * rows
            for start in range(0, whole, rows):
                yield mixed[start : start + rows]
            rest = mixed[whole:] if whole < mixed.height else None
        if not used:
            raise InputError("The table must have training rows, got none.")


def _buffers(table: Table, columns: Sequence[str], keep: Keep, rng: np.random.Generator) -> Iterator[Any]:
    """Rows to use, of some random blocks at a time."""
    size = max(1024, min(BUFFER_ROWS, BUFFER_BYTES // table.row_bytes(columns)))
    places = table.places()
    held: list[Any] = []
    for position in rng.permutation(len(places)).tolist():
        place = places[position]
        frame = table.block(place, columns)
        held.append(frame.filter(polars().Series(keep(frame, place.first + np.arange(frame.height)))))
        if sum(each.height for each in held) >= size:
            yield polars().concat(held, rechunk=True)
            held = []
    if held:
        yield polars().concat(held, rechunk=True)
