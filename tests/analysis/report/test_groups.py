"""Groups of rows, and the sentences on where and why the model is uncertain."""

import numpy as np
import pytest
import torch

from ddpn import NegativeBinomial, Poisson
from ddpn.analysis.explanations import Importance, Importances
from ddpn.analysis.report.groups import driving_groups, groups, uncertainty_sentences
from ddpn.tables.encoding.table import Column

RNG = np.random.default_rng(4)
ROWS = 300
IN_B = np.arange(ROWS) % 3 == 0
WARD = Column("ward", "category", IN_B.astype(int), ("a", "b"))
AGE = Column("age", "flag", (np.arange(ROWS) % 2).astype(float))


def importance(name, column, aleatoric, epistemic, role="column"):
    changes = (np.full(3, value) for value in (0.1, 0.1, 0.1, aleatoric, epistemic))
    return Importance(name, *changes, position=column, role=role)


FOUND = Importances([importance("ward", 0, 0.5, 0.1), importance("age", 1, 0.1, 0.6)], ROWS, 2)


@pytest.fixture(scope="module")
def noisy(made):
    mu = torch.full((ROWS,), 4.0, dtype=torch.float64)
    dist = NegativeBinomial(mu, torch.from_numpy(np.where(IN_B, 2.0, 1e-4)))
    return made(dist, RNG.poisson(4.0, ROWS), columns=[WARD, AGE], components=5)


def test_a_group_has_the_means_of_its_rows(evidence):
    weighted = evidence._replace(weight=np.arange(1.0, 1.0 + len(evidence.y)))
    column = weighted.columns[3]
    found = groups(column, weighted)
    assert [(group.column, group.label) for group in found] == [("flag", "no"), ("flag", "yes")]
    mask = column.values == 1.0
    error = weighted.model.error
    assert found[1].mae == pytest.approx(np.average(error[mask], weights=weighted.weight[mask]))
    assert found[1].aleatoric == pytest.approx(np.average(weighted.aleatoric[mask], weights=weighted.weight[mask]))
    assert (found[1].rows, found[0].rows) == (mask.sum(), (~mask).sum())
    assert 0.0 < found[1].share < 1.0


def test_the_driver_of_each_part_is_the_column_that_changes_it_most(noisy):
    assert driving_groups(FOUND, noisy, "aleatoric")[0].column == "ward"
    assert driving_groups(FOUND, noisy, "epistemic")[0].column == "age"
    assert driving_groups(Importances([], 0, 2), noisy, "epistemic") == []
    exposed = noisy._replace(exposure=np.arange(ROWS) % 4 + 1.0)
    assert len(driving_groups(Importances([importance("days", -1, 1, 1, "exposure")], 9, 2), exposed, "aleatoric")) == 4


def sentences(evidence):
    drivers = (driving_groups(FOUND, evidence, part) for part in ("aleatoric", "epistemic"))
    return dict(uncertainty_sentences(evidence, *drivers))


def test_noise_that_the_mean_does_not_explain_is_reported(noisy):
    words = sentences(noisy)
    deviation, usual = np.sqrt(4 + 32), np.sqrt(4 + 32 / 3)
    assert "Where ward is b" in words["Most uncertain"]
    assert f"is {deviation:.0f} there and {usual:.2f} over all rows" in words["Most uncertain"]
    assert f"{deviation / usual:.2f} times what the mean explains" in words["Most uncertain"]
    assert "5 components of the mixture agree: their disagreement is 0% of the variance" in words["Reason"]


def test_noise_that_the_mean_explains_is_reported_as_such(made):
    mu = torch.from_numpy(np.where(IN_B, 20.0, 2.0))
    words = sentences(made(Poisson(mu), RNG.poisson(mu), columns=[WARD, AGE]))
    assert "The mean explains it" in words["Most uncertain"]


def test_a_smaller_mean_does_not_explain_more_noise(made):
    mu = torch.from_numpy(np.where(IN_B, 8.0, 9.0))
    noisy = made(Poisson(mu), RNG.poisson(mu), columns=[WARD, AGE])
    noisy = noisy._replace(aleatoric=np.where(IN_B, 10.0, 9.0))
    words = sentences(noisy)["Most uncertain"]
    assert "Where ward is b" in words
    assert words.endswith("The mean does not explain it, because it is smaller there.")


def test_disagreement_is_reported_where_it_is_largest(noisy):
    epistemic = np.where(AGE.values == 1.0, 3.0, 0.3) * noisy.aleatoric
    words = sentences(noisy._replace(epistemic=epistemic))["Reason"]
    assert "most where age is yes (75.0%)" in words
    share = epistemic.mean() / (epistemic + noisy.aleatoric).mean()
    assert f"{100 * share:.1f}% is disagreement between the components" in words


def test_a_single_network_has_no_epistemic_uncertainty(noisy):
    assert "single network" in sentences(noisy._replace(components=1))["Reason"]


def test_the_group_with_too_narrow_intervals_is_named(made):
    mu = torch.full((ROWS,), 4.0, dtype=torch.float64)
    y = np.where(IN_B & (RNG.random(ROWS) < 0.5), 40, 4)
    words = sentences(made(Poisson(mu), y, columns=[WARD, AGE]))["Narrow intervals"]
    assert f"Where ward is b, the 90% interval covers only {100 * (y[IN_B] == 4).mean():.1f}% of 100 rows" in words


def test_small_groups_are_left_out(noisy):
    ward = Column("ward", "category", (np.arange(ROWS) < 5).astype(int), ("a", "b"))
    assert "ward is a" in sentences(noisy._replace(columns=[ward, AGE]))["Most uncertain"]
