"""Backbones: networks that turn inputs into features, for all members of an ensemble at once."""

from ddpn.backbones.countnet3d import CountNet3D
from ddpn.backbones.efficientnet import EfficientNet
from ddpn.backbones.fine_tuning import Tuned
from ddpn.backbones.members import Linear, Members
from ddpn.backbones.mlp import MLP, Identity
from ddpn.backbones.text import Text
from ddpn.backbones.vit import ViT
from ddpn.registry import Registry

BACKBONES = Registry(
    "backbone",
    {
        "mlp": MLP,
        "identity": Identity,
        "text": Text,
        "vit": ViT,
        "efficientnet": EfficientNet,
        "countnet3d": CountNet3D,
    },
)

__all__ = ["BACKBONES", "MLP", "CountNet3D", "EfficientNet", "Identity", "Linear", "Members", "Text", "Tuned", "ViT"]
