"""A table as Markdown, LaTeX and CSV."""

import csv
import re

from ddpn.paper.experiments.formats import Cell, Table, comma_separated, latex, markdown, ranked

TABLE = Table(
    "50% more",
    ("MAE & more", "CRPS"),
    {"β-DDPN, a_b": [Cell(0.5, 0.1, 0.6, 1), Cell(12.3456)], 'say "x"': [Cell(0.7, None, None, 2), Cell(None)]},
    ("100% true",),
)


def test_markdown_marks_ours_alone():
    lines = markdown(TABLE).splitlines()
    assert lines[4] == "| β-DDPN, a_b | **0.500 (0.100)** · paper 0.600 | 12.35 |"
    assert lines[5] == '| say "x" | <u>0.700</u> |  |'
    assert len({line.count("|") for line in lines[2:6]}) == 1
    assert lines[-1] == "- 100% true"


def test_latex_has_equal_columns_and_nothing_unescaped():
    text = latex(TABLE)
    body = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert [len(re.findall(r"(?<!\\)&", line)) for line in body] == [2, 2, 2]
    assert r"$\beta$-DDPN, a\_b & \textbf{0.500 (0.100)} $\cdot$ paper 0.600 & 12.35 \\" in body
    assert r"MAE \& more" in body[0]
    assert r"\underline{0.700}" in body[2]
    for opened in ("begin{tabular}{lrr}", "toprule", "midrule", "bottomrule", "end{tabular}"):
        assert text.count("\\" + opened) == 1
    assert text.count("{") == text.count("}")
    comments = [line for line in text.splitlines() if "%" in line]
    assert all(line.startswith("% ") for line in comments)


def test_csv_reads_back():
    rows = list(csv.DictReader(comma_separated(TABLE).splitlines()))
    assert [row["row"] for row in rows] == ["β-DDPN, a_b"] * 2 + ['say "x"'] * 2
    assert rows[0] == {
        "row": "β-DDPN, a_b", "column": "MAE & more", "value": "0.5", "spread": "0.1", "paper": "0.6", "rank": "1"
    }  # fmt: skip
    assert float(rows[1]["value"]) == 12.3456
    assert rows[3]["value"] == ""


def test_the_best_of_a_column_is_the_lowest_or_the_highest():
    rows = {"a": [Cell(1.0), Cell(1.0), Cell(1.0)], "b": [Cell(2.0), Cell(2.0), Cell(2.0)]}
    marked = ranked(rows, low=(0,), high=(1,))
    assert [[cell.rank for cell in cells] for cells in marked.values()] == [[1, 2, None], [2, 1, None]]
