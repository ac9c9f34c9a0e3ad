"""Parse numbers in text, with thousands separators, decimal commas, currencies, units, brackets, or a final "+"."""

import re
from dataclasses import dataclass

import polars as pl

from ddpn.tables.cells import read_distinct_cells

_CURRENCY = r"(?:US\$|[$€£¥₹₩₪₽฿]|EUR|USD|GBP|CHF|JPY)"
#: What may follow a number. Letters in front of a number make a name: p12.
_UNIT = rf"(?:%|‰|{_CURRENCY}|[A-Za-zµμ°][A-Za-zµμ°²³/]{{0,9}})"
#: The pattern of digits with separators, by decimal sign.
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
#: The number of cells from which a format is guessed, and the least share of them that must look like numbers.
_MAX_GUESSED_CELLS, _MIN_NUMBER_SHARE = 2000, 0.4
#: Digits are codes such as zip codes if more than this share of the cells has leading zeros, even at unequal lengths.
_MIN_LEADING_ZERO_SHARE = 0.05


@dataclass(frozen=True)
class NumberFormat:
    """How numbers are written in a text column.

    Attributes
    ----------
    decimal : str
        The decimal sign, "." or ",". If it is "", because the column was not text in fit, the format of new text is
        guessed from that text.
    unit : str
        The unit or currency before or after the numbers, such as "kg"; "" if there is none.
    ambiguous : str
        An example such as "1,234" if no cell shows whether the comma is a decimal sign; otherwise "".
    integers : bool
        True if all values in fit were integers. The point in 31.287 is then a thousands separator.
    """

    decimal: str = ""
    unit: str = ""
    ambiguous: str = ""
    integers: bool = False


#: The format that programs write.
PLAIN = NumberFormat(".")


def _build_number_pattern(decimal: str, unit: str) -> str:
    """Return the regular expression that matches cells with a number, which may have a sign or be in brackets.

    `decimal` is the decimal sign, "." or ",". `unit` is the regular expression of the unit; "" means none.
    """
    before, after = (rf"(?:{unit}\s*)?", rf"(?:\s*{unit})?") if unit else ("", "")
    number = _DIGITS[decimal] + _EXPONENT
    return (
        rf"^(?:(?:[+-]\s*{before}|{before}[+-]?){number}{after}|"
        rf"\(\s*{before}{number}{after}\s*\)|{before}{number}{after}\s*-)$"
    )


def parse_numbers(text: pl.Series, number_format: NumberFormat) -> pl.Series:
    """Convert text to float64; cells that are not finite numbers in this format become null.

    `text` is a result of `clean_text`. Numbers in brackets are negative, and a final plus is ignored.

    >>> parse_numbers(pl.Series(["1,234", "(5)", "3 kg", "4 lb"]), NumberFormat(".", unit="kg")).to_list()
    [1234.0, -5.0, 3.0, None]
    >>> parse_numbers(pl.Series(["4", "5+"]), PLAIN).to_list()
    [4.0, 5.0]
    """
    numbers = text.cast(pl.Float64, strict=False)
    if number_format.decimal == ",":
        # With decimal commas, 1.234 means 1234, so only cells of digits alone are converted directly.
        numbers = numbers.set(~text.str.contains(r"^[+-]?[0-9]+$").fill_null(False), None)
    is_unread = numbers.is_null() & text.is_not_null()
    if is_unread.any():
        others = read_distinct_cells(
            text.filter(is_unread), lambda cells: _parse_formatted_numbers(cells, number_format)
        )
        numbers = numbers.scatter(is_unread.arg_true(), others)
    return numbers.set(~numbers.is_finite().fill_null(True), None).alias(text.name)


def _parse_formatted_numbers(text: pl.Series, number_format: NumberFormat) -> pl.Series:
    """Convert text that polars cannot read as numbers, such as "1,234" or "(5)", to float64.

    `number_format` says how the numbers are written. Cells that do not fit become null.
    """
    plain = _to_ascii(text).str.replace(OPEN_ENDED, "${1}")
    is_valid = plain.str.contains(_build_number_pattern(number_format.decimal, re.escape(number_format.unit)))
    core = plain.set(~is_valid, None).str.extract(_CORE, 1).str.replace_all("[ ']", "")
    if number_format.decimal == ",":
        core = core.str.replace_all(".", "", literal=True).str.replace(",", ".", literal=True)
    else:
        core = core.str.replace_all(",", "", literal=True)
    values = core.cast(pl.Float64, strict=False)
    return values.zip_with(~plain.str.contains(_NEGATIVE), -values)


