"""`Table`: the rows of one or several files, read whole, block by block, sampled or shuffled.

This module does not import torch.
"""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import accumulate

import numpy as np
import polars as pl

from ddpn.rows.checks import label_row_errors
from ddpn.runtime.errors import InputError
from ddpn.runtime.validation import join_words
from ddpn.tables.blocks import Block, InMemoryFile, TableFile, cast_to_schema, merge_types, open_file
from ddpn.tables.cells import clean_text, looks_missing
from ddpn.tables.columns import Kind
from ddpn.tables.conversion import TableColumn
from ddpn.tables.dates import YEAR_FIRST, find_date_format
from ddpn.tables.files import STDIN, find_files
from ddpn.tables.layout import WHOLE_FILE, Layout
from ddpn.tables.roles import Roles

#: The assumed size of a text cell in memory, in bytes.
_TEXT_BYTES = 32


class Table:
    """The rows of one or several files. Small files are held in memory; others are read when rows are needed.

    A table can be pickled and sent to another process, which then reads the same files.

    Parameters
    ----------
    sources : sequence of str
        Files, folders of files, or patterns such as data/*.parquet; "-" is CSV from standard input.
    as_text : sequence of str
        Columns to read as text, so that leading zeros are kept.
    layout : Layout
        Where the table begins in each file. Default: in the first row.

    Attributes
    ----------
    rows : int
        The number of rows of all files.
    schema : dict
        The polars type of each column.
    """

    def __init__(self, sources: Sequence[str], as_text: Sequence[str] = (), layout: Layout = WHOLE_FILE) -> None:
        self.sources, self._layout = [str(path) for path in find_files(sources)], layout
        self._check_sources()
        self._open([open_file(source, as_text, layout) for source in self.sources])

    @classmethod
    def from_rows(cls, rows: "Table | pl.DataFrame") -> "Table":
        """Make a table from a polars frame; return a `Table` unchanged."""
        if isinstance(rows, Table):
            return rows
        table = cls.__new__(cls)
        table.sources, table._layout = ["data frame"], WHOLE_FILE
        table._open([InMemoryFile(table.sources[0], (), frame=rows)])
        return table

    def _check_sources(self) -> None:
        if STDIN in self.sources and len(self.sources) > 1:
            raise InputError("Standard input must be the only table.")
        repeated = [source for source, times in Counter(self.sources).items() if times > 1]
        if repeated:
            raise InputError(f"Files must be given once, got {join_words(repeated, 3)} twice.")

    def _open(self, files: "list[TableFile]") -> None:
        self.paths = [os.path.abspath(source) for source in self.sources]
        self._files = files
        self.rows = sum(file.rows for file in self._files)
        self.schema = self._files[0].schema
        first = self._files[0]
        for file in self._files[1:]:
            without = [name for name in first.schema if name not in file.schema]
            also = [name for name in file.schema if name not in first.schema]
            for word, names in (("without", without), ("with", also)):
                if names:
                    got = f"got a table {word} {join_words([repr(name) for name in names], 3)}"
                    raise InputError(f"{file.source} must have the columns of {first.source}, {got}.")
            self.schema = merge_types(self.schema, file.schema, set(file.schema))

    @property
    def is_long(self) -> bool:
        """True if the table has more than one block of rows."""
        return len(self.list_blocks()) > 1

    def estimate_row_bytes(self, columns: Sequence[str] | None = None) -> int:
        """Estimate the memory that one row takes, in bytes.

        Only the cells of `columns` are counted. Default: all columns.
        """
        text = pl.String
        return sum(_TEXT_BYTES if self.schema[name] == text else 8 for name in columns or self.schema)

    def list_blocks(self) -> list[Block]:
        """List the blocks of rows of all files, in the order of the files."""
        before = accumulate((file.rows for file in self._files), initial=0)
        return [
            block._replace(file=number, rows_before=rows + block.rows_before_in_file)
            for number, (file, rows) in enumerate(zip(self._files, before, strict=False))
            for block in file.list_blocks()
        ]

    def read_block(self, block: Block, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """Read the rows of a block into a polars frame. Only `columns` are read; None reads all columns."""
        schema = self.schema if columns is None else {name: self.schema[name] for name in columns}
        return cast_to_schema(self._files[block.file].read_block(block, list(schema)), schema)

    def read(self) -> pl.DataFrame:
        """Read all rows into a polars frame."""
        return pl.concat([self.read_block(block) for block in self.list_blocks()], rechunk=True)

    def take_rows(self, numbers: np.ndarray) -> pl.DataFrame:
        """Read the rows with these row numbers into a polars frame.

        `numbers` must be ascending. The first row of the table has the number 0. The table is read block by block, so
        that only one block is in memory at a time.
        """
        frames = []
        for block in self.list_blocks():
            begin, end = np.searchsorted(numbers, [block.rows_before, block.rows_before + block.rows])
            if begin < end:
                frames.append(self.read_block(block)[numbers[begin:end] - block.rows_before])
        return pl.concat(frames, rechunk=True)

    @contextmanager
    def locate_errors(self, block: Block) -> Iterator[None]:
        """Within this context, make errors about rows of a block say where the rows are in the file.

        Code that reads a block raises errors with positions in the block. They are replaced by row numbers of the file.
        If there are several files, the errors also name the file.
        """
        try:
            with label_row_errors(block.rows_before_in_file + 1 + np.arange(block.rows)):
                yield
        except InputError as error:
            if len(self.sources) == 1:
                raise
            begin = block.rows_before - block.rows_before_in_file
            where = f" The file begins with row {begin + 1:,} of the table." if begin else ""
            raise InputError(f"{self.sources[block.file]}: {error}{where}") from None

    def check_columns(self, roles: Roles) -> None:
        """Raise an `InputError` if a column that the model needs is missing or has an unsupported type.

        `roles` says which columns the model needs. Only the first block is read, so this check is fast. It should run
        before torch is imported, because that import is slow.
        """
        roles.parse(self.read_block(self.list_blocks()[0]), report=lambda sentence: None)

    def find_date_formats(self, roles: Roles) -> Roles:
        """Return `roles` with the order of day and month that the whole table shows, if it is read block by block.

        If a column had dates with the year first, or dates that were no text, in fit, this order is not known. In a
        single block of dates such as 02/01/2021, no day may be above 12, so that a guess could differ between blocks.
        """
        if not self.is_long:
            return roles
        columns = tuple(self._find_date_format(column, roles.missing) for column in roles.columns)
        return roles if columns == roles.columns else replace(roles, columns=columns)

    def _find_date_format(self, column: TableColumn, missing: Sequence[str]) -> TableColumn:
        """Return a column of roles with the date format of all cells, or unchanged if they leave it open."""
        is_open = column.kind == Kind.DATE and column.date.order in ("", YEAR_FIRST)
        if not is_open or self.schema.get(column.name) != pl.String:
            return column
        blocks = (self.read_block(block, [column.name])[column.name] for block in self.list_blocks())
        cells = pl.concat([clean_text(block, missing).unique() for block in blocks]).unique(maintain_order=True)
        guess = find_date_format(cells.filter(~looks_missing(cells)))
        if guess is None or guess.ambiguous or guess.order == YEAR_FIRST:
            return column
        return replace(column, date=replace(guess, zone=column.date.zone))

    def check_rows(self, roles: Roles, block: Block) -> None:
        """Raise an `InputError` if a row of a block cannot be read, or has an invalid exposure or upper bound.

        `roles` says which columns the model needs.
        """
        if self._files[block.file].is_scanned and roles.exposure is None and roles.upper is None:
            return
        with self.locate_errors(block):
            frame, start = self.read_block(block), block.rows_before_in_file
            roles.parse(frame, report=lambda sentence: None)
            roles.read_exposure(frame, start)
            roles.read_upper(frame, start)

    def describe_files(self) -> list[list[object]]:
        """Return the path, size and modification time of each file, followed by the layout unless it is the default.

        If the result differs from an earlier one, the table has changed.
        """
        layout: list[list[object]] = (
            [] if self._layout == WHOLE_FILE else [[self._layout.sheet, self._layout.skip_rows]]
        )
        return [*(file.describe_file() for file in self._files), *layout]
