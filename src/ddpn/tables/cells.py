"""Cells of a table: which are missing, and how text is cleaned before it is read as a number, a date or a category."""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

#: What stands for "no value" in any column; `--missing` adds to it. An empty cell is always missing.
MISSING = ("", "NA", "N/A", "#N/A", "NaN", "nan", "null", "NULL", "None", "?")
#: Further words, in lower case, that say so in a column of numbers or dates. In a text column they may be levels.
LOOKS_MISSING = (
    "-", "--", "---", ".", "..", "*", "n/a", "na", "n.a.", "n.a", "#n/a", "nan", "null", "nil", "none", "missing",
    "unknown", "not available", "no data", "undefined", "#value!", "#ref!", "#div/0!", "#num!", "#name?", "#null!",
    "nat", "<na>",
)  # fmt: skip
#: Examples of cells that a sentence shows.
_SHOWN = 3


def polars() -> Any:
    """The polars library, imported on first use: help texts and wrong options need no table."""
    return import_module("polars")


def is_text(series: Any) -> bool:
    """Whether the column holds text of any sort."""
    library = polars()
    return series.dtype in (library.String, library.Categorical, library.Enum)


def cleaned(series: Any, missing: Sequence[str]) -> Any:
    """The text without blanks around it; null where it is one of `missing`."""
    text = series.cast(polars().String).str.strip_chars()
    # A null in a membership test is null, which the mask below must not be.
    is_missing = text.is_in([word.strip() for word in missing]).fill_null(True)
    return text.set(is_missing, None) if is_missing.any() else text


def looks_missing(text: Any) -> Any:
    """A mask of cleaned cells that are missing or say so in words."""
    return text.str.to_lowercase().is_in(LOOKS_MISSING).fill_null(True)


def read_once(text: Any, read: Callable[[Any], Any]) -> Any:
    """`read` of every cell, called with each spelling once: values come again and again."""
    library = polars()
    cells = library.DataFrame({"text": text})
    unique = cells["text"].unique()
    found = library.DataFrame({"text": unique, "value": read(unique)})
    joined = cells.join(found, on="text", how="left", nulls_equal=True, maintain_order="left")
    return joined["value"].alias(text.name)


def missing_numbers(missing: Sequence[str]) -> list[float]:
    """The numbers among the words for "no value", such as -999."""
    found = []
    for word in missing:
        try:
            found.append(float(word))
        except ValueError:
            continue
    return [value for value in found if value == value]


def examples(cells: Any) -> str:
    """Some different cells, as they are written, for a sentence.

    >>> import polars
    >>> examples(polars.Series(["n/a", "x", "n/a"]))
    "'n/a', 'x'"
    """
    known = cells.drop_nulls().unique(maintain_order=True).to_list()
    shown = ", ".join(_short(str(value)) for value in known[:_SHOWN])
    return shown if len(known) <= _SHOWN else f"{shown} and {len(known) - _SHOWN:,} more"


def _short(word: str) -> str:
    return repr(word if len(word) <= 30 else f"{word[:27]}...")
