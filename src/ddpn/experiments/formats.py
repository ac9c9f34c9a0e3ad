"""A table of figures, and how it is written: Markdown, LaTeX, CSV."""

import csv
import io
import math
from collections.abc import Sequence
from typing import NamedTuple

_LATEX = {"\\": r"\textbackslash{}"} | {sign: f"\\{sign}" for sign in "&%$#_{}"}
_LATEX |= {"β": r"$\beta$", "γ": r"$\gamma$", "·": r"$\cdot$"}


class Cell(NamedTuple):
    """A figure, its spread over members where it has one, and the paper's; `rank` is 1 for the best of its column."""

    value: float | None
    spread: float | None = None
    paper: float | None = None
    rank: int | None = None


class TableOf(NamedTuple):
    """Rows of cells under columns, with a sentence above and notes below."""

    title: str
    columns: tuple[str, ...]
    rows: dict[str, list[Cell]]
    notes: tuple[str, ...]


def ranked(rows: dict[str, list[Cell]], low: Sequence[int], high: Sequence[int] = ()) -> dict[str, list[Cell]]:
    """With the best and the second best marked, by what is shown: of columns where low is good, or high is."""
    for column in (*low, *high):
        shown = {label: _shown(cells[column].value) for label, cells in rows.items() if _is_finite(cells[column].value)}
        places = sorted(set(shown.values()), key=float, reverse=column in high)
        for label, text in shown.items():
            if (place := places.index(text)) < 2:
                rows[label][column] = rows[label][column]._replace(rank=place + 1)
    return rows


def _is_finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _shown(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.2f}"


def _text(cell: Cell, mark: str = "{}") -> str:
    """Ours, marked, and the paper's beside it, which takes no part in the ranking."""
    ours = _shown(cell.value) + (f" ({_shown(cell.spread)})" if cell.spread is not None else "")
    return mark.format(ours) + (f" · paper {_shown(cell.paper)}" if cell.paper is not None else "")


def markdown(table: TableOf) -> str:
    """Best in bold, second underlined."""
    marks = {1: "**{}**", 2: "<u>{}</u>", None: "{}"}
    lines = [
        f"**{table.title}**",
        "",
        "| | " + " | ".join(table.columns) + " |",
        "|---" * (len(table.columns) + 1) + "|",
    ]
    for label, cells in table.rows.items():
        lines.append(f"| {label} | " + " | ".join(_text(cell, marks[cell.rank]) for cell in cells) + " |")
    return "\n".join([*lines, "", *(f"- {note}" for note in table.notes)]) + "\n"


def latex(table: TableOf) -> str:
    """A booktabs tabular."""
    marks = {1: r"\textbf{{{}}}", 2: r"\underline{{{}}}", None: "{}"}
    lines = [
        f"% {table.title}",
        r"\begin{tabular}{l" + "r" * len(table.columns) + "}",
        r"\toprule",
        " & ".join(["", *map(_escaped, table.columns)]) + r" \\",
        r"\midrule",
    ]
    for label, cells in table.rows.items():
        # Numbers hold nothing to escape but the dot before the paper's.
        shown = [_text(cell, marks[cell.rank]).replace("·", _LATEX["·"]) for cell in cells]
        lines.append(" & ".join([_escaped(label), *shown]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", *(f"% {note}" for note in table.notes)]) + "\n"


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(sign, sign) for sign in text)


def comma_separated(table: TableOf) -> str:
    """One line a figure: row, column, value, spread, paper, rank."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["row", "column", "value", "spread", "paper", "rank"])
    for label, cells in table.rows.items():
        for column, cell in zip(table.columns, cells, strict=True):
            values = ["" if v is None else f"{v:.6g}" for v in (cell.value, cell.spread, cell.paper, cell.rank)]
            writer.writerow([label, column, *values])
    return text.getvalue()


#: What a table is written as, by the file's ending.
FORMATS = {"md": markdown, "tex": latex, "csv": comma_separated}
