"""Backbones: modules that turn inputs into features, for all networks of an ensemble at once."""

from typing import TYPE_CHECKING

from ddpn.networks.backbones.members import MLP, Linear, NetworkList
from ddpn.runtime.extras import import_on_use
from ddpn.runtime.validation import Registry

if TYPE_CHECKING:
    from ddpn.networks.backbones.countnet3d import CountNet3D
    from ddpn.networks.backbones.pretrained import EfficientNet, FineTuned, Text, ViT

_PRETRAINED = dict.fromkeys(("EfficientNet", "Text", "FineTuned", "ViT"), f"{__name__}.pretrained")
# Imported on first use, because models of tables do not need them.
__getattr__ = import_on_use(__name__, {**_PRETRAINED, "CountNet3D": f"{__name__}.countnet3d"})
BACKBONES = Registry(
    "backbone",
    {
        "mlp": MLP,
        "text": f"{__name__}:Text",
        "vit": f"{__name__}:ViT",
        "efficientnet": f"{__name__}:EfficientNet",
        "countnet3d": f"{__name__}:CountNet3D",
    },
)

__all__ = ["BACKBONES", "MLP", "CountNet3D", "EfficientNet", "FineTuned", "Linear", "NetworkList", "Text", "ViT"]
