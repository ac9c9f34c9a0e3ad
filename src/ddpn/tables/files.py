"""Read and write tables: CSV, TSV, Excel, JSON lines, Parquet, Feather, compressed text, and CSV on standard input."""

import codecs
import csv
import glob
import gzip
import io
import os
import re
import sys
import warnings
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import polars as pl

from ddpn.runtime.errors import InputError, format_argument
from ddpn.runtime.extras import import_extra
from ddpn.runtime.validation import join_words
from ddpn.storage.files import check_writable, write_bytes
from ddpn.tables.cells import MISSING, clean_text
from ddpn.tables.dates import YEAR_FIRST, DateFormat, find_date_format, parse_dates
from ddpn.tables.layout import WHOLE_FILE, Layout
from ddpn.tables.numbers import are_codes, has_grouped_points

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
#: Rows, and bytes of text, at the beginning of a file among which a header below a title is looked for.
_MAX_ROWS_ABOVE_HEADER, _MAX_BYTES_ABOVE_HEADER = 20, 2**16


def check_layout(layout: Layout, name: str, kind: str) -> None:
    """Raise an `InputError` if files of this extension have no sheets, or no rows above a header."""
    if layout.sheet is not None and kind not in EXCEL:
        raise InputError(f"{name} is no workbook with sheets. Leave out `sheet`.")
    if layout.skip_rows and kind not in (*EXCEL, *TEXT):
        raise InputError(f"{name} has no rows above its columns. Leave out `skip_rows`.")


def get_extension(path: str, to_write: bool = False) -> str:
    """Return the extension that determines the format, without a compression suffix.

    JSON and Excel are refused if the file is `to_write`.
    """
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    if suffixes and suffixes[-1] in COMPRESSED and suffixes[-2:-1] and suffixes[-2] in TEXT:
        return suffixes[-2]
    endings = [*TEXT, *BINARY, *([] if to_write else [*JSON, *EXCEL])]
    if suffixes and suffixes[-1] in endings:
        return suffixes[-1]
    readable = f"{', '.join(endings)}, those of text also with {' or '.join(COMPRESSED)}"
    raise InputError(f"Unsupported file type: {path}. Supported: {readable}.")


def is_pattern(source: str) -> bool:
    """Return True if a path has wildcards and no file has exactly this name."""
    return glob.has_magic(source) and not os.path.exists(source)


def find_files(sources: Sequence[str]) -> list[Path]:
    """List the files of paths, folders and patterns such as 'data/*.parquet', each sorted by name.

    A folder stands for the Parquet and text files directly inside it, without hidden ones.

    >>> find_files(["january.csv", "-"])
    [PosixPath('january.csv'), PosixPath('-')]
    """
    all_paths: list[Path] = []
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
        all_paths += sorted(paths)
    return all_paths


@contextmanager
def explain_read_errors(name: str, how: str) -> Iterator[None]:
    """Turn errors of polars and the file system into an `InputError` that says which file cannot be read, and why."""
    try:
        yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        reason = str(error).split("\n")[0]
        if "utf-8" in reason:
            reason = "it is not UTF-8 text"
        raise InputError(f"{name} cannot be read {how}: {reason}.") from None


def read_file(source: str, as_text: Iterable[str] = (), layout: Layout = WHOLE_FILE) -> pl.DataFrame:
    """Read a table from a file into a polars frame; columns in `as_text` keep their digits as written.

    `source` is a path, or "-" for CSV from standard input; `layout` says where the table begins in the file. A text
    column gets the type that all its cells agree with, and stays text otherwise.
    """
    name = "standard input" if source == STDIN else source
    kind = ".csv" if source == STDIN else get_extension(source)
    check_layout(layout, name, kind)
    content = sys.stdin.buffer.read() if source == STDIN else _read_bytes(Path(source))
    with explain_read_errors(name, f"as a {kind[1:]} file"):
        frame = _parse_content(content, kind, set(as_text), name, layout)
    if frame.height == 0 or frame.width == 0:
        raise InputError(f"{name} is empty: it has {frame.height} rows and {frame.width} columns.")
    return frame


