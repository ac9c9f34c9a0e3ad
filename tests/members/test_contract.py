"""Test what every kind of member must do, over the registry."""

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch

from ddpn.members import MEMBERS, Member, network_fit
from ddpn.members.member import MemberSpec, Task
from ddpn.members.network_options import NetworkOptions
from ddpn.members.networks import Networks
from ddpn.members.trees import boosting
from ddpn.networks.heads import make_head
from ddpn.rows import splits
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.errors import InputError


def make_spec(name: str) -> MemberSpec:
    spec, options = MemberSpec.from_task(name, Task(make_head("double_poisson"))), {}
    if issubclass(spec.kind, Networks):
        options = {"options": NetworkOptions(n_networks=2, hidden=(8,), numeric="standard", epochs=2)}
    if name == "trees":
        options = {"leaves": (4,), "rounds": 8}
    return replace(spec, options=spec.options | options)


class FittedMembers(dict[str, Member]):
    """Members by name, each fitted to the same rows when it is first looked up."""

    def __init__(self, rows: CountRows) -> None:
        super().__init__()
        self.rows = rows

    def __missing__(self, name: str) -> Member:
        self[name] = make_spec(name).fit(self.rows, None, seed=1)
        return self[name]


@pytest.fixture(scope="module")
def members_of_all_kinds(sample_of_all_kinds) -> dict[str, Member]:
    return FittedMembers(sample_of_all_kinds)


@pytest.fixture(params=list(MEMBERS))
def member(request, members_of_all_kinds) -> Member:
    return members_of_all_kinds[request.param]


def list_locations(member: Member, X, exposure) -> np.ndarray:
    dist = member.distribution(X, exposure)
    return (dist.mu if hasattr(dist, "mu") else dist.mean).numpy()


def test_a_member_predicts_one_or_more_distributions_per_row(member, sample_of_all_kinds):
    dist = member.distribution(sample_of_all_kinds.X, sample_of_all_kinds.exposure)
    assert dist.batch_shape[0] == 250
    assert len(dist.batch_shape) == 2
    assert dist.mean.dtype == torch.float64
    assert torch.isfinite(dist.log_prob(torch.from_numpy(sample_of_all_kinds.y).unsqueeze(1))).all()
    assert isinstance(member, Member)
    assert member.label
    assert not member.interrupted


def test_the_location_is_proportional_to_the_exposure(member, sample_of_all_kinds):
    X, exposure = sample_of_all_kinds.X, sample_of_all_kinds.exposure
    assert list_locations(member, X, 2.0 * exposure) == pytest.approx(
        2.0 * list_locations(member, X, exposure), rel=1e-9
    )


def test_a_member_is_restored_from_its_files_bit_for_bit(member, sample_of_all_kinds):
    files = member.state()
    assert all(name.endswith((".json", ".safetensors", ".skops")) for name in files)
    again = type(member).from_state(files)
    ours, theirs = (m.distribution(sample_of_all_kinds.X, sample_of_all_kinds.exposure) for m in (member, again))
    assert (ours.mean == theirs.mean).all()
    assert (ours.variance == theirs.variance).all()
    assert again.get_facts() == member.get_facts()
    assert {name for name, content in again.state().items() if content} == set(files)


def test_facts_of_a_member_are_json(member):
    assert json.loads(json.dumps(member.get_facts())) == member.get_facts()


def test_new_levels_missing_values_and_another_order_are_accepted(member, sample_of_all_kinds):
    new = pl.DataFrame({"x": [0.0, None], "ward": ["Z", None], "age": [1e6, None], "smokes": [True, None]})
    assert torch.isfinite(member.distribution(new, np.ones(2)).mean).all()
    X, exposure = sample_of_all_kinds.X, sample_of_all_kinds.exposure
    other = X.select("smokes", "age", "x", "ward")
    assert (member.distribution(other, exposure).mean == member.distribution(X, exposure).mean).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda X: X.drop("age"), "'age'"),
        (lambda X: X.with_columns(ward=pl.lit(1.5)), "hold text in column 'ward', as when fitted, got numbers"),
        (lambda X: X.with_columns(x=pl.lit("low")), "'x' must hold numbers as in fit, got '"),
    ],
    ids=["missing column", "numbers for text", "text for numbers"],
)
@pytest.mark.parametrize("name", [name for name in MEMBERS if name != "constant"])
def test_a_table_unlike_that_of_fit_is_refused(members_of_all_kinds, sample_of_all_kinds, name, change, words):
    with pytest.raises(InputError, match=words):
        members_of_all_kinds[name].distribution(change(sample_of_all_kinds.X), None)


@pytest.mark.parametrize("name", list(MEMBERS))
def test_a_weight_of_zero_equals_dropping_the_row(sample_of_all_kinds, name):
    some = sample_of_all_kinds.rows(slice(0, 80))
    weight = (np.arange(80) % 4 > 0).astype(float)
    dropped = CountRows(some.X, some.y, None, some.exposure).rows(weight > 0)
    result = [make_spec(name).fit(s, None, seed=1) for s in (some.replace(weight=weight), dropped)]
    ours, theirs = (member.distribution(some.X, some.exposure).mean.numpy() for member in result)
    assert ours == pytest.approx(theirs, rel=1e-6)


# Weights, exposures and groups: where a member leaves one out in some step, its predictions change ------------------


