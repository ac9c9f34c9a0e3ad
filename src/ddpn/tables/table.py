"""`Table`: the rows of one or several files, read whole, block by block, sampled or shuffled. Imports no torch."""

import codecs
import csv
import io
import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate, count
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeAlias

import numpy as np
import polars as pl

from ddpn.rows.checks import label_row_errors
from ddpn.runtime.errors import InputError
from ddpn.runtime.validation import join_words
from ddpn.storage.files import sha256
from ddpn.tables.files import (
    BINARY,
    STDIN,
    TEXT,
    LongRowError,
    check_first_lines,
    check_layout,
    explain_read_errors,
    find_files,
    find_separator,
    get_extension,
    read_file,
    read_text_table,
)
from ddpn.tables.layout import WHOLE_FILE, Layout
from ddpn.tables.roles import Roles

#: The type of each column of a table.
ColumnTypes: TypeAlias = dict[str, pl.DataType]
#: The approximate number of rows of a block.
BLOCK_ROWS = 32_768
#: The most bytes of a text file that is read whole.
MAX_WHOLE_FILE_BYTES = 8 * 2**20
#: Bytes that the length of a row is estimated from; the most of one quoted cell; the fewest of a block.
_SAMPLE_BYTES, _MAX_CELL_BYTES, _MIN_BLOCK_BYTES = 2**18, 2**26, 2**16
#: Bytes of a cell of text in memory, by which the size of a table is estimated.
_TEXT_BYTES = 32


class Block(NamedTuple):
    """The position of a block of rows: begin and end in a file, number of rows, and rows of the file before it.

    `file` is the number of the file, and `first` the number of rows of all files before the block.
    """

    begin: int
    end: int
    rows: int
    start: int
    file: int = 0
    first: int = 0


