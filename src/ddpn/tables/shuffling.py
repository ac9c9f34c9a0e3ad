"""Read tables that are larger than memory: draw a random sample of rows, or iterate over all rows in random order."""

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path

import numpy as np
import polars as pl

from ddpn.runtime.errors import InputError
from ddpn.tables.table import Table

#: The most rows and bytes of the sample: 300,000 rows if there are at most 100 columns of numbers.
SAMPLE_ROWS, SAMPLE_BYTES = 300_000, 240 * 2**20
#: The most rows and bytes of the shuffling buffer.
BUFFER_ROWS, BUFFER_BYTES = 262_144, 128 * 2**20
#: The share of the free memory that a table may take: fits make copies of it.
MAX_MEMORY_SHARE = 0.5
_MEMINFO = Path("/proc/meminfo")
#: A function of rows and their row numbers that returns a mask of the rows to use.
RowFilter = Callable[[pl.DataFrame, np.ndarray], np.ndarray]


def measure_free_memory() -> int | None:
    """Return the free memory in bytes, not counting swap space; None if the system does not report it."""
    if _MEMINFO.exists():
        for line in _MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def fits_in_memory(table: Table) -> bool:
    """Return True if a table takes at most half of the free memory, or if the free memory is unknown."""
    free = measure_free_memory()
    return free is None or table.rows * table.estimate_row_bytes() <= MAX_MEMORY_SHARE * free


def draw_row_numbers(table: Table, seed: int) -> np.ndarray:
    """Draw a random sample of the rows of a table, without replacement.

    `seed` is the seed of the draw. Return the row numbers, from 0 on, in ascending order. The sample has at most
    300,000 rows, and fewer if the table has many columns. A table with fewer rows is taken whole. In a sample of n
    rows, the rank of the q-quantile is off by about sqrt(q (1 - q) / n): 0.1% for the median if n is 200,000.
    """
    size = max(1000, min(SAMPLE_ROWS, SAMPLE_BYTES // table.estimate_row_bytes()))
    if size >= table.rows:
        return np.arange(table.rows)
    return np.sort(np.random.default_rng(seed).choice(table.rows, size, replace=False))


def shuffle_chunks(
    table: Table, columns: Sequence[str], row_filter: RowFilter, rows: int, seed: int
) -> Iterator[pl.DataFrame]:
    """Yield the rows of a table in random order, as polars frames of exactly `rows` rows, pass after pass without end.

    Blocks of the table are read in random order, and the rows of a few blocks are shuffled together. Rows left over at
    the end of a pass begin the next frame.

    Parameters
    ----------
    table : Table
        The table.
    columns : sequence of str
        The columns to read.
    row_filter : callable
        Takes a frame and the row numbers of its rows in the table, and returns a mask of the rows to use.
    rows : int
        The number of rows per frame.
    seed : int
        The same seed gives the same order.
    """
    leftover: pl.DataFrame | None = None
    for number in count():
        used = 0
        rng = np.random.default_rng([seed, number])
        for buffer in _read_random_blocks(table, columns, row_filter, rng):
            used += buffer.height
            shuffled = buffer[rng.permutation(buffer.height)]
            shuffled = shuffled if leftover is None else pl.concat([leftover, shuffled], rechunk=True)
            whole = shuffled.height // rows * rows
            for start in range(0, whole, rows):
                yield shuffled[start : start + rows]
            leftover = shuffled[whole:] if whole < shuffled.height else None
        if not used:
            raise InputError("The table must have training rows, got none.")


def _read_random_blocks(
    table: Table, columns: Sequence[str], row_filter: RowFilter, rng: np.random.Generator
) -> Iterator[pl.DataFrame]:
    """Read all blocks of a table once, in an order that `rng` draws, and yield frames with the rows of a few blocks.

    Only `columns` are read, and only the rows that `row_filter` selects are kept (see `shuffle_chunks`). A frame is
    yielded as soon as it exceeds the size of the buffer.
    """
    size = max(1024, min(BUFFER_ROWS, BUFFER_BYTES // table.estimate_row_bytes(columns)))
    blocks = table.list_blocks()
    frames: list[pl.DataFrame] = []
    for position in rng.permutation(len(blocks)).tolist():
        block = blocks[position]
        frame = table.read_block(block, columns)
        frames.append(frame.filter(pl.Series(row_filter(frame, block.rows_before + np.arange(frame.height)))))
        if sum(part.height for part in frames) >= size:
            yield pl.concat(frames, rechunk=True)
            frames = []
    if frames:
        yield pl.concat(frames, rechunk=True)
