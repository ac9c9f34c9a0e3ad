"""Test copies of a member per fold:

no copy sees the fold that it left out, and the member is the mixture of its copies.
"""

from functools import cache

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

from ddpn import CountRegressor
from ddpn.distributions import Poisson
from ddpn.members.blending import mix_members
from ddpn.members.constant import Constant
from ddpn.members.folds import CrossFitted, Folds, collect_levels, get_fold_copies, load_member
from ddpn.members.glm import GLM, PoissonGLM
from ddpn.members.member import Member, MemberSpec
from ddpn.members.network_options import NetworkOptions
from ddpn.members.networks import Networks
from ddpn.members.trees.member import Trees
from ddpn.networks.heads import make_head
from ddpn.rows.count_rows import CountRows

ROWS = 180


def simulate_table(rows: int = ROWS, seed: int = 0) -> CountRows:
    """Simulate numbers, a column of levels, exposures and counts that depend on all of them."""
    rng = np.random.default_rng(seed)
    level = rng.integers(0, 20, rows)
    X = pl.DataFrame({"a": rng.normal(size=rows), "b": rng.uniform(size=rows), "zip": [f"z{k}" for k in level]})
    exposure = rng.uniform(0.5, 2.0, rows)
    sample = CountRows(X, np.zeros(rows), None, exposure)
    return sample.replace(y=rng.poisson(compute_truth(sample).mean.numpy()).astype(float))


def compute_truth(sample: CountRows) -> Poisson:
    """Return the distributions that the counts of a simulated table were drawn from."""
    level = np.array([int(name[1:]) for name in sample.X["zip"]])
    mean = sample.exposure * np.exp(1.0 + 0.5 * sample.X["a"].to_numpy() + 0.4 * np.sin(level))
    return Poisson(torch.from_numpy(mean))


def draw_wide_table(rows: int = ROWS) -> CountRows:
    """Draw more columns than networks use."""
    X = np.random.default_rng(1).normal(size=(rows, 510))
    return CountRows(X, np.random.default_rng(2).poisson(np.exp(1.0 + 0.5 * X[:, 5])).astype(float))


def make_networks(**options) -> MemberSpec:
    defaults = {"n_networks": 2, "hidden": (8,), "epochs": 1, "batch_size": 32, "numeric": "steps"}
    chosen = {"head": make_head("poisson"), "options": NetworkOptions(**defaults | options)}
    return MemberSpec("networks", Networks, chosen)


KINDS = {
    "networks": (simulate_table, make_networks),
    "networks of level effects": (simulate_table, lambda: make_networks(categorical="effects")),
    "networks of many columns": (draw_wide_table, lambda: make_networks(numeric="standard")),
    "trees": (simulate_table, lambda: MemberSpec("trees", Trees, {"rounds": 10, "leaves": (4,)})),
    "glm": (simulate_table, lambda: MemberSpec("glm", GLM, {"head": make_head("poisson")})),
    "constant": (simulate_table, lambda: MemberSpec("constant", Constant)),
}


def compute_probabilities(member: Member, sample: CountRows) -> torch.Tensor:
    """Compute probabilities that determine the predictions, in the order of the rows."""
    (dist,) = member.predict_components(sample.X, sample.exposure)
    return dist.log_prob(torch.arange(0.0, 25.0, 3.0, dtype=torch.float64)[:, None, None])


@cache
def cross_fit_once(kind: str) -> tuple[Folds, CrossFitted]:
    """Cross-fit a member to the folds of a table, once for all tests."""
    make_sample, make = KINDS[kind]
    folds = Folds.from_rows(make_sample(), None, seed=3)
    member = folds.fit(make(), seed=0)
    assert isinstance(member, CrossFitted)
    return folds, member


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_never_sees_its_fold(kind):
    """With other counts in one fold, the copy that left it out is the same to the last bit, and others differ.

    All networks of a training have one epoch, which held-out rows choose: this test has one epoch only.
    """
    folds, before = cross_fit_once(kind)
    sample, inside = folds.train, folds.fold_numbers == 2
    y = sample.y.copy()
    y[inside] = np.random.default_rng(4).permutation(sample.y[inside]) + 3.0
    changed = Folds(sample.replace(y=y), None, folds.fold_numbers)
    after = changed.fit(KINDS[kind][1](), seed=0)
    same = [
        torch.equal(compute_probabilities(one, sample), compute_probabilities(two, sample))
        for one, two in zip(before.copies, get_fold_copies(after), strict=True)
    ]
    assert same == [False, False, True, False, False]


@pytest.mark.parametrize("kind", ["networks", "trees", "glm"])
def test_copies_predict_their_folds_as_well_as_new_rows(kind):
    make, train, new = KINDS[kind][1], simulate_table(), simulate_table(600, seed=9)
    make = (lambda: make_networks(epochs=30)) if kind == "networks" else make
    folds = Folds.from_rows(train, None, seed=0)
    copies = get_fold_copies(folds.fit(make(), seed=0))

    def loss(copy: Member, sample: CountRows) -> np.ndarray:
        """Return how much worse than the truth a copy is for each row."""
        dist, y = mix_members([copy.predict_components(sample.X, sample.exposure)], [1.0]), torch.from_numpy(sample.y)
        return (dist.crps(y) - compute_truth(sample).crps(y)).numpy()

    if kind == "trees":
        assert [len(copy.means) for copy in copies] == [1] * 5, "one booster each: together they are many"
    held_out = np.concatenate(
        [loss(copy, held_out_rows) for copy, held_out_rows in zip(copies, folds.held_out, strict=True)]
    )
    fresh = np.mean([loss(copy, new) for copy in copies], axis=0)
    error = np.hypot(held_out.std() / len(held_out) ** 0.5, fresh.std() / len(fresh) ** 0.5)
    assert held_out.mean() == pytest.approx(fresh.mean(), abs=3.0 * error)
    seen = np.mean([loss(copy, train.rows(folds.fold_numbers != k)).mean() for k, copy in enumerate(copies)])
    assert seen < held_out.mean(), "rows of the fit look better than they are"


