"""Test that the cloud network counts points, whatever their padding, order and neighbours."""

import pytest
import torch
from torch import nn

from ddpn.networks.backbones.countnet3d import CountNet3D
from ddpn.networks.backbones.layers import make_generators
from ddpn.runtime.errors import InputError

SMALL = {"n_classes": 3, "widths": (8, 16), "hidden": (12, 6)}


def make_network(n_networks: int = 3, **changes) -> CountNet3D:
    net = CountNet3D(n_networks=n_networks, **(SMALL | changes))
    net.reset(make_generators(range(n_networks)))
    return net


def make_beams(*counts: int, n: int = 20, seed: int = 0) -> torch.Tensor:
    """Make beams with so many points of n, classes one after the other, and boxes that hold the points."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.zeros(len(counts), 2 + n, 4)
    for i, count in enumerate(counts):
        points = torch.randn(count, 3, generator=generator) * 0.1 + torch.tensor([0.0, -0.3, 1.2])
        x[i, 0, 0] = i % 3
        if count:
            low, high = points.min(0).values, points.max(0).values
            x[i, 0, 1:], x[i, 1, 1:] = (low + high) / 2, high - low
        x[i, 2 : 2 + count, 0], x[i, 2 : 2 + count, 1:] = 1.0, points
    return x


def extract_layer(layer, network: int) -> nn.Linear:
    layer_alone = nn.Linear(*layer.weight.shape[1:])
    layer_alone.weight.data, layer_alone.bias.data = layer.weight[network].T, layer.bias[network, 0]
    return layer_alone


def compute_by_hand(net: CountNet3D, x: torch.Tensor, network: int) -> torch.Tensor:
    """Compute the features of one network and beam at a time, with torch's own layers and only the points present."""
    out = []
    for beam in x:
        features = (beam[2:][beam[2:, 0] == 1][:, 1:] - beam[0, 1:]) / 0.1
        for layer in net.points:
            features = torch.relu(extract_layer(layer, network)(features))
        pooled = features.max(0).values if len(features) else torch.zeros(features.shape[1])
        embedded = extract_layer(net.embedding, network)(torch.eye(3)[int(beam[0, 0])])
        row = torch.cat([pooled, embedded, beam[0, 1:], beam[1, 1:] / 0.1])
        for layer in net.mlp.layers:
            row = torch.relu(extract_layer(layer, network)(row))
        out.append(row)
    return torch.stack(out)


@pytest.mark.parametrize("own_rows", [False, True], ids=["the same beams", "each its own beams"])
@pytest.mark.parametrize("grad", [True, False])
def test_each_network_is_a_pointnet_of_torch_layers(own_rows, grad):
    net = make_network()
    x = torch.stack([make_beams(20, 7, 1, 0, seed=s) for s in range(3)], 1) if own_rows else make_beams(20, 7, 1, 0)
    with torch.set_grad_enabled(grad):
        out = net(x)
    assert out.shape == (4, 3, net.output_dim) == (4, 3, 6)
    for number in range(3):
        expected = compute_by_hand(net, x[:, number] if own_rows else x, number)
        torch.testing.assert_close(out[:, number], expected, rtol=1e-5, atol=1e-5)


def test_gradients_reach_every_parameter_and_are_finite_without_points():
    net = make_network(hidden=(64, 64))
    net(make_beams(20, 20, 20)).sum().backward()
    for name, parameter in net.named_parameters():
        assert all(parameter.grad[number].abs().sum() > 0 for number in range(3)), name
    net.zero_grad()
    out = net(make_beams(0, 0))
    out.sum().backward()
    assert torch.isfinite(out).all()
    assert all(torch.isfinite(p.grad).all() for p in net.parameters())
    assert all((p.grad == 0).all() for p in net.points.parameters())


@pytest.mark.parametrize("grad", [True, False])
def test_no_beams_and_no_points_give_finite_features(grad):
    net = make_network()
    with torch.set_grad_enabled(grad):
        assert net(make_beams()).shape == (0, 3, 6)
        torch.testing.assert_close(net(make_beams(0, 0, n=0)), net(make_beams(0, 0, n=5)))


BAD_BEAMS = {
    "float64": (lambda x: x.double(), "float32"),
    "array": (lambda x: x.numpy(), "ndarray"),
    "two axes": (lambda x: x[:, :, 0], "packed beams"),
    "three numbers": (lambda x: x[..., :3], "packed beams"),
    "other networks": (lambda x: x.unsqueeze(1), "3 networks"),
    "a class beyond": (lambda x: x.index_fill(-1, torch.tensor(0), 3.0), "0 to 2, got 3"),
    "a class between": (lambda x: x.index_fill(-1, torch.tensor(0), 1.5), "got 1.5"),
    "no class": (lambda x: x.index_fill(-1, torch.tensor(0), torch.nan), "got nan"),
}


@pytest.mark.parametrize("kind", BAD_BEAMS)
def test_bad_beams_are_refused(kind):
    change, message = BAD_BEAMS[kind]
    for net in (make_network().train(), make_network().eval()):
        with pytest.raises(InputError, match=f"^x must .*{message}"):
            net(change(make_beams(20, 7)))
