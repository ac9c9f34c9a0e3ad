"""Tables and sentences against numpy."""

import numpy as np
import pytest
import torch
from scipy import stats

from ddpn import Poisson
from ddpn.features.table import Column
from ddpn.report.content import (
    column_grid,
    data_facts,
    dispersion_words,
    extremes,
    group_grid,
    pit_shape,
    score_grid,
    single,
)
from ddpn.report.dispersion import Dispersion, Pearson
from ddpn.report.figures.calibration import Pit
from ddpn.report.groups import groups
from ddpn.report.verdict import rivals


def test_the_facts_are_those_of_the_counts(evidence, data):
    y = data[1]
    facts = dict(data_facts(evidence, "visits"))
    assert facts["Rows judged"] == "300 rows"
    assert facts["Mean visits"] == f"{y.mean():.2f}"
    assert facts["Variance"] == f"{y.var():.1f}"
    assert facts["Zeros"] == f"{100 * (y == 0).mean():.1f}%"
    assert facts["Columns"] == "2 numbers, 1 yes/no, 1 category"
    assert "Exposure" not in facts


def test_what_was_drawn_weighted_and_exposed_is_told(evidence):
    changed = evidence._replace(total=10**6, weighted=True, exposure=np.linspace(0.5, 2, 300))
    facts = dict(data_facts(changed, "visits"))
    assert (facts["Rows judged"], facts["Exposure"]) == ("300 rows of 1,000,000", "0.500 to 2")
    assert facts["Weights"] == "1 to 1"


def test_every_column_is_told_by_its_kind():
    columns = [
        Column("n", "number", np.array([1.0, 2.5, np.nan, 9.0])),
        Column("b", "number", np.array([0.0, 1.0, 1.0, 1.0])),
        Column("f", "flag", np.array([1.0, 0.0, 0.0, 0.0])),
        Column("c", "category", np.array([0, 1, 1, -1]), ("p", "q")),
        Column("e", "number", np.full(4, np.nan)),
    ]
    grid, more = column_grid(columns)
    assert [row[2] for row in grid.rows] == ["1 to 9, median 2.5", "0 or 1, 75.0% are 1", "25.0% yes", "q, p", "none"]
    assert [row[3] for row in grid.rows] == ["25.0%", "0%", "0%", "25.0%", "100%"]
    assert more == ""
    assert column_grid(columns * 20)[1] == "And 60 columns more."


def test_the_dispersion_finding_carries_its_evidence():
    words = dispersion_words(Dispersion(Pearson(7.1, 5.4, 9.5), Pearson(0.52, 0.4, 0.6), 0.25), exposure=False)
    assert (
        "over-dispersed: around their mean the Pearson statistic, mean (y - m)² / m, is 7.10 (95% interval 5.40"
        in words[0]
    )
    assert "under-dispersed: 0.520 (95% interval 0.400 to 0.600" in words[1]
    assert "cannot say that" in words[1]
    assert words[2].endswith("for 25.0% of rows.")
    equal = dispersion_words(Dispersion(Pearson(1.01, 0.9, 1.1), Pearson(1.2, 1.1, 1.3), 0.0), exposure=True)
    assert "equi-dispersed (not to be told from Poisson's): around one common rate per unit of exposure" in equal[0]
    assert "too narrow" in equal[1]


def test_scores_are_laid_side_by_side_and_the_best_is_marked(made):
    y, mu = np.array([3, 0, 8, 5]), np.array([3.0, 1.0, 6.0, 5.0])
    laws = {"other": Poisson(torch.full((4,), 4.0).double()), "mad": Poisson(torch.full((4,), 90.0).double())}
    evidence = made(Poisson(torch.from_numpy(mu)), y, baselines=laws)
    grid = score_grid(evidence, rivals(evidence))
    assert [row[0] for row in grid.rows] == ["This model", "other", "mad"]
    assert grid.rows[1][3] == f"{-stats.poisson.logpmf(y, 4.0).mean():.2f}"
    assert {(0, 1), (0, 2), (0, 3)} <= grid.best
    assert not any(column == 5 for _, column in grid.best), "narrow is no virtue by itself"
    assert not any(row == 2 for row, _ in grid.best)
    assert grid.headings[4] == "90% coverage (expected)"
    calibrated = score_grid(evidence._replace(calibrated=50), rivals(evidence))
    assert calibrated.headings[4] == "90% coverage"
    assert [row[4] for row in calibrated.rows] == [row[4].split(" (")[0] for row in grid.rows]
    alone = score_grid(evidence, [])
    assert (len(alone.rows), alone.best) == (1, frozenset())


FLAT = np.ones(10)
SHAPES = {
    "nothing speaks against": FLAT + 0.05 * np.array([1, -1] * 5),
    "too narrow": FLAT + np.array([0.8, 0, -0.2, -0.2, -0.3, -0.3, -0.2, -0.2, 0, 0.6]),
    "too wide": FLAT - np.array([0.8, 0, -0.2, -0.2, -0.3, -0.3, -0.2, -0.2, 0, 0.6]),
    "counts are larger": np.linspace(0.5, 1.5, 10),
    "counts are smaller": np.linspace(1.5, 0.5, 10),
    "neither": FLAT + np.array([0, 0.3, -0.3, 0, 0, 0, -0.3, 0.3, 0, 0]),
}


@pytest.mark.parametrize("fragment", SHAPES)
def test_the_shape_of_a_pit_histogram_is_read(fragment):
    assert fragment in pit_shape(Pit(SHAPES[fragment], 0.12))


def test_groups_become_rows_of_words(evidence):
    found = groups(evidence.columns[3], evidence)
    grid = group_grid("flag", found)
    assert [row[0] for row in grid.rows] == ["no", "yes"]
    assert sum(int(row[1]) for row in grid.rows) == 300
    assert (
        grid.rows[0][3]
        == f"{np.sqrt((evidence.aleatoric + evidence.epistemic)[evidence.columns[3].values == 0].mean()):.2f}"
    )


def test_best_and_worst_rows_are_those_of_the_crps(evidence):
    best, worst = extremes(evidence)
    order = np.argsort(evidence.model.crps)
    assert evidence.model.crps[best] == pytest.approx(evidence.model.crps[order[:3]])
    assert evidence.model.crps[worst] == pytest.approx(evidence.model.crps[order[-3:]][::-1])
    few = evidence._replace(model=evidence.model._replace(crps=np.array([3.0, 1.0, 2.0])))
    assert extremes(few) == ([1], [0])


def test_a_single_row_is_told_with_its_most_important_columns_first(evidence, data):
    row = 7
    one = single(evidence._replace(rows=np.arange(300) + 1000), row, [2, 0])
    assert one.row == 1007
    assert [name for name, _ in one.cells[:2]] == ["noise", "x"]
    assert len(one.cells) == 4
    facts = dict(one.facts)
    assert facts["Observed"] == str(data[1][row])
    p = np.exp(evidence.model.law.log_prob(torch.from_numpy(evidence.y)).numpy()[row])
    assert facts["Its probability"] == f"{100 * p:.1f}%"
