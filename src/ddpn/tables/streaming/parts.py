"""The Parquet files of a table: found by paths, folders and patterns, of one schema, and read in batches of rows."""

import glob
import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ddpn.runtime.errors import InputError
from ddpn.runtime.validation import listed
from ddpn.tables.streaming.libraries import polars, pyarrow, pyarrow_parquet

#: Endings of Parquet files.
PARQUET = (".parquet", ".pq")
#: Rows of a batch.
BATCH_ROWS = 16_384
#: Bytes that are read ahead per column: whole columns of a row group may be larger than memory.
_READ_AHEAD = 65_536
#: Bytes of a cell of text in memory, by which the size of a table is estimated.
_TEXT_BYTES = 32


class Group(NamedTuple):
    """A row group: its file, its number there, and the numbers of its first row in the file and in the table."""

    path: Path
    number: int
    first: int
    first_of_all: int
    rows: int


class Batch(NamedTuple):
    """Some rows of a file, and the numbers of the first in the file and in the table, from 0."""

    frame: Any
    path: Path
    first: int
    first_of_all: int


def is_pattern(source: str) -> bool:
    """Whether a path has wildcards; a file of that very name is no pattern."""
    return glob.has_magic(source) and not os.path.exists(source)


def find_parts(sources: Sequence[str], endings: Sequence[str] = PARQUET, one_table: bool = True) -> list[Path]:
    """The files that paths, folders and patterns such as 'data/*.parquet' stand for, each in the order of their names.

    Parameters
    ----------
    sources : sequence of str
        Files, folders (the files directly inside that have one of the endings, but for hidden ones), or patterns.
    endings : sequence of str
        Endings of files in folders, in lower case.
    one_table : bool
        Whether the files are parts of one table: then each must be there, have one of the endings, and be given once.

    Returns
    -------
    list of Path

    Examples
    --------
    >>> find_parts(["january.csv", "-"], one_table=False)
    [PosixPath('january.csv'), PosixPath('-')]
    """
    found: list[Path] = []
    for source in sources:
        if os.path.isdir(source):
            paths = [path for path in Path(source).iterdir() if _is_part(path, endings)]
        elif is_pattern(source):
            paths = [Path(path) for path in glob.glob(source, recursive=True)]
        else:
            paths = [Path(source)]
        if not paths and os.path.isdir(source):
            raise InputError(f"{source} is a folder without a file that ends in {' or '.join(endings)}.")
        if not paths:
            raise InputError(f"No file matches {source}")
        found += sorted(paths)
    if one_table:
        _check_parts(found, endings)
    return found


def _is_part(path: Path, endings: Sequence[str]) -> bool:
    return path.suffix.lower() in endings and not path.name.startswith((".", "_")) and path.is_file()


def _check_parts(found: Sequence[Path], endings: Sequence[str]) -> None:
    for path in found:
        if not path.is_file():
            raise InputError(f"File not found: {path}")
        if path.suffix.lower() not in endings:
            raise InputError(f"Several files must be Parquet files, got {path}. Convert it, or fit it alone.")
    repeated = sorted(str(path) for path, times in Counter(found).items() if times > 1)
    if repeated:
        raise InputError(f"Files must be given once, got {listed(repeated, 3)} twice.")


