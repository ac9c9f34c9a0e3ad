"""Read and write tables: CSV, TSV, Excel, JSON lines, Parquet, Feather, compressed text, and CSV on standard input."""

import codecs
import glob
import gzip
import io
import os
import sys
import warnings
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddpn.runtime.errors import InputError
from ddpn.runtime.extras import import_extra
from ddpn.runtime.validation import listed
from ddpn.storage.files import check_writable, write_bytes
from ddpn.tables.cells import (
    MISSING,
    YEAR_FIRST,
    DateFormat,
    are_codes,
    clean_text,
    find_date_format,
    has_grouped_points,
    import_polars,
    parse_dates,
)

if TYPE_CHECKING:
    import polars as pl

STDIN = "-"
#: Separators that a file of text may have, by its ending; None: found in the header.
TEXT = {".csv": None, ".tsv": "\t"}
#: The reader of polars for each ending whose columns have types.
BINARY = {".parquet": "read_parquet", ".pq": "read_parquet", ".feather": "read_ipc", ".arrow": "read_ipc"}
#: The same for files that are read only.
JSON = {".jsonl": "read_ndjson", ".ndjson": "read_ndjson", ".json": "read_json"}
EXCEL = (".xlsx", ".xls", ".xlsb", ".ods")
COMPRESSED = (".gz", ".zst")
#: Endings of files that are read from folders.
_IN_FOLDERS = (".parquet", ".pq", *TEXT)


def get_extension(path: str, to_write: bool = False) -> str:
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


def find_files(sources: Sequence[str]) -> list[Path]:
    """The files that paths, folders and patterns such as 'data/*.parquet' stand for, each in the order of their names.

    Of a folder these are the Parquet and text files directly inside, but for hidden ones.

    >>> find_files(["january.csv", "-"])
    [PosixPath('january.csv'), PosixPath('-')]
    """
    found: list[Path] = []
    for source in sources:
        if os.path.isdir(source):
            files = [path for path in Path(source).iterdir() if path.is_file() and not path.name.startswith((".", "_"))]
            paths = [path for path in files if path.suffix.lower() in _IN_FOLDERS]
        elif is_pattern(source):
            paths = [Path(path) for path in glob.glob(source, recursive=True)]
        else:
            paths = [Path(source)]
        if not paths and os.path.isdir(source):
            raise InputError(f"{source} is a folder without a file that ends in {' or '.join(_IN_FOLDERS)}.")
        if not paths:
            raise InputError(f"No file matches {source}")
        found += sorted(paths)
    return found


@contextmanager
def explain_read_errors(name: str, how: str) -> Iterator[None]:
    """Within this, errors of polars and of the file system say that a file cannot be read, and why."""
    library = import_polars()
    try:
        yield
    except (library.exceptions.PolarsError, library.exceptions.PanicException, OSError) as error:
        reason = str(error).split("\n")[0]
        if "utf-8" in reason:
            reason = "it is not UTF-8 text"
        raise InputError(f"{name} cannot be read {how}: {reason}.") from None


def read_file(source: str, as_text: Iterable[str] = ()) -> "pl.DataFrame":
    """The table of a file as a polars frame; the columns `as_text` keep their digits as they are written.

    `source` is a path, or "-" for CSV from standard input. A column of text has the type that all its cells agree
    with, and stays text otherwise.
    """
    library = import_polars()
    name = "standard input" if source == STDIN else source
    kind = ".csv" if source == STDIN else get_extension(source)
    content = sys.stdin.buffer.read() if source == STDIN else _content(Path(source))
    with explain_read_errors(name, f"as a {kind[1:]} file"):
        frame = _frame(library, content, kind, set(as_text), name)
    if frame.height == 0 or frame.width == 0:
        raise InputError(f"{name} is an empty table: {frame.height} rows and {frame.width} columns.")
    return frame


def _frame(library: Any, content: bytes, kind: str, as_text: set[str], name: str) -> "pl.DataFrame":
    if kind in TEXT:
        return read_text_table(content, TEXT[kind], name, as_text)
    if kind in EXCEL:
        return infer_column_types(drop_empty_rows(_sheet(library, content, name), name), as_text)
    if kind == ".json":
        return library.read_json(content, infer_schema_length=None)
    if kind in JSON:
        return library.read_ndjson(content, infer_schema_length=None)
    return getattr(library, BINARY[kind])(content)


def _sheet(library: Any, content: bytes, name: str) -> "pl.DataFrame":
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


# Tables of text: encoding, separator, header, empty rows, and types of columns whose cells all agree ------------------