class Table:
    """The rows of one or several files, read when they are needed unless the file is small.

    It can be sent to another process, which reads blocks of the same files. `sources` are files, folders of files, or
    patterns such as data/*.parquet; "-" is CSV from standard input. Columns `as_text` keep their digits as written, and
    `layout` says where the table begins in each file. `rows` is the number of rows of all files, and `schema` has the
    type of each column.
    """

    def __init__(self, sources: Sequence[str], as_text: Sequence[str] = (), layout: Layout = WHOLE_FILE) -> None:
        self.sources, self._layout = [str(path) for path in find_files(sources)], layout
        self._check_sources()
        self._open([_open_file(source, as_text, layout) for source in self.sources])

    @classmethod
    def from_rows(cls, rows: "Table | pl.DataFrame") -> "Table":
        """Make a table of a polars frame; return a table unchanged."""
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
            self.schema = _merge_types(self.schema, file.schema, set(file.schema))

    @property
    def is_long(self) -> bool:
        """True if there is more than one block of rows."""
        return self.rows > BLOCK_ROWS or len(self.sources) > 1

    def estimate_row_bytes(self, columns: Sequence[str] | None = None) -> int:
        """Estimate the memory of a row of these columns (default: all) in bytes."""
        text = pl.String
        return sum(_TEXT_BYTES if self.schema[name] == text else 8 for name in columns or self.schema)

    def list_blocks(self) -> list[Block]:
        """List all blocks, in order."""
        before = accumulate((file.rows for file in self._files), initial=0)
        return [
            block._replace(file=number, first=rows + block.start)
            for number, (file, rows) in enumerate(zip(self._files, before, strict=False))
            for block in file.list_blocks()
        ]

    def read_block(self, block: Block, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """Read the rows of a block into a polars frame, with some columns or (default) all of them."""
        schema = self.schema if columns is None else {name: self.schema[name] for name in columns}
        return _cast_to_schema(self._files[block.file].read_block(block, list(schema)), schema)

    def read(self) -> pl.DataFrame:
        """Read all rows into a polars frame."""
        return pl.concat([self.read_block(block) for block in self.list_blocks()], rechunk=True)

    def take_rows(self, numbers: np.ndarray) -> pl.DataFrame:
        """Read the rows with these ascending numbers, from 0 on, into a polars frame, holding one block at a time."""
        frames = []
        for block in self.list_blocks():
            begin, end = np.searchsorted(numbers, [block.first, block.first + block.rows])
            if begin < end:
                frames.append(self.read_block(block)[numbers[begin:end] - block.first])
        return pl.concat(frames, rechunk=True)

    @contextmanager
    def locate_errors(self, block: Block) -> Iterator[None]:
        """Let errors number the rows of a block as in its file, and name the file if there are several."""
        try:
            with label_row_errors(block.start + 1 + np.arange(block.rows)):
                yield
        except InputError as error:
            if len(self.sources) == 1:
                raise
            begin = block.first - block.start
            where = f" The file begins with row {begin + 1:,} of the table." if begin else ""
            raise InputError(f"{self.sources[block.file]}: {error}{where}") from None

    def check(self, roles: Roles) -> None:
        """Raise an `InputError` if a column that a model needs is missing; called before torch is imported."""
        roles.parse(self.read_block(self.list_blocks()[0]), report=lambda sentence: None)

    def check_rows(self, roles: Roles, block: Block) -> None:
        """Raise an `InputError` for rows that a model cannot predict: damaged ones, or with an invalid exposure."""
        if self._files[block.file].is_scanned and roles.exposure is None and roles.upper is None:
            return
        with self.locate_errors(block):
            frame, start = self.read_block(block), block.start
            roles.parse(frame, report=lambda sentence: None)
            roles.read_exposure(frame, start)
            roles.read_upper(frame, start)

    def identity(self) -> list[list[object]]:
        """Return paths, sizes and times of the files and their layout, by which a later run recognises the table."""
        layout: list[list[object]] = (
            [] if self._layout == WHOLE_FILE else [[self._layout.sheet, self._layout.skip_rows]]
        )
        return [*(file.identity() for file in self._files), *layout]


def _open_file(source: str, as_text: Sequence[str], layout: Layout) -> "TableFile":
    """Open a file, and check it as far as possible without keeping its rows."""
    kind = ".csv" if source == STDIN else get_extension(source)
    check_layout(layout, source, kind)
    path = Path(source)
    if source != STDIN and path.is_file():
        if BINARY.get(kind) == "read_parquet":
            return ParquetFile(source)
        if kind in TEXT and path.suffix.lower() in TEXT and path.stat().st_size > MAX_WHOLE_FILE_BYTES:
            file = TextFile(source, as_text, layout)
            if file.is_plain:
                return file
    return InMemoryFile(source, as_text, layout)


class TableFile(ABC):
    """A file that is read block by block; `schema` has the types of its columns, `rows` is their number."""

    source: str
    schema: ColumnTypes
    rows: int
    #: Whether all rows were read when the file was opened, so that damaged ones were found.
    is_scanned = True

    def list_blocks(self) -> list[Block]:
        """List the blocks; their positions are rows."""
        ends = [(at, min(at + BLOCK_ROWS, self.rows)) for at in range(0, self.rows, BLOCK_ROWS)]
        return [Block(begin, end, end - begin, begin) for begin, end in ends]

    @abstractmethod
    def read_block(self, block: Block, columns: list[str]) -> pl.DataFrame:
        """Read the rows of a block, with at least these columns."""

    def identity(self) -> list[object]:
        """Return the path, size and time of the file."""
        facts = os.stat(self.source)
        return [str(Path(self.source).resolve()), facts.st_size, facts.st_mtime_ns]


class InMemoryFile(TableFile):
    """A file that is read whole and kept in memory."""

    def __init__(
        self, source: str, as_text: Sequence[str], layout: Layout = WHOLE_FILE, frame: pl.DataFrame | None = None
    ) -> None:
        self.source, self._frame = source, read_file(source, as_text, layout) if frame is None else frame
        self.schema, self.rows = dict(self._frame.schema), self._frame.height

    def read_block(self, block: Block, columns: list[str]) -> pl.DataFrame:
        return self._frame.slice(block.begin, block.rows)

    def identity(self) -> list[object]:
        return super().identity() if self.source != STDIN else [STDIN, sha256(self._frame.write_csv().encode())]


class ParquetFile(TableFile):
    """A Parquet file."""

    is_scanned = False

    def __init__(self, source: str) -> None:
        self.source, self._path = source, os.path.abspath(source)
        with explain_read_errors(source, "as a parquet file"):
            types = dict(self._lazy().collect_schema())
            self.rows = self._lazy().select(pl.len()).collect().item()
        if not self.rows or not types:
            raise InputError(f"{source} is empty: it has {self.rows} rows and {len(types)} columns.")
        # Every file has codes of its own.
        coded = (pl.Categorical, pl.Enum)
        self.schema = {name: pl.String() if dtype in coded else dtype for name, dtype in types.items()}

    def _lazy(self) -> pl.LazyFrame:
        return pl.scan_parquet(self._path, glob=False)

    def read_block(self, block: Block, columns: list[str]) -> pl.DataFrame:
        with explain_read_errors(self.source, f"as a parquet file, rows {block.begin + 1:,} to {block.end:,}"):
            return self._lazy().select(columns).slice(block.begin, block.rows).collect()


class TextFile(TableFile):
    """A long text file that is read block by block; positions are bytes.

    It is read twice: first to find errors and the type that all cells of each column agree with. `is_plain` is False
    for a file that must be read whole: one that is not UTF-8, or that may have decimal commas.
    """

    def __init__(self, source: str, as_text: Sequence[str], layout: Layout) -> None:
        self.source, self._path, self._as_text = source, os.path.abspath(source), set(as_text)
        self.schema, self.rows = {}, 0
        self._places: list[Block] = []
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
        """Find the types of all columns; return False if the file is not UTF-8 text or has no rows."""
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
                self.schema = _merge_types(self.schema, dict(frame.schema), with_values)
                self._places.append(Block(begin, begin + len(lines), frame.height, self.rows))
                begin, self.rows = begin + len(lines), self.rows + frame.height
        self.schema = {name: pl.String() if dtype == pl.Null else dtype for name, dtype in self.schema.items()}
        return self.rows > 0

    def list_blocks(self) -> list[Block]:
        return self._places

    def read_block(self, block: Block, columns: list[str]) -> pl.DataFrame:
        as_text = self._as_text | {name for name, dtype in self.schema.items() if dtype == pl.String}
        with open(self._path, "rb") as file:
            file.seek(block.begin)
            content = file.read(block.end - block.begin)
        return _cast_to_schema(self._frame(content, as_text, block.start), self.schema)

    def _frame(self, lines: bytes, as_text: set[str], start: int) -> pl.DataFrame:
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


def _read_record(file: BinaryIO, source: str, already: int) -> bytes:
    """Read a line, and the following ones while a quote is open; `already` is the number of quotes before it."""
    line = file.readline()
    quotes, length = already + line.count(b'"'), len(line)
    parts = [line]
    while quotes % 2 and (line := file.readline()):
        parts.append(line)
        quotes, length = quotes + line.count(b'"'), length + len(line)
        if length > _MAX_CELL_BYTES:
            raise InputError(f"{source} cannot be read as a table: a quoted cell does not end.")
    return b"".join(parts)


def _merge_types(one: ColumnTypes, other: ColumnTypes, with_values: set[str]) -> ColumnTypes:
    """Merge the column types of two blocks: null while there is no value, text if the blocks disagree."""
    types = dict(one)
    for name, dtype in other.items():
        before = types.setdefault(name, pl.Null())
        if name not in with_values or dtype in (before, pl.Null):
            continue
        if before == pl.Null:
            types[name] = dtype
        elif before.is_numeric() and dtype.is_numeric():
            types[name] = pl.Float64()
        elif before.is_temporal() and dtype.is_temporal():
            types[name] = next(kind for kind in (before, dtype) if kind != pl.Date)
        else:
            types[name] = pl.String()
    return types


def _cast_to_schema(frame: pl.DataFrame, schema: ColumnTypes) -> pl.DataFrame:
    """Cast a block to the columns and types of the whole table."""
    if dict(frame.schema) == schema:
        return frame
    columns = [
        frame[name].cast(dtype) if name in frame.columns else pl.lit(None, dtype).alias(name)
        for name, dtype in schema.items()
    ]
    return frame.select(columns)


# Tables that are larger than memory: a uniform sample of their rows, and all of them in random order ------------------

#: Rows and bytes of the sample at most: 300,000 rows of up to 100 columns of numbers.
SAMPLE_ROWS, SAMPLE_BYTES = 300_000, 240 * 2**20
#: Rows and bytes of the buffer that is shuffled, at most.
BUFFER_ROWS, BUFFER_BYTES = 262_144, 128 * 2**20
#: The share of the free memory that a table may take: fits make copies of it.
MAX_MEMORY_SHARE = 0.5
_MEMINFO = Path("/proc/meminfo")

#: A table and the numbers of its rows -> which of them to use.
Keep = Callable[[pl.DataFrame, np.ndarray], np.ndarray]


def measure_free_memory() -> int | None:
    """Return the bytes that programs can use without swapping; None if the system does not tell."""
    if _MEMINFO.exists():
        for line in _MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def fits_in_memory(table: Table) -> bool:
    """Return True if a table takes at most half of the free memory, or if that is unknown."""
    free = measure_free_memory()
    return free is None or table.rows * table.estimate_row_bytes() <= MAX_MEMORY_SHARE * free


def draw_row_numbers(table: Table, seed: int) -> np.ndarray:
    """Draw numbers of rows, from 0, uniformly without replacement; fewer for a wide table.

    The rank of a q-quantile of n sampled rows is off by about sqrt(q (1 - q) / n): 0.1% for the median of 200,000.
    """
    size = max(1000, min(SAMPLE_ROWS, SAMPLE_BYTES // table.estimate_row_bytes()))
    if size >= table.rows:
        return np.arange(table.rows)
    return np.sort(np.random.default_rng(seed).choice(table.rows, size, replace=False))


def shuffle_chunks(table: Table, columns: Sequence[str], keep: Keep, rows: int, seed: int) -> Iterator[pl.DataFrame]:
    """Yield frames of exactly `rows` rows, pass after pass without end; the same for the same seed.

    Blocks are read in random order, and their rows are shuffled in a buffer. Rows left over at the end of a pass begin
    the next chunk. `keep` takes rows and their numbers in the table, and returns a mask of those to use.
    """
    leftover: pl.DataFrame | None = None
    for number in count():
        used = 0
        rng = np.random.default_rng([seed, number])
        for buffer in _fill_buffers(table, columns, keep, rng):
            used += buffer.height
            shuffled = buffer[rng.permutation(buffer.height)]
            shuffled = shuffled if leftover is None else pl.concat([leftover, shuffled], rechunk=True)
            whole = shuffled.height // rows * rows
            for start in range(0, whole, rows):
                yield shuffled[start : start + rows]
            leftover = shuffled[whole:] if whole < shuffled.height else None
        if not used:
            raise InputError("The table must have training rows, got none.")


def _fill_buffers(table: Table, columns: Sequence[str], keep: Keep, rng: np.random.Generator) -> Iterator[pl.DataFrame]:
    """Yield the rows to use, from some random blocks at a time."""
    size = max(1024, min(BUFFER_ROWS, BUFFER_BYTES // table.estimate_row_bytes(columns)))
    blocks = table.list_blocks()
    held: list[pl.DataFrame] = []
    for position in rng.permutation(len(blocks)).tolist():
        block = blocks[position]
        frame = table.read_block(block, columns)
        held.append(frame.filter(pl.Series(keep(frame, block.first + np.arange(frame.height)))))
        if sum(part.height for part in held) >= size:
            yield pl.concat(held, rechunk=True)
            held = []
    if held:
        yield pl.concat(held, rechunk=True)
