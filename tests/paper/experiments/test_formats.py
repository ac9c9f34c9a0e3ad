"""A table as Markdown and CSV."""

import csv

from ddpn.paper.experiments.formats import Cell, Table, comma_separated, markdown, ranked

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
