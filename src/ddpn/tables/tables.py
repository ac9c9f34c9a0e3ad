"""The tables that are predicted: files, folders and patterns, one after the other by blocks. Imports no torch."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from ddpn.runtime.errors import InputError
from ddpn.sample import rows_named
from ddpn.tables import table_blocks
from ddpn.tables.reading import STDIN, TEXT
from ddpn.tables.roles import Roles
from ddpn.tables.streaming.parts import PARQUET, find_parts
from ddpn.tables.table_blocks import Block, Extent, Table, conformed, merged, open_table


class Place(NamedTuple):
    """A block: the number of its table, and where it lies there."""

    table: int
    extent: Extent


class Tables:
    """The tables that are predicted, one after the other.

    Parameters
    ----------
    arguments : sequence of str
        Files, folders of files, or patterns such as data/*.parquet; "-" is CSV from standard input.
    as_text : sequence of str
        Columns that keep their digits as they are written.
    """

    def __init__(self, arguments: Sequence[str], as_text: Sequence[str] = ()) -> None:
        self.sources = [str(path) for path in find_parts(arguments, (*PARQUET, *TEXT), one_table=False)]
        if STDIN in self.sources and len(self.sources) > 1:
            raise InputError("Standard input must be the only table.")
        self.paths = [os.path.abspath(source) for source in self.sources]
        self._tables = [open_table(source, as_text) for source in self.sources]
        self.rows = sum(table.rows for table in self._tables)
        self.schema = self._tables[0].schema
        for table in self._tables[1:]:
            self._check_columns(table)
            self.schema = merged(self.schema, table.schema, set(table.schema))

    def _check_columns(self, table: Table) -> None:
        first = self._tables[0]
        missing = [name for name in first.schema if name not in table.schema]
        missing += [name for name in table.schema if name not in first.schema]
        if missing:
            raise InputError(
                f"All tables must have the same columns, got {missing[0]!r} in only one of {first.source} "
                f"and {table.source}."
            )

    @property
    def is_long(self) -> bool:
        """Whether the tables have more than one block of rows."""
        return self.rows > table_blocks.ROWS or len(self.sources) > 1

    def check(self, roles: Roles) -> None:
        """Raise an `InputError` if the tables lack a column that a model needs; called before torch is imported."""
        roles.features(next(self._tables[0].blocks()).frame, report=lambda sentence: None)

    def check_rows(self, roles: Roles, place: Place) -> None:
        """Raise an `InputError` for rows that a model cannot predict: damaged ones, or with an invalid exposure."""
        if self._tables[place.table].is_scanned and roles.exposure is None and roles.upper is None:
            return
        frame, first = self.block(place).frame, place.extent.start
        with self.named(place.table), rows_named(np.arange(first, first + frame.height) + 1):
            roles.features(frame, report=lambda sentence: None)
            roles.exposures(frame, first)
            roles.uppers(frame, first)

    def places(self) -> list[Place]:
        """Where all blocks are, in order."""
        return [Place(number, each) for number, table in enumerate(self._tables) for each in table.extents()]

    def block(self, place: Place) -> Block:
        """The rows there."""
        return self._conformed(self._tables[place.table].block(place.extent))

    def _conformed(self, block: Block) -> Block:
        if dict(block.frame.schema) == self.schema:
            return block
        return block._replace(frame=conformed(block.frame, self.schema))

    @contextmanager
    def named(self, number: int) -> Iterator[None]:
        """Within this, errors about rows of a table name its file, where there are several."""
        try:
            yield
        except InputError as error:
            if len(self.sources) == 1:
                raise
            raise InputError(f"{self.sources[number]}: {error}") from None

    def identity(self) -> list[list[Any]]:
        """Paths, sizes and times of the files, by which a later run recognises them."""
        return [table.identity() for table in self._tables]
