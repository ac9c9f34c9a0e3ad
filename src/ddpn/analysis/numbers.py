"""Numbers as text."""

import math
from typing import Any


def fmt(value: float, integers: bool = True) -> str:
    """About three digits, with commas between thousands; `integers` are shown without decimals.

    >>> [fmt(v) for v in (0.01234, 3.14159, 25.0, 1234567.0, 0.0)], fmt(2.0, integers=False)
    (['0.012', '3.14', '25', '1,234,567', '0'], '2.00')
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
    """A share in percent; a small share is not rounded to 0, nor a large one to 100.

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
    """A number and its noun.

    >>> plural(1, "row"), plural(2000, "row")
    ('1 row', '2,000 rows')
    """
    return f"{number:,} {one if number == 1 else more or one + 's'}"


def value_text(value: Any) -> str:
    """A value of a column: about four digits, without commas, as a year has none, and without an exponent.

    >>> [value_text(v) for v in (1974.0, 0.123456, 250_000.0, True, "north")]
    ['1974', '0.1235', '250000', 'yes', 'north']
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if 1e3 <= abs(value) < 1e9 else f"{value:.4g}"
