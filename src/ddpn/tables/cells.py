"""Clean text cells, recognise missing cells, and quote examples of cells in messages."""

from collections.abc import Callable, Sequence
from functools import cache

import polars as pl

#: Words for "no value" in any column; the option `missing` adds to them. An empty cell is always missing.
MISSING = ("", "NA", "N/A", "#N/A", "NaN", "nan", "null", "NULL", "None", "?")
#: Further words for "no value" in columns of numbers or dates, in lower case. In a text column they may be levels.
LOOKS_MISSING = (
    "-", "--", "---", ".", "..", "*", "n/a", "na", "n.a.", "n.a", "#n/a", "nan", "null", "nil", "none", "missing",
    "unknown", "not available", "no data", "undefined", "#value!", "#ref!", "#div/0!", "#num!", "#name?", "#null!",
    "nat", "<na>",
)  # fmt: skip
#: The most examples of cells in a sentence.
_MAX_EXAMPLES = 3


def is_text(series: pl.Series) -> bool:
    """Return True if a polars column holds text, which includes the types Categorical and Enum."""
    return series.dtype in (pl.String, pl.Categorical, pl.Enum)


def clean_text(series: pl.Series, missing: Sequence[str]) -> pl.Series:
    """Strip white space around the text of each cell, and set cells that equal a word in `missing` to null.

    `missing` are the words for missing values. A column of another type is converted to text first.
    """
    text = series.cast(pl.String).str.strip_chars()
    # A membership test of a null returns null, but the mask below must be boolean.
    is_missing = text.is_in([word.strip() for word in missing]).fill_null(True)
    return text.set(is_missing, None) if is_missing.any() else text


def looks_missing(text: pl.Series) -> pl.Series:
    """Return a mask of the cells that are null or that people write for "no value", such as "n/a" or "-".

    `text` is a result of `clean_text`.
    """
    return text.str.to_lowercase().is_in(LOOKS_MISSING).fill_null(True)


def read_distinct_cells(text: pl.Series, read: Callable[[pl.Series], pl.Series]) -> pl.Series:
    """Return `read(text)`, where `read` converts cells one by one.

    To save time, `read` is called with the distinct cells only.
    """
    cells = pl.DataFrame({"text": text})
    unique = cells["text"].unique()
    values = pl.DataFrame({"text": unique, "value": read(unique)})
    joined = cells.join(values, on="text", how="left", nulls_equal=True, maintain_order="left")
    return joined["value"].alias(text.name)


@cache
def parse_missing_numbers(missing: tuple[str, ...]) -> list[float]:
    """Return those of the words for missing values that are numbers, such as -999."""
    numbers = []
    for word in missing:
        try:
            numbers.append(float(word))
        except ValueError:
            continue
    return [value for value in numbers if value == value]


def format_examples(cells: pl.Series) -> str:
    """Quote at most three distinct cells for a message, followed by the number of further distinct cells, if any.

    >>> format_examples(pl.Series(["n/a", "x", "n/a"]))
    "'n/a', 'x'"
    """
    distinct = cells.drop_nulls().unique(maintain_order=True).to_list()
    words = (str(value) for value in distinct[:_MAX_EXAMPLES])
    shown = ", ".join(repr(word if len(word) <= 30 else f"{word[:27]}...") for word in words)
    return shown if len(distinct) <= _MAX_EXAMPLES else f"{shown} and {len(distinct) - _MAX_EXAMPLES:,} more"
