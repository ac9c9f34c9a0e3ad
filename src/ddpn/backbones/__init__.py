"""Networks: an input becomes features, for every member of an ensemble at once."""

from ddpn.backbones.members import Linear
from ddpn.backbones.mlp import MLP, Identity

BACKBONES = {"mlp": MLP, "identity": Identity}

__all__ = ["BACKBONES", "MLP", "Identity", "Linear"]
