"""Numbers written as text: thousands separators, decimal commas, currencies, units, brackets, "5+" for 5 or more."""

import re
from dataclasses import dataclass
from typing import Any

from ddpn.tables.cells import polars, read_once

_CURRENCY = r"(?:US\$|[$€£¥₹₩₪₽฿]|EUR|USD|GBP|CHF|JPY)"
#: What may follow a number. Letters in front of a number make a name: p12.
_UNIT = rf"(?:%|‰|{_CURRENCY}|[A-Za-zµμ°][A-Za-zµμ°²³/]{{0,9}})"
#: Digits with their separators, if the decimal sign is a point and if it is a comma.
_DIGITS = {
    ".": r"(?:(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,2}(?:,[0-9]{2})+,[0-9]{3}|[0-9]{1,3}(?: [0-9]{3})+|"
    r"[0-9]{1,3}(?:'[0-9]{3})+|[0-9]+)(?:\.[0-9]*)?|\.[0-9]+)",
    ",": r"(?:(?:[0-9]{1,3}(?:\.[0-9]{3})+|[0-9]{1,3}(?: [0-9]{3})+|[0-9]{1,3}(?:'[0-9]{3})+|[0-9]+)(?:,[0-9]*)?|"
    r",[0-9]+)",
}
_EXPONENT = r"(?:[eE][+-]?[0-9]{1,3})?"
#: The plus of "5+": that many or more.
OPEN_ENDED = r"([0-9])\s*\+$"
_NEGATIVE = r"^\(|-$|^[^0-9.,]*-"
_CORE = rf"([0-9.,](?:[0-9., ']*[0-9.,])?{_EXPONENT})"
_BLANKS = r"[\u{00A0}\u{2009}\u{202F}\u{2212}]"
#: Cells that a format is found from, and the share of them that has to look like numbers to go on with all cells.
_SAMPLE, _HOPEFUL = 2000, 0.4
#: The share of leading zeros above which digits are codes such as zip codes, whatever their lengths.
_CODES = 0.05


@dataclass(frozen=True)
class NumberFormat:
    """How the numbers of a column are written: the decimal sign, and the unit that they may have.

    Without a decimal sign they were no text in fit, and a later table that has text says itself how it is written.
    `ambiguous` is a cell such as "1,234" if no cell of the column says whether its comma is a decimal sign. `integers`
    is whether all values of the fit were integers: the points of a later 31.287 are then thousands separators.
    """

    decimal: str = ""
    unit: str = ""
    ambiguous: str = ""
    integers: bool = False


#: What programs write.
PLAIN = NumberFormat(".")


def _pattern(decimal: str, unit: str) -> str:
    """A whole cell: with a sign in front, in brackets, or with a minus at its end."""
    before, after = (rf"(?:{unit}\s*)?", rf"(?:\s*{unit})?") if unit else ("", "")
    number = _DIGITS[decimal] + _EXPONENT
    return (
        rf"^(?:(?:[+-]\s*{before}|{before}[+-]?){number}{after}|"
        rf"\(\s*{before}{number}{after}\s*\)|{before}{number}{after}\s*-)$"
    )


def parse_numbers(text: Any, written: NumberFormat) -> Any:
    """Cleaned text as float64; null where a cell is not a finite number in this format.

    >>> import polars
    >>> parse_numbers(polars.Series(["1,234", "(5)", "3 kg", "4 lb"]), NumberFormat(".", unit="kg")).to_list()
    [1234.0, -5.0, 3.0, None]
    >>> parse_numbers(polars.Series(["4", "5+"]), PLAIN).to_list()
    [4.0, 5.0]
    """
    library = polars()
    numbers = text.cast(library.Float64, strict=False)
    if written.decimal == ",":
        # 1.234 is 1234 here, so that the plain reading serves digits alone.
        numbers = numbers.set(~text.str.contains(r"^[+-]?[0-9]+$").fill_null(False), None)
    rest = numbers.is_null() & text.is_not_null()
    if rest.any():
        others = read_once(text.filter(rest), lambda cells: _formatted(cells, written))
        numbers = numbers.scatter(rest.arg_true(), others)
    return numbers.set(~numbers.is_finite().fill_null(True), None).alias(text.name)


