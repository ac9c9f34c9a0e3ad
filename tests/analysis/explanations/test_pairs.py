"""Second-order effects: found where there is an interaction, and only there."""

import numpy as np
import pytest

from ddpn import DDPNRegressor, InputError
from ddpn.analysis.explanations import interactions

RNG = np.random.default_rng(5)
X = RNG.normal(size=(400, 4))


def test_a_product_is_found_and_has_its_own_shape(formula):
    found = interactions(formula(lambda c: 0.3 * c["x0"] + 0.4 * c["x1"] * c["x2"]), X, top=3)
    assert [one.names for one in found] == [("x1", "x2")]
    one = found[0]
    a, b = (np.array(points) for points in one.points)
    assert np.corrcoef(one.effect.ravel(), np.outer(a, b).ravel())[0, 1] > 0.98
    assert one.strength == pytest.approx(0.4, rel=0.3)
    assert one.strength > 5 * one.noise
    assert one.share.sum() == pytest.approx(1.0)
    # The mean of a typical row: both effects and the interaction.
    np.testing.assert_allclose(np.diff(np.diff(one.total, axis=0), axis=1), 0.4 * np.outer(np.diff(a), np.diff(b)))
    table = one.to_dict()
    assert list(table) == ["x1", "x2", "share", "effect", "mean"]
    assert len({len(values) for values in table.values()}) == 1


def test_an_additive_model_has_none_though_columns_are_correlated(formula):
    correlated = X @ np.array([[1, 0.7, 0, 0], [0, 0.7, 0, 0.3], [0, 0, 1, 0], [0, 0, 0, 1]])
    model = formula(lambda c: np.sin(c["x0"]) + c["x1"] ** 2 / 3 - c["x2"])
    every = interactions(model, correlated, every=True)
    assert len(every) == 6
    assert max(one.strength for one in every) < 1e-9
    assert interactions(model, correlated) == []


def test_levels_flags_and_missing_values_take_part(formula, frame):
    model = formula(lambda c: np.where(c["flag"] == 1, 0.8, 0.1) * np.where(c["ward"] == "b", 1.0, 0.0))
    found = interactions(model, frame, columns=["flag", "ward", "same"])
    assert [one.names for one in found] == [("flag", "ward")]
    assert sorted(found[0].points[1]) == ["a", "b", "c"]
    place = found[0].points[1].index("b")
    gain = found[0].effect[1] - found[0].effect[0]
    assert gain[place] - np.delete(gain, place).max() == pytest.approx(0.7, abs=1e-9)


def test_what_members_disagree_about_is_noise(formula):
    both = formula(lambda c: c["x0"] + 0.5 * c["x1"] * c["x2"], lambda c: c["x0"] - 0.4 * c["x1"] * c["x2"])
    every = {one.names: one for one in interactions(both, X, every=True, top=3)}
    pair = every["x1", "x2"]
    assert pair.noise > pair.strength
    assert not pair.is_found


def test_networks_that_learnt_an_interaction_show_it():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (1000, 3))
    y = rng.poisson(np.exp(1.5 + 0.5 * x[:, 0] + 1.2 * x[:, 1] * x[:, 2]))
    options = {"members": 3, "hidden": (32,), "numeric": "standard", "epochs": 15, "random_state": 0}
    model = DDPNRegressor(likelihood="poisson", **options).fit(x, y)
    assert [one.names for one in model.interactions(x)] == [("x1", "x2")]


def test_bad_arguments(formula):
    model = formula(lambda c: c["x0"])
    with pytest.raises(InputError, match="columns must name two columns or more, got 1"):
        interactions(model, X, columns=["x0"])
    with pytest.raises(ValueError, match="top must be an integer of at least 2, got 1"):
        interactions(model, X, top=1)
    assert interactions(model, X[:1]) == []
