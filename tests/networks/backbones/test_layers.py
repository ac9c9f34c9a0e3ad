"""Test that networks side by side are what they would be alone."""

import math

import pytest
import torch
from torch import nn

from ddpn.networks.backbones import MLP, CountNet3D, EfficientNet
from ddpn.networks.backbones.layers import Linear, NetworkList, make_generators
from ddpn.runtime.errors import ConfigError, InputError


def make_layer(n_networks: int = 3, n_in: int = 4, n_out: int = 2) -> Linear:
    layer = Linear(n_in, n_out, n_networks)
    layer.reset(make_generators(range(n_networks)))
    return layer


def extract_layer(layer: Linear, network: int) -> nn.Linear:
    """Return torch's own layer with the weights of this network."""
    one = nn.Linear(*layer.weight.shape[1:])
    with torch.no_grad():
        one.weight.copy_(layer.weight[network].T)
        one.bias.copy_(layer.bias[network, 0])
    return one


def test_a_network_is_drawn_from_its_own_seed_alone():
    stacked, single = make_layer(), Linear(4, 2, n_networks=1)
    single.reset(make_generators([2]))
    assert torch.equal(stacked.weight[2], single.weight[0])
    assert torch.equal(stacked.bias[2], single.bias[0])
    assert not torch.equal(stacked.weight[0], stacked.weight[1])


def test_weights_are_uniform_within_the_bound_of_torch():
    layer = make_layer(n_networks=2, n_in=100, n_out=400)
    bound = 1.0 / math.sqrt(100)
    for parameter in (layer.weight, layer.bias):
        assert parameter.abs().max() <= bound
    scaled = (layer.weight.detach() / bound).flatten()
    # A uniform on [-1, 1] has mean 0 and variance 1/3; 80,000 draws leave errors of 2e-3 and 1e-3.
    assert abs(scaled.mean()) < 0.01
    assert abs(scaled.var() - 1 / 3) < 0.006


TORCH_ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU, "silu": nn.SiLU, "tanh": nn.Tanh}


@pytest.mark.parametrize("activation", TORCH_ACTIVATIONS)
def test_each_network_is_a_torch_sequence(activation):
    backbone = MLP(n_in=4, hidden=(6, 5), n_networks=2, activation=activation)
    backbone.reset(make_generators([3, 4]))
    x = torch.randn(7, 4, generator=torch.Generator().manual_seed(0))
    for number in range(2):
        layers = []
        for layer in backbone.layers:
            layers += [extract_layer(layer, number), TORCH_ACTIVATIONS[activation]()]
        torch.testing.assert_close(backbone(x)[:, number], nn.Sequential(*layers)(x), rtol=1e-6, atol=1e-6)


def test_an_mlp_without_layers_returns_its_input():
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    backbone = MLP(n_in=4, hidden=(), n_networks=3)
    assert backbone.output_dim == 4
    for number in range(3):
        assert torch.equal(backbone(x)[:, number], x)
    rows_per_network = torch.randn(5, 3, 4)
    assert torch.equal(backbone(rows_per_network), rows_per_network)


def test_networks_that_share_weights_are_refused():
    one = nn.Linear(3, 2)
    message = "make must build a new network at every call, but some networks share weights"
    for make in (lambda: one, lambda: nn.Sequential(one, nn.Linear(2, 2))):
        with pytest.raises(ConfigError, match=message):
            NetworkList(make, n_networks=2)
    one.requires_grad_(False)  # what learns nothing can be shared
    assert NetworkList(lambda: nn.Sequential(one, nn.Linear(2, 2)), n_networks=2)(torch.zeros(4, 3)).shape == (4, 2, 2)


ROWS = torch.zeros(5, 4)
NETWORKS = {
    "linear": lambda: Linear(4, 2, 3),
    "mlp": lambda: MLP(n_in=4, n_networks=3),
    "no layers": lambda: MLP(n_in=4, hidden=(), n_networks=3),
    "members": lambda: NetworkList(lambda: nn.Linear(4, 2), 3),
}


@pytest.mark.parametrize("network", NETWORKS)
def test_bad_inputs_are_refused(network):
    for x, got in ((ROWS.numpy(), "ndarray"), (ROWS[0], "shape"), (torch.zeros(5, 2, 4), "shape")):
        with pytest.raises(InputError, match=f"^x must .*, got {got}"):
            NETWORKS[network]()(x)


BAD = {
    "a width": (lambda: MLP(n_in=4, hidden=(8, 0)), "hidden"),
    "one width": (lambda: MLP(n_in=4, hidden=16), "hidden"),
    "a function": (lambda: MLP(n_in=4, activation="swish"), "activation"),
    "a pooling": (lambda: EfficientNet(pooling="max"), "pooling"),
    "a cut": (lambda: EfficientNet(frozen=3), "frozen"),
    "no classes": (lambda: CountNet3D(n_classes=0), "n_classes"),
    "a width of points": (lambda: CountNet3D(n_classes=3, widths=(8, 0)), "widths"),
    "one width of points": (lambda: CountNet3D(n_classes=3, widths=8), "widths"),
    "no seeds": (lambda: make_generators(5), "seeds"),
    "a fraction": (lambda: make_generators([2.5]), "seeds"),
    "a large seed": (lambda: make_generators([2**70]), "seeds"),
    "too few seeds": (lambda: Linear(3, 2, 3).reset(make_generators([1])), "seeds"),
    "too many seeds": (lambda: NetworkList(lambda: nn.Linear(3, 2), 3).reset(make_generators(range(4))), "seeds"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_are_refused(case):
    call, name = BAD[case]
    with pytest.raises(ConfigError, match=f"^{name} must "):
        call()


def test_inputs_must_have_the_dtype_of_the_weights():
    with pytest.raises(InputError, match=r"^x must be torch\.float32 like the weights, got torch\.float64"):
        MLP(n_in=4)(ROWS.double())
    assert MLP(n_in=4).double()(ROWS.double()).dtype == torch.float64
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert MLP(n_in=4)(ROWS.bfloat16()).dtype == torch.bfloat16
