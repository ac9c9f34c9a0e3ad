"""Read text as a table: detect the encoding, the separator, the header, empty rows, and the types of columns."""

import codecs
import gzip
import warnings
import zlib
from functools import partial

import polars as pl

from ddpn.runtime.errors import InputError
from ddpn.runtime.validation import join_words
from ddpn.tables.cells import MISSING, clean_text
from ddpn.tables.dates import YEAR_FIRST, DateFormat, find_date_format, parse_dates
from ddpn.tables.layout import MAX_BYTES_ABOVE_HEADER, SEPARATORS, Layout, check_first_lines
from ddpn.tables.numbers import are_codes, has_grouped_points

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_DECIMAL_COMMA = r"^[+-]?[0-9]+(,[0-9]+)?$"
#: A time with its distance from UTC, such as 12:30:00Z or 12:30-05:00.
_UTC_OFFSET = r":\d\d.*(Z|UTC|[+-]\d\d:?\d\d)\s*$"
#: A number whose comma may be a decimal sign or a thousands separator.
_AMBIGUOUS_COMMA = r"^[+-]?[1-9][0-9]{0,2},[0-9]{3}$"


class LongRowError(InputError):
    """An `InputError` about a row of the text file `name` that has more fields than the header."""

    def __init__(self, name: str, row: str = "a row") -> None:
        super().__init__(f"{name} cannot be read as a table: {row} has more fields than the header.")


