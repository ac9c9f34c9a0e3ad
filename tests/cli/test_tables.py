"""Test tables of columns and facts that the model of the other tests does not have."""

import re
from contextlib import redirect_stdout
from io import StringIO

import pytest

from ddpn.cli.console import print_table
from ddpn.cli.tables import build_column_table, describe_model
from ddpn.tables.columns import Kind
from ddpn.tables.conversion import TableColumn
from ddpn.tables.roles import Roles


def test_columns_are_listed_with_roles_and_missing_values_up_to_a_limit():
    columns = (
        TableColumn("age", Kind.NUMBER, 1200, 60),
        TableColumn("when", Kind.DATE, 0, 9, ("day", "month")),
        *(TableColumn(f"c{j}", Kind.NUMBER) for j in range(73)),
    )
    with redirect_stdout(StringIO()) as captured, pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "160")
        print_table(build_column_table(Roles("y", "days", None, columns)))
    for words in ("days .* exposure", "age .* number .* 60 .* 1,200", "becomes day, month", "and 15 more"):
        assert re.search(words, captured.getvalue()), words


def test_a_cross_fitted_model_that_was_interrupted_says_so():
    task = {
        "split": {"rows": {"train": 661, "validation": 94, "test": 189}, "how": "at random"}, "interrupted": True,
        "roles": {"target": "y", "exposure": None, "weight": None, "columns": [{"name": "a", "left_out": ""}]},
        "plan": {"seed": 3}, "date": "today", "versions": {"python": "3"}, "missing": ["calibration", "scores"],
    }  # fmt: skip
    networks = {"likelihood": "poisson", "hidden": [], "head_options": {}, "best_epochs": [2], "copies": 5}
    members = {"networks": {"weight": 1.0, "facts": networks}, "constant": {"weight": 0.0, "facts": {}}}
    facts = dict(describe_model({"task": task, "members": members}))
    words = "100% of the mixture; likelihood poisson; hidden none; head_options default; copies 5"
    assert facts["Member networks"] == words
    assert facts["Rows"] == "755 rows, 5-fold cross-fitted; 189 test rows; split at random"
    assert facts["Interrupted"] == "yes, by Ctrl-C: not calibrated, not scored"
    assert (facts["Compared with"], facts["Exposure"], facts["Data"]) == ("constant", "none", "unknown")
