"""The GLM among the members: there where it helps, not where it harms, and it stays with the model."""

import json
import warnings

import numpy as np
import pytest
import torch
from ddpn.estimators.inputs import Targets
from ddpn.estimators.linear import copies_allowed
from safetensors.numpy import save as save_arrays

from ddpn import ConfigError, CountGLM, CountRegressor, InputError
from ddpn.estimators import linear, saving
from ddpn.features import FeatureEncoder
from ddpn.heads import make_head

POISSON = make_head("poisson")


@pytest.fixture(scope="module")
def line() -> tuple[np.ndarray, np.ndarray]:
    """300 rows whose log mean is a line: nothing a network could add."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 3))
    return X, rng.poisson(np.exp(0.5 + 0.6 * X[:, 0])).astype(float)


@pytest.fixture(scope="module")
def mixed(quick, line) -> CountRegressor:
    """An ensemble of networks that hardly learn, on a line."""
    return quick(with_glm=True, members=5, epochs=2).fit(*line)


# How many --------------------------------------------------------------------------------------------------------


def raw_of(mean: np.ndarray, members: int) -> torch.Tensor:
    return torch.from_numpy(np.log(mean))[:, None, None].expand(-1, members, -1)


@pytest.mark.parametrize(
    ("networks", "glm", "copies"),
    [(1.0, 1.0, 5), (2.0, 1.0, 5), (1.0, 8.0, 0), (1.0, 2.2, 2), (1.0, 3.0, 1)],
    ids=["as good", "better", "much worse", "a little worse", "worse"],
)
def test_the_most_that_is_not_clearly_worse_than_none(networks, glm, copies):
    rng = np.random.default_rng(0)
    mean = rng.uniform(1.0, 9.0, 60)
    y = Targets(rng.poisson(mean).astype(float), None, None)
    assert copies_allowed(raw_of(networks * mean, 5), raw_of(glm * mean, 1), POISSON, y) == copies


def test_worse_by_up_to_one_standard_error_of_paired_rows(monkeypatch):
    gap = np.random.default_rng(3).normal(size=50)
    weight = np.random.default_rng(4).uniform(0.5, 2.0, 50)
    share = weight / weight.sum()
    gap -= share @ gap
    error = np.sqrt(share**2 @ gap**2)
    for shift, copies in ((0.999 * error, 4), (1.001 * error, 0)):
        # One score a row: 0 for the networks alone, the gap for any mixture.
        monkeypatch.setattr(
            linear, "crps", lambda law, y, s=shift: torch.from_numpy(gap + s if law.size > 4 else np.zeros(50))
        )
        found = copies_allowed(
            torch.zeros(50, 4, 1), torch.zeros(50, 1, 1), POISSON, Targets(np.ones(50), weight, None)
        )
        assert found == copies


def test_a_line_takes_half_of_the_mixture_and_helps(mixed, quick, line):
    alone = quick(members=5, epochs=2).fit(*line)
    assert mixed.linear_.copies == 5
    assert mixed.predict_distribution(line[0]).size == 10
    rng = np.random.default_rng(9)
    X = rng.normal(size=(500, 3))
    y = rng.poisson(np.exp(0.5 + 0.6 * X[:, 0]))
    assert mixed.crps(X, y) < alone.crps(X, y)


def test_where_a_line_does_not_fit_the_networks_stay_alone(quick):
    rng = np.random.default_rng(2)
    X = rng.uniform(-3.0, 3.0, size=(600, 1))
    y = rng.poisson(np.exp(1.5 + np.cos(3.0 * X[:, 0])))
    options = {"hidden": (32, 32), "epochs": 60, "lr": 0.02, "members": 2}
    both = quick(with_glm=True, **options).fit(X, y)
    assert both.linear_ is None
    assert (both.predict(X) == quick(**options).fit(X, y).predict(X)).all()


# What it is ------------------------------------------------------------------------------------------------------


def test_it_is_the_glm_of_the_training_rows(quick, line):
    X, y = line
    model = quick(with_glm=True, epochs=1).fit(X[:250], y[:250], X_val=X[250:], y_val=y[250:])
    encoder = FeatureEncoder().fit(X[:250])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        glm = CountGLM(alpha=1e-3).fit(encoder.transform(X[:250]).astype(float), y[:250])
    expected = glm._outputs(encoder.transform(X[:250]).astype(float))
    assert model.linear_.raw(X[:250])[:, 0].numpy() == pytest.approx(expected[:, 0].numpy(), rel=1e-9)
    # Beyond the training rows it goes no further than these went.
    far = model.linear_.raw(50.0 * X)[:, 0].numpy()
    assert far.max(0) == pytest.approx(expected[:, 0].numpy().max(0))
    assert far.min(0) == pytest.approx(expected[:, 0].numpy().min(0))


def test_exposures_weights_and_gaps(quick, line):
    X, y = line
    rng = np.random.default_rng(7)
    exposure, weight = rng.uniform(10.0, 900.0, 300), rng.integers(0, 3, 300).astype(float)
    holes = np.where(rng.random(X.shape) < 0.05, np.nan, X)
    model = quick(with_glm=True, likelihood="poisson", epochs=2).fit(holes, rng.poisson(y * exposure), weight, exposure)
    assert model.linear_ is not None
    doubled = model.predict(holes, 2.0 * exposure) / model.predict(holes, exposure)
    assert doubled == pytest.approx(np.full(300, 2.0), rel=1e-6)


def test_a_gamma_that_all_rows_share_is_an_intercept(quick, line):
    model = quick(with_glm=True, gamma="shared", epochs=2).fit(*line)
    assert np.ptp(model.linear_.raw(line[0])[:, 0, 1].numpy()) == 0.0
    assert np.ptp(model.linear_.raw(line[0])[:, 0, 0].numpy()) > 0.1


@pytest.mark.parametrize("what", ["few rows", "many columns", "interrupted"])
def test_where_there_is_none(quick, line, what, monkeypatch):
    X, y = line
    if what == "many columns":
        monkeypatch.setattr(linear, "_MAX_COLUMNS", 2)
    if what == "interrupted":
        monkeypatch.setattr("ddpn.training.loop.Training.run_epoch", _stop_in_second_epoch())
        model = quick(with_glm=True).fit(X, y)
        assert model.interrupted_
    else:
        rows = 90 if what == "few rows" else 300
        model = quick(with_glm=True, epochs=2).fit(X[:rows], y[:rows])
    assert model.linear_ is None
    assert model.predict(X).shape == (300,)


def _stop_in_second_epoch():
    from ddpn.training.loop import Training

    run = Training.run_epoch

    def stopped(self):
        if self.epoch == 1:
            raise KeyboardInterrupt
        return run(self)

    return stopped


def test_of_many_rows_a_draw_is_enough(quick, line, monkeypatch):
    monkeypatch.setattr(linear, "_MAX_ROWS", 150)
    whole, drawn = quick(with_glm=True, epochs=2), quick(with_glm=True, epochs=2)
    drawn.fit(*line)
    monkeypatch.undo()
    whole.fit(*line)
    gap = (drawn.linear_.raw(line[0]) - whole.linear_.raw(line[0]))[:, 0, 0].abs()
    assert 0.0 < gap.mean() < 0.3


# Refusals and keeping --------------------------------------------------------------------------------------------


def test_what_has_no_glm_is_told(quick, line):
    with pytest.raises(ConfigError, match='with_glm must be False with likelihood="faithful_gaussian"'):
        quick(with_glm=True, likelihood="faithful_gaussian").fit(*line)
    with pytest.raises(ConfigError, match="with_glm must be False without hidden layers"):
        quick(with_glm=True, hidden=()).fit(*line)


def test_a_saved_model_keeps_it_and_a_new_fit_forgets_it(mixed, quick, line, tmp_path):
    mixed.save(tmp_path / "model")
    again = CountRegressor.load(tmp_path / "model")
    X = 2.0 * line[0]
    assert again.linear_.copies == 5
    assert (again.predict(X) == mixed.predict(X)).all()
    again.save(tmp_path / "again")
    assert (CountRegressor.load(tmp_path / "again").predict(X) == mixed.predict(X)).all()
    assert again.set_params(with_glm=False).fit(*line).linear_ is None


def test_a_damaged_one_is_refused(mixed, tmp_path):
    mixed.save(tmp_path / "model")
    file = tmp_path / "model" / "linear.safetensors"
    file.write_bytes(save_arrays({"other": np.zeros(3)}))
    manifest = json.loads((tmp_path / "model" / "model.json").read_text())
    manifest["files"][file.name] = saving.hashlib.sha256(file.read_bytes()).hexdigest()
    manifest["checksum"] = saving._checksum(manifest)
    (tmp_path / "model" / "model.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match=r"linear\.safetensors must fit the manifest, got .*Save the model again"):
        CountRegressor.load(tmp_path / "model")