class Parts:
    """Parquet files of one schema as one table, whose rows are numbered from 0 in the order of the files.

    Parameters
    ----------
    paths : sequence of Path
        The files.

    Attributes
    ----------
    columns : list of str
        Names of all columns.
    groups : list of Group
        All row groups.
    rows : int
        Rows of all files.
    bytes : int
        About what all rows take in memory.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths, self.rows = list(paths), 0
        self.groups: list[Group] = []
        schema: dict[str, str] = {}
        for path in self.paths:
            own = self._add(path)
            if not schema:
                schema = own
            _check_schema(path, own, self.paths[0], schema)
        if not self.rows:
            raise InputError(f"{listed([str(path) for path in paths], 3)}: the table is empty, 0 rows.")
        self.columns, self._schema = list(schema), schema
        self.bytes = self.rows * self.row_bytes()

    def _add(self, path: Path) -> dict[str, str]:
        """Read the description of a file; returns its schema."""
        try:
            with pyarrow_parquet().ParquetFile(path) as file:
                meta, schema = file.metadata, file.schema_arrow
        except (OSError, pyarrow().ArrowException) as error:
            raise _unreadable(path, "as a Parquet file", error) from None
        first = 0
        for number in range(meta.num_row_groups):
            rows = meta.row_group(number).num_rows
            self.groups.append(Group(path, number, first, self.rows, rows))
            first, self.rows = first + rows, self.rows + rows
        return {field.name: _kind(field.type) for field in schema}

    def row_bytes(self, columns: Sequence[str] | None = None) -> int:
        """About what a row of these columns (default: all) takes in memory."""
        names = self.columns if columns is None else columns
        return sum(_TEXT_BYTES if self._schema[name] == "text" else 8 for name in names)

    def batches(self, columns: Sequence[str] | None = None, groups: Sequence[Group] | None = None) -> Iterator[Batch]:
        """The rows of some columns, in order, with bounded memory.

        Parameters
        ----------
        columns : sequence of str, optional
            Default: all.
        groups : sequence of Group, optional
            Row groups to read. Default: all.
        """
        names = self.columns if columns is None else list(columns)
        for group in self.groups if groups is None else groups:
            yield from _read(group, names)

    @property
    def identity(self) -> str:
        """A digest of the names, sizes and times of the files and of the columns."""
        digest = hashlib.sha256(repr(sorted(self._schema.items())).encode())
        for path in self.paths:
            facts = path.stat()
            digest.update(repr((path.name, facts.st_size, facts.st_mtime_ns)).encode())
        return digest.hexdigest()[:16]


def _read(group: Group, names: list[str]) -> Iterator[Batch]:
    """The rows of a row group."""
    done = 0
    try:
        settings = {"buffer_size": _READ_AHEAD, "pre_buffer": False, "page_checksum_verification": True}
        with pyarrow_parquet().ParquetFile(group.path, **settings) as file:
            options = {"row_groups": [group.number], "columns": names, "use_threads": False}
            for batch in file.iter_batches(batch_size=BATCH_ROWS, **options):
                frame = _plain(polars().from_arrow(batch)).select(names)
                yield Batch(frame, group.path, group.first + done, group.first_of_all + done)
                done += frame.height
    except (OSError, pyarrow().ArrowException) as error:
        raise _unreadable(group.path, f"after row {group.first + done:,}", error) from None


def _unreadable(path: Path, where: str, error: Exception) -> InputError:
    reason = str(getattr(error, "strerror", None) or error).splitlines()[0].rstrip(".")
    return InputError(f"{path} cannot be read {where}: {reason}.")


def _kind(type_: Any) -> str:
    """The type of a column; text is one type, however it is stored."""
    types = pyarrow().types
    if types.is_dictionary(type_):
        type_ = type_.value_type
    is_text = types.is_string(type_) or types.is_large_string(type_) or types.is_string_view(type_)
    return "text" if is_text else str(type_)


def _plain(frame: Any) -> Any:
    """Categories of Arrow as text: every part has its own codes."""
    library = polars()
    coded = [name for name, kind in frame.schema.items() if kind in (library.Categorical, library.Enum)]
    return frame.with_columns(library.col(coded).cast(library.String)) if coded else frame


def _check_schema(path: Path, own: dict[str, str], first: Path, schema: dict[str, str]) -> None:
    """Raise an `InputError` if a file has other columns than the first one."""
    must = f"{path} must have the columns of {first}"
    differing = {"without": [n for n in schema if n not in own], "with": [n for n in own if n not in schema]}
    for word, names in differing.items():
        if names:
            raise InputError(f"{must}, got a table {word} {listed([repr(name) for name in names], 3)}.")
    for name, kind in own.items():
        if kind != schema[name]:
            raise InputError(f"{must}, got {name!r} of type {kind} instead of {schema[name]}.")