def _formatted(text: Any, written: NumberFormat) -> Any:
    """Cells that polars cannot read as numbers."""
    library = polars()
    plain = _ascii(text).str.replace(OPEN_ENDED, "${1}")
    is_valid = plain.str.contains(_pattern(written.decimal, re.escape(written.unit)))
    core = plain.set(~is_valid, None).str.extract(_CORE, 1).str.replace_all("[ ']", "")
    if written.decimal == ",":
        core = core.str.replace_all(".", "", literal=True).str.replace(",", ".", literal=True)
    else:
        core = core.str.replace_all(",", "", literal=True)
    values = core.cast(library.Float64, strict=False)
    return values.zip_with(~plain.str.contains(_NEGATIVE), -values)


def _ascii(text: Any) -> Any:
    """Blanks and minus signs of typesetters as those of a keyboard."""
    if not text.str.contains(_BLANKS).any():
        return text
    return text.str.replace_all("\u2212", "-", literal=True).str.replace_all(_BLANKS, " ")


def find_number_format(text: Any) -> NumberFormat | None:
    """The format that most cells of cleaned text agree with; None if few look like numbers."""
    library = polars()
    known = text.drop_nulls()
    if known.is_empty() or not known.cast(library.Float64, strict=False).null_count():
        return PLAIN
    found = _format_of(_ascii(known.gather_every(max(1, len(known) // _SAMPLE))))
    # One decisive cell is enough, wherever it stands.
    return _format_of(_ascii(known)) if found is not None and found.ambiguous else found


def _format_of(some: Any) -> NumberFormat | None:
    fits = {decimal: some.str.contains(_pattern(decimal, _UNIT)) for decimal in _DIGITS}
    counts = {decimal: int(fit.sum()) for decimal, fit in fits.items()}
    decimal = "," if counts[","] > counts["."] else "."
    if counts[decimal] < _HOPEFUL * len(some):
        return None
    read = some.filter(fits[decimal])
    ends = (rf"^[(+-]*\s*({_CURRENCY})", rf"({_UNIT})[) -]*$")
    units = polars().concat([read.str.extract(end, 1) for end in ends]).drop_nulls()
    unit = units.mode().sort().first() if len(units) else ""
    unsure = read.filter(read.str.contains(r"^[^0-9]*[0-9]{1,3},[0-9]{3}(?:[^0-9].*)?$"))
    is_ambiguous = len(unsure) and counts["."] == counts[","]
    return NumberFormat(decimal, unit, unsure[0] if is_ambiguous else "")


def about_numbers(name: str, written: NumberFormat) -> tuple[str, ...]:
    """A sentence about what was assumed to read the numbers of a column, if anything was."""
    if written.ambiguous:
        meaning = "a decimal comma" if written.decimal == "," else "a thousands separator"
        return (f"Column {name}: the comma in values such as {written.ambiguous!r} is read as {meaning}.",)
    if written.unit:
        return (f"Column {name}: values with {written.unit!r} are read as numbers without it.",)
    return ()


def has_grouped_points(text: Any) -> bool:
    """Whether cleaned text holds integers whose thousands are separated by points: every point before three digits.

    >>> import polars
    >>> has_grouped_points(polars.Series(["31.287", "-4", None])), has_grouped_points(polars.Series(["31.287", "4.5"]))
    (True, False)
    """
    known = text.drop_nulls()
    is_dotted = known.str.contains(".", literal=True)
    return bool(is_dotted.any() and known.str.contains(r"^[+-]?[0-9]{1,3}(?:\.[0-9]{3})*$").all())


def are_codes(text: Any) -> bool:
    """Whether cleaned text holds digits with leading zeros that matter, such as zip codes: 007 is not 7."""
    zeros = text.str.contains("^0[0-9]+$").fill_null(False)
    if not zeros.any():
        return False
    digits = text.filter(text.str.contains("^[0-9]+$").fill_null(False))
    present = len(text) - text.null_count()
    return digits.str.len_chars().n_unique() == 1 or int(zeros.sum()) > _CODES * present