def make_spec_without_row_rules(name: str, likelihood: str, rows: int) -> MemberSpec:
    """Describe a member of which no step depends on the number of rows, apart from their weights, in one batch."""
    spec, options = MemberSpec.from_task(name, Task(make_head(likelihood), rows=rows)), {}
    if issubclass(spec.kind, Networks):
        small = {"n_networks": 2, "hidden": (8,), "epochs": 8, "batch_size": 4096}
        options = {"options": NetworkOptions(numeric="steps", categorical="effects", **small)}
    if name == "trees":
        options = {"leaves": (4,), "rounds": 12, "rate": 0.3}
    return replace(spec, options=spec.options | options)


def simulate_rows(rows: int = 210, seed: int = 0) -> CountRows:
    """Simulate over-dispersed counts of a number and levels; groups are rows, and weights follow the levels."""
    rng = np.random.default_rng(seed)
    a, level = rng.integers(0, 6, rows).astype(float), rng.integers(0, 8, rows)
    X = pl.DataFrame({"a": a, "level": [f"l{k}" for k in level]})
    mean = np.exp(1.0 + 0.25 * a + 0.7 * (level % 3))
    y = rng.poisson(mean * rng.gamma(1.0, 1.0, rows)).astype(float)
    return CountRows(X, y, np.where(level % 3 == 2, 3.0, 1.0 + a % 2), group=np.arange(rows).astype(str))


def compute_moments(member: Member, X, exposure=None) -> np.ndarray:
    dist = member.distribution(X, exposure)
    return torch.cat([dist.mean, dist.variance], 1).numpy()


@pytest.mark.parametrize("name", list(MEMBERS))
def test_a_weight_equals_a_row_given_as_often(monkeypatch, name):
    """Compare the encoding, the start, the losses that choose rounds and epochs, and the dispersion.

    Rules about the number of rows are not about weights: repeated rows stay in one fold, leaves may have one row, and
    trees get the levels as numbers, as LightGBM joins levels with few rows.
    """
    by_content = lambda rows, folds, seed, group=None: group.astype(int) % folds
    for module in (splits, network_fit):
        monkeypatch.setattr(module, "assign_folds", by_content)
    monkeypatch.setattr(boosting, "min_rows_per_leaf", lambda rows: 1)
    sample = simulate_rows()
    if name == "trees":
        sample = sample.replace(X=sample.X.with_columns(pl.col("level").str.slice(1).cast(float)))
    repeated = sample.rows(np.repeat(np.arange(len(sample)), sample.weight.astype(int))).replace(weight=None)
    by_weight, by_rows, without = (
        compute_moments(make_spec_without_row_rules(name, "negative_binomial", 210).fit(rows, None, seed=1), sample.X)
        for rows in (sample, repeated, sample.replace(weight=None))
    )
    tolerance = 2e-3 if issubclass(MEMBERS[name], Networks) else 1e-4
    np.testing.assert_allclose(by_weight, by_rows, rtol=tolerance)
    assert np.abs(without / by_rows - 1.0).max() > 0.02, "weights matter for these rows"


@pytest.mark.parametrize("name", list(MEMBERS))
def test_one_exposure_for_all_rows_is_a_unit_of_the_rate(name):
    """Fits with the same exposure for all rows, and later steps on them, predict as those without exposures."""
    sample, scale = simulate_rows().replace(weight=None, group=None), np.full(210, 1.4 * 2.0**3)
    exposed, plain = (
        make_spec_without_row_rules(name, "negative_binomial", 210).fit(rows, None, seed=1)
        for rows in (sample.replace(exposure=scale), sample)
    )
    np.testing.assert_allclose(compute_moments(exposed, sample.X, scale), compute_moments(plain, sample.X), rtol=2e-3)


@pytest.mark.parametrize("name", list(MEMBERS))
def test_columns_that_tell_the_exposure_say_nothing_about_the_rate(name):
    """With 30 counts per unit, a step that ignores the exposure would learn from inputs that it follows."""
    rng = np.random.default_rng(0)
    level = rng.integers(0, 8, 300)
    exposure = 2.0**level
    X = pl.DataFrame({"a": level + 0.1 * rng.normal(size=300), "level": [f"l{k}" for k in level]})
    sample = CountRows(X, rng.poisson(30.0 * exposure).astype(float), None, exposure)
    member = make_spec_without_row_rules(name, "negative_binomial", 300).fit(sample, None, seed=1)
    rate = list_locations(member, X, exposure).mean(1) / exposure
    by_level = [rate[level == k].mean() for k in range(8)]
    np.testing.assert_allclose(by_level, 30.0, rtol=0.2)


@pytest.mark.parametrize("name", list(MEMBERS))
def test_every_division_of_rows_keeps_groups_whole(monkeypatch, name):
    """Folds for the dispersion, for effects of levels and for rounds are told the groups of their rows."""
    group, divided = simulate_rows().group.astype(int) // 3, []
    for module, splitter in ((splits, splits.assign_folds), (network_fit, network_fit.assign_folds)):

        def divide(rows, folds, seed, group=None, splitter=splitter):
            divided.append((rows, group))
            return splitter(rows, folds, seed, group)

        monkeypatch.setattr(module, "assign_folds", divide)
    sample = simulate_rows().replace(group=group)
    fold = np.unique(group, return_inverse=True)[1] % 5
    spec = make_spec_without_row_rules(name, "negative_binomial", 210)
    spec.fit(sample, None, seed=0)
    spec.kind.fit_copies(sample, fold, seed=0, **spec.fold_options)
    assert all(labels is not None and len(labels) == rows for rows, labels in divided), divided
    assert len(divided) == (6 if name in ("trees", "networks", "large_networks") else 0)
