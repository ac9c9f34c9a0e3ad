"""Read the rows of files block by block.

Parquet files and long text files are never in memory as a whole. Other tables are held in memory.
"""

import codecs
import csv
import io
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeAlias

import polars as pl

from ddpn.runtime.errors import InputError
from ddpn.storage.files import sha256
from ddpn.tables.files import BINARY, STDIN, TEXT, check_layout, explain_read_errors, get_extension, read_file
from ddpn.tables.layout import WHOLE_FILE, Layout, check_first_lines
from ddpn.tables.text_files import LongRowError, find_separator, read_text_table

#: The type of each column of a table.
ColumnTypes: TypeAlias = dict[str, pl.DataType]
#: The approximate number of rows of a block.
BLOCK_ROWS = 32_768
#: The most bytes of a text file that is read whole.
MAX_WHOLE_FILE_BYTES = 8 * 2**20
#: Sizes in bytes: the sample that estimates the length of a row, the longest quoted cell, and the smallest block.
_SAMPLE_BYTES, _MAX_CELL_BYTES, _MIN_BLOCK_BYTES = 2**18, 2**26, 2**16


class Block(NamedTuple):
    """The position of a block of rows in a file.

    Attributes
    ----------
    begin, end : int
        Where the block begins and ends in its file: in bytes for a `TextFile`, in rows for other files.
    rows : int
        The number of rows of the block.
    rows_before_in_file : int
        The number of rows before the block in its file.
    file : int
        The number of the file in the table, from 0 on.
    rows_before : int
        The number of rows before the block in the table, which may have several files.
    """

    begin: int
    end: int
    rows: int
    rows_before_in_file: int
    file: int = 0
    rows_before: int = 0


def open_file(source: str, as_text: Sequence[str], layout: Layout) -> "TableFile":
    """Open a table file, from which blocks of rows can then be read.

    Parquet files and long text files are read when their rows are needed; all other files are read into memory now.
    Columns in `as_text` are read as text, and `layout` says where the table begins in the file.
    """
    extension = ".csv" if source == STDIN else get_extension(source)
    check_layout(layout, source, extension)
    path = Path(source)
    if source != STDIN and path.is_file():
        if BINARY.get(extension) == "read_parquet":
            return ParquetFile(source)
        if extension in TEXT and path.suffix.lower() in TEXT and path.stat().st_size > MAX_WHOLE_FILE_BYTES:
            file = TextFile(source, as_text, layout)
            if file.is_plain:
                return file
    return InMemoryFile(source, as_text, layout)


class TableFile(ABC):
    """Base class of files that are read block by block.

    Attributes
    ----------
    source : str
        The path of the file, as the user gave it.
    schema : dict
        The polars type of each column.
    rows : int
        The number of rows.
    """

    source: str
    schema: ColumnTypes
    rows: int
    #: Whether opening the file reads all rows, and so finds damaged ones.
    is_scanned = True

    def list_blocks(self) -> list[Block]:
        """List the blocks of rows of the file."""
        ends = [(at, min(at + BLOCK_ROWS, self.rows)) for at in range(0, self.rows, BLOCK_ROWS)]
        return [Block(begin, end, end - begin, begin) for begin, end in ends]

    @abstractmethod
    def read_block(self, block: Block, columns: list[str]) -> pl.DataFrame:
        """Read the rows of a block into a polars frame, which has at least these columns, and perhaps others."""

    def describe_file(self) -> list[object]:
        """Return the path, size and modification time of the file. If they differ later, the file has changed."""
        status = os.stat(self.source)
        return [str(Path(self.source).resolve()), status.st_size, status.st_mtime_ns]


class InMemoryFile(TableFile):
    """A file that is read as a whole and kept in memory.

    Parameters
    ----------
    source, as_text, layout
        As for `open_file`.
    frame : polars.DataFrame, optional
        The content of the file, if it has been read already. Default: the constructor reads the file.
    """

    def __init__(
        self, source: str, as_text: Sequence[str], layout: Layout = WHOLE_FILE, frame: pl.DataFrame | None = None
    ) -> None:
        self.source, self._frame = source, read_file(source, as_text, layout) if frame is None else frame
        self.schema, self.rows = dict(self._frame.schema), self._frame.height

    def read_block(self, block: Block, columns: list[str]) -> pl.DataFrame:
        return self._frame.slice(block.begin, block.rows)

    def describe_file(self) -> list[object]:
        return super().describe_file() if self.source != STDIN else [STDIN, sha256(self._frame.write_csv().encode())]


class ParquetFile(TableFile):
    """A Parquet file that is never in memory as a whole: each block is read when it is needed.

    An empty file raises an `InputError`. Only the requested columns of a block are read.
    """

    is_scanned = False

    def __init__(self, source: str) -> None:
        self.source, self._path = source, os.path.abspath(source)
        with explain_read_errors(source, "as a parquet file"):
            types = dict(self._lazy().collect_schema())
            self.rows = self._lazy().select(pl.len()).collect().item()
        if not self.rows or not types:
            raise InputError(f"{source} is empty: it has {self.rows} rows and {len(types)} columns.")
        # The codes of categories differ between files, so categories are read as text.
        coded = (pl.Categorical, pl.Enum)
        self.schema = {name: pl.String() if dtype in coded else dtype for name, dtype in types.items()}

    def _lazy(self) -> pl.LazyFrame:
        return pl.scan_parquet(self._path, glob=False)

    def read_block(self, block: Block, columns: list[str]) -> pl.DataFrame:
        with explain_read_errors(self.source, f"as a parquet file, rows {block.begin + 1:,} to {block.end:,}"):
            return self._lazy().select(columns).slice(block.begin, block.rows).collect()


