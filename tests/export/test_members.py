"""Test every kind of member in an exported file: preprocessing included, with missing, unseen and extreme values."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from ddpn import CountGLM, CountRegressor, DDPNRegressor
from ddpn.export import export_onnx
from ddpn.export.families import MAX_GRID_COUNT
from ddpn.members.constant import Constant
from ddpn.members.glm import GLM, PoissonGLM
from ddpn.members.network_fit import build_model
from ddpn.members.network_options import NetworkOptions
from ddpn.members.networks import Networks
from ddpn.members.trees.member import Trees
from ddpn.networks.heads import make_head
from ddpn.predictor import Predictor
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.errors import ConfigError
from ddpn.tables.encoding import FeatureEncoder


def simulate_rows(n: int, seed: int, levels: int = 40) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    number = np.where(rng.random(n) < 0.1, np.nan, rng.normal(size=n))
    ward = [None if rng.random() < 0.1 else f"ward {j}" for j in rng.integers(0, levels, n)]
    code = [None if rng.random() < 0.1 else str(j) for j in rng.integers(1, 5, n)]
    columns = {"number": number, "hour": rng.integers(0, 24, n).astype(float), "ward": ward, "code": code}
    return pl.DataFrame({**columns, "flag": rng.random(n) < 0.4})


@pytest.fixture(scope="module")
def train() -> CountRows:
    X, rng = simulate_rows(240, seed=0), np.random.default_rng(1)
    effect = rng.normal(0.0, 0.8, 41)[[0 if w is None else int(w[5:]) for w in X["ward"].to_list()]]
    mean = np.exp(0.7 + 0.4 * X["number"].fill_nan(0.0).to_numpy() + effect + 0.5 * X["flag"].to_numpy())
    return CountRows(X, rng.poisson(mean * rng.gamma(2.0, 0.5, 240)).astype(float), None, rng.uniform(0.5, 2.0, 240))


@pytest.fixture(scope="module")
def new() -> pl.DataFrame:
    """Rows with missing cells, unseen levels and extreme numbers."""
    extreme = pl.DataFrame(
        {
            "number": [1e300, -1e300, 1e-300, 40.0, np.nan],
            "hour": [-5.0, 1e9, 12.5, np.nan, np.nan],
            "ward": ["unseen", None, "ward 2", "ward 1", None],
            "code": ["9", None, "3", "1", None],
            "flag": [True, False, None, True, None],
        }
    )
    return pl.concat([simulate_rows(25, seed=7, levels=50), extreme])


@pytest.fixture(scope="module")
def glm(train) -> GLM:
    return GLM.fit(train, None, seed=0)


EXPOSURE = np.random.default_rng(3).uniform(0.2, 5.0, 30)


def make_random_networks(
    train: CountRows, numeric: str, activation: str = "relu", categorical: str = "one-hot"
) -> Networks:
    """Make networks with random weights, as a training would leave them."""
    options = NetworkOptions(n_networks=3, hidden=(8, 5), numeric=numeric, activation=activation)
    encoder, head = FeatureEncoder(numeric=numeric, categorical=categorical).fit(train.X, train.y), make_head("mixed")
    model = build_model(head, options, len(encoder.get_feature_names_out()), 3)
    model.reset([1, 2, 3])
    member = Networks(head, options, encoder, None, model.double().eval(), 1.0, 240, None)
    member.get_facts = dict
    return member


@pytest.mark.parametrize(("numeric", "activation"), [("standard", "silu"), ("piecewise", "relu"), ("steps", "tanh")])
def test_networks_with_every_encoding_and_activation_are_exported(train, new, assert_parity, numeric, activation):
    assert_parity(Predictor({"networks": make_random_networks(train, numeric, activation)}), new)


def test_networks_with_level_effects_are_exported(train, new, assert_parity):
    member = make_random_networks(train, "standard", categorical="effects")
    assert "ward effect" in member.encoder.list_input_names()
    assert_parity(Predictor({"networks": member}), new)


def test_an_activation_without_float64_is_refused(train, file):
    with pytest.raises(ConfigError, match=r"Networks with the activation gelu cannot be exported\. Use one of"):
        export_onnx(Predictor({"networks": make_random_networks(train, "standard", "gelu")}), file)


def test_chosen_inputs_are_exported(train, new, assert_parity):
    member = make_random_networks(train, "standard")
    member.chosen = np.array([3, 0, 7])
    member.model = build_model(member.head, member.options, 3, 3)
    member.model.reset([1, 2, 3])
    member.model = member.model.double()
    assert_parity(Predictor({"networks": member}), new)


def test_a_poisson_glm_beyond_any_grid_predicts_nan(train, new, assert_parity, run_file, make_feeds, file):
    """Rows whose counts end within the sums are predicted; others are NaN in all outputs."""
    member = PoissonGLM.fit(train, None, seed=0)
    mean = member.distribution(new, EXPOSURE).mean.numpy().ravel()
    inside = mean < 0.5 * MAX_GRID_COUNT
    assert mean.max() > 1e7
    assert_parity(Predictor({"poisson_glm": member}, needs_exposure=True), new.filter(inside), EXPOSURE[inside])
    out = run_file(file, make_feeds(new.filter(~inside), exposure=EXPOSURE[~inside]))
    assert all(np.isnan(values).all() for values in out.values())


def test_trees_with_a_boosted_dispersion_are_exported(new, assert_parity):
    """The spread of the counts follows a column."""
    rng = np.random.default_rng(0)
    X = simulate_rows(900, seed=0).with_columns(number=rng.normal(size=900), hour=rng.normal(size=900))
    index = X["number"].to_numpy() + X["hour"].to_numpy() + X["flag"].to_numpy()
    mean = np.where(index > 0.3, 30.0, 3.0)
    spread = np.where(X["number"].to_numpy() > 0, rng.gamma(1.0, 1.0, 900), 1.0)
    member = Trees.fit(CountRows(X, rng.poisson(mean * spread).astype(float)), None, seed=0, rounds=40, leaves=(4,))
    assert member.get_facts()["dispersion"] == "boosted"
    assert_parity(Predictor({"trees": member}), new)


def test_a_weighted_mixture_of_several_kinds_is_exported(train, glm, new, assert_parity):
    members = {"constant": Constant.fit(train, None, seed=0), "glm": glm}
    members |= {"trees": Trees.fit(train, None, seed=0, rounds=12), "networks": make_random_networks(train, "steps")}
    weights = {"constant": 0.2, "glm": 0.5, "trees": 0.3, "networks": 0.0}
    predictor = Predictor(members, weights, needs_exposure=True)
    assert_parity(predictor, new, EXPOSURE)


def test_constants_alone_have_no_columns(train, file):
    with pytest.raises(ConfigError, match="a member that uses columns"):
        export_onnx(Predictor({"constant": Constant.fit(train, None, seed=0)}), file)


def test_an_estimator_and_its_folder_give_the_same_file(wards, quick, tmp_path, assert_parity):
    X, y = wards
    model = quick(epochs=2).fit(X, y)
    model.save(tmp_path / "model")
    for source, name in ((model, "a.onnx"), (tmp_path / "model", "b.onnx")):
        export_onnx(source, tmp_path / name, quantiles=(0.01, 0.1, 0.9, 0.99), pmf_up_to=20)
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    assert_parity(model.predictor_, pl.from_pandas(X.assign(kind=X["kind"].astype(str)))[:20])


def test_a_default_model_of_few_rows_has_copies_of_its_members(counts, run_file, file):
    X, y = counts
    model = CountRegressor(members=["constant", "glm"], random_state=0).fit(X[:100], y[:100])
    assert export_onnx(model, file)["pmf_up_to"] > 0
    out = run_file(file, {f"x{j}": X[:5, j].copy() for j in range(3)})
    assert out["mean"] == pytest.approx(model.predict(X[:5]), rel=1e-9)


def test_a_double_poisson_by_its_mean_is_refused_and_the_remedy_works(wards, file):
    X, y = wards
    with pytest.raises(ConfigError, match=r'with `location="mean"` cannot be exported\. Fit with `location="mu"`'):
        export_onnx(CountGLM().fit(X[["urgent"]], y), file)
    export_onnx(CountGLM(location="mu").fit(X[["urgent"]], y), file)


def test_levels_that_a_glm_does_not_know_are_nan(wards, run_file, file):
    X, y = wards
    model = CountGLM(likelihood="poisson").fit(X[["ward", "urgent"]], y)
    export_onnx(model, file)
    feeds = {"ward": np.array(["A", "C", "Z", ""], dtype=object), "urgent": np.array([1.0, 0.0, 1.0, 1.0])}
    out = run_file(file, feeds)
    exact = model.predict(pd.DataFrame({"ward": ["A", "C"], "urgent": [True, False]}))
    assert out["mean"][:2] == pytest.approx(exact, rel=1e-9)
    assert np.isnan(out["mean"][2:]).all()


def test_outputs_give_way_to_columns_of_the_same_name(counts, run_file, make_feeds, file):
    """A column that has the name of an output keeps it, and the output gets a prefix."""
    X, y = counts
    frame = pl.DataFrame({"mean": X[:, 0], "q0.9": X[:, 1], "v1": X[:, 2]})
    model = DDPNRegressor(n_networks=2, hidden=(8,), epochs=2, mix_with=("glm",), random_state=0).fit(frame, y)
    about = export_onnx(model, file, quantiles=(0.9,))
    assert about["outputs"]["mean"] == "predicted_mean"
    assert about["outputs"]["q0.9"] == "predicted_q0.9"
    out = run_file(file, make_feeds(frame))
    assert out["predicted_mean"] == pytest.approx(model.predictor_.distribution(frame).mean.numpy(), rel=1e-9)


def test_levels_that_are_equal_as_floats_are_different_levels(run_file, file):
    names = ["9007199254740993", "9007199254740992", "7", "12345678901234567891"]
    levels = np.repeat(names, 30)
    y = np.random.default_rng(0).poisson(np.repeat([1.0, 4.0, 9.0, 20.0], 30))
    model = CountGLM(likelihood="poisson").fit(pd.DataFrame({"id": levels}), y)
    export_onnx(model, file)
    spellings = [*names, "7.0", "007"]
    out = run_file(file, {"id": np.array(spellings, dtype=object)})
    exact = model.predict(pd.DataFrame({"id": [*names, "7", "7"]}))
    assert len(set(exact.round(6))) == 4
    assert out["mean"] == pytest.approx(exact, rel=1e-9)