def _to_ascii(text: pl.Series) -> pl.Series:
    """Replace typographic spaces and minus signs by ASCII characters."""
    if not text.str.contains(_BLANKS).any():
        return text
    return text.str.replace_all("\u2212", "-", literal=True).str.replace_all(_BLANKS, " ")


def find_number_format(text: pl.Series) -> NumberFormat | None:
    """Return the number format that fits most cells of a text column; return None if few cells look like numbers.

    `text` is a result of `clean_text`.
    """
    cells = text.drop_nulls()
    if cells.is_empty() or not cells.cast(pl.Float64, strict=False).null_count():
        return PLAIN
    guess = _guess_number_format(_to_ascii(cells.gather_every(max(1, len(cells) // _MAX_GUESSED_CELLS))))
    # A single unambiguous cell anywhere in the column decides.
    return _guess_number_format(_to_ascii(cells)) if guess is not None and guess.ambiguous else guess


def _guess_number_format(cells: pl.Series) -> NumberFormat | None:
    fits = {decimal: cells.str.contains(_build_number_pattern(decimal, _UNIT)) for decimal in _DIGITS}
    counts = {decimal: int(fit.sum()) for decimal, fit in fits.items()}
    decimal = "," if counts[","] > counts["."] else "."
    if counts[decimal] < _MIN_NUMBER_SHARE * len(cells):
        return None
    read = cells.filter(fits[decimal])
    ends = (rf"^[(+-]*\s*({_CURRENCY})", rf"({_UNIT})[) -]*$")
    units = pl.concat([read.str.extract(end, 1) for end in ends]).drop_nulls()
    unit = str(units.mode().sort()[0]) if len(units) else ""
    unsure = read.filter(read.str.contains(r"^[^0-9]*[0-9]{1,3},[0-9]{3}(?:[^0-9].*)?$"))
    is_ambiguous = len(unsure) and counts["."] == counts[","]
    return NumberFormat(decimal, unit, unsure[0] if is_ambiguous else "")


def describe_number_format(name: str, number_format: NumberFormat) -> tuple[str, ...]:
    """Describe in a sentence which assumptions were made to read the numbers of a column.

    Return a tuple of this sentence, or an empty tuple if there were none. `name` is the name of the column.
    """
    if number_format.ambiguous:
        meaning = "a decimal comma" if number_format.decimal == "," else "a thousands separator"
        return (f"Column {name}: the comma in values such as {number_format.ambiguous!r} is read as {meaning}.",)
    if number_format.unit:
        return (f"Column {name}: values with {number_format.unit!r} are read as numbers without it.",)
    return ()


def has_grouped_points(text: pl.Series) -> bool:
    """Return True if all cells are integers, and some have points as thousands separators.

    `text` is a result of `clean_text`.

    >>> has_grouped_points(pl.Series(["31.287", "-4", None])), has_grouped_points(pl.Series(["31.287", "4.5"]))
    (True, False)
    """
    cells = text.drop_nulls()
    is_dotted = cells.str.contains(".", literal=True)
    return bool(is_dotted.any() and cells.str.contains(r"^[+-]?[0-9]{1,3}(?:\.[0-9]{3})*$").all())


def are_codes(text: pl.Series) -> bool:
    """Return True if the cells are codes in which leading zeros matter, such as zip codes: 007 is not 7.

    `text` is a result of `clean_text`.
    """
    zeros = text.filter(text.str.starts_with("0")).str.contains("^0[0-9]+$")
    if not zeros.any():
        return False
    digits = text.filter(text.str.contains("^[0-9]+$").fill_null(False))
    present = len(text) - text.null_count()
    return digits.str.len_chars().n_unique() == 1 or int(zeros.sum()) > _MIN_LEADING_ZERO_SHARE * present
