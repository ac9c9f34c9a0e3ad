"""`CountRegressor` and `DDPNRegressor`: what they fit, and which rows they hold out."""

import numpy as np
import pandas as pd
import pytest

from ddpn import CountRegressor, DDPNRegressor
from ddpn.estimators.regressor import held_out
from ddpn.members import MEMBERS
from ddpn.members.glm import GLM
from ddpn.members.member import NotApplicableError
from ddpn.networks.training.loop import Training
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.sample import Sample


@pytest.fixture(scope="module")
def line() -> tuple[np.ndarray, np.ndarray]:
    """300 rows whose log mean is a line: nothing that networks could add."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 3))
    return X, rng.poisson(np.exp(0.5 + 0.6 * X[:, 0])).astype(float)


def test_the_default_model_says_what_it_is_fitted_without(line, monkeypatch):
    monkeypatch.setattr(GLM, "max_columns", 2)
    words = "^The mixture is fitted without GLM: 3 inputs, more than the 2"
    with pytest.warns(UserWarning, match=words) as caught:
        model = CountRegressor(members=["glm", "constant"], random_state=0).fit(*line)
    assert caught[0].filename == __file__, "the warning should point to the user's call of fit"
    assert model.predictor_.weights == {"constant": 1.0}
    assert list(model.left_out_) == ["glm"]
    assert not hasattr(model, "history_"), "it has no networks"


@pytest.mark.parametrize(
    ("rows", "groups", "words"),
    [(1, None, "two different rows"), (20, None, "two different rows"), (20, "a", "groups must have at least two")],
    ids=["one row", "equal rows", "one group"],
)
def test_rows_that_cannot_be_divided_are_refused(rows, groups, words):
    X = np.zeros((rows, 1)) if groups is None else np.arange(rows).reshape(-1, 1)
    given = {} if groups is None else {"groups": [groups] * rows}
    with pytest.raises(InputError, match=words):
        CountRegressor(random_state=0).fit(X, np.full(rows, 3), **given)


@pytest.mark.filterwarnings("ignore:The mixture is fitted without")
def test_two_rows_are_enough_to_predict():
    model = CountRegressor(random_state=0).fit([[0.0], [1.0]], [3, 5])
    assert 1.0 < model.predict([[0.0]])[0] < 10.0


@pytest.mark.parametrize("members", [5, "all", ["tree"], {"glm"}], ids=str)
def test_members_are_names(members):
    with pytest.raises(ConfigError, match="members"):
        CountRegressor(members=members).fit([[0.0], [1.0]], [3, 5])


def test_the_mean_of_trees_follows_monotone_constraints(line):
    X, y = line
    for sign in (1, -1):
        model = CountRegressor(members=["trees"], monotone={"x0": sign}, random_state=0).fit(X, y)
        assert not model.predictor_.is_recalibrated(), "it might bend the mean"
        steps = np.diff(np.log(model.predict(np.linspace(-3, 3, 50)[:, None] * [1.0, 0.0, 0.0])))
        assert (sign * steps >= -1e-12).all()


@pytest.mark.parametrize("monotone", [{"ward": 1}, {"age": 2}, {"aeg": 1}, ["age"], 1], ids=str)
def test_monotone_constraints_are_directions_of_columns_of_numbers(monotone):
    X, y = pd.DataFrame({"age": np.arange(20.0), "ward": ["A", "B"] * 10}), np.arange(20)
    with pytest.raises(ConfigError, match="monotone"):
        CountRegressor(members=["trees"], monotone=monotone).fit(X, y)
    with pytest.raises(ConfigError, match="monotone"):
        CountRegressor(members=["trees", "glm"], monotone={"age": 1}).fit(X, y)


def test_counts_that_no_member_can_fit_are_refused():
    with pytest.raises(InputError, match="no count above 0"):
        CountRegressor(members=["trees"]).fit(np.eye(9), np.zeros(9))


@pytest.mark.parametrize(
    ("rows", "share", "size"),
    [
        (199, "auto", 0), (200, "auto", 20), (1000, 0.25, 250), (50, None, 0), (50, 0.0, 0), (3, 0.9, 2), (1, 0.5, 0),
        (20, 0.001, 1),
    ],
)  # fmt: skip
def test_a_share_is_held_out(rows, share, size):
    mask = held_out(Sample(None, np.zeros(rows)), share, seed=0)
    assert mask.shape == (rows,)
    assert mask.sum() == size


# Further members --------------------------------------------------------------------------------------------------

#: Three batches per epoch.
QUICK = {"epochs": 2, "training_options": {"batch_size": 100}}


@pytest.fixture(scope="module")
def mixed(quick, line) -> DDPNRegressor:
    """Networks that hardly learn, with a GLM on a line and a constant."""
    return quick(mix_with=["glm", "constant"], members=3, **QUICK).fit(*line)


def test_the_mixture_has_weights_that_sum_to_one(mixed, line):
    weights = mixed.predictor_.weights
    assert list(weights) == ["networks", "glm", "constant"]
    assert sum(weights.values()) == pytest.approx(1.0)
    assert min(weights.values()) >= 0.0
    dist = mixed.predict_distribution(line[0])
    # A weight of 0 means that the member has no component.
    size = {"networks": 3, "glm": 1, "constant": 1}
    assert dist.size == sum(size[name] for name, weight in weights.items() if weight > 0)
    each = {name: mixed.predictor_.distribution(line[0], of=name).mean.numpy() for name in weights}
    assert mixed.predict(line[0]) == pytest.approx(sum(weights[name] * each[name] for name in weights), rel=1e-9)
    assert set(mixed.predictor_.seconds) == set(weights)


def test_a_glm_on_a_line_gets_the_largest_weight_and_helps(mixed, quick, line):
    weights = mixed.predictor_.weights
    assert weights["glm"] > max(weights["networks"], weights["constant"])
    alone = quick(members=3, **QUICK).fit(*line)
    networks = mixed.predictor_.distribution(line[0], of="networks").mean.numpy()
    assert (networks == alone.predict(line[0])).all(), "further members must not change the networks"
    rng = np.random.default_rng(9)
    X = rng.normal(size=(500, 3))
    y = rng.poisson(np.exp(0.5 + 0.6 * X[:, 0]))
    assert mixed.crps(X, y) < alone.crps(X, y)


def test_where_a_line_does_not_fit_the_networks_dominate(quick):
    rng = np.random.default_rng(2)
    X = rng.uniform(-3.0, 3.0, size=(700, 1))
    y = rng.poisson(np.exp(1.5 + np.cos(3.0 * X[:, 0])))
    options = {"hidden": (32, 32), "epochs": 30, "members": 1, "training_options": {"lr": 0.03, "batch_size": 100}}
    both = quick(mix_with=["glm"], validation=0.4, **options).fit(X, y)
    assert both.predictor_.weights["networks"] > 0.9


def test_exposures_weights_and_missing_values(quick, line):
    X, _ = line
    rng = np.random.default_rng(7)
    exposure, weight = rng.uniform(10.0, 900.0, 300), rng.integers(0, 3, 300).astype(float)
    holes = np.where(rng.random(X.shape) < 0.05, np.nan, X)
    others = ["glm", "poisson_glm", "constant"]
    model = quick(mix_with=others, likelihood="poisson", **QUICK)
    model.fit(holes, rng.poisson(exposure * np.exp(0.5 + 0.6 * X[:, 0])), weight, exposure)
    assert list(model.predictor_.members) == ["networks", *others]
    weights = model.predictor_.weights
    assert weights["glm"] + weights["poisson_glm"] > 0.9, "of a Poisson likelihood, both are the same line"
    doubled = model.predict(holes, 2.0 * exposure) / model.predict(holes, exposure)
    assert doubled == pytest.approx(np.full(300, 2.0), rel=1e-6)
    for name in model.predictor_.members:
        mean = model.predictor_.distribution(holes, exposure, of=name).mean.numpy()
        assert np.corrcoef(np.log(mean), np.log(exposure))[0, 1] > 0.5, name


def test_normals_are_mixed_with_counts(quick, line, tmp_path):
    model = quick(likelihood="gaussian", mix_with=("poisson_glm",), **QUICK).fit(*line)
    assert model.predictor_.weights["poisson_glm"] > 0
    dist = model.predict_distribution(line[0])
    assert (dist.mode == dist.mode.round()).all()
    model.save(tmp_path / "model")
    assert (DDPNRegressor.load(tmp_path / "model").predict(line[0]) == model.predict(line[0])).all()


def test_a_shared_gamma_is_an_intercept_of_the_glm(quick, line):
    model = quick(
        mix_with=["glm"], likelihood="double_poisson", head_options={"gamma": "shared", "beta": 0.5}, **QUICK
    ).fit(*line)
    raw = model.predictor_.members["glm"].raw(line[0])[:, 0].numpy()
    assert np.ptp(raw[:, 1]) == 0.0
    assert np.ptp(raw[:, 0]) > 0.1


@pytest.mark.parametrize("case", ["few rows", "no validation", "interrupted"])
def test_without_validation_rows_or_after_an_interruption_there_are_networks_only(quick, line, case, monkeypatch):
    X, y = line
    model = quick(mix_with=["glm"], **QUICK | ({"validation": None} if case == "no validation" else {}))
    if case == "interrupted":
        run = Training.run_epoch
        monkeypatch.setattr(Training, "run_epoch", lambda self: run(self) if self.epoch < 1 else _interrupt())
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, y)
    else:
        rows = 90 if case == "few rows" else 300
        model.fit(X[:rows], y[:rows])
    assert model.predictor_.weights == {"networks": 1.0}
    assert model.predict(X).shape == (300,)


def _interrupt():
    raise KeyboardInterrupt


def test_a_member_that_cannot_be_fitted_is_left_out_with_a_warning(quick, line, monkeypatch):
    class Never(GLM):
        label = "never"

        def fit(self, train, validation, seed):
            raise NotApplicableError("it is Monday")

    monkeypatch.setitem(MEMBERS, "never", Never)
    with pytest.warns(UserWarning, match="^The mixture is fitted without never: it is Monday") as caught:
        model = quick(mix_with=["never", "constant"], **QUICK).fit(*line)
    assert caught[0].filename == __file__, "the warning should point to the user's call of fit"
    assert list(model.predictor_.weights) == ["networks", "constant"]
    assert set(model.predictor_.seconds) == {"networks", "constant"}
    assert sum(model.predictor_.weights.values()) == pytest.approx(1.0)
