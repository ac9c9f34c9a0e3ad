"""Backbones: networks that turn inputs into features, for all members of an ensemble at once."""

from ddpn.networks.backbones.countnet3d import CountNet3D
from ddpn.networks.backbones.efficientnet import EfficientNet
from ddpn.networks.backbones.fine_tuning import Tuned
from ddpn.networks.backbones.members import Linear, Members
from ddpn.networks.backbones.mlp import MLP
from ddpn.networks.backbones.text import Text
from ddpn.networks.backbones.vit import ViT
from ddpn.runtime.validation import Registry

BACKBONES = Registry(
    "backbone",
    {
        "mlp": MLP,
        "text": Text,
        "vit": ViT,
        "efficientnet": EfficientNet,
        "countnet3d": CountNet3D,
    },
)

__all__ = ["BACKBONES", "MLP", "CountNet3D", "EfficientNet", "Linear", "Members", "Text", "Tuned", "ViT"]
