"""Networks: an input becomes features, for every member of an ensemble at once."""

from ddpn.backbones.efficientnet import EfficientNet
from ddpn.backbones.members import Linear, Members
from ddpn.backbones.mlp import MLP, Identity
from ddpn.backbones.text import Text
from ddpn.backbones.tuned import Tuned
from ddpn.backbones.vit import ViT

BACKBONES = {"mlp": MLP, "identity": Identity, "text": Text, "vit": ViT, "efficientnet": EfficientNet}

__all__ = ["BACKBONES", "MLP", "EfficientNet", "Identity", "Linear", "Members", "Text", "Tuned", "ViT"]
