"""The tables that are predicted: files, folders and patterns, one after the other by blocks. Imports no torch."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ddpn.errors import InputError
from ddpn.workflow import table_blocks
from ddpn.workflow.roles import Roles
from ddpn.workflow.table_blocks import Block, Table, conformed, expanded, merged, open_table


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
        self.sources = expanded(arguments)
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

    def blocks(self, place: Sequence[int] = (0, 0, 0)) -> Iterator[tuple[Block, tuple[int, int, int]]]:
        """Blocks from a place on, with the place after each: the table, the position and the rows before it there."""
        number, position, start = place
        for at in range(number, len(self._tables)):
            table = self._tables[at]
            for block in table.blocks(position, start):
                yield self._conformed(block), (at, block.end, block.start + block.frame.height)
            position = start = 0

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
        return [[str(Path(s).resolve()), Path(s).stat().st_size, Path(s).stat().st_mtime_ns] for s in self.sources]
