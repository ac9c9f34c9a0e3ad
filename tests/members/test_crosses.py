"""Crosses of columns: which pairs are found, what they are worth, and that they are saved and explained."""

import json

import numpy as np
import pytest
import torch

from ddpn.members.trees.crosses import Cross, find_crosses
from ddpn.members.trees.member import JointTrees, Trees
from ddpn.runtime.errors import InputError
from ddpn.sample import Sample

QUICK = {"leaves": (4,), "rounds": 60, "rate": 0.1, "seeds": 1, "index": False}


def rush_hours(n: int, seed: int = 0, joint: bool = True) -> Sample:
    """Counts by the hour, which are high at other hours on working days; temperature adds to it."""
    rng = np.random.default_rng(seed)
    hour, works, noise = rng.integers(0, 24, n), rng.integers(0, 2, n), rng.integers(0, 5, n)
    is_rush = (
        np.where(works == 1, np.isin(hour, (7, 8, 16, 17, 18)), np.isin(hour, (12, 13, 14))) if joint else hour > 12
    )
    X = np.column_stack([noise, hour, works, rng.normal(size=n)]).astype(float)
    return Sample(X, rng.poisson(np.exp(1.0 + 1.5 * is_rush + 0.2 * X[:, 3])).astype(float))


@pytest.fixture(scope="module")
def sample() -> Sample:
    return rush_hours(1500)


@pytest.fixture(scope="module")
def fitted(sample) -> Trees:
    return Trees(**QUICK).fit(sample, None, seed=0)


def test_the_code_orders_by_the_outer_column_then_by_the_inner_one():
    known = Cross.of(np.array([[0.0, 10.0], [1.0, 20.0], [1.0, 30.0]]), 0, 1)
    rows = np.array([[0, 10], [0, 30], [1, 10], [1, 20], [1, 25], [5, 99], [-1, 0], [np.nan, 10], [0, np.nan]])
    # A new value counts as the next smaller one that is known, or as the smallest.
    assert known.codes(rows) == pytest.approx([0, 2, 3, 4, 4, 5, 0, np.nan, np.nan], nan_ok=True)


def test_a_joint_effect_is_found_and_an_additive_one_is_not():
    for joint in (True, False):
        sample = rush_hours(4000, joint=joint)
        by_value = [np.unique(sample.X[:, j], return_inverse=True)[1] for j in (1, 2)]
        effects = [np.bincount(value, sample.y) / np.bincount(value) / sample.y.mean() for value in by_value]
        log_rate = np.log(sample.y.mean() * effects[0][by_value[0]] * effects[1][by_value[1]])
        ones, numbers = np.ones(4000), np.zeros(4, dtype=bool)
        found = find_crosses(sample.X, numbers, sample.y, ones, log_rate)
        assert [(cross.outer, cross.inner) for cross in found] == ([(2, 1)] if joint else [])
        assert not find_crosses(sample.X, numbers, sample.y, ones, log_rate, excluded=[2])
        # The hour as a category has no order.
        assert not find_crosses(sample.X, np.array([False, True, False, False]), sample.y, ones, log_rate)


@pytest.mark.parametrize("kind", [Trees, JointTrees])
def test_crosses_pay_where_effects_are_joint(sample, kind):
    new = rush_hours(1500, seed=1)
    counts = torch.from_numpy(new.y)[:, None]
    members = [kind(**QUICK, crosses=on).fit(sample, None, seed=0) for on in (True, False)]
    assert members[0].facts()["crossed columns"] == [["x2", "x1"]]
    assert members[1].facts()["crossed columns"] == []
    crossed, plain = (member.distribution(new.X).log_prob(counts).mean() for member in members)
    assert crossed > plain + 0.05


def test_none_where_effects_are_additive():
    assert not Trees(**QUICK).fit(rush_hours(1500, joint=False), None, seed=0).table.crosses


def test_they_are_saved_and_shared_by_repetitions(sample, fitted):
    again = Trees.from_state(fitted.state())
    assert (again.raw(sample.X) == fitted.raw(sample.X)).all()
    assert again.facts() == fitted.facts()
    twice = Trees(**QUICK | {"seeds": 2, "rounds": 20}).fit(sample, None, seed=0)
    assert len(twice.outputs[0]) == 10
    assert twice.distribution(sample.X).batch_shape == (1500, 1)


def test_contributions_of_a_cross_go_to_its_columns(sample, fitted):
    values, base = fitted.contributions(sample.X)
    assert values.shape == sample.X.shape
    assert values.sum(1) + base == pytest.approx(fitted.distribution(sample.X).mean[:, 0].log().numpy())
    assert np.abs(values[:, 1:3]).mean(0).min() > 5 * np.abs(values[:, 0]).mean()


def test_a_constrained_column_is_not_crossed(sample):
    assert not Trees(**QUICK, monotone={"x1": 1}).fit(sample, None, seed=0).table.crosses


@pytest.mark.parametrize("damage", [[9, 1, [0.0], [1.0]], [2, 1, [], [1.0]], [2, 1]])
def test_damaged_crosses_are_refused(fitted, damage):
    files = fitted.state()
    facts = json.loads(files["trees.json"]) | {"crosses": [damage]}
    with pytest.raises(InputError, match="crosses"):
        Trees.from_state(files | {"trees.json": json.dumps(facts).encode()})
