"""The perceptron is torch's, member by member, and the identity without layers."""

import pytest
import torch
from torch import nn

from ddpn.networks.backbones import MLP
from ddpn.networks.backbones.members import generators

TORCH_ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU, "silu": nn.SiLU, "tanh": nn.Tanh}


@pytest.mark.parametrize("activation", TORCH_ACTIVATIONS)
def test_each_member_is_a_torch_sequence(activation):
    backbone = MLP(n_in=4, hidden=(6, 5), members=2, activation=activation)
    backbone.reset(generators([3, 4]))
    x = torch.randn(7, 4, generator=torch.Generator().manual_seed(0))
    for member in range(2):
        layers = []
        for layer in backbone.layers:
            one = nn.Linear(*layer.weight.shape[1:])
            one.weight.data, one.bias.data = layer.weight[member].T, layer.bias[member, 0]
            layers += [one, TORCH_ACTIVATIONS[activation]()]
        torch.testing.assert_close(backbone(x)[:, member], nn.Sequential(*layers)(x), rtol=1e-6, atol=1e-6)


def test_without_layers_it_hands_its_input_on():
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    backbone = MLP(n_in=4, hidden=(), members=3)
    assert backbone.output_dim == 4
    for member in range(3):
        assert torch.equal(backbone(x)[:, member], x)
    own = torch.randn(5, 3, 4)
    assert torch.equal(backbone(own), own)