_SEPARATORS = ",;\t|"
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_WIDE = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_DECIMAL_COMMA = r"^[+-]?[0-9]+(,[0-9]+)?$"
#: Its comma may be a decimal sign or a thousands separator.
_UNSURE = r"^[+-]?[1-9][0-9]{0,2},[0-9]{3}$"


class LongRowError(InputError):
    """A row of the table `name` has more fields than its header."""

    def __init__(self, name: str, row: str = "a row") -> None:
        super().__init__(f"{name} cannot be read as a table: {row} has more fields than the header.")


def read_text_table(content: bytes, separator: str | None, name: str, as_text: set[str]) -> "pl.DataFrame":
    """The table of a text file, without its empty rows; `name` is the file in messages."""
    library = import_polars()
    content = _utf8(content, name)
    if separator is None:
        whole = {"has_header": False, "infer_schema": False, "separator": "\x01", "quote_char": None}
        separator = find_separator(str(library.read_csv(content, n_rows=1, **whole).item(0, 0) or ""))
    options: dict[str, Any] = {"has_header": False, "infer_schema": False, "separator": separator}
    try:
        cells = library.read_csv(content, **options)
    except library.exceptions.ComputeError:
        library.read_csv(content, truncate_ragged_lines=True, **options)  # raises if long rows are not the reason
        # Rows that end in one more separator than the header does: the header gets it too.
        first, end, rest = content.partition(b"\n")
        try:
            cells = library.read_csv(first.rstrip(b"\r") + separator.encode() + end + rest, **options)
        except library.exceptions.ComputeError:
            raise LongRowError(name) from None
        if cells[:, -1].drop_nulls().str.strip_chars().ne("").any():
            raise LongRowError(name) from None
        cells = cells[:, :-1]
    return infer_column_types(drop_empty_rows(_named(cells, name), name), as_text, separator == ";")


def _utf8(content: bytes, name: str) -> bytes:
    """The uncompressed content in UTF-8; zstd is left to polars."""
    if content.startswith(_GZIP):
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(f"{name} cannot be read as a csv file: {error}.") from None
    if content.startswith(_ZSTD) or content.isascii():
        text = content
    elif content.startswith(_WIDE):
        try:
            text = content.decode("utf-16").encode()
        except UnicodeDecodeError:
            raise InputError(f"{name} cannot be read as UTF-16 text, which its first bytes announce.") from None
    else:
        text = content
        try:
            content.decode()
        except UnicodeDecodeError:
            try:
                text, encoding = content.decode("cp1252").encode(), "Windows-1252"
            except UnicodeDecodeError:
                text, encoding = content.decode("latin-1").encode(), "Latin-1"
            warnings.warn(f"{name} is not UTF-8; read as {encoding}.", UserWarning, stacklevel=2)
    if b"\x00" in text[:10_000] and not content.startswith(_ZSTD):
        raise InputError(f"{name} is not a text file: it holds NUL bytes.")
    # Line ends of old Macs.
    return text.replace(b"\r", b"\n") if b"\r" in text and b"\n" not in text else text


def find_separator(header: str) -> str:
    """The separator that occurs most in the header, outside quotes; a comma if none does."""
    header = header.lstrip("\ufeff")
    outside = "".join(header.split('"')[::2])
    return max(_SEPARATORS, key=outside.count)


