"""Tables from files: CSV, TSV, Excel, JSON lines, Parquet, Feather, compressed text, and CSV from standard input."""

import io
import sys
import warnings
from collections.abc import Iterable
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


def read(source: str, as_text: Iterable[str] = ()) -> Any:
    """The table of a file as a polars frame; the columns `as_text` keep their digits as they are written.

    `source` is a path, or "-" for CSV from standard input. A column of text has the type that all its cells agree
    with, and stays text otherwise.
    """
    library = polars()
    name = "standard input" if source == STDIN else source
    kind = ".csv" if source == STDIN else ending(source)
    content = sys.stdin.buffer.read() if source == STDIN else _content(Path(source))
    try:
        frame = _frame(library, content, kind, set(as_text), name)
    except (library.exceptions.PolarsError, library.exceptions.PanicException, OSError) as error:
        reason = str(error).split("\n")[0]
        if "utf-8" in reason:
            reason = "it is not UTF-8 text"
        raise InputError(f"{name} cannot be read as a {kind[1:]} file: {reason}.") from None
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
