"""Test the contract of every backbone: shapes, networks that share no trained parameter, copies, and their number."""

import copy
import functools
import pickle

import pytest
import torch

from ddpn.networks.backbones import BACKBONES, NetworkList
from ddpn.networks.backbones.layers import make_generators
from ddpn.runtime.errors import ConfigError

_RANDOM = torch.Generator().manual_seed(0)
_TINY = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8}
_BEAMS = torch.randn(5, 2 + 6, 4, generator=_RANDOM)
_BEAMS[:, 0, 0], _BEAMS[:, 2:, 0] = torch.arange(5) % 3, 1.0
#: For each backbone its smallest self, and five rows of its input.
EXAMPLES = {
    "mlp": ({"n_in": 4}, torch.randn(5, 4, generator=_RANDOM)),
    "text": (
        {"config": {"model_type": "bert", "vocab_size": 30, **_TINY}},
        torch.randint(1, 30, (5, 7), generator=_RANDOM),
    ),
    "vit": (
        {"config": {"model_type": "vit", "image_size": 8, "patch_size": 4, **_TINY}},
        torch.randint(256, (5, 3, 8, 8), generator=_RANDOM, dtype=torch.uint8),
    ),
    "efficientnet": (
        {"pretrained": False},
        torch.randint(256, (5, 3, 32, 32), generator=_RANDOM, dtype=torch.uint8),
    ),
    "countnet3d": ({"n_classes": 3, "widths": (8, 16), "hidden": (8, 4)}, _BEAMS),
}


@functools.cache
def make_backbone(name, n_networks):
    options, x = EXAMPLES[name]
    backbone = BACKBONES[name](**options, n_networks=n_networks)
    backbone.reset(make_generators(range(n_networks)))
    return backbone, x


@pytest.mark.parametrize("name", BACKBONES)
def test_networks_differ_and_are_what_they_would_be_alone(name):
    """Give all networks the same rows, shared or repeated; networks differ, and equal the same network alone."""
    backbone, x = make_backbone(name, 2)
    alone, _ = make_backbone(name, 1)
    features = backbone(x)
    assert features.shape == (5, 2, backbone.output_dim)
    assert not torch.equal(features[:, 0], features[:, 1])
    torch.testing.assert_close(backbone(torch.stack([x] * 2, dim=1)), features, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(alone(x.unsqueeze(1)), features[:, :1], rtol=1e-5, atol=1e-6)
    looped = set()
    for networks in (m for m in backbone.modules() if isinstance(m, NetworkList)):
        assert not torch.equal(*(next(network.parameters()) for network in networks))
        looped |= {id(p) for p in networks.parameters()}
    assert all(len(p) == 2 for p in backbone.parameters() if p.requires_grad and id(p) not in looped)


@pytest.mark.parametrize("name", BACKBONES)
def test_steps_that_a_gpu_may_capture_read_no_value(name):
    """Tensors without values stand for those of a GPU; checks of shapes and dtypes pass them."""
    backbone, x = copy.deepcopy(make_backbone(name, 2))
    if name == "text":  # its trunk cuts off padding and is never captured
        backbone, x = backbone.tail, backbone.trunk(x)
    assert backbone.to("meta").train()(x.to("meta")).shape == (5, 2, backbone.output_dim)


@pytest.mark.parametrize("name", BACKBONES)
def test_a_network_is_the_same_after_pickling_and_copying(name):
    backbone, x = make_backbone(name, 2)
    backbone.eval()
    before = backbone(x)
    again = pickle.loads(pickle.dumps(copy.deepcopy(backbone)))
    assert torch.equal(again(x), before)
    again.reset(make_generators((0, 1)))
    assert torch.equal(again(x), before), "weights are drawn as before"


@pytest.mark.parametrize("name", BACKBONES)
def test_bad_numbers_of_networks_are_refused(name):
    for n_networks in (0, 2.0):
        with pytest.raises(ConfigError, match=r"^n_networks must "):
            BACKBONES[name](**EXAMPLES[name][0], n_networks=n_networks)


@pytest.mark.parametrize(
    ("name", "options", "captured"),
    [
        ("text", {"frozen": -1}, True),
        ("text", {"frozen": "none"}, False),  # cuts off padding, for which it reads values
        ("vit", {}, True),
        ("efficientnet", {}, True),
    ],
)
def test_networks_that_read_values_are_not_captured(name, options, captured):
    backbone = BACKBONES[name](**EXAMPLES[name][0], **options)
    assert all(network.capturable for network in backbone.tail.networks) is captured
