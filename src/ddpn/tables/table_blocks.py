"""Tables of any length, a block of rows at a time: Parquet, CSV and TSV from files; other formats whole."""

import codecs
import csv
import io
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ddpn.runtime.errors import InputError
from ddpn.storage.files import sha256
from ddpn.tables.cells import polars
from ddpn.tables.reading import BINARY, STDIN, TEXT, ending, read
from ddpn.tables.text_tables import LongRowError, read_delimited, separator_of

#: Rows of a block, about.
ROWS = 32_768
#: Files of text up to so many bytes are read whole.
SMALL = 8 * 2**20
#: Bytes that the length of a row is estimated from; the most of one quoted cell; the fewest of a block.
_SAMPLE, _LONGEST_CELL, _SMALLEST = 2**18, 2**26, 2**16


class Block(NamedTuple):
    """Consecutive rows of a file: a frame, the rows before it, and where the next block begins."""

    frame: Any
    start: int
    end: int


class Extent(NamedTuple):
    """Where a block lies in its file: positions of its begin and end, the rows before it, and its rows."""

    begin: int
    end: int
    start: int
    rows: int


def open_table(source: str, as_text: Sequence[str]) -> "Table":
    """The table of a file, which is checked as far as that is possible without keeping it."""
    kind = ".csv" if source == STDIN else ending(source)
    path = Path(source)
    if source != STDIN and path.is_file():
        if BINARY.get(kind) == "read_parquet":
            return ParquetTable(source)
        if kind in TEXT and path.suffix.lower() in TEXT and path.stat().st_size > SMALL:
            table = TextTable(source, as_text)
            if table.is_plain:
                return table
    return WholeTable(source, as_text)


class Table(ABC):
    """A table by blocks; `schema` are the types of its columns, `rows` their number.

    It can be sent to another process, which reads blocks of the same file.
    """

    source: str
    schema: dict[str, Any]
    rows: int
    #: Whether all rows were read when the table was opened, so that damaged ones were found.
    is_scanned = True

    @abstractmethod
    def extents(self) -> list[Extent]:
        """Where the blocks are."""

    @abstractmethod
    def block(self, extent: Extent) -> Block:
        """The rows there."""

    def identity(self) -> list[Any]:
        """The path, size and time of the file, by which a later run recognises it."""
        facts = os.stat(self.source)
        return [str(Path(self.source).resolve()), facts.st_size, facts.st_mtime_ns]

    def blocks(self) -> Iterator[Block]:
        """All blocks."""
        return map(self.block, self.extents())

    def _equal_extents(self) -> list[Extent]:
        """Those of a table whose positions are rows."""
        starts = range(0, self.rows, ROWS)
        return [Extent(at, min(at + ROWS, self.rows), at, min(ROWS, self.rows - at)) for at in starts]


class WholeTable(Table):
    """A table that is read at once; positions are rows."""

    def __init__(self, source: str, as_text: Sequence[str]) -> None:
        self.source, self._frame = source, read(source, as_text)
        self.schema, self.rows = dict(self._frame.schema), self._frame.height

    def extents(self) -> list[Extent]:
        return self._equal_extents()

    def identity(self) -> list[Any]:
        return super().identity() if self.source != STDIN else [STDIN, sha256(self._frame.write_csv().encode())]

    def block(self, extent: Extent) -> Block:
        return Block(self._frame.slice(extent.begin, extent.rows), extent.start, extent.end)


class ParquetTable(Table):
    """A Parquet file; positions are rows."""

    is_scanned = False

    def __init__(self, source: str) -> None:
        self.source, self._path = source, os.path.abspath(source)
        self.schema = self._guarded(lambda: dict(self._lazy().collect_schema()), "")
        self.rows = self._guarded(lambda: self._lazy().select(polars().len()).collect().item(), "")
        if not self.rows or not self.schema:
            raise InputError(f"{source} is an empty table: {self.rows} rows and {len(self.schema)} columns.")

    def _lazy(self) -> Any:
        return polars().scan_parquet(self._path, glob=False)

    def extents(self) -> list[Extent]:
        return self._equal_extents()

    def block(self, extent: Extent) -> Block:
        where = f", rows {extent.begin + 1:,} to {extent.end:,}"
        frame = self._guarded(lambda: self._lazy().slice(extent.begin, extent.rows).collect(), where)
        return Block(frame, extent.start, extent.end)

    def _guarded(self, call: Any, where: str) -> Any:
        library = polars()
        try:
            return call()
        except (library.exceptions.PolarsError, library.exceptions.PanicException, OSError) as error:
            reason = str(error).split("\n")[0]
            raise InputError(f"{self.source} cannot be read as a parquet file{where}: {reason}.") from None


