"""Canonical names of the levels of categories, which do not depend on the type or the spelling of a value.

The same level may arrive as 1, 1.0, True, "1" or " 1 ", depending on whether it comes from CSV, Parquet, an array of
objects, or pandas, where integers become floats if a value is missing. Fit and prediction must agree on its name.
"""

import re
from collections.abc import Iterable
from decimal import Decimal

import numpy as np

NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")


def canonical_level(value: object) -> str:
    """Return the name of a level.

    Integers are named without a decimal point, booleans in lower case, and text without white space around it.

    >>> [canonical_level(value) for value in (1, 1.0, 0.5, True, " a ", "007", "1.0")]
    ['1', '1', '0.5', 'true', 'a', '007', '1.0']
    """
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, bytes):
        return value.decode(errors="replace").strip()
    if isinstance(value, bool | np.bool_):
        return str(bool(value)).lower()
    if isinstance(value, int | np.integer):
        return str(int(value))
    if isinstance(value, float | np.floating | Decimal):
        # The shortest digits that identify the number: 0.1 in single precision is also named 0.1.
        number = float(str(value))
        return str(int(number)) if abs(number) < 2**63 and number.is_integer() else repr(number)
    return str(value).strip()


def canonical_number(value: object) -> str:
    """Return the name of a level in a category of numbers. Text that spells a number has the same name as the number.

    >>> [canonical_number(value) for value in ("007", "7.0", 7, " 7", "x", True, "-0", "-07", "+0")]
    ['7', '7', '7', '7', 'x', '1', '0', '-7', '0']
    >>> len(canonical_number("9" * 5000))
    5000
    """
    if isinstance(value, bool | np.bool_):
        return str(int(value))
    name = canonical_level(value)
    if NUMBER.fullmatch(name) is None:
        return name
    if not (digits := name.lstrip("+-")).isdecimal():
        return canonical_level(float(name))
    # Digits beyond the precision of a float stay as they are; there may be more than `int` takes.
    digits = digits.lstrip("0") or "0"
    return f"-{digits}" if name[0] == "-" and digits != "0" else digits


def have_numbers(levels: Iterable[str]) -> bool:
    """Return True if at least one level is a number, and every level that is a number has its canonical name.

    >>> have_numbers(["1", "2.5", "A"]), have_numbers(["1", "007"]), have_numbers(["A"])
    (True, False, False)
    """
    numbers = [level for level in levels if NUMBER.fullmatch(level)]
    return bool(numbers) and all(canonical_number(level) == level for level in numbers)


def parse_number_level(level: str) -> float | None:
    """Convert the name of a level to a number; return None if it does not spell a number."""
    return float(level) if NUMBER.fullmatch(level) else None


def parse_boolean_level(level: str) -> float | None:
    """Convert the name of a level to 1.0 for true and 0.0 for false; return None for other names."""
    return {"true": 1.0, "1": 1.0, "false": 0.0, "0": 0.0}.get(canonical_number(level).lower())
