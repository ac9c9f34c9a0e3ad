"""Networks on a few rows in numpy: the raw outputs of torch."""

import numpy as np
import pytest
import torch

from ddpn.backbones import MLP, Identity
from ddpn.heads import make_head
from ddpn.members.few_rows import raw_of_few
from ddpn.model import CountModel


def model(backbone: torch.nn.Module | None = None, likelihood: str = "mixed", **options: object) -> CountModel:
    network = MLP(n_in=4, hidden=(8, 6), members=3) if backbone is None else backbone
    found = CountModel(network, make_head(likelihood, **options), members=3)
    found.reset(range(3))
    return found.double().eval()


def inputs(rows: int) -> np.ndarray:
    return np.random.default_rng(rows).normal(size=(rows, 4)).astype(np.float32)


@pytest.mark.parametrize("rows", [1, 5])
def test_raw_outputs_are_those_of_torch(rows):
    networks, x = model(), inputs(rows)
    found = raw_of_few(networks, x)
    with torch.no_grad():
        expected = networks.raw(torch.from_numpy(x).double())
    assert found.shape == (rows, 3, 9)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-13, atol=1e-14)


def test_changed_weights_are_seen():
    networks, x = model(), inputs(2)
    before = raw_of_few(networks, x)
    with torch.no_grad():
        networks.projection.bias.add_(1.0)
    np.testing.assert_allclose(raw_of_few(networks, x), before + 1.0)
    networks.float()
    assert raw_of_few(networks, x) is None
    networks.double()
    np.testing.assert_allclose(raw_of_few(networks, x), before + 1.0, rtol=1e-5)


@pytest.mark.parametrize(
    "other",
    [
        lambda: model(MLP(n_in=4, hidden=(8,), members=3, activation="gelu")),
        lambda: model(Identity(n_in=4, members=3)),
        lambda: model(likelihood="double_poisson", gamma="shared"),
    ],
)
def test_other_networks_are_left_to_torch(other):
    assert raw_of_few(other(), inputs(1)) is None