def _parse_content(content: bytes, kind: str, as_text: set[str], name: str, layout: Layout) -> pl.DataFrame:
    if kind in TEXT:
        return read_text_table(content, TEXT[kind], name, as_text, layout)
    if kind in EXCEL:
        return infer_column_types(drop_empty_rows(_read_sheet(content, name, layout), name), as_text)
    if kind == ".json":
        return pl.read_json(content, infer_schema_length=None)
    if kind in JSON:
        return pl.read_ndjson(content, infer_schema_length=None)
    return getattr(pl, BINARY[kind])(content)


def _read_sheet(content: bytes, name: str, layout: Layout) -> pl.DataFrame:
    """Read one sheet of a workbook."""
    engine = import_extra("fastexcel", "files")
    try:
        workbook = engine.read_excel(content)
        sheet = _choose_sheet(workbook.sheet_names, layout.sheet, name)
        if layout.skip_rows is None:
            cells = workbook.load_sheet(
                sheet, header_row=None, skip_rows=0, n_rows=_MAX_ROWS_ABOVE_HEADER, dtypes="string"
            )
            _refuse_title(cells.to_polars().rows(), name)
        frame = pl.read_excel(
            io.BytesIO(content), sheet_name=sheet, engine="calamine", infer_schema_length=None, drop_empty_rows=False,
            read_options={"header_row": layout.skip_rows or 0},
        )  # fmt: skip
    except engine.FastExcelError as error:
        raise InputError(f"{name} cannot be read as an Excel file: {str(error).splitlines()[0]}.") from None
    return frame.rename(str.strip)


def _choose_sheet(names: Sequence[str], sheet: str | int | None, workbook: str) -> str:
    """Return the name of the sheet to read, by a name or a number from 1; by default the first, with a warning."""
    if sheet is None:
        if len(names) > 1:
            other = format_argument("sheet", names[1])
            sentence = (
                f"{workbook} has {len(names)} sheets: {join_words(names)}. The first is read; choose with {other}."
            )
            warnings.warn(sentence, UserWarning, stacklevel=2)
        return names[0]
    if sheet in names:
        return str(sheet)
    number = int(sheet) if str(sheet).isdecimal() else 0
    if not 1 <= number <= len(names):
        raise InputError(f"{workbook} has no sheet {sheet!r}. Its sheets are: {join_words(names)}.")
    return names[number - 1]


def find_header(rows: Sequence[Sequence[str | None]]) -> int | None:
    """Return the position of the header if it is below a title, from the first rows of a file; None otherwise.

    The header is the first row with words in more than half of the columns. A title is in a row above, and begins in
    the same column or left of it; so the header of a column of row numbers, which has no name, is no title.

    >>> find_header([["Visits of 2024", None], [None, None], ["age", "visits"], ["31", "2"]])
    2
    >>> find_header([["", "name"], ["1", "Ann"]])
    """
    filled = [[j for j, cell in enumerate(row) if cell and cell.strip()] for row in rows]
    width = max(map(len, filled), default=0)
    header = next((i for i, columns in enumerate(filled) if 2 * len(columns) > width), 0)
    above = [columns for columns in filled[:header] if columns]
    if width < 2 or not above or min(map(min, above)) > filled[header][0]:
        return None
    words = [str(rows[header][j]).strip() for j in filled[header]]
    has_numbers = any(re.fullmatch(r"[-+]?[0-9.,]+", word) for word in words)
    return None if has_numbers or len(set(words)) < len(words) or header + 1 == len(rows) else header


def _refuse_title(rows: Sequence[Sequence[str | None]], name: str) -> None:
    """Raise an `InputError` if the header of a table is below a title."""
    header = find_header(rows)
    if header is not None:
        skip, keep = format_argument("skip_rows", header), format_argument("skip_rows", 0)
        title = next(cell.strip() for row in rows for cell in row if cell and cell.strip())
        raise InputError(
            f"{name} begins with a title, {title!r:.60}, and row {header + 1} looks like the header. Read it with "
            f"{skip}, or with {keep} if the first row is the header."
        )


def _read_bytes(path: Path) -> bytes:
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
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_DECIMAL_COMMA = r"^[+-]?[0-9]+(,[0-9]+)?$"
#: Its comma may be a decimal sign or a thousands separator.
_AMBIGUOUS_COMMA = r"^[+-]?[1-9][0-9]{0,2},[0-9]{3}$"


