"""What every kind of member must do, over the registry."""

import json

import numpy as np
import polars as pl
import pytest
import torch

from ddpn.members import MEMBERS, Member
from ddpn.members.member import Task
from ddpn.members.network_options import NetworkOptions
from ddpn.members.networks import Networks
from ddpn.networks.heads import make_head
from ddpn.runtime.errors import InputError
from ddpn.sample import Sample


def unfitted(name: str) -> Member:
    member = MEMBERS[name].like(Task(make_head("double_poisson")))
    if isinstance(member, Networks):
        member.options = NetworkOptions(members=2, hidden=(8,), numeric="standard", epochs=2)
    if name == "trees":
        member.leaves, member.rounds = (4,), 8
    return member


@pytest.fixture(scope="module")
def all_fitted(mixed_sample) -> dict[str, Member]:
    """Every kind, fitted once."""
    return {name: unfitted(name).fit(mixed_sample, None, seed=1) for name in MEMBERS}


@pytest.fixture(params=list(MEMBERS))
def member(request, all_fitted) -> Member:
    return all_fitted[request.param]


def locations(member: Member, X, exposure) -> np.ndarray:
    dist = member.distribution(X, exposure)
    return (dist.mu if hasattr(dist, "mu") else dist.mean).numpy()


def test_it_predicts_one_or_more_distributions_per_row(member, mixed_sample):
    dist = member.distribution(mixed_sample.X, mixed_sample.exposure)
    assert dist.batch_shape[0] == 250
    assert len(dist.batch_shape) == 2
    assert dist.mean.dtype == torch.float64
    assert torch.isfinite(dist.log_prob(torch.from_numpy(mixed_sample.y).unsqueeze(1))).all()
    assert isinstance(member, Member)
    assert member.label
    assert not member.interrupted


def test_the_location_is_proportional_to_the_exposure(member, mixed_sample):
    X, exposure = mixed_sample.X, mixed_sample.exposure
    assert locations(member, X, 2.0 * exposure) == pytest.approx(2.0 * locations(member, X, exposure), rel=1e-9)


def test_it_is_restored_from_its_files_bit_for_bit(member, mixed_sample):
    files = member.state()
    assert all(name.endswith((".json", ".safetensors", ".skops")) for name in files)
    again = type(member).from_state(files)
    ours, theirs = (m.distribution(mixed_sample.X, mixed_sample.exposure) for m in (member, again))
    assert (ours.mean == theirs.mean).all()
    assert (ours.variance == theirs.variance).all()
    assert again.facts() == member.facts()
    assert {name for name, content in again.state().items() if content} == set(files)


def test_its_facts_are_json(member):
    assert json.loads(json.dumps(member.facts())) == member.facts()


def test_new_levels_missing_values_and_another_order_are_accepted(member, mixed_sample):
    new = pl.DataFrame({"x": [0.0, None], "ward": ["Z", None], "age": [1e6, None], "smokes": [True, None]})
    assert torch.isfinite(member.distribution(new, np.ones(2)).mean).all()
    X, exposure = mixed_sample.X, mixed_sample.exposure
    other = X.select("smokes", "age", "x", "ward")
    assert (member.distribution(other, exposure).mean == member.distribution(X, exposure).mean).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda X: X.drop("age"), "'age'"),
        (lambda X: X.with_columns(ward=pl.lit(1.5)), "'ward' must hold text as in fit, got numbers"),
        (lambda X: X.with_columns(x=pl.lit("low")), "'x' must hold numbers as in fit, got '"),
    ],
    ids=["missing column", "numbers for text", "text for numbers"],
)
@pytest.mark.parametrize("name", [name for name in MEMBERS if name != "constant"])
def test_a_table_unlike_that_of_fit_is_refused(all_fitted, mixed_sample, name, change, words):
    with pytest.raises(InputError, match=words):
        all_fitted[name].distribution(change(mixed_sample.X), None)


@pytest.mark.parametrize("name", list(MEMBERS))
def test_a_weight_of_zero_equals_dropping_the_row(mixed_sample, name):
    some = mixed_sample.rows(slice(0, 80))
    weight = (np.arange(80) % 4 > 0).astype(float)
    dropped = Sample(some.X, some.y, None, some.exposure).rows(weight > 0)
    found = [unfitted(name).fit(s, None, seed=1) for s in (some.replace(weight=weight), dropped)]
    ours, theirs = (member.distribution(some.X, some.exposure).mean.numpy() for member in found)
    assert ours == pytest.approx(theirs, rel=1e-6)
