"""Format numbers as text, and tables for a terminal or as HTML."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from html import escape
from typing import Self


def as_text(value: object) -> str:
    """Format a value as a table cell: numbers with about four digits, and missing values as a dash.

    >>> [as_text(value) for value in (0.123456, 1234.5, 3, True, None, "north")]
    ['0.1235', '1,234', '3', 'yes', '–', 'north']
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if is_whole or (isinstance(value, float) and 1e3 <= abs(value) < 1e9):
        return f"{value:,.0f}"
    return value_text(value)


@dataclass(frozen=True)
class TextTable:
    """A table to show to users: `str(table)` is for a terminal, and `to_html()` for a web page.

    The first `n_name_columns` columns hold names and are aligned left; the others are aligned right. `bold` has the
    positions (row, column) of bold cells; only HTML shows them as bold. `caption` is shown above the table in reports.
    `hidden` is the number of further rows that are not shown.

    >>> print(TextTable(("name", "CRPS"), [("trees", 1.5), ("GLM", 12)], hidden=3))
    name   CRPS
    trees   1.5
    GLM      12
    ... and 3 more rows
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[object]]
    n_name_columns: int = 1
    bold: Collection[tuple[int, int]] = ()
    caption: str = ""
    hidden: int = 0

    @classmethod
    def from_columns(cls, columns: Mapping[str, Sequence[object]], max_rows: int = 10) -> Self:
        """Make a table from a dict of columns. Only the first `max_rows` rows are shown."""
        rows = list(zip(*columns.values(), strict=True))
        return cls(list(columns), rows[:max_rows], hidden=max(0, len(rows) - max_rows))

    def __str__(self) -> str:
        columns = []
        for number, heading in enumerate(self.headings):
            texts = [heading, *(as_text(row[number]) for row in self.rows)]
            side, width = "<" if number < self.n_name_columns else ">", max(map(len, texts))
            columns.append([f"{text:{side}{width}}" for text in texts])
        lines = ["  ".join(line).rstrip() for line in zip(*columns, strict=True)]
        return "\n".join([*lines, *([f"... and {plural(self.hidden, 'more row')}"] if self.hidden else [])])

    def to_html(self) -> str:
        """Return the table as HTML, with all text escaped.

        >>> TextTable(("name", "CRPS"), [("<b>", 1.5)], bold={(0, 1)}).to_html().count("<b>")
        0
        """
        head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in self.headings)
        body = ""
        for i, row in enumerate(self.rows):
            texts = [escape(as_text(value)) for value in row]
            cells = (f"<strong>{text}</strong>" if (i, j) in self.bold else text for j, text in enumerate(texts))
            body += f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>\n"
        more = f"<p>and {plural(self.hidden, 'more row')}</p>" if self.hidden else ""
        return f"<table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>{more}"


# Numbers in sentences and figures -----------------------------------------------------------------------------------


def format_number(value: float, integers: bool = True) -> str:
    """Format a number with about three digits and commas between thousands.

    If `integers` is True, whole numbers have no decimals.

    >>> [format_number(v) for v in (0.0123, 0.00123, 3.14159, 12.34, -2.0, 1e6, 2.487e11, math.nan)]
    ['0.012', '0.00123', '3.14', '12.3', '-2', '1,000,000', '2.49e11', '–']
    >>> format_number(2.0, integers=False)
    '2.00'
    """
    if not math.isfinite(value):
        return "–" if math.isnan(value) else "∞" if value > 0 else "-∞"
    size = abs(value)
    if size >= 1e9:
        return f"{value:.2e}".replace("e+", "e")
    if size >= 100 or (integers and value == round(value)):
        return f"{value:,.0f}"
    if size >= 1:
        return f"{value:.{1 if size >= 10 else 2}f}"
    return f"{value:.3f}" if size >= 0.01 else f"{value:.3g}"


def percent(share: float, digits: int = 1) -> str:
    """Format a share as a percentage. Only exactly 0 and 1 become 0% and 100%.

    >>> percent(0.8912), percent(1.0), percent(0.25, 0), percent(0.0002), percent(0.9999)
    ('89.1%', '100%', '25%', '<0.1%', '>99.9%')
    """
    least = 10.0**-digits
    if 0.0 < share < 0.005 * least:
        return f"<{least:g}%"
    if 1.0 - 0.005 * least < share < 1.0:
        return f">{100 - least:g}%"
    return f"{100 * share:.0f}%" if share in (0.0, 1.0) else f"{100 * share:.{digits}f}%"


def plural(number: int, one: str, more: str | None = None) -> str:
    """Format a number with its noun: `one` if the number is 1, otherwise `more`.

    By default, `more` is `one` with an s.

    >>> plural(1, "row"), plural(2000, "row")
    ('1 row', '2,000 rows')
    """
    return f"{number:,} {one if number == 1 else more or one + 's'}"


def describe_row_counts(rows: Mapping[str, int], folds: int = 0) -> str:
    """Describe how many rows a model was fitted to and scored on.

    `rows` has the numbers of training, validation and test rows. `folds` is the number of folds of a cross-fitted
    model, or 0.

    >>> describe_row_counts({"train": 661, "validation": 94, "test": 189}, folds=5)
    '755 rows, 5-fold cross-fitted; 189 test rows'
    >>> describe_row_counts({"train": 661, "validation": 94})
    '661 training rows, 94 validation rows'
    >>> describe_row_counts({"train": 944, "validation": 0, "test": 0}, folds=5)
    '944 rows, 5-fold cross-fitted and scored out of fold; no test rows'
    """
    train, validation, test = (rows.get(part, 0) for part in ("train", "validation", "test"))
    if folds:
        words = f"{plural(train + validation, 'row')}, {folds}-fold cross-fitted"
        if "test" in rows and not test:
            return f"{words} and scored out of fold; no test rows"
    else:
        words = plural(train, "training row") + (f", {plural(validation, 'validation row')}" if validation else "")
    return f"{words}; {plural(test, 'test row')}" if test else words


def value_text(value: object, is_day: bool = False) -> str:
    """Format the value of an input column, with about four digits.

    Numbers have no exponent, and no commas between thousands, because they may be years. If `is_day` is True, the
    number counts days since 1970 and becomes a date.

    >>> [value_text(v) for v in (1974.0, 0.123456, 250_000.0, True, "north")]
    ['1974', '0.1235', '250000', 'yes', 'north']
    >>> value_text(19_723.0, is_day=True), value_text("missing", is_day=True)
    ('2024-01-01', 'missing')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, float):
        return str(value)
    if is_day:
        return format_day(value)
    return f"{value:.0f}" if 1e3 <= abs(value) < 1e9 else f"{value:.4g}"


def format_day(days: float) -> str:
    """Format a number of days since 1970 as a date; if it is outside the calendar, format it as a number."""
    try:
        return (date(1970, 1, 1) + timedelta(days=int(days))).isoformat()
    except OverflowError:
        return f"{days:.6g}"


def interval_words(low: float, high: float, probability: float) -> str:
    """Format an interval of counts with its probability.

    >>> interval_words(2, 7, 0.934), interval_words(0, 12_000, 0.99999)
    ('2 to 7 (93%)', '0 to 12,000 (over 99.9%)')
    """
    share = "over 99.9%" if probability > 0.9995 else f"{100 * probability:.1f}%" if probability > 0.985 else None
    return f"{low:,.0f} to {high:,.0f} ({share or f'{100 * probability:.0f}%'})"
