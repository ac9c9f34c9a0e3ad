"""Where a table begins in a file, and how a title above its header is detected.

This module does not import polars.
"""

import csv
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from ddpn.runtime.errors import InputError, format_argument
from ddpn.runtime.validation import check_integer

#: How many rows, or bytes of text, at the beginning of a file are searched for a header below a title.
MAX_ROWS_ABOVE_HEADER, MAX_BYTES_ABOVE_HEADER = 20, 2**16
#: Signs that may separate the cells of a text table.
SEPARATORS = ",;\t|"


@dataclass(frozen=True)
class Layout:
    """The position of a table within a file.

    Parameters
    ----------
    sheet : str or int, optional
        The sheet of a workbook: its name, or its number from 1. Default: the first, with a warning if there are more.
    skip_rows : int, optional
        The number of rows above the header. Default: none, and an error if the first row looks like a title.
    """

    sheet: str | int | None = None
    skip_rows: int | None = None

    def __post_init__(self) -> None:
        if self.skip_rows is not None:
            check_integer("skip_rows", self.skip_rows)


#: A table that begins with the first row of a file.
WHOLE_FILE = Layout()


def find_header(rows: Sequence[Sequence[str | None]]) -> int | None:
    """Return the position of the header if there seems to be a title above it, else None.

    `rows` are the first rows of a file. The header is the first row with text in more than half of the columns. A row
    above it is a title if it begins in the same column as the header or further left. The header must have distinct
    words and no numbers, and must not be the last row.

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


def refuse_title(rows: Sequence[Sequence[str | None]], name: str) -> None:
    """Raise an `InputError` if a file begins with a title above the header.

    `rows` are the first rows of the file, and `name` is its name in the error.
    """
    header = find_header(rows)
    if header is not None:
        skip, keep = format_argument("skip_rows", header), format_argument("skip_rows", 0)
        title = next(cell.strip() for row in rows for cell in row if cell and cell.strip())
        raise InputError(
            f"{name} begins with a title, {title!r:.60}, and row {header + 1} looks like the header. Read it with "
            f"{skip}, or with {keep} if the first row is the header."
        )


def check_first_lines(content: bytes, separator: str | None, name: str) -> None:
    """Raise an `InputError` if a text file begins with a title above the header.

    `content` are the first bytes of the file, and `name` is its name in the error. With `separator=None`, the separator
    of cells is guessed.
    """
    lines = content.decode(errors="replace").lstrip("\ufeff").splitlines()[:MAX_ROWS_ABOVE_HEADER]
    with suppress(csv.Error):  # a damaged line is reported where the whole table is read
        tables: list[list[Sequence[str | None]]] = [
            list(csv.reader(lines, delimiter=sign)) for sign in (separator or SEPARATORS)
        ]
        refuse_title(max(tables, key=_count_similar_rows), name)


def _count_similar_rows(rows: Sequence[Sequence[str | None]]) -> int:
    """Return how many rows have the most frequent number of cells, where rows of one cell do not count.

    A separator that fits the text gives the largest number.
    """
    return max(Counter(len(row) for row in rows if len(row) > 1).values(), default=0)
