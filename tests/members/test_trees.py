"""Test boosted trees: what is chosen out of fold, constraints, determinism, copies, and files that are checked."""

import json

import numpy as np
import polars as pl
import pytest
import torch
from safetensors.numpy import load, save

from ddpn.distributions import DoublePoisson, NegativeBinomial
from ddpn.members.member import NotApplicableError
from ddpn.members.trees.member import Trees
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.errors import InputError

FILE = "trees.safetensors"
QUICK = {"leaves": (4,), "rounds": 30, "rate": 0.2}


def build_sample(n: int, seed: int = 0) -> CountRows:
    """Negative Binomial counts with alpha = 0.5, text, gaps, exposures and weights."""
    rng = np.random.default_rng(seed)
    x, ward = rng.normal(size=n), rng.choice(["A", "B", "C"], n)
    exposure = rng.uniform(0.5, 2.0, n)
    mean = exposure * np.exp(1.5 + 0.6 * x + (ward == "B"))
    y = rng.poisson(mean * rng.gamma(2.0, 0.5, n))
    X = pl.DataFrame({"x": x, "ward": ward.tolist(), "empty": np.zeros(n)})
    X = X.with_columns(pl.when(pl.int_range(pl.len()) % 9 == 0).then(None).otherwise(pl.col("x")).alias("x"))
    return CountRows(X, y.astype(float), rng.integers(1, 3, n).astype(float), exposure)


@pytest.fixture(scope="module")
def wide() -> CountRows:
    return build_sample(500)


@pytest.fixture(scope="module")
def small_trees(wide) -> Trees:
    return Trees.fit(wide, None, seed=3, **QUICK)


@pytest.mark.parametrize(("alpha", "kind"), [(0.5, NegativeBinomial), (0.0, DoublePoisson)])
def test_the_family_follows_the_dispersion(alpha, kind):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    mean = np.where(X[:, 0] > 0, 12.0, 6.0)
    y = rng.poisson(mean * rng.gamma(2.0, 0.5, 400)) if alpha else mean + rng.integers(-1, 2, 400)
    dist = Trees.fit(CountRows(X, y.astype(float)), None, seed=0, **QUICK).distribution(X)
    assert isinstance(dist, kind)
    assert dist.batch_shape == (400, 1)
    ratio = float((dist.variance / dist.mean).mean())
    assert ratio > 2.0 if alpha else ratio < 0.5