class LongRowError(InputError):
    """A row of the table `name` has more fields than its header."""

    def __init__(self, name: str, row: str = "a row") -> None:
        super().__init__(f"{name} cannot be read as a table: {row} has more fields than the header.")


def read_text_table(
    content: bytes, separator: str | None, name: str, as_text: set[str], layout: Layout | None = None
) -> pl.DataFrame:
    """Read a text table, without its empty rows; `name` is the file in messages.

    With a `layout`, the content is a whole file, which may have a title above its header.
    """
    content = _decode_to_utf8(content, name)
    if layout is not None:
        content = _skip_rows(content, separator, name, layout.skip_rows)
    if separator is None:
        line = pl.read_csv(content, n_rows=1, has_header=False, infer_schema=False, separator="\x01", quote_char=None)
        separator = find_separator(str(line.item(0, 0) or ""))
    read = partial(pl.read_csv, has_header=False, infer_schema=False, separator=separator)
    try:
        cells = read(content)
    except pl.exceptions.ComputeError:
        read(content, truncate_ragged_lines=True)  # raises if long rows are not the reason
        # Rows that end in one more separator than the header does: the header gets it too.
        first, end, body = content.partition(b"\n")
        try:
            cells = read(first.rstrip(b"\r") + separator.encode() + end + body)
        except pl.exceptions.ComputeError:
            raise LongRowError(name) from None
        if cells[:, -1].drop_nulls().str.strip_chars().ne("").any():
            raise LongRowError(name) from None
        cells = cells[:, :-1]
    return infer_column_types(drop_empty_rows(_name_columns(cells, name), name), as_text, separator == ";")


def check_first_lines(content: bytes, separator: str | None, name: str) -> None:
    """Raise an `InputError` if the first lines of a text table are a title above a header."""
    lines = content.decode(errors="replace").lstrip("\ufeff").splitlines()[:_MAX_ROWS_ABOVE_HEADER]
    with suppress(csv.Error):  # a damaged line is reported where the whole table is read
        tables: list[list[Sequence[str | None]]] = [
            list(csv.reader(lines, delimiter=sign)) for sign in (separator or _SEPARATORS)
        ]
        _refuse_title(max(tables, key=_count_similar_rows), name)


def _count_similar_rows(rows: Sequence[Sequence[str | None]]) -> int:
    """Count the rows with the most frequent number of cells above 1."""
    return max(Counter(len(row) for row in rows if len(row) > 1).values(), default=0)


def _skip_rows(content: bytes, separator: str | None, name: str, skip_rows: int | None) -> bytes:
    """Cut off the rows above the header; without a number of rows, raise an error if the first is a title."""
    if content.startswith(_ZSTD):
        if not skip_rows:
            return content
        lines = pl.read_csv(content, has_header=False, infer_schema=False, separator="\x01", quote_char=None)
        content = "\n".join(line or "" for line in lines.to_series()).encode()
    if skip_rows is None:
        check_first_lines(content[:_MAX_BYTES_ABOVE_HEADER], separator, name)
    return content.split(b"\n", skip_rows)[-1] if skip_rows else content


def _decode_to_utf8(content: bytes, name: str) -> bytes:
    """Decompress the content and convert it to UTF-8; zstd is left to polars."""
    if content.startswith(_GZIP):
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(f"{name} cannot be read as a csv file: {error}.") from None
    if content.startswith(_ZSTD) or content.isascii():
        text = content
    elif content.startswith(_UTF16_MARKS):
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
    """Return the most frequent separator of the header, outside quotes; a comma if there is none."""
    header = header.lstrip("\ufeff")
    outside = "".join(header.split('"')[::2])
    return max(_SEPARATORS, key=outside.count)