class TextFile(TableFile):
    """A long text file that is never in memory as a whole. The positions of its blocks are in bytes.

    The constructor reads the file once to find errors, and a type for each column that fits all of its cells. The
    attribute `is_plain` is False if blocks cannot be read, because the file is not UTF-8 or may have decimal commas.
    Such a file must be read as an `InMemoryFile`. The arguments are those of `open_file`.
    """

    def __init__(self, source: str, as_text: Sequence[str], layout: Layout) -> None:
        self.source, self._path, self._as_text = source, os.path.abspath(source), set(as_text)
        self.schema, self.rows = {}, 0
        self._blocks: list[Block] = []
        with open(source, "rb") as file:
            for _ in range(layout.skip_rows or 0):
                file.readline()
            self._header = _read_record(file, source, 0)
            self._begin = file.tell()
            sample = file.read(_SAMPLE_BYTES)
        if layout.skip_rows is None:
            check_first_lines(self._header + sample, TEXT[get_extension(source)], source)
        self._bytes = max(BLOCK_ROWS * len(sample) // max(sample.count(b"\n"), 1), _MIN_BLOCK_BYTES)
        wide = self._header.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        self._separator = TEXT[get_extension(source)] or find_separator(self._header.decode(errors="replace"))
        self.is_plain = not wide and self._separator != ";" and self._scan()

    def _scan(self) -> bool:
        """Find the positions of the blocks and the types of all columns; return True if blocks can be read.

        They cannot if the file is not UTF-8 text or has no rows.
        """
        begin = self._begin
        with open(self._path, "rb") as file:
            file.seek(begin)
            while lines := file.read(self._bytes):
                lines += _read_record(file, self.source, lines.count(b'"'))  # up to the end of a row
                try:
                    lines.decode()
                except UnicodeDecodeError:
                    return False
                frame = self._frame(lines, self._as_text, self.rows)
                with_values = {name for name in frame.columns if frame[name].null_count() < frame.height}
                self.schema = merge_types(self.schema, dict(frame.schema), with_values)
                self._blocks.append(Block(begin, begin + len(lines), frame.height, self.rows))
                begin, self.rows = begin + len(lines), self.rows + frame.height
        self.schema = {name: pl.String() if dtype == pl.Null else dtype for name, dtype in self.schema.items()}
        return self.rows > 0

    def list_blocks(self) -> list[Block]:
        return self._blocks

    def read_block(self, block: Block, columns: list[str]) -> pl.DataFrame:
        as_text = self._as_text | {name for name, dtype in self.schema.items() if dtype == pl.String}
        with open(self._path, "rb") as file:
            file.seek(block.begin)
            content = file.read(block.end - block.begin)
        return cast_to_schema(self._frame(content, as_text, block.rows_before_in_file), self.schema)

    def _frame(self, lines: bytes, as_text: set[str], start: int) -> pl.DataFrame:
        """Parse the lines of a block.

        The columns `as_text` stay text. `start` is the number of rows before the block in the file, so that errors
        can name rows of the file. If a row has values beyond the last column, a `LongRowError` names it.
        """
        with explain_read_errors(self.source, f"as a csv file from row {start + 1:,} on"):
            try:
                return read_text_table(self._header + lines, self._separator, self.source, as_text)
            except LongRowError:
                # The first row with more fields than the header.
                names = next(csv.reader([self._header.decode(errors="replace")], delimiter=self._separator))
                text = io.StringIO(lines.decode(errors="replace"), newline="")
                rows = (row for row in csv.reader(text, delimiter=self._separator) if row)
                number = next((i for i, row in enumerate(rows, 1) if any(row[len(names) :])), 1)
                raise LongRowError(self.source, f"row {start + number:,}") from None
            except InputError as error:
                raise InputError(f"{error} See the rows from {start + 1:,} on.") from None


def _read_record(file: BinaryIO, source: str, quotes_before: int) -> bytes:
    """Read a row of a text file, which has several lines if a quoted cell contains line breaks.

    `quotes_before` is the number of quotes already read before this position. If it is odd, a quoted cell is still
    open. `source` is the name of the file in the error.
    """
    line = file.readline()
    quotes, length = quotes_before + line.count(b'"'), len(line)
    parts = [line]
    while quotes % 2 and (line := file.readline()):
        parts.append(line)
        quotes, length = quotes + line.count(b'"'), length + len(line)
        if length > _MAX_CELL_BYTES:
            raise InputError(f"{source} cannot be read as a table: a quoted cell does not end.")
    return b"".join(parts)


def merge_types(earlier: ColumnTypes, block_types: ColumnTypes, columns_with_values: set[str]) -> ColumnTypes:
    """Merge the column types of a block into the types of earlier blocks.

    Different numeric types become float, and other different types become text. A type counts only if the column is in
    `columns_with_values`, because the type of a column that is empty in this block is unknown.
    """
    merged = dict(earlier)
    for name, dtype in block_types.items():
        before = merged.setdefault(name, pl.Null())
        if name not in columns_with_values or dtype in (before, pl.Null):
            continue
        if before == pl.Null:
            merged[name] = dtype
        elif before.is_numeric() and dtype.is_numeric():
            merged[name] = pl.Float64()
        elif before.is_temporal() and dtype.is_temporal():
            merged[name] = next(kind for kind in (before, dtype) if kind != pl.Date)
        else:
            merged[name] = pl.String()
    return merged


def cast_to_schema(frame: pl.DataFrame, schema: ColumnTypes) -> pl.DataFrame:
    """Convert a block to the columns and types of the whole table. Columns that the block lacks become null."""
    if dict(frame.schema) == schema:
        return frame
    columns = [
        frame[name].cast(dtype) if name in frame.columns else pl.lit(None, dtype).alias(name)
        for name, dtype in schema.items()
    ]
    return frame.select(columns)
