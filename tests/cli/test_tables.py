"""What tables show of many columns and of large numbers."""

import re

import pytest
from rich.console import Console

from ddpn.cli.tables import _linear, column_table, model_facts, number, score_table
from ddpn.workflow.roles import Column, Roles


def text(table) -> str:
    console = Console(width=160)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


@pytest.mark.parametrize(
    ("value", "shown"), [(0.123456, "0.1235"), (12.3456, "12.35"), (999.96, "1000"), (12345.6, "12,346"), (0.0, "0")]
)
def test_numbers_have_four_digits(value, shown):
    assert number(value) == shown


def test_columns_with_their_roles_gaps_and_notes():
    columns = (
        Column("age", "number", 1200, 60),
        Column("when", "date", 0, 9, ("day", "month")),
        Column("id", "category", left_out="as asked"),
    )
    shown = text(column_table(Roles("y", "days", None, columns)))
    for words in (
        "y .* target",
        "days .* exposure",
        "age .* number .* 60 .* 1,200",
        "becomes day, month",
        "left out: as asked",
    ):
        assert re.search(words, shown), words


def test_many_columns_are_counted():
    many = tuple(Column(f"c{j}", "number") for j in range(75))
    assert "and 15 more" in text(column_table(Roles("y", None, None, many)))


def test_the_best_crps_is_marked():
    row = {"mae": 1.0, "crps": 2.0, "coverage": 0.905, "width": 3.0}
    table = score_table({"ddpn": row, "constant": row | {"crps": 1.5}}, 1234)
    assert [cells.style for cells in table.rows] == [None, "bold"]
    shown = text(table)
    assert "Scores on 1,234 rows" in shown
    assert "90.5%" in shown


def test_a_stopped_model_says_so():
    task = {
        "split": {"rows": {"train": 1, "validation": 0, "test": 1}, "how": "by column x"},
        "interrupted": True,
        "roles": {"target": "y", "exposure": None, "weight": None, "columns": [{"name": "a", "left_out": ""}]},
        "plan": {"seed": 3},
        "date": "today",
        "versions": {"python": "3"},
    }
    about = {
        "task": task,
        "likelihood": "poisson",
        "members": 1,
        "linear_members": 0,
        "hidden": [],
        "numeric": "steps",
        "epochs": 2,
        "seconds": 9.0,
    }
    facts = dict(model_facts(about))
    assert facts["Trained"] == "2 epochs in 9 s, then stopped by Ctrl-C"
    assert facts["Model"] == "poisson, 1 members of widths none (linear)"
    assert "Linear part" not in facts


def test_a_glm_beside_the_networks_is_told_with_its_share():
    assert _linear({"members": 5, "linear_members": 2}) == "a GLM with 29% of the mixture"
