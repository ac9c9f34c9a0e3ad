"""A backbone of one's own in `DDPNRegressor`: a function or its name, which alone can be saved."""

import copy

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.metrics import d2_tweedie_score
from torch import nn

from ddpn import ConfigError, DDPNRegressor, InputError
from ddpn.networks.backbones import BACKBONES, Linear, NetworkList

RNG = np.random.default_rng(0)
X = RNG.normal(size=(240, 2))
MEAN = np.exp(1.0 + 0.8 * X[:, 0])
Y = RNG.poisson(MEAN)


def make_gated(n_in: int, n_networks: int) -> NetworkList:
    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(n_in, 16), nn.GLU(), nn.ReLU())

    return NetworkList(make, n_networks, output_dim=8)


class Residual(nn.Module):
    """Layers with the axis of networks first, which are computed together."""

    def __init__(self, n_in: int, n_networks: int) -> None:
        super().__init__()
        self.into, self.inner, self.output_dim = Linear(n_in, 8, n_networks), Linear(8, 8, n_networks), 8

    def reset(self, generators):
        self.into.reset(generators)
        self.inner.reset(generators)

    def forward(self, x):
        features = torch.relu(self.into(x))
        return features + torch.relu(self.inner(features))


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setitem(BACKBONES, "gated", make_gated)


def fit(backbone, **options) -> DDPNRegressor:
    settings = {"n_networks": 2, "preset": "default", "epochs": 30, "random_state": 0, "device": "cpu"}
    return DDPNRegressor(**settings | {"backbone": backbone} | options).fit(X[:200], Y[:200])


@pytest.mark.parametrize("backbone", [make_gated, Residual])
def test_networks_of_a_function_learn(backbone):
    stream = torch.get_rng_state()
    model = fit(backbone)
    assert torch.equal(torch.get_rng_state(), stream)
    assert model.score(X[200:], Y[200:]) > d2_tweedie_score(Y[200:], MEAN[200:], power=1) - 0.05
    again = clone(model).fit(X[:200], Y[:200])
    assert (again.predict(X) == model.predict(X)).all()
    assert (copy.deepcopy(model).predict(X) == model.predict(X)).all()
    assert model.predict(X[:1]) == pytest.approx(model.predict(X)[:1], rel=1e-12)
    first, second = model.predictor_.distribution(X).components.mean.T
    assert (first != second).all()


@pytest.mark.usefixtures("registered")
def test_a_registered_backbone_is_saved_by_its_name(tmp_path, monkeypatch):
    model = fit("gated", epochs=2)
    model.save(tmp_path / "model")
    again = DDPNRegressor.load(tmp_path / "model")
    assert again.backbone == "gated"
    assert (again.predict(X) == model.predict(X)).all()
    monkeypatch.delitem(BACKBONES, "gated")
    with pytest.raises(
        InputError, match=r"^The model has the backbone 'gated', .*Register it first: .*BACKBONES\['gated'\]"
    ):
        DDPNRegressor.load(tmp_path / "model")


def test_a_function_is_not_saved(tmp_path):
    with pytest.raises(ConfigError, match=r"`backbone` is a function cannot be saved. Register the function"):
        fit(make_gated, epochs=1).save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    "backbone",
    ["vit", make_gated(2, 2), lambda width: nn.Linear(width, 8), 3],
    ids=["images", "module", "one argument", "number"],
)
def test_what_cannot_make_networks_of_a_table_is_refused(backbone):
    with pytest.raises(ConfigError, match=r"^backbone must be a name in BACKBONES, or a function"):
        fit(backbone)


def test_other_invalid_uses_are_refused():
    with pytest.raises(ConfigError, match=r"^backbone must be one of mlp, .*Did you mean 'mlp'"):
        fit("mpl")
    with pytest.raises(ConfigError, match=r"^backbone must return a torch\.nn\.Module, got list"):
        fit(lambda n_in, n_networks: [n_in] * n_networks)
    with pytest.raises(ConfigError, match=r"^n_jobs must be None with a backbone of yours"):
        fit(make_gated, n_jobs=2)
