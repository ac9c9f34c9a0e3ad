"""Backbones: networks that turn inputs into features, for all members of an ensemble at once."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ddpn.networks.backbones.members import MLP, Linear, Members
from ddpn.runtime.validation import Registry

if TYPE_CHECKING:
    from ddpn.networks.backbones.countnet3d import CountNet3D
    from ddpn.networks.backbones.pretrained import EfficientNet, Text, Tuned, ViT

#: Imported on first use: a table needs none of them.
_MODULES = dict.fromkeys(("EfficientNet", "Text", "Tuned", "ViT"), "pretrained") | {"CountNet3D": "countnet3d"}
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

__all__ = ["BACKBONES", "MLP", "CountNet3D", "EfficientNet", "Linear", "Members", "Text", "Tuned", "ViT"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