def test_folds_keep_groups_whole():
    group = np.repeat([f"person {k}" for k in range(12)], ROWS // 12)
    folds = Folds.from_rows(simulate_table().replace(group=group), None, seed=0)
    assert folds.are_crossed
    assert all(len(set(folds.fold_numbers[group == name])) == 1 for name in set(group))
    parts = [set(held_out_rows.group) for held_out_rows in folds.held_out]
    assert set.union(*parts) == set(group)
    assert sum(map(len, parts)) == 12


def test_validation_rows_are_held_out_where_there_are_some():
    train, validation = simulate_table(), simulate_table(50, seed=1)
    folds = Folds.from_rows(train, validation, seed=0)
    assert not folds.are_crossed
    assert folds.held_out == [validation]
    member = folds.fit(MemberSpec("poisson_glm", PoissonGLM), seed=0)
    assert get_fold_copies(member) == [member]
    alone = PoissonGLM.fit(train, validation, seed=0)
    assert torch.equal(compute_probabilities(member, validation), compute_probabilities(alone, validation))


@pytest.mark.parametrize("kind", ["networks", "trees", "glm", "constant"])
def test_a_cross_fitted_member_is_the_mixture_of_its_copies(kind):
    folds, member = cross_fit_once(kind)
    sample = folds.train
    assert (len(member.copies), member.label) == (5, KINDS[kind][1]().label)
    y = torch.from_numpy(sample.y)
    copy_mixtures = [mix_members([copy.predict_components(sample.X, sample.exposure)], [1.0]) for copy in member.copies]
    expected = torch.stack([dist.log_prob(y).exp() for dist in copy_mixtures]).mean(0)
    result = mix_members([member.predict_components(sample.X, sample.exposure)], [1.0])
    torch.testing.assert_close(result.log_prob(y).exp(), expected, rtol=1e-9, atol=1e-12)
    whole = mix_members([[member.distribution(sample.X, sample.exposure)]], [1.0])
    torch.testing.assert_close(whole.log_prob(y).exp(), expected, rtol=1e-9, atol=1e-12)
    facts = member.get_facts()
    assert facts["copies"] == 5
    assert set(member.copies[0].get_facts()) <= set(facts)


class DoubledGLM(PoissonGLM):
    """A GLM that predicts twice the mean."""

    def distribution(self, X, exposure=None):
        return Poisson(2.0 * super().distribution(X, exposure).mean)


class TripledGLM(PoissonGLM):
    """A GLM that predicts three times the mean."""

    def predict_components(self, X, exposure=None):
        return [Poisson(3.0 * batch.mean) for batch in super().predict_components(X, exposure)]


@pytest.mark.parametrize(("kind", "factor"), [(PoissonGLM, 1.0), (DoubledGLM, 2.0), (TripledGLM, 3.0)])
def test_cross_fitted_copies_predict_what_their_class_overrides(kind, factor):
    sample = simulate_table()
    plain, member = (
        Folds.from_rows(sample, None, seed=0).fit(MemberSpec("glm", k), seed=0) for k in (PoissonGLM, kind)
    )
    means = [mix_members([m.predict_components(sample.X, sample.exposure)], [1.0]).mean for m in (plain, member)]
    torch.testing.assert_close(means[1], factor * means[0], rtol=1e-12, atol=0.0)


def test_cross_fitted_copies_with_different_heads_have_equal_weights():
    folds = Folds.from_rows(simulate_table(), None, seed=0)
    copies = [
        folds.fit_copy(MemberSpec("glm", GLM, {"head": make_head(name)}), fold, seed=0)
        for fold, name in enumerate(("poisson", "poisson", "negative_binomial"))
    ]
    X, exposure = folds.train.X, folds.train.exposure
    mean = mix_members([CrossFitted(copies).predict_components(X, exposure)], [1.0]).mean
    expected = torch.stack([copy.distribution(X, exposure).mean[:, 0] for copy in copies]).mean(0)
    torch.testing.assert_close(mean, expected, rtol=1e-12, atol=0.0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_cross_fitted_member_is_saved_and_loaded(kind):
    folds, member = cross_fit_once(kind)
    again = load_member(type(member.copies[0]), member.state())
    assert isinstance(again, CrossFitted)
    assert again.get_facts() == member.get_facts()
    for one, two in zip(member.copies, again.copies, strict=True):
        assert torch.equal(compute_probabilities(one, folds.train), compute_probabilities(two, folds.train))


@pytest.mark.parametrize("member", ["glm", "trees"])
def test_levels_are_those_of_all_copies_of_a_cross_fitted_member(member):
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"ward": rng.choice(["A", "B"], 200), "age": rng.uniform(20, 80, 200)})
    rows.loc[7, "ward"] = "Z"  # most copies have it, and one has not
    model = CountRegressor(members=[member], random_state=0).fit(rows, rng.poisson(3.0, 200))
    fitted = model.predictor_.active_members
    assert isinstance(fitted[member], CrossFitted)
    levels = collect_levels(fitted.values())
    assert (set(levels), set(levels["ward"])) == ({"ward"}, {"A", "B", "Z"})