def _named(cells: "pl.DataFrame", name: str) -> "pl.DataFrame":
    """The rows below the first, whose cells are the names; a column without a name and without values is ignored."""
    library = import_polars()
    names = [str(word or "").lstrip("\ufeff").strip() for word in cells.row(0)]
    body = cells[1:]
    kept = [j for j, word in enumerate(names) if word or body[:, j].is_not_null().any()]
    names = [names[j] or f"column_{j + 1}" for j in kept]
    twice = sorted({column for column in names if names.count(column) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise InputError(f"{name} has columns of the same name: {listed(twice)}.")
    return library.DataFrame([body[:, j].alias(column) for j, column in zip(kept, names, strict=True)])


def drop_empty_rows(frame: "pl.DataFrame", name: str) -> "pl.DataFrame":
    """The rows that have a value in some column. In a table of one column an empty row is a missing value."""
    library = import_polars()
    if frame.width < 2 or not frame.height:
        return frame
    text = [library.col(column) for column, dtype in frame.schema.items() if dtype == library.String]
    others = [library.col(column) for column, dtype in frame.schema.items() if dtype != library.String]
    blank = [each.is_null() | (each.str.strip_chars() == "") for each in text] + [each.is_null() for each in others]
    empty = frame.select(library.all_horizontal(blank)).to_series()
    if not empty.any():
        return frame
    count, at_the_end = int(empty.sum()), int((~empty).reverse().arg_max() or 0)
    if at_the_end < count < frame.height:
        what = "1 empty row is" if count == 1 else f"{count:,} empty rows are"
        warnings.warn(f"{name}: {what} left out, and not counted in row numbers.", UserWarning, stacklevel=2)
    return frame.filter(~empty)


def infer_column_types(frame: "pl.DataFrame", as_text: set[str], decimal_commas: bool = False) -> "pl.DataFrame":
    """Columns of text as integers, numbers, booleans or dates where all cells agree; `as_text` stay as they are.

    With `decimal_commas`, 3,14 is a number if some column has such numbers, and 1.234 is then an integer.
    """
    library = import_polars()
    names = [name for name, dtype in frame.schema.items() if dtype == library.String and name not in as_text]
    if decimal_commas:
        frame = _with_points(frame, names)
    texts = [series for series in frame.iter_columns() if series.dtype == library.String]
    return frame.with_columns(_typed(series, series.name in as_text) for series in texts)


def _with_points(frame: "pl.DataFrame", names: list[str]) -> "pl.DataFrame":
    """Numbers with decimal commas in the form that polars reads, where a comma of some cell can only be one."""
    texts = {name: clean_text(frame[name], MISSING) for name in names}
    commas = [name for name, text in texts.items() if text.drop_nulls().str.contains(_DECIMAL_COMMA).all()]
    certain = (texts[name].drop_nulls() for name in commas)
    if not any((each.str.contains(",", literal=True) & ~each.str.contains(_UNSURE)).any() for each in certain):
        return frame
    points = [name for name in names if name not in commas and has_grouped_points(texts[name])]
    return frame.with_columns(
        *(texts[name].str.replace(",", ".", literal=True) for name in commas),
        *(texts[name].str.replace_all(".", "", literal=True) for name in points),
    )


def _typed(series: "pl.Series", as_text: bool) -> "pl.Series":
    """Numbers, booleans, and dates with the year first, if all cells agree; other text with null where missing."""
    library = import_polars()
    text = clean_text(series, MISSING)
    kept = series.set(text.is_null(), None) if text.null_count() > series.null_count() else series
    known = text.drop_nulls()
    if as_text or known.is_empty():
        return kept
    if not are_codes(known):
        for dtype in (library.Int64, library.Float64):
            numbers = known.cast(dtype, strict=False)
            # Text such as "inf" is a number to polars, and a cell to report to us.
            if not numbers.null_count() and numbers.is_finite().all():
                return text.cast(dtype)
    if known.is_in(["true", "false"]).all():
        return text == "true"
    if not known.head(1).str.contains(r"^\d{4}-\d{1,2}-\d{1,2}").all():
        return kept  # other dates are read by the format that fit finds
    times = parse_dates(text, find_date_format(known) or DateFormat(YEAR_FIRST))
    if times.null_count() > text.null_count():
        return kept
    return times if known.str.contains(":", literal=True).any() else times.cast(library.Date)


# Writing, whole or not at all -----------------------------------------------------------------------------------------


def check_free(path: Path, overwrite: bool, source: str = STDIN) -> None:
    """Raise an `InputError` if a file cannot be written to `path`, or is the table `source`; called before the work."""
    if path.is_dir():
        raise InputError(f"{path} is a folder, not a file.")
    if source != STDIN and path.exists() and Path(source).exists() and path.samefile(source):
        raise InputError(f"{path} is the table {source} itself, which is not overwritten. Choose another name.")
    if path.exists() and not overwrite:
        raise InputError(f"{path} already exists. Choose another name, or replace it with `overwrite=True`.")
    check_writable(path)


def check_output(target: str, overwrite: bool, source: str = STDIN) -> None:
    """Raise an `InputError` if predictions for the table `source` cannot be written to `target`."""
    if target == STDIN:
        return
    if get_extension(target, to_write=True) in TEXT and target.lower().endswith(".zst"):
        raise InputError(f"Output cannot be compressed as .zst: {target}. Use .gz or no compression.")
    check_free(Path(target), overwrite, source)


def write_file(frame: "pl.DataFrame", target: str) -> None:
    """Write a polars frame in the format of the ending; "-" is CSV on standard output."""
    if target == STDIN:
        sys.stdout.write(frame.write_csv())
        return
    content, kind = io.BytesIO(), get_extension(target, to_write=True)
    if kind in TEXT:
        frame.write_csv(content, separator=TEXT[kind] or ",")
    elif BINARY[kind] == "read_parquet":
        frame.write_parquet(content)
    else:
        frame.write_ipc(content)
    plain = content.getvalue()
    write_bytes(Path(target), gzip.compress(plain) if target.lower().endswith(".gz") else plain)