def _name_columns(cells: pl.DataFrame, name: str) -> pl.DataFrame:
    """Take column names from the first row; drop columns with neither a name nor values."""
    names = [str(word or "").lstrip("\ufeff").strip() for word in cells.row(0)]
    body = cells[1:]
    kept = [j for j, word in enumerate(names) if word or body[:, j].is_not_null().any()]
    names = [names[j] or f"column_{j + 1}" for j in kept]
    twice = sorted({column for column in names if names.count(column) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise InputError(f"{name} has columns of the same name: {join_words(twice)}.")
    return pl.DataFrame([body[:, j].alias(column) for j, column in zip(kept, names, strict=True)])


def drop_empty_rows(frame: pl.DataFrame, name: str) -> pl.DataFrame:
    """Drop rows without any value; in a table of one column, an empty row is kept as a missing value."""
    if frame.width < 2 or not frame.height:
        return frame
    text = [pl.col(column) for column, dtype in frame.schema.items() if dtype == pl.String]
    others = [pl.col(column) for column, dtype in frame.schema.items() if dtype != pl.String]
    blank = [cell.is_null() | (cell.str.strip_chars() == "") for cell in text] + [cell.is_null() for cell in others]
    empty = frame.select(pl.all_horizontal(blank)).to_series()
    if not empty.any():
        return frame
    count, at_the_end = int(empty.sum()), int((~empty).reverse().arg_max() or 0)
    if at_the_end < count < frame.height:
        what = "1 empty row is" if count == 1 else f"{count:,} empty rows are"
        warnings.warn(f"{name}: {what} left out, and not counted in row numbers.", UserWarning, stacklevel=2)
    return frame.filter(~empty)


def infer_column_types(frame: pl.DataFrame, as_text: set[str], decimal_commas: bool = False) -> pl.DataFrame:
    """Convert text columns to integers, numbers, booleans or dates if all cells agree, except those in `as_text`.

    With `decimal_commas`, 3,14 is a number if some column has such numbers, and 1.234 is then an integer.
    """
    names = [name for name, dtype in frame.schema.items() if dtype == pl.String and name not in as_text]
    if decimal_commas:
        frame = _replace_decimal_commas(frame, names)
    texts = [series for series in frame.iter_columns() if series.dtype == pl.String]
    return frame.with_columns(_infer_type(series, series.name in as_text) for series in texts)


def _replace_decimal_commas(frame: pl.DataFrame, names: list[str]) -> pl.DataFrame:
    """Rewrite decimal commas as points, if some cell's comma can only be a decimal sign."""
    texts = {name: clean_text(frame[name], MISSING) for name in names}
    commas = [name for name, text in texts.items() if text.drop_nulls().str.contains(_DECIMAL_COMMA).all()]
    certain = (texts[name].drop_nulls() for name in commas)
    if not any((part.str.contains(",", literal=True) & ~part.str.contains(_AMBIGUOUS_COMMA)).any() for part in certain):
        return frame
    points = [name for name in names if name not in commas and has_grouped_points(texts[name])]
    return frame.with_columns(
        *(texts[name].str.replace(",", ".", literal=True) for name in commas),
        *(texts[name].str.replace_all(".", "", literal=True) for name in points),
    )


def _infer_type(series: pl.Series, as_text: bool) -> pl.Series:
    """Convert text to numbers, booleans or dates (year first) if all cells agree; else set missing cells to null."""
    text = clean_text(series, MISSING)
    kept = series.set(text.is_null(), None) if text.null_count() > series.null_count() else series
    present = text.drop_nulls()
    if as_text or present.is_empty():
        return kept
    if not are_codes(present):
        for dtype in (pl.Int64, pl.Float64):
            numbers = present.cast(dtype, strict=False)
            # Text such as "inf" is a number to polars, and a cell to report to us.
            if not numbers.null_count() and numbers.is_finite().all():
                return text.cast(dtype)
    if present.is_in(["true", "false"]).all():
        return text == "true"
    if not present.head(1).str.contains(r"^\d{4}-\d{1,2}-\d{1,2}").all():
        return kept  # other dates are read by the format that fit finds
    times = parse_dates(text, find_date_format(present) or DateFormat(YEAR_FIRST))
    if times.null_count() > text.null_count():
        return kept
    return times if present.str.contains(":", literal=True).any() else times.cast(pl.Date)


# Writing, whole or not at all -----------------------------------------------------------------------------------------


def check_free(path: Path, overwrite: bool, source: str = STDIN) -> None:
    """Raise an `InputError` if `path` cannot be written, or is the table `source` itself; called before any work."""
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


def write_file(frame: pl.DataFrame, target: str) -> None:
    """Write a polars frame in the format of the extension; "-" writes CSV to standard output."""
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
