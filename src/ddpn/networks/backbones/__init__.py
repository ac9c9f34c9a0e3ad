"""Backbones: modules that map inputs to features, for all networks of an ensemble at once."""

from collections.abc import Callable
from inspect import signature
from typing import TYPE_CHECKING

from torch import nn

from ddpn.networks.backbones.layers import MLP, Linear, NetworkList
from ddpn.runtime.errors import ConfigError
from ddpn.runtime.extras import import_on_use
from ddpn.runtime.validation import Registry

if TYPE_CHECKING:
    from ddpn.networks.backbones.countnet3d import CountNet3D
    from ddpn.networks.backbones.efficientnet import EfficientNet
    from ddpn.networks.backbones.fine_tuned import FineTuned
    from ddpn.networks.backbones.text import Text
    from ddpn.networks.backbones.vit import ViT

#: The module of each class that is imported on first use, because models of tables do not need it.
_MODULES = {
    "CountNet3D": "countnet3d",
    "EfficientNet": "efficientnet",
    "FineTuned": "fine_tuned",
    "Text": "text",
    "ViT": "vit",
}
__getattr__ = import_on_use(__name__, {name: f"{__name__}.{module}" for name, module in _MODULES.items()})
BACKBONES = Registry(
    "backbone",
    {
        "mlp": MLP,
        "text": f"{__name__}:Text",
        "vit": f"{__name__}:ViT",
        "efficientnet": f"{__name__}:EfficientNet",
        "countnet3d": f"{__name__}:CountNet3D",
    },
    "ddpn.networks.backbones.BACKBONES",
)


def check_table_backbone(backbone: str | Callable[..., nn.Module]) -> Callable[..., nn.Module]:
    """Return the class or function that builds a backbone for tables.

    `backbone` is this class or function, or its name in `BACKBONES`. Raise a `ConfigError` if it does not accept the
    keyword arguments `n_in` and `n_networks`.
    """
    make = BACKBONES.find(backbone) if isinstance(backbone, str) else backbone
    try:
        signature(make).bind(n_in=1, n_networks=1)
        is_function = not isinstance(make, nn.Module)
    except (TypeError, ValueError):
        is_function = False
    if not is_function:
        must = "be a name in BACKBONES, or a function that is called with n_in=... and n_networks=..."
        raise ConfigError(argument="backbone", must=must, got=f"{backbone!r:.60}")
    return make


__all__ = [
    "BACKBONES",
    "MLP",
    "CountNet3D",
    "EfficientNet",
    "FineTuned",
    "Linear",
    "NetworkList",
    "Text",
    "ViT",
]
