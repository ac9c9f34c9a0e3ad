"""Results as tables for people: text for a terminal, HTML for notebooks and pages, where every text is escaped."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape
from typing import Any

#: Rows of a long table that are shown.
_ROWS = 12


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def as_text(value: Any) -> str:
    """A value as a cell: numbers with about four digits, a dash for what is missing.

    >>> [as_text(value) for value in (0.123456, 1234.5, 3, True, None, "north")]
    ['0.1235', '1,234', '3', 'yes', '–', 'north']
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) or (isinstance(value, float) and 1e3 <= abs(value) < 1e9):
        return f"{value:,.0f}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def escaped(value: Any) -> str:
    """A value as HTML."""
    return value if isinstance(value, Html) else escape(as_text(value))


def html_table(
    headings: Iterable[Any],
    rows: Iterable[Iterable[Any]],
    best: Collection[tuple[int, int]] = frozenset(),
    attributes: str = "",
) -> str:
    """A table as HTML; `best` are cells (row, column) in bold, `attributes` those of the tag.

    >>> html_table(("name", "CRPS"), [("<b>", 1.5)], best={(0, 1)}).count("<b>")
    0
    """
    head = "".join(f'<th scope="col">{escaped(cell)}</th>' for cell in headings)
    body = ""
    for i, row in enumerate(rows):
        cells = (f"<strong>{escaped(c)}</strong>" if (i, j) in best else escaped(c) for j, c in enumerate(row))
        body += f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>\n"
    return f"<table{attributes}><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>"


def text_table(headings: Sequence[str], rows: Iterable[Iterable[Any]], names: int = 1) -> str:
    """A table as lines of text; all columns after the first, or the first `names`, are aligned at the right.

    >>> print(text_table(("name", "CRPS"), [("trees", 1.5), ("GLM", 12)]))
    name   CRPS
    trees   1.5
    GLM      12
    """
    cells = [list(row) for row in rows]
    columns = []
    for j, heading in enumerate(headings):
        texts = [heading, *(as_text(row[j]) for row in cells)]
        side = "<" if j < names else ">"
        width = max(map(len, texts))
        columns.append([f"{text:{side}{width}}" for text in texts])
    return "\n".join("  ".join(line).rstrip() for line in zip(*columns, strict=True))


def html_columns(columns: Mapping[str, Sequence[Any]]) -> str:
    """The first rows of a table that is given by columns, as HTML."""
    rows = list(zip(*columns.values(), strict=True))
    more = f"<p>and {len(rows) - _ROWS:,} more rows</p>" if len(rows) > _ROWS else ""
    return html_table(columns, rows[:_ROWS]) + more