class TextTable(Table):
    """A long file of text; positions are bytes.

    It is read twice: first for the types that all cells of a column agree with, and for errors. `is_plain` is false
    for a file that has to be read whole: one that is not UTF-8, or that may have decimal commas.
    """

    def __init__(self, source: str, as_text: Sequence[str]) -> None:
        self.source, self._path, self._as_text = source, os.path.abspath(source), set(as_text)
        self._separator = TEXT[ending(source)]
        self.schema, self.rows = {}, 0
        self._extents: list[Extent] = []
        with open(source, "rb") as file:
            self._header = _record(file, source, 0)
            self._begin = file.tell()
            self._bytes = _bytes_per_block(file)
        wide = self._header.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        self._found = separator_of(self._header.decode(errors="replace")) if self._separator is None else "\t"
        self.is_plain = not wide and self._found != ";" and self._scan()

    def _scan(self) -> bool:
        """Find the types of all columns; whether the file is UTF-8 text."""
        begin = self._begin
        for content in self._contents():
            if not _is_utf8(content):
                return False
            frame = self._frame(content, self._as_text, self.rows)
            self.schema = merged(self.schema, dict(frame.schema), _known(frame))
            self._extents.append(Extent(begin, begin + len(content), self.rows, frame.height))
            begin, self.rows = begin + len(content), self.rows + frame.height
        self.schema = {name: dtype or polars().String for name, dtype in self.schema.items()}
        return self.rows > 0

    def extents(self) -> list[Extent]:
        return self._extents

    def block(self, extent: Extent) -> Block:
        as_text = self._as_text | {name for name, dtype in self.schema.items() if dtype == polars().String}
        with open(self._path, "rb") as file:
            file.seek(extent.begin)
            content = file.read(extent.end - extent.begin)
        frame = conformed(self._frame(content, as_text, extent.start), self.schema)
        return Block(frame, extent.start, extent.end)

    def _contents(self) -> Iterator[bytes]:
        with open(self._path, "rb") as file:
            file.seek(self._begin)
            while lines := _lines(file, self._bytes, self.source):
                yield lines

    def _frame(self, lines: bytes, as_text: set[str], start: int) -> Any:
        library = polars()
        try:
            return read_delimited(self._header + lines, self._separator, self.source, as_text)
        except LongRowError:
            what = f"row {start + self._long_row(lines):,} has more fields than the header"
            raise InputError(f"{self.source} cannot be read as a table: {what}.") from None
        except InputError as error:
            raise InputError(f"{error} See the rows from {start + 1:,} on.") from None
        except (library.exceptions.PolarsError, library.exceptions.PanicException) as error:
            reason = str(error).split("\n")[0]
            raise InputError(
                f"{self.source} cannot be read as a csv file from row {start + 1:,} on: {reason}."
            ) from None

    def _long_row(self, lines: bytes) -> int:
        """The number, from 1, of the first row with more fields than the header."""
        names = next(csv.reader([self._header.decode(errors="replace")], delimiter=self._found))
        rows = csv.reader(io.StringIO(lines.decode(errors="replace"), newline=""), delimiter=self._found)
        found = (row for row in rows if row)
        return next((i for i, row in enumerate(found, 1) if any(row[len(names) :])), 1)


def _record(file: Any, source: str, already: int) -> bytes:
    """A line, with those after it where it ends within quotes; `already` is the number of quotes before it."""
    line = file.readline()
    quotes, length = already + line.count(b'"'), len(line)
    parts = [line]
    while quotes % 2 and (line := file.readline()):
        parts.append(line)
        quotes, length = quotes + line.count(b'"'), length + len(line)
        if length > _LONGEST_CELL:
            raise InputError(f"{source} cannot be read as a table: a quoted cell does not end.")
    return b"".join(parts)


def _lines(file: Any, size: int, source: str) -> bytes:
    """About `size` bytes up to the end of a row."""
    some = file.read(size)
    return some + _record(file, source, some.count(b'"')) if some else b""


def _bytes_per_block(file: Any) -> int:
    sample = file.read(_SAMPLE)
    return max(ROWS * len(sample) // max(sample.count(b"\n"), 1), _SMALLEST)


def _is_utf8(content: bytes) -> bool:
    if content.isascii():
        return True
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _known(frame: Any) -> set[str]:
    """Columns that have a value."""
    return {name for name in frame.columns if frame[name].null_count() < frame.height}


def merged(one: dict[str, Any], other: dict[str, Any], known: set[str]) -> dict[str, Any]:
    """The types of columns over two blocks: None so far as there is no value, text where the blocks disagree."""
    library, found = polars(), dict(one)
    for name, dtype in other.items():
        before = found.get(name)
        if name not in known or before == dtype:
            found.setdefault(name, None)
        elif before is None:
            found[name] = dtype
        elif before.is_numeric() and dtype.is_numeric():
            found[name] = library.Float64
        elif before.is_temporal() and dtype.is_temporal():
            found[name] = next(each for each in (before, dtype) if each != library.Date)
        else:
            found[name] = library.String
    return found


def conformed(frame: Any, schema: dict[str, Any]) -> Any:
    """A block with the columns and types of the whole table."""
    library = polars()
    columns = [
        frame[name].cast(dtype) if name in frame.columns else library.lit(None, dtype).alias(name)
        for name, dtype in schema.items()
    ]
    return frame.select(columns)