def test_the_number_of_leaves_is_chosen_out_of_fold():
    """An interaction of three columns needs eight leaves."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, size=(600, 3)).astype(float)
    y = rng.poisson(np.where(X.sum(1) % 2 > 0, 12.0, 2.0)).astype(float)
    member = Trees.fit(CountRows(X, y), None, seed=0, leaves=(2, 8), rounds=20, rate=0.3)
    assert member.get_facts()["leaves"] == 8


def test_a_dispersion_that_varies_is_boosted():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 2))
    alpha = np.where(X[:, 1] > 0, 2.0, 0.02)
    y = rng.poisson(10.0 * rng.gamma(1 / alpha, alpha)).astype(float)
    member = Trees.fit(CountRows(X, y), None, seed=0, **QUICK)
    assert member.get_facts()["dispersion"] == "boosted"
    dist = member.distribution(np.array([[0.0, -1.0], [0.0, 1.0]]))
    low, high = (dist.variance / dist.mean)[:, 0].tolist()
    assert high > 5 * low


def test_a_dispersion_that_does_not_vary_stays_constant():
    """At most one of 12 samples without any dependence is boosted; without a standard error most would be."""
    kinds = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(300, 3)), rng.poisson(8.0 * rng.gamma(2.0, 0.5, 300)).astype(float)
        kinds.append(Trees.fit(CountRows(X, y), None, seed=0, **QUICK).get_facts()["dispersion"])
    assert kinds.count("boosted") <= 1, kinds


def test_the_rate_is_the_arithmetic_mean_of_the_boosters(wide, small_trees):
    matrix = small_trees.table.read(wide.X)
    rate = np.mean([np.exp(booster.raw(matrix)) for booster in small_trees.means], axis=0)
    np.testing.assert_allclose(np.exp(small_trees.raw(wide.X, wide.exposure)[:, 0, 0].numpy()), rate, rtol=1e-12)


@pytest.mark.parametrize("is_copy", [False, True])
def test_the_dispersion_does_not_know_the_level_of_a_group(is_copy):
    """Groups have a level of their own, and a column with their number: counts of a new group spread by 1 + mean / 2.

    Out-of-fold means that knew the level would leave less than half of it.
    """
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(60), 5)
    X = np.column_stack([group + 0.0, rng.normal(size=300)])
    y = rng.poisson(6.0 * rng.gamma(2.0, 0.5, 60)[group]).astype(float)
    options = {"leaves": (31,), "rounds": 60, "rate": 0.2, "is_copy": is_copy}
    member = Trees.fit(CountRows(X, y, group=group), None, seed=0, **options)
    dist = member.distribution(X)
    assert float((dist.variance / dist.mean).mean()) > 2.5


@pytest.mark.parametrize("rows", [2, 3, 7])
def test_a_handful_of_rows_is_fitted_and_restored(rows):
    member = Trees.fit(CountRows(np.eye(rows), np.arange(1.0, rows + 1)), None, seed=0, **QUICK)
    assert torch.isfinite(member.distribution(np.eye(rows)).mean).all()
    again = Trees.from_state(member.state())
    assert (again.distribution(np.eye(rows)).mean == member.distribution(np.eye(rows)).mean).all()


@pytest.mark.parametrize(
    ("y", "limit", "words"),
    [
        (np.zeros(30), np.inf, "no count above 0"),
        (np.eye(30)[4], np.inf, "too few counts above 0"),
        (np.array([3.0]), np.inf, "two rows"),
        (np.array([1.0, 5.0, 2.0, 5.0]), 5.0, "censored"),
    ],
)
def test_counts_that_trees_cannot_learn_are_not_applicable(y, limit, words):
    with pytest.raises(NotApplicableError, match=words):
        Trees.fit(CountRows(np.zeros((len(y), 1)), y, limit=np.full(len(y), limit)), None, seed=0)


def test_with_more_columns_than_rows_those_that_matter_are_kept():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 600))
    y = rng.poisson(np.exp(1.0 + X[:, 71])).astype(float)
    member = Trees.fit(CountRows(X, y), None, seed=0, rounds=10)
    assert all(len(booster.chosen) == 500 and 71 in booster.chosen for booster in member.means)
    again = Trees.from_state(member.state())
    assert (again.distribution(X).mean == member.distribution(X).mean).all()


# Files ---------------------------------------------------------------------------------------------------------------


def describe_change(name: str, change) -> dict:
    """Describe a change of one array of the first booster."""
    return {"name": f"0.{name}", "change": change}


@pytest.mark.parametrize(
    "damage",
    [
        describe_change("left_child", lambda a: a + 100),
        describe_change("left_child", lambda a: np.zeros_like(a)),
        describe_change("split_feature", lambda a: a + 50),
        describe_change("decision_type", lambda a: a | 12),
        describe_change("decision_type", lambda a: a | 1),
        describe_change("leaf_value", lambda a: a * np.nan),
        describe_change("leaf_value", lambda a: a[:-1]),
        describe_change("leaves", lambda a: a + 1),
        describe_change("cat_boundaries", lambda a: np.append(a, 9)),
        describe_change("threshold", lambda a: a.astype(np.float32)),
    ],
    ids=lambda damage: damage["name"],
)
def test_trees_that_lead_astray_are_refused(small_trees, damage):
    files = small_trees.state()
    arrays = load(files[FILE])
    arrays[damage["name"]] = np.ascontiguousarray(damage["change"](arrays[damage["name"]]))
    with pytest.raises(InputError, match=r"trees\.safetensors is damaged"):
        Trees.from_state(files | {FILE: save(arrays)})
    with pytest.raises(InputError, match=r"trees\.safetensors is damaged|saved trees are damaged"):
        Trees.from_state(files | {FILE: b"tree\nversion=v4\n"})


def test_facts_that_do_not_fit_the_trees_are_refused(small_trees):
    files = small_trees.state()
    for key, value in (("chosen", []), ("likelihood", "gaussian"), ("boosters", [6, 0])):
        facts = json.loads(files["trees.json"]) | {key: value}
        with pytest.raises(InputError):
            Trees.from_state(files | {"trees.json": json.dumps(facts).encode()})
