"""Tables from files: CSV, TSV, Excel, JSON lines, Parquet, Feather, compressed text, and CSV from standard input."""

import glob
import io
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ddpn.runtime.errors import InputError
from ddpn.runtime.extras import import_extra
from ddpn.tables.cells import polars
from ddpn.tables.text_tables import read_delimited, typed, without_empty_rows

STDIN = "-"
#: Separators that a file of text may have, by its ending; None: found in the header.
TEXT = {".csv": None, ".tsv": "\t"}
#: The reader of polars for each ending whose columns have types.
BINARY = {".parquet": "read_parquet", ".pq": "read_parquet", ".feather": "read_ipc", ".arrow": "read_ipc"}
#: The same for files that are read only.
JSON = {".jsonl": "read_ndjson", ".ndjson": "read_ndjson", ".json": "read_json"}
EXCEL = (".xlsx", ".xls", ".xlsb", ".ods")
COMPRESSED = (".gz", ".zst")
#: Endings of Parquet files.
PARQUET = (".parquet", ".pq")


def ending(path: str, to_write: bool = False) -> str:
    """The ending that determines the format, without that of the compression; JSON and Excel are only read."""
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    if suffixes and suffixes[-1] in COMPRESSED and suffixes[-2:-1] and suffixes[-2] in TEXT:
        return suffixes[-2]
    known = [*TEXT, *BINARY, *([] if to_write else [*JSON, *EXCEL])]
    if suffixes and suffixes[-1] in known:
        return suffixes[-1]
    supported = f"{', '.join(known)}, those of text also with {' or '.join(COMPRESSED)}"
    raise InputError(f"Unsupported file type: {path}. Supported: {supported}.")


def is_pattern(source: str) -> bool:
    """Whether a path has wildcards; a file of that very name is no pattern."""
    return glob.has_magic(source) and not os.path.exists(source)


def find_files(sources: Sequence[str], endings: Sequence[str] = (*PARQUET, *TEXT)) -> list[Path]:
    """The files that paths, folders and patterns such as 'data/*.parquet' stand for, each in the order of their names.

    Parameters
    ----------
    sources : sequence of str
        Files, folders (the files directly inside that have one of the endings, but for hidden ones), or patterns.
    endings : sequence of str
        Endings of files in folders, in lower case.

    Examples
    --------
    >>> find_files(["january.csv", "-"])
    [PosixPath('january.csv'), PosixPath('-')]
    """
    found: list[Path] = []
    for source in sources:
        if os.path.isdir(source):
            paths = [path for path in Path(source).iterdir() if _is_table(path, endings)]
        elif is_pattern(source):
            paths = [Path(path) for path in glob.glob(source, recursive=True)]
        else:
            paths = [Path(source)]
        if not paths and os.path.isdir(source):
            raise InputError(f"{source} is a folder without a file that ends in {' or '.join(endings)}.")
        if not paths:
            raise InputError(f"No file matches {source}")
        found += sorted(paths)
    return found


def _is_table(path: Path, endings: Sequence[str]) -> bool:
    return path.suffix.lower() in endings and not path.name.startswith((".", "_")) and path.is_file()


@contextmanager
def unreadable(name: str, how: str) -> Iterator[None]:
    """Within this, errors of polars and of the file system say that a file cannot be read, and why."""
    library = polars()
    try:
        yield
    except (library.exceptions.PolarsError, library.exceptions.PanicException, OSError) as error:
        reason = str(error).split("\n")[0]
        if "utf-8" in reason:
            reason = "it is not UTF-8 text"
        raise InputError(f"{name} cannot be read {how}: {reason}.") from None


def read(source: str, as_text: Iterable[str] = ()) -> Any:
    """The table of a file as a polars frame; the columns `as_text` keep their digits as they are written.

    `source` is a path, or "-" for CSV from standard input. A column of text has the type that all its cells agree
    with, and stays text otherwise.
    """
    library = polars()
    name = "standard input" if source == STDIN else source
    kind = ".csv" if source == STDIN else ending(source)
    content = sys.stdin.buffer.read() if source == STDIN else _content(Path(source))
    with unreadable(name, f"as a {kind[1:]} file"):
        frame = _frame(library, content, kind, set(as_text), name)
    if frame.height == 0 or frame.width == 0:
        raise InputError(f"{name} is an empty table: {frame.height} rows and {frame.width} columns.")
    return frame


def _frame(library: Any, content: bytes, kind: str, as_text: set[str], name: str) -> Any:
    if kind in TEXT:
        return read_delimited(content, TEXT[kind], name, as_text)
    if kind in EXCEL:
        return typed(without_empty_rows(_sheet(library, content, name), name), as_text)
    if kind == ".json":
        return library.read_json(content, infer_schema_length=None)
    if kind in JSON:
        return library.read_ndjson(content, infer_schema_length=None)
    return getattr(library, BINARY[kind])(content)


def _sheet(library: Any, content: bytes, name: str) -> Any:
    """The first sheet of a workbook."""
    engine = import_extra("fastexcel", "files")
    try:
        workbook = engine.read_excel(content)
        if len(workbook.sheet_names) > 1:
            first = workbook.sheet_names[0]
            sentence = f"{name} has {len(workbook.sheet_names)} sheets; only the first, {first!r}, is read."
            warnings.warn(sentence, UserWarning, stacklevel=2)
        frame = library.read_excel(
            io.BytesIO(content), engine="calamine", infer_schema_length=None, drop_empty_rows=False
        )
    except engine.FastExcelError as error:
        raise InputError(f"{name} cannot be read as an Excel file: {str(error).splitlines()[0]}.") from None
    return frame.rename(str.strip)


def _content(path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"File not found: {path}") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder, not a file.") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None
    if not content:
        raise InputError(f"{path} is an empty file.")
    return content
