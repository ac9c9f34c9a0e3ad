"""Which networks declare that their steps can be captured as a CUDA graph."""

import pytest

from ddpn.networks.backbones import EfficientNet, Text, ViT

TINY = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8}
BERT = {"model_type": "bert", "vocab_size": 30, **TINY}
VIT = {"model_type": "vit", "image_size": 16, "patch_size": 8, **TINY}


@pytest.mark.parametrize(
    ("make", "captured"),
    [
        (lambda: Text(config=BERT, frozen=-1), True),
        (lambda: Text(config=BERT, frozen=-1, dropout=0.1), False),
        (lambda: Text(config=BERT, frozen=-1, checkpointing=True), False),
        (lambda: Text(config=BERT, frozen="none"), False),  # cuts off padding, for which it reads values
        (lambda: ViT(config=VIT), True),
        (lambda: ViT(config=VIT, dropout=0.1), False),
        (lambda: ViT(config=VIT, checkpointing=True), False),
        (lambda: EfficientNet(pretrained=False), True),
        (lambda: EfficientNet(pretrained=False, drop_connect=0.1), False),
    ],
    ids=["text", "text-dropout", "text-checkpointing", "text-whole", "vit", "vit-dropout", "vit-checkpointing",
         "efficientnet", "efficientnet-drop"],
)  # fmt: skip
def test_networks_that_draw_read_values_or_compute_twice_are_not_capturable(make, captured):
    assert all(network.capturable for network in make().tail.networks) is captured
