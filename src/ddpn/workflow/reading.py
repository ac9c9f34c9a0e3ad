"""Tables from files: CSV, TSV, Parquet, Feather, compressed text, and CSV from standard input."""

import csv
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

from ddpn.errors import ConfigError, InputError
from ddpn.validation import listed

STDIN = "-"
#: Separators that a file of text may have, by its ending; None: found in the header.
TEXT = {".csv": None, ".tsv": "\t"}
#: The reader of polars for each ending that is no text.
BINARY = {".parquet": "read_parquet", ".pq": "read_parquet", ".feather": "read_ipc", ".arrow": "read_ipc"}
COMPRESSED = (".gz", ".zst")
_SEPARATORS = ",;\t|"
#: What people write for "no value".
MISSING = ["", "NA", "N/A", "#N/A", "NaN", "nan", "null", "NULL", "None", "?"]
_DECIMAL_COMMA = r"^[+-]?\d+(,\d+)?$"


def polars() -> Any:
    """The polars library, which an extra installs."""
    try:
        return import_module("polars")
    except ImportError:
        raise ConfigError("ddpn[files] is not installed: pip install 'ddpn[files]'") from None


def endings() -> str:
    """The supported file endings, for a message."""
    return f"{', '.join([*TEXT, *BINARY])}, those of text also with {' or '.join(COMPRESSED)}"


def ending(path: str) -> str:
    """The ending that determines the format, without that of the compression."""
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    if suffixes and suffixes[-1] in COMPRESSED and suffixes[-2:-1] and suffixes[-2] in TEXT:
        return suffixes[-2]
    if suffixes and suffixes[-1] in (*TEXT, *BINARY):
        return suffixes[-1]
    raise InputError(f"Unsupported file type: {path}. Supported: {endings()}.")


def read(source: str, as_text: Iterable[str] = ()) -> Any:
    """The table of a file as a polars frame; the columns `as_text` keep their digits as they are written.

    `source` is a path, or "-" for CSV from standard input.
    """
    library = polars()
    name = "standard input" if source == STDIN else source
    kind = ".csv" if source == STDIN else ending(source)
    content = sys.stdin.buffer.read() if source == STDIN else _content(Path(source))
    try:
        frame = (
            _read_text(library, content, TEXT[kind], set(as_text), name)
            if kind in TEXT
            else getattr(library, BINARY[kind])(content)
        )
    except (library.exceptions.PolarsError, library.exceptions.PanicException, OSError) as error:
        reason = str(error).split("\n")[0]
        if "more fields" in reason:
            reason = "a row has more fields than the header"
        if "utf-8" in reason:
            reason = "it is not UTF-8 text"
        raise InputError(f"{name} cannot be read as a {kind[1:]} file: {reason}.") from None
    if frame.height == 0 or frame.width == 0:
        raise InputError(f"{name} is an empty table: {frame.height} rows and {frame.width} columns.")
    return frame


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


def _read_text(library: Any, content: bytes, separator: str | None, as_text: set[str], name: str) -> Any:
    header = _header(library, content)
    separator = separator or _found_separator(header)
    names = next(csv.reader([header], delimiter=separator))
    twice = sorted({column for column in names if names.count(column) > 1})
    if twice:
        raise InputError(f"{name} has columns of the same name: {listed(twice)}.")
    options: dict[str, Any] = {
        "separator": separator,
        "null_values": MISSING,
        "try_parse_dates": True,
        # All rows: a column may hold its first text in the last one.
        "infer_schema_length": None,
        "schema_overrides": {column: library.String for column in names if column in as_text},
    }
    frame = library.read_csv(content, **options)
    if separator == ";" and _has_decimal_commas(library, frame, as_text):
        frame = library.read_csv(content, decimal_comma=True, **options)
    return frame


def _header(library: Any, content: bytes) -> str:
    """The first line, uncompressed."""
    line = library.read_csv(content, has_header=False, n_rows=1, infer_schema=False, separator="\x01", quote_char=None)
    return str(line.item(0, 0) or "").lstrip("\ufeff")


def _found_separator(header: str) -> str:
    """The separator that occurs most in the header, outside quotes; a comma if none does."""
    outside = "".join(header.split('"')[::2])
    return max(_SEPARATORS, key=outside.count)


def _has_decimal_commas(library: Any, frame: Any, as_text: set[str]) -> bool:
    """Whether a column of text holds numbers such as 3,14."""
    for series in frame.iter_columns():
        if series.dtype == library.String and series.name not in as_text:
            values = series.drop_nulls()
            if len(values) and values.str.contains(",").any() and values.str.contains(_DECIMAL_COMMA).all():
                return True
    return False
