"""Tables of text: encoding, separator, header, empty rows, and the types of columns whose cells all agree."""

import codecs
import gzip
import warnings
import zlib
from typing import Any

from ddpn.runtime.errors import InputError
from ddpn.runtime.validation import listed
from ddpn.tables.cells import MISSING, cleaned, polars
from ddpn.tables.dates import YEAR_FIRST, DateFormat, find_date_format, parse_dates
from ddpn.tables.numbers import are_codes, has_grouped_points

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


def read_delimited(content: bytes, separator: str | None, name: str, as_text: set[str]) -> Any:
    """The table of a text file, without its empty rows; `name` is the file in messages."""
    library = polars()
    content = _utf8(content, name)
    header = _first_line(library, content)
    separator = separator or separator_of(header)
    options: dict[str, Any] = {"has_header": False, "infer_schema": False, "separator": separator}
    try:
        cells = library.read_csv(content, **options)
    except library.exceptions.ComputeError:
        library.read_csv(content, truncate_ragged_lines=True, **options)  # raises if long rows are not the reason
        cells = _with_trailing_separators(library, content, options, name)
    return typed(without_empty_rows(_named(cells, name), name), as_text, separator == ";")


def _with_trailing_separators(library: Any, content: bytes, options: dict[str, Any], name: str) -> Any:
    """Rows that end in one more separator than the header does: the header gets it too."""
    first, end, rest = content.partition(b"\n")
    wider = first.rstrip(b"\r") + options["separator"].encode() + end + rest
    try:
        cells = library.read_csv(wider, **options)
    except library.exceptions.ComputeError:
        cells = None
    if cells is None or cells[:, -1].drop_nulls().str.strip_chars().ne("").any():
        raise LongRowError(name)
    return cells[:, :-1]


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
        text = _decoded(content, "utf-16", name)
    else:
        text = _or_windows(content, name)
    if b"\x00" in text[:10_000] and not content.startswith(_ZSTD):
        raise InputError(f"{name} is not a text file: it holds NUL bytes.")
    # Line ends of old Macs.
    return text.replace(b"\r", b"\n") if b"\r" in text and b"\n" not in text else text


def _decoded(content: bytes, encoding: str, name: str) -> bytes:
    try:
        return content.decode(encoding).encode()
    except UnicodeDecodeError:
        raise InputError(f"{name} cannot be read as {encoding.upper()} text, which its first bytes announce.") from None


def _or_windows(content: bytes, name: str) -> bytes:
    try:
        content.decode()
        return content
    except UnicodeDecodeError:
        pass
    try:
        text, encoding = content.decode("cp1252"), "Windows-1252"
    except UnicodeDecodeError:
        text, encoding = content.decode("latin-1"), "Latin-1"
    warnings.warn(f"{name} is not UTF-8; read as {encoding}.", UserWarning, stacklevel=2)
    return text.encode()


def _first_line(library: Any, content: bytes) -> str:
    line = library.read_csv(content, has_header=False, n_rows=1, infer_schema=False, separator="\x01", quote_char=None)
    return str(line.item(0, 0) or "").lstrip("\ufeff")


def separator_of(header: str) -> str:
    """The separator that occurs most in the header, outside quotes; a comma if none does."""
    outside = "".join(header.split('"')[::2])
    return max(_SEPARATORS, key=outside.count)


