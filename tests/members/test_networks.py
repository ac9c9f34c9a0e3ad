"""Networks as a member: encodings of numbers, folds, tensors keep what counts need, files must fit together."""

import json

import numpy as np
import pytest
import torch

from ddpn.distributions import Poisson
from ddpn.members import networks as networks_module
from ddpn.members.network_options import NetworkOptions
from ddpn.members.networks import Networks
from ddpn.networks.heads import make_head
from ddpn.runtime.errors import InputError
from ddpn.sample import Sample

POISSON = make_head("poisson")


def networks(**options) -> Networks:
    small = {"members": 2, "hidden": (8,), "numeric": "standard", "epochs": 1}
    return Networks(POISSON, NetworkOptions(**small | options))


@pytest.fixture(scope="module")
def steps() -> tuple[Sample, Sample]:
    """Counts that jump where a number passes a threshold, which no line follows; the last rows are for validation."""
    X = np.random.default_rng(3).uniform(size=(400, 2))
    whole = Sample(X, 1.0 + 12.0 * ((X[:, 0] * 10) % 2 < 1))
    return whole.rows(slice(0, 300)), whole.rows(slice(300, 400))


def test_copies_predict_the_rows_that_they_left_out(steps):
    train, fold = steps[0], np.arange(300) % 2
    copies = networks(numeric="steps", epochs=20, lr=1e-2).fit_copies(
        train.replace(weight=np.r_[0.0, np.ones(299)]), fold, 0
    )
    assert len(copies) == 2
    assert copies[0].history.best_epoch == copies[1].history.best_epoch
    for number, copy in enumerate(copies):
        own = train.rows(fold == number)
        y, dist = torch.from_numpy(own.y).unsqueeze(1), copy.distribution(own.X)
        assert dist.batch_shape == (150, 2)
        constant = Poisson(torch.full((150, 1), float(train.y.mean())))
        assert -dist.log_prob(y).mean() < -constant.log_prob(y).mean() - 0.3


@pytest.mark.parametrize(("largest", "dtype"), [(2.0**24 - 1, "torch.float32"), (2.0**24 + 1, "torch.float64")])
def test_tensors_hold_every_count_and_weights_of_mean_one(largest, dtype):
    X = np.arange(3.0)[:, None]
    sample = Sample(X, np.array([0.0, 1.0, largest]), np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 8.0]))
    member = networks()
    member.unit = 4.0
    found = member._tensors(sample, X.astype(np.float32))
    assert str(found.y.dtype) == dtype
    assert found.y[2].item() == largest
    assert found.weight.tolist() == [0.5, 1.0, 1.5]
    assert found.exposure.tolist() == [0.5, 1.0, 2.0]


@pytest.mark.parametrize("numeric", ["auto", "piecewise"])
def test_with_more_columns_than_rows_those_that_matter_are_kept(numeric, monkeypatch):
    monkeypatch.setattr(networks_module, "WIDE", 20)
    rng = np.random.default_rng(0)
    wide = rng.normal(size=(60, 80))
    train, validation = (Sample(X, rng.poisson(np.exp(X[:, 71])).astype(float)) for X in (wide, wide[:30] + 0.1))
    member = networks(numeric=numeric).fit(train, validation, seed=0)
    names = member.encoder.get_feature_names_out()[member.chosen].tolist()
    assert len(names) == 60
    assert any(name.startswith("x71") for name in names)
    again = Networks.from_state(member.state())
    assert (again.raw(wide) == member.raw(wide)).all()
    changed, used = wide.copy(), {int(name.split()[0][1:]) for name in names}
    changed[:, sorted(set(range(80)) - used)] = 9.0
    assert (member.raw(changed) == member.raw(wide)).all()
    assert networks().fit(train, None, seed=0).chosen is not None
    monkeypatch.setattr(networks_module, "WIDE", 80)
    assert networks().fit(train, None, seed=0).chosen is None


def test_files_that_do_not_fit_together_are_refused(steps):
    member = networks().fit(steps[0], None, seed=0)
    files = member.state()
    other = json.loads(files["networks.json"])
    other["options"] = other["options"] | {"hidden": [9]}
    for change in ({"networks.json": json.dumps(other).encode()}, {"networks.safetensors": b"\0" * 40}):
        with pytest.raises(InputError, match=r"networks.safetensors does not fit"):
            Networks.from_state(files | change)
    for chosen in ([0.5], [-1], [10**6], [[0]], ["a"]):
        facts = json.loads(files["networks.json"]) | {"chosen": chosen}
        with pytest.raises(InputError, match="inputs that the encoder does not have"):
            Networks.from_state(files | {"networks.json": json.dumps(facts).encode()})


@pytest.mark.parametrize(
    ("likelihood", "options"),
    [
        ("mixed", {"numeric": "steps", "activation": "gelu"}),
        ("double_poisson", {"hidden": ()}),
        ("gaussian", {"hidden": (130, 70, 20)}),
    ],
)
def test_a_row_has_the_same_raw_outputs_alone_and_among_others(likelihood, options):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(1100, 3))
    sample = Sample(X[:200], rng.poisson(np.exp(0.5 * X[:200, 0])).astype(float))
    chosen = NetworkOptions(**{"members": 2, "hidden": (16, 12), "epochs": 1, **options})
    member = Networks(make_head(likelihood), chosen).fit(sample, None, seed=1)
    whole = member.raw(X)
    with torch.no_grad():
        inputs = torch.from_numpy(member.encoder.transform(X)).double()
    torch.testing.assert_close(whole, member.model.raw(inputs).detach(), rtol=1e-12, atol=1e-13)
    for rows in (slice(0, 1), slice(1099, 1100), slice(3, 8), slice(0, 64), slice(500, 1024), slice(20, 1045)):
        torch.testing.assert_close(member.raw(X[rows]), whole[rows], rtol=1e-12, atol=1e-14)
