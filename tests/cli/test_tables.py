"""Tables of columns, scores and facts."""

import re
from contextlib import redirect_stdout
from io import StringIO

import pytest

from ddpn.cli.console import show
from ddpn.cli.tables import column_table, model_facts
from ddpn.tables.kinds import TableColumn
from ddpn.tables.roles import Roles


def text(table) -> str:
    with redirect_stdout(StringIO()) as captured, pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "160")
        show(table)
    return captured.getvalue()


def test_columns_with_their_roles_missing_values_and_notes():
    columns = (
        TableColumn("age", "number", 1200, 60),
        TableColumn("when", "date", 0, 9, ("day", "month")),
        TableColumn("id", "category", left_out="row numbers"),
    )
    shown = text(column_table(Roles("y", "days", None, columns)))
    for words in (
        "y .* target",
        "days .* exposure",
        "age .* number .* 60 .* 1,200",
        "becomes day, month",
        "left out: row numbers",
    ):
        assert re.search(words, shown), words


def test_many_columns_are_counted():
    many = tuple(TableColumn(f"c{j}", "number") for j in range(75))
    assert "and 15 more" in text(column_table(Roles("y", None, None, many)))


def test_there_is_no_column_for_notes_without_notes():
    plain = column_table(Roles("y", None, None, (TableColumn("age", "number", 0, 60),)))
    assert [column.header for column in plain.columns] == ["column", "used as", "distinct", "missing"]


def test_a_cross_fitted_model_has_one_number_of_rows():
    task = TASK | {"split": {"rows": {"train": 661, "validation": 94, "test": 189}, "how": "at random"}}
    members = {"trees": {"weight": 1.0, "facts": {"copies": 5}}}
    facts = dict(model_facts({"task": task, "members": members}))
    assert facts["Rows"] == "755 rows, 5-fold cross-fitted; 189 test rows; split at random"


TASK = {
    "split": {"rows": {"train": 1, "validation": 0, "test": 1}, "how": "by column x"},
    "interrupted": True,
    "roles": {"target": "y", "exposure": None, "weight": None, "columns": [{"name": "a", "left_out": ""}]},
    "plan": {"seed": 3},
    "date": "today",
    "versions": {"python": "3"},
}


def test_facts_about_a_model():
    networks = {"likelihood": "poisson", "networks": 1, "hidden": [], "head_options": {}, "best_epochs": [2]}
    members = {
        "networks": {"weight": 0.7, "facts": networks},
        "glm": {"weight": 0.3, "facts": {"likelihood": "poisson"}},
        "constant": {"weight": 0.0, "facts": {}},
    }
    facts = dict(model_facts({"task": TASK, "members": members}))
    assert facts["Member networks"].startswith("70% of the mixture; likelihood poisson; networks 1; hidden none")
    assert "best_epochs" not in facts["Member networks"]
    assert facts["Member glm"] == "30% of the mixture; likelihood poisson"
    assert facts["Compared with"] == "constant"
    assert facts["Interrupted"] == "yes, by Ctrl-C"
    assert facts["Rows"] == "1 row; 1 test row; split by column x"
    assert (facts["Columns needed"], facts["Exposure"], facts["Data"]) == ("a", "none", "unknown")
