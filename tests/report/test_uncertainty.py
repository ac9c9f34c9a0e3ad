"""Where the model is unsure: the right groups are named, for the right reasons."""

import numpy as np
import pytest
import torch

from ddpn import NegativeBinomial, Poisson
from ddpn.features.table import Column
from ddpn.report.importance import Importance, Importances
from ddpn.report.uncertainty import driver, unsure_words

RNG = np.random.default_rng(4)
ROWS = 300
IN_B = np.arange(ROWS) % 3 == 0
WARD = Column("ward", "category", IN_B.astype(int), ("a", "b"))
AGE = Column("age", "flag", (np.arange(ROWS) % 2).astype(float))


def importance(name, column, aleatoric, epistemic):
    return Importance(name, column, 0.1, (0.1, 0.1), 0.1, (0.1, 0.1), aleatoric, epistemic)


FOUND = Importances([importance("ward", 0, 0.5, 0.1), importance("age", 1, 0.1, 0.6)], ROWS, 2)


@pytest.fixture
def evidence(made):
    mu = torch.full((ROWS,), 4.0, dtype=torch.float64)
    noisy = NegativeBinomial(mu, torch.from_numpy(np.where(IN_B, 2.0, 1e-4)))
    return made(noisy, RNG.poisson(4.0, ROWS), columns=[WARD, AGE], members=5)


def test_the_driver_of_each_part_is_the_column_that_moves_it_most(evidence):
    assert driver(FOUND, evidence, "aleatoric").name == "ward"
    assert driver(FOUND, evidence, "epistemic").name == "age"
    assert driver(Importances([], 0, 2), evidence, "epistemic") is None


def words_of(evidence):
    return dict(unsure_words(evidence, *(driver(FOUND, evidence, part) for part in ("aleatoric", "epistemic"))))


def test_noise_that_counts_do_not_explain_is_told(evidence):
    words = words_of(evidence)
    deviation, usual = np.sqrt(4 + 32), np.sqrt(4 + 32 / 3)
    assert "Where ward is b" in words["Least sure"]
    assert f"{deviation:.0f}, against {usual:.2f} over all rows" in words["Least sure"]
    assert f"{deviation / usual:.2f} times what larger counts alone bring" in words["Least sure"]
    assert "5 networks agree: their disagreement makes up 0% of the variance" in words["Why"]


def test_noise_that_larger_counts_bring_is_told_to_be_that(made):
    mu = torch.from_numpy(np.where(IN_B, 20.0, 2.0))
    words = words_of(made(Poisson(mu), RNG.poisson(mu), columns=[WARD, AGE]))
    assert "about what larger counts bring by themselves" in words["Least sure"]


def test_disagreement_is_told_where_it_is_largest(evidence):
    epistemic = np.where(AGE.values == 1.0, 3.0, 0.3) * evidence.aleatoric
    words = words_of(evidence._replace(epistemic=epistemic))["Why"]
    assert "most where age is yes: 75.0% there" in words
    share = epistemic.mean() / (epistemic + evidence.aleatoric).mean()
    assert f"{100 * share:.1f}% is what the members disagree about" in words


def test_a_single_network_is_told_not_to_know(evidence):
    assert "single network" in words_of(evidence._replace(members=1))["Why"]
    together = words_of(evidence._replace(members=7, linear=2, epistemic=np.zeros(ROWS)))["Why"]
    assert together.startswith("The 5 networks and the GLM agree")


def test_groups_whose_intervals_fail_are_named(made):
    mu = torch.full((ROWS,), 4.0, dtype=torch.float64)
    y = np.where(IN_B & (RNG.random(ROWS) < 0.5), 40, 4)
    words = words_of(made(Poisson(mu), y, columns=[WARD, AGE]))["Intervals fail"]
    assert f"Where ward is b, the 90% interval held for {100 * (y[IN_B] == 4).mean():.1f}% of 100 rows only" in words


def test_small_groups_are_left_alone(evidence):
    ward = Column("ward", "category", (np.arange(ROWS) < 5).astype(int), ("a", "b"))
    few = evidence._replace(columns=[ward, AGE])
    assert "ward is a" in words_of(few)["Least sure"]
