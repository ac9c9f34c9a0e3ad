"""Tables and facts against numpy."""

import numpy as np
import pytest
import torch

from ddpn.analysis.report.grids import (
    column_grid,
    data_facts,
    extremes,
    group_grid,
    row_cells,
    row_facts,
    row_title,
    score_grid,
)
from ddpn.analysis.report.groups import groups
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


def test_draws_weights_and_exposures_are_shown(evidence):
    changed = evidence._replace(total=10**6, weight=np.linspace(1, 3, 300), exposure=np.linspace(0.5, 2, 300))
    facts = dict(data_facts(changed, "visits"))
    assert (facts["Rows evaluated"], facts["Exposure"]) == ("300 rows of 1,000,000", "0.500 to 2")
    assert facts["Weights"] == "1 to 3"


def test_every_column_is_listed_with_its_missing_values():
    columns = [Column("n", "number", np.array([3.0, np.nan])), Column("c", "category", np.array([0, 0]), ("p",))]
    grid, more = column_grid(columns)
    assert grid.rows == [("n", "number", "3 to 3, median 3", "50.0%"), ("c", "category", "p", "0%")]
    assert more == ""
    assert column_grid(columns * 40)[1] == "And 40 more columns."


def test_the_best_score_of_every_column_is_marked():
    rows = [
        {"name": "a", "mae": 1.0, "crps": 0.7, "nll": 2.5, "coverage": 0.95, "width": 5.0},
        {"name": "b", "mae": 1.0, "crps": 0.9, "nll": 2.0, "coverage": 0.91, "width": 4.0},
    ]
    grid = score_grid(rows)
    assert grid.headings == ("Model", "MAE", "CRPS", "NLL", "90% coverage", "90% width")
    assert grid.rows[1] == ("b", "1.00", "0.900", "2.00", "91.0%", "4.00")
    assert grid.best == {(0, 1), (1, 1), (0, 2), (1, 3), (1, 4)}, "narrow alone is no merit"
    assert score_grid(rows[:1]).best == frozenset()


def test_a_leaderboard_may_lack_values():
    grid = score_grid([{"name": "mixture", "crps": 1.0, "seconds": 3}, {"weight": 0.25, "crps": 2.0, "other": 1}])
    assert grid.headings == ("Model", "Weight", "CRPS", "Seconds")
    assert grid.rows == [("mixture", "–", "1.00", "3.00"), ("", "25%", "2.00", "–")]
    assert grid.best == {(0, 2)}


def test_groups_become_rows_of_text(evidence):
    grid = group_grid(groups(evidence.columns[3], evidence))
    assert grid.headings[0] == "flag"
    assert [row[0] for row in grid.rows] == ["no", "yes"]
    assert sum(int(row[1]) for row in grid.rows) == 300
    variance = (evidence.aleatoric + evidence.epistemic)[evidence.columns[3].values == 0].mean()
    assert grid.rows[0][3] == f"{np.sqrt(variance):.2f}"


def test_best_and_worst_rows_are_those_of_the_crps(evidence):
    best, worst = extremes(evidence)
    order = np.argsort(evidence.model.crps)
    assert evidence.model.crps[best] == pytest.approx(evidence.model.crps[order[:3]])
    assert evidence.model.crps[worst] == pytest.approx(evidence.model.crps[order[-3:]][::-1])
    few = evidence._replace(model=evidence.model._replace(crps=np.array([3.0, 1.0, 2.0])))
    assert extremes(few) == ([1], [0])


def test_a_single_row_has_its_most_important_columns_first(evidence, data):
    cells = row_cells(evidence, 7, [2, 0])
    assert [name for name, _ in cells[:2]] == ["noise", "x"]
    assert len(cells) == 4
    facts = dict(row_facts(evidence._replace(exposure=np.full(300, 2.5)), 7))
    assert facts["Observed"] == str(data[1][7])
    assert facts["Exposure"] == "2.50"
    p = np.exp(evidence.model.dist.log_prob(torch.from_numpy(evidence.y)).numpy()[7])
    assert facts["Probability of the observed count"] == f"{100 * p:.1f}%"


def test_a_row_is_called_by_its_label_and_its_id(evidence):
    labels = np.array([f"p{row}" for row in range(300)])
    assert row_title(evidence, 7) == "Row 7"
    assert row_title(evidence._replace(labels=labels, ids=("case", list(range(300)))), 7) == "Row p7, case 7"
