"""Networks on many rows: the first layer by lookups gives what its products give."""

import numpy as np
import pytest
import torch

from ddpn.heads import make_head
from ddpn.members.many_rows import MANY_ROWS, raw_of_many
from ddpn.members.network_options import NetworkOptions
from ddpn.members.networks import Networks
from ddpn.sample import Sample

OPTIONS = {"members": 2, "hidden": (8, 6), "epochs": 1}


def fitted(**options) -> tuple[Networks, np.ndarray]:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(MANY_ROWS + 60, 3))
    sample = Sample(X, rng.poisson(np.exp(0.5 * X[:, 0])).astype(float))
    return Networks(make_head("mixed"), NetworkOptions(**{**OPTIONS, **options})).fit(sample, None, seed=1), X


@pytest.mark.parametrize("numeric", ["piecewise", "steps"])
def test_lookups_give_the_outputs_of_the_networks(numeric):
    member, X = fitted(numeric=numeric)
    found = raw_of_many(member.model, member.encoder, X)
    with torch.no_grad():
        expected = member.model.raw(torch.from_numpy(member.encoder.transform(X)).double())
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(member.raw(X), found, rtol=0.0, atol=0.0)
    torch.testing.assert_close(member.raw(X[:3]), found[:3], rtol=1e-12, atol=1e-13)


def test_weights_that_change_are_noticed():
    member, X = fitted(numeric="piecewise")
    before = member.raw(X)
    with torch.no_grad():
        member.model.backbone.layers[0].weight.mul_(2.0)
    after = member.raw(X)
    assert (after != before).any()
    torch.testing.assert_close(after[:3], member.raw(X[:3]), rtol=1e-12, atol=1e-13)


def test_networks_that_have_no_use_for_lookups():
    for options in ({"numeric": "standard"}, {"numeric": "piecewise", "activation": "tanh"}, {"hidden": ()}):
        member, X = fitted(**options)
        assert raw_of_many(member.model, member.encoder, X) is None
    member, X = fitted(numeric="piecewise")
    assert raw_of_many(member.model.float(), member.encoder, X) is None


def test_weights_that_change_without_a_new_version_are_noticed():
    member, X = fitted(numeric="piecewise")
    member.raw(X)
    member.model.backbone.layers[0].weight.data.mul_(2.0)
    torch.testing.assert_close(member.raw(X)[:3], member.raw(X[:3]), rtol=1e-12, atol=1e-13)
