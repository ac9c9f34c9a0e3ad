"""Sections of a report: tables and facts against numpy; what is needed to reproduce the numbers."""

import platform
import re
from importlib.metadata import version
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ddpn.analysis.explanations import Importance, Importances
from ddpn.analysis.report import sections
from ddpn.analysis.report.sections import (
    cell_text,
    column_table,
    data_facts,
    description,
    leaderboard_section,
    likelihood_text,
    members_text,
    reproduction,
)
from ddpn.members.networks import Networks
from ddpn.networks.training import History
from ddpn.tables.encoding.table import Column


def test_the_facts_are_those_of_the_counts(evidence, data):
    y = data[1]
    facts = dict(data_facts(evidence, "visits"))
    assert facts["Rows evaluated"] == "300 rows"
    assert facts["Mean visits"] == f"{y.mean():.2f}"
    assert facts["Variance"] == f"{y.var():.1f}"
    assert facts["Zeros"] == f"{100 * (y == 0).mean():.1f}%"
    assert facts["Columns"] == "2 numbers, 1 yes/no, 1 category"
    assert not {"Exposure", "Weights"} & set(facts)


def test_draws_weights_and_exposures_are_shown(evidence, made):
    known = made(evidence.dist, evidence.y, columns=evidence.columns, exposure=np.linspace(0.5, 2, 300))
    changed = known._replace(total=10**6, weight=np.linspace(1, 3, 300))
    facts = dict(data_facts(changed, "visits"))
    assert (facts["Rows evaluated"], facts["Exposure"]) == ("300 rows of 1,000,000", "0.500 to 2")
    assert facts["Weights"] == "1 to 3"


def test_every_column_is_listed_with_its_missing_values():
    columns = [Column("n", "number", np.array([3.0, np.nan])), Column("c", "category", np.array([0, 0]), ("p",))]
    table, more = column_table(columns)
    assert table.rows == [("n", "number", "3 to 3, median 3", "50.0%"), ("c", "category", "p", "0%")]
    assert more == ""
    assert column_table(columns * 40)[1] == "And 40 more columns."


def cells(html):
    """The rows of a table of HTML; what is bold has a star."""
    rows = re.findall(r"<tr>(.*?)</tr>", html)
    return [
        re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row.replace("<strong>", "*").replace("</strong>", "")) for row in rows
    ]


def test_the_best_score_of_every_column_is_marked():
    rows = [
        {"label": "a", "mae": 1.0, "crps": 0.7, "nll": 2.5, "coverage": 0.95, "width": 5.0},
        {"label": "b", "mae": 1.0, "crps": 0.9, "nll": 2.0, "coverage": 0.91, "width": 4.0},
    ]
    html = leaderboard_section(rows)
    assert cells(html) == [
        ["Model", "MAE", "CRPS", "NLL", "90% coverage", "90% width"],
        ["a", "*1.00", "*0.700", "2.50", "95.0%", "5.00"],
        ["b", "*1.00", "0.900", "*2.00", "*91.0%", "4.00"],
    ], "narrow alone is no merit"
    assert "*" not in str(cells(leaderboard_section(rows[:1])))
    assert re.findall(r"<dt>(.*?)</dt>", html) == ["MAE", "CRPS", "NLL", "Coverage", "Width", "Bold"]


def test_a_leaderboard_may_lack_values():
    rows = [{"label": "mixture", "crps": 1.0, "seconds": 3}, {"label": "m", "weight": 0.25, "crps": 2.0}]
    assert cells(leaderboard_section(rows)) == [
        ["Model", "Weight", "CRPS", "Seconds"], ["mixture", "–", "*1.00", "3.00"], ["m", "25%", "2.00", "–"]
    ]  # fmt: skip


def test_best_and_worst_rows_are_those_of_the_crps_with_important_columns_first(evidence, data):
    important = Importances([Importance("noise", *np.ones((3, 1)), position=2)], 9, 4)
    html = sections._rows(evidence._replace(ids=("case", list(range(300)))), important, "")
    order = np.argsort(evidence.scores.crps, kind="stable")
    rows = [int(row) for row in re.findall(r"<h4>Row (\d+), case \1</h4>", html)]
    assert rows == [*order[:3], *order[:-4:-1]]
    first = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", html.split("</article>")[0])
    facts = dict(first)
    assert facts["Observed"] == str(data[1][rows[0]])
    p = np.exp(evidence.dist.log_prob(torch.from_numpy(evidence.y)).numpy()[rows[0]])
    assert facts["Probability of the observed count"] == f"{100 * p:.1f}%"
    assert [name for name, _ in first][5:7] == ["noise", "x"]