def _named(cells: Any, name: str) -> Any:
    """The rows below the first, whose cells are the names; a column without a name and without values is no column."""
    library = polars()
    names = [str(word or "").lstrip("\ufeff").strip() for word in cells.row(0)]
    body = cells[1:]
    kept = [j for j, word in enumerate(names) if word or body[:, j].is_not_null().any()]
    names = [names[j] or f"column_{j + 1}" for j in kept]
    twice = sorted({column for column in names if names.count(column) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise InputError(f"{name} has columns of the same name: {listed(twice)}.")
    return library.DataFrame([body[:, j].alias(column) for j, column in zip(kept, names, strict=True)])


def without_empty_rows(frame: Any, name: str) -> Any:
    """The rows that have a value in some column. In a table of one column an empty row is a missing value."""
    library = polars()
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


def typed(frame: Any, as_text: set[str], decimal_commas: bool = False) -> Any:
    """Columns of text as integers, numbers, booleans or dates where all cells agree; `as_text` stay as they are.

    With `decimal_commas`, 3,14 is a number if some column has such numbers, and 1.234 is then an integer.
    """
    library = polars()
    names = [name for name, dtype in frame.schema.items() if dtype == library.String and name not in as_text]
    if decimal_commas and any(_has_decimal_commas(frame[name]) for name in names):
        frame = frame.with_columns(_with_points(frame[name]) for name in names)
    frame = _with_numbers(frame, names)
    rest = [series for series in frame.iter_columns() if series.dtype == library.String]
    return frame.with_columns(_typed(series, series.name in as_text) for series in rest)


def _with_numbers(frame: Any, names: list[str]) -> Any:
    """Columns of plain numbers, all at once: a table may have thousands, and every call of polars takes its time."""
    library = polars()
    if not names or not frame.height:
        return frame
    cells = library.col(names).str.strip_chars()
    text = frame.select(library.when(~cells.is_in(MISSING)).then(cells))
    missing = text.null_count().row(0, named=True)
    zeros = text.select(library.all().str.contains("^0[0-9]+$").any()).row(0, named=True)
    names = [name for name in names if missing[name] < frame.height and not (zeros[name] and are_codes(text[name]))]
    found: list[Any] = []
    for dtype in (library.Int64, library.Float64):
        if names:
            numbers = text.select(library.col(names).cast(dtype, strict=False))
            # Text such as "inf" is a number to polars, and a cell to report to us.
            finite = numbers.select((library.all().is_finite() | library.all().is_null()).all()).row(0, named=True)
            absent = numbers.null_count().row(0, named=True)
            done = {name for name in names if finite[name] and absent[name] == missing[name]}
            found += [numbers[name] for name in names if name in done]
            names = [name for name in names if name not in done]
    return frame.with_columns(found)


def _has_decimal_commas(series: Any) -> bool:
    """Whether all cells are numbers, and a comma of some cell can only be a decimal sign."""
    known = cleaned(series, MISSING).drop_nulls()
    with_comma = known.filter(known.str.contains(",", literal=True))
    return bool(known.str.contains(_DECIMAL_COMMA).all() and (~with_comma.str.contains(_UNSURE)).any())


def _with_points(series: Any) -> Any:
    """Numbers of a file with decimal commas in the form that polars reads; other columns as they are."""
    text = cleaned(series, MISSING)
    known = text.drop_nulls()
    if known.str.contains(_DECIMAL_COMMA).all():
        return text.str.replace(",", ".", literal=True)
    return text.str.replace_all(".", "", literal=True) if has_grouped_points(known) else series


def _typed(series: Any, as_text: bool) -> Any:
    """Booleans and dates; other text with null where it is missing."""
    text = cleaned(series, MISSING)
    kept = series.set(text.is_null(), None) if text.null_count() > series.null_count() else series
    known = text.drop_nulls()
    if as_text or known.is_empty():
        return kept
    if known.is_in(["true", "false"]).all():
        return text == "true"
    return _dates(text, known, kept)


def _dates(text: Any, known: Any, kept: Any) -> Any:
    """Dates with the year first, which are the same everywhere; others are read by the format that fit finds."""
    library = polars()
    if not known.head(1).str.contains(r"^\d{4}-\d{1,2}-\d{1,2}").all():
        return kept
    times = parse_dates(text, find_date_format(known) or DateFormat(YEAR_FIRST))
    if times.null_count() > text.null_count():
        return kept
    return times if known.str.contains(":", literal=True).any() else times.cast(library.Date)
