"""Images for transformers: bytes of the size and channels that they take."""

from functools import cache, partial

import pytest
import torch

from ddpn.networks.backbones import EfficientNet, ViT
from ddpn.runtime.errors import ConfigError, InputError

TINY = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8}
VIT = {"model_type": "vit", "image_size": 8, "patch_size": 4, **TINY}
IMAGES = torch.randint(256, (2, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
MADE = {
    "whole vit": partial(ViT, config=VIT, hidden=(4,)),
    "cut vit": partial(ViT, config=VIT, hidden=(4,), frozen=1),
    "frozen vit": partial(ViT, config=VIT, hidden=(4,), frozen="all"),
    "efficientnet": partial(EfficientNet, pretrained=False, hidden=(4,)),
}
SHAPES = r"^x must be a uint8 tensor of RGB images \(B, 3, S, S\), .*, got"
BAD_IMAGES = {
    "from 0 to 1": (IMAGES / 255, "torch.float32"),
    "grey": (IMAGES[:, :1], r".*shape \(2, 1, 8, 8\)"),
    "channels last": (IMAGES.movedim(1, -1), r".*shape \(2, 8, 8, 3\)"),
    "one": (IMAGES[0], r"shape \(3, 8, 8\)"),
    "array": (IMAGES.numpy(), "ndarray"),
}


@cache
def network_of(made: str) -> torch.nn.Module:
    """Made on first use: not every process that collects tests runs these."""
    return MADE[made]()


@pytest.mark.parametrize("made", MADE)
def test_bad_images(made):
    for x, got in BAD_IMAGES.values():
        with pytest.raises(InputError, match=f"{SHAPES} {got}"):
            network_of(made)(x)


@pytest.mark.parametrize("made", ["whole vit", "cut vit", "frozen vit"])
def test_images_of_another_size_and_no_images(made):
    with pytest.raises(InputError, match=r"x must be images of 8 x 8, got shape \(2, 3, 16, 16\)"):
        network_of(made)(torch.zeros(2, 3, 16, 16, dtype=torch.uint8))
    with pytest.raises(InputError, match=r"x must hold at least one image, got shape \(0, 3, 8, 8\)"):
        network_of(made)(IMAGES[:0])


def test_a_family_that_takes_other_sizes_does():
    network = ViT(config=VIT | {"model_type": "dinov2"}, hidden=(4,))
    assert network(torch.zeros(2, 3, 16, 16, dtype=torch.uint8)).shape == (2, 1, 4)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (VIT | {"image_size": [8, 12]}, r"take square images, got image_size \[8, 12\] of ViTModel. Use a vision"),
        ({"model_type": "bert", **TINY}, "take square images, got image_size None of BertModel"),
        ({"model_type": "resnet", "hidden_sizes": [8], "depths": [1]}, "take square images, got image_size None"),
        (VIT | {"num_channels": 1}, "return hidden states for its inputs alone, got ValueError from ViTModel"),
    ],
    ids=["two sides", "bert", "resnet", "one channel"],
)
def test_models_for_other_inputs_are_refused(config, message):
    with pytest.raises(ConfigError, match=f"the model must {message}"):
        ViT(config=config)
