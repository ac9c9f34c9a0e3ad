"""A table of numbers as Markdown and CSV."""

import csv
import io
import math
from collections.abc import Sequence
from typing import NamedTuple


class Cell(NamedTuple):
    """A number, its standard deviation over members, and the paper's number; `rank` is 1 for the best of a column."""

    value: float | None
    spread: float | None = None
    paper: float | None = None
    rank: int | None = None


class Table(NamedTuple):
    """Rows of cells under columns, with a title above and notes below."""

    title: str
    columns: tuple[str, ...]
    rows: dict[str, list[Cell]]
    notes: tuple[str, ...]


def ranked(rows: dict[str, list[Cell]], low: Sequence[int], high: Sequence[int] = ()) -> dict[str, list[Cell]]:
    """Mark the best and second best, by the printed digits, of columns where low or where high values are good."""
    for column in (*low, *high):
        values = {label: cells[column].value for label, cells in rows.items()}
        shown = {label: _shown(value) for label, value in values.items() if value is not None and math.isfinite(value)}
        places = sorted(set(shown.values()), key=float, reverse=column in high)
        for label, text in shown.items():
            if (place := places.index(text)) < 2:
                rows[label][column] = rows[label][column]._replace(rank=place + 1)
    return rows


def _shown(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.2f}"


def _text(cell: Cell, mark: str = "{}") -> str:
    """Our number, marked, and beside it the paper's, which is not ranked."""
    ours = _shown(cell.value) + (f" ({_shown(cell.spread)})" if cell.spread is not None else "")
    return mark.format(ours) + (f" · paper {_shown(cell.paper)}" if cell.paper is not None else "")


def markdown(table: Table) -> str:
    """Best in bold, second best underlined."""
    marks = {1: "**{}**", 2: "<u>{}</u>", None: "{}"}
    lines = [f"**{table.title}**", ""]
    lines += ["| | " + " | ".join(table.columns) + " |", "|---" * (len(table.columns) + 1) + "|"]
    for label, cells in table.rows.items():
        lines.append(f"| {label} | " + " | ".join(_text(cell, marks[cell.rank]) for cell in cells) + " |")
    return "\n".join([*lines, "", *(f"- {note}" for note in table.notes)]) + "\n"


def comma_separated(table: Table) -> str:
    """One line per cell: row, column, value, spread, paper, rank."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["row", "column", *Cell._fields])
    for label, cells in table.rows.items():
        for column, cell in zip(table.columns, cells, strict=True):
            writer.writerow([label, column, *("" if value is None else f"{value:.6g}" for value in cell)])
    return text.getvalue()


#: What a table is written as, by the ending of the file.
FORMATS = {"md": markdown, "csv": comma_separated}