def test_everything_of_the_task_is_shown_and_none_is_required(fitted, evidence):
    facts = dict(reproduction(fitted, evidence, {}))
    assert facts["Model"] == "2 networks"
    assert facts["Likelihood"] == fitted.likelihood
    assert facts["Training rows"] == "225 rows, 25 validation rows"
    assert "members = 2" in facts["Settings"]
    assert not re.search("validation|random_state|mix_with", facts["Settings"]), "shown elsewhere, or a default"
    assert facts["Seeds"].startswith("model 0;")
    assert facts["Data fingerprint"] == f"sha256 {evidence.fingerprint}"
    assert f"Python {platform.python_version()}" in facts["Versions of this report"]
    assert f"torch {version('torch')}" in facts["Versions of this report"]
    assert "Command" not in facts
    task = {"target": "y", "command": "ddpn fit", "row_counts": {"train": 9}, "split": None, "seed": 3}
    facts = dict(reproduction(fitted, evidence, task))
    assert (facts["Command"], facts["Row counts"], facts["Seed"]) == ("ddpn fit", '{"train": 9}', "3")
    assert not {"Target", "Split"} & set(facts)


def test_members_are_listed_with_their_weights():
    networks = Networks()
    networks.model = SimpleNamespace(members=5)
    members = {"networks": networks, "glm": SimpleNamespace(label="GLM")}
    predictor = SimpleNamespace(mixed=members, weights={"networks": 0.75, "glm": 0.25})
    model = SimpleNamespace(predictor_=predictor, likelihood=("poisson", "negative_binomial"))
    assert members_text(model) == "5 networks (75%) + GLM (25%)"
    assert likelihood_text(model) == "poisson, negative_binomial"


@pytest.mark.parametrize(
    ("value", "words"),
    [("a", "a"), (0.5, "0.5"), ([1, "ä"], '[1, "ä"]'), ({"a": {"b": 1}}, '{"a": {"b": 1}}'), (1j, '"1j"')],
)
def test_any_value_becomes_one_line(fitted, evidence, value, words):
    assert dict(reproduction(fitted, evidence, {"known": value}))["Known"] == words


def test_a_training_is_described_with_what_went_wrong(fitted):
    assert "Trained on 225 rows, 25 validation rows, for 5 epochs in " in sections._training(fitted)
    history = History(fitted.history_.epochs, rollbacks=["member 0 at epoch 3"], stopped="patience")
    hard = SimpleNamespace(history_=history, predictor_=fitted.predictor_, numeric_="standard")
    assert " Stopped: patience. Rolled back 1 time, last: member 0 at epoch 3." in sections._training(hard)


NUMBER = Column("n", "number", np.array([0.1 + 0.2, np.nan, 9.0, 9.0]))
FLAG = Column("f", "flag", np.array([1.0, np.nan, 0.0, 0.0]))
LEVEL = Column("c", "category", np.array([1, -1, 0, 1]), ("p", "q"))
BINARY = Column("b", "number", np.array([0.0, 1.0, 1.0, 1.0]))
EMPTY = Column("e", "number", np.full(4, np.nan))


@pytest.mark.parametrize(
    ("column", "cells", "words"),
    [
        (NUMBER, ["0.3", "missing", "9", "9"], "0.3 to 9, median 9"),
        (FLAG, ["yes", "missing", "no", "no"], "33.3% yes"),
        (LEVEL, ["q", "missing", "p", "q"], "q, p"),
        (BINARY, ["0", "1", "1", "1"], "0 or 1, 75.0% are 1"),
        (EMPTY, ["missing"] * 4, "none"),
    ],
)
def test_cells_and_descriptions_of_columns(column, cells, words):
    assert [cell_text(column, row) for row in range(4)] == cells
    assert description(column) == words