def read_text_table(
    content: bytes, separator: str | None, name: str, as_text: set[str], layout: Layout | None = None
) -> pl.DataFrame:
    """Read a text table from the bytes of a file, without its empty rows.

    Parameters
    ----------
    content : bytes
        The whole file, or its header with some of its rows.
    separator : str or None
        The sign between cells. None infers it from the header.
    name : str
        The name of the file in messages.
    as_text : set of str
        Columns that always stay text.
    layout : Layout, optional
        Where the table begins. Pass it only with the whole file, which is then searched for a title above the header.
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
        # Rows may end in one more separator than the header, which is then added to the header.
        first, end, body = content.partition(b"\n")
        try:
            cells = read(first.rstrip(b"\r") + separator.encode() + end + body)
        except pl.exceptions.ComputeError:
            raise LongRowError(name) from None
        if cells[:, -1].drop_nulls().str.strip_chars().ne("").any():
            raise LongRowError(name) from None
        cells = cells[:, :-1]
    return infer_column_types(drop_empty_rows(_name_columns(cells, name), name), as_text, separator == ";")


def _skip_rows(content: bytes, separator: str | None, name: str, skip_rows: int | None) -> bytes:
    """Remove the first `skip_rows` rows of a file.

    If it is None, no row is removed, and an `InputError` is raised if the file begins with a title. `separator` and
    `name` are as for `read_text_table`.
    """
    if content.startswith(_ZSTD):
        if not skip_rows:
            return content
        lines = pl.read_csv(content, has_header=False, infer_schema=False, separator="\x01", quote_char=None)
        content = "\n".join(line or "" for line in lines.to_series()).encode()
    if skip_rows is None:
        check_first_lines(content[:MAX_BYTES_ABOVE_HEADER], separator, name)
    return content.split(b"\n", skip_rows)[-1] if skip_rows else content


def _decode_to_utf8(content: bytes, name: str) -> bytes:
    """Convert the bytes of a file to UTF-8 text, and decompress gzip. Bytes compressed by zstd are returned unchanged.

    `name` is the name of the file in messages.
    """
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
    """Return the separator that occurs most often in the header, not counting quoted text; a comma if there is none."""
    header = header.lstrip("\ufeff")
    outside = "".join(header.split('"')[::2])
    return max(SEPARATORS, key=outside.count)


def _name_columns(cells: pl.DataFrame, name: str) -> pl.DataFrame:
    """Use the first row as column names, and drop columns with neither a name nor values.

    `name` is the name of the file in messages.
    """
    names = [str(word or "").lstrip("\ufeff").strip() for word in cells.row(0)]
    body = cells[1:]
    kept = [j for j, word in enumerate(names) if word or body[:, j].is_not_null().any()]
    names = [names[j] or f"column_{j + 1}" for j in kept]
    twice = sorted({column for column in names if names.count(column) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise InputError(f"{name} has columns of the same name: {join_words(twice)}.")
    return pl.DataFrame([body[:, j].alias(column) for j, column in zip(kept, names, strict=True)])


def drop_empty_rows(frame: pl.DataFrame, name: str) -> pl.DataFrame:
    """Drop rows without any value, and warn about them, unless all of them are at the end of the table.

    In a table of one column, an empty row is kept as a missing value. `name` is the name of the file in the warning.
    """
    if frame.width < 2 or not frame.height:
        return frame
    empty = pl.repeat(True, frame.height, eager=True)
    for column in frame.iter_columns():
        empty &= _find_blank_cells(column)
        if not empty.any():
            return frame
    count, at_the_end = int(empty.sum()), int((~empty).reverse().arg_max() or 0)
    if at_the_end < count < frame.height:
        subject = "1 empty row is" if count == 1 else f"{count:,} empty rows are"
        warnings.warn(f"{name}: {subject} left out, and not counted in row numbers.", UserWarning, stacklevel=2)
    return frame.filter(~empty)


def _find_blank_cells(column: pl.Series) -> pl.Series:
    """Return a mask of the cells that are null or hold nothing but white space."""
    blank = column.is_null()
    return blank | (column.str.strip_chars() == "") if column.dtype == pl.String else blank


def infer_column_types(frame: pl.DataFrame, as_text: set[str], decimal_commas: bool = False) -> pl.DataFrame:
    """Convert each text column whose cells are all integers, all numbers, all booleans or all dates.

    Columns in `as_text` stay text, and so do codes, such as 007, but blank cells become null. With `decimal_commas`,
    the other text columns are searched for cells whose comma can only be a decimal sign. If there is one in any of
    them, 3,14 is read as the number 3.14, and 1.234 as the integer 1234, in all of them.
    """
    names = [name for name, dtype in frame.schema.items() if dtype == pl.String and name not in as_text]
    if decimal_commas:
        frame = _replace_decimal_commas(frame, names)
    texts = [series for series in frame.iter_columns() if series.dtype == pl.String]
    return frame.with_columns(_infer_type(series, series.name in as_text) for series in texts)


def _replace_decimal_commas(frame: pl.DataFrame, names: list[str]) -> pl.DataFrame:
    """Replace decimal commas by points, and remove points that separate thousands.

    The table is returned unchanged unless the comma of some cell can only be a decimal sign. `names` are the text
    columns that may hold numbers.
    """
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
    """Convert a text column to integers, numbers, booleans or dates (year first) if all cells fit.

    Otherwise, only missing cells change: they become null. If `as_text` is True, only blank cells do, because words
    such as NA may be levels.
    """
    text = clean_text(series, ("",) if as_text else MISSING)
    kept = series.set(text.is_null(), None) if text.null_count() > series.null_count() else series
    present = text.drop_nulls()
    if as_text or present.is_empty():
        return kept
    if not are_codes(present):
        for dtype in (pl.Int64, pl.Float64):
            numbers = text.cast(dtype, strict=False)
            # Polars reads text such as "inf" as a number, but it must be reported to the user.
            if numbers.null_count() == text.null_count() and numbers.is_finite().all():
                return numbers
    if present.is_in(["true", "false"]).all():
        return text == "true"
    if not present.head(1).str.contains(r"^\d{4}-\d{1,2}-\d{1,2}").all():
        return kept  # dates in other orders are parsed in fit, which detects the format
    if present.str.contains(_UTC_OFFSET).any():
        return kept  # the zone of such times is that of the column in fit, and would be lost here
    times = parse_dates(text, find_date_format(present) or DateFormat(YEAR_FIRST))
    if times.null_count() > text.null_count():
        return kept
    return times if present.str.contains(":", literal=True).any() else times.cast(pl.Date)
