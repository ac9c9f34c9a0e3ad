"""AutoAugment for pictures, by whichever library is there."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from ddpn.errors import ConfigError


def augmenter() -> str:
    """The library that does it: torchvision, which works on bytes and is the faster, or kornia."""
    for name in ("torchvision", "kornia"):
        if find_spec(name) is not None:
            return name
    raise ConfigError(
        'torchvision or kornia must be installed for augment=True, got neither. Run: pip install "ddpn[images]"'
    )


def auto_augment(library: str) -> Callable[[Tensor], Tensor]:
    """AutoAugment's policy for ImageNet (Cubuk et al., 2018), on one picture; random by torch's generator.

    Shape: (3, height, width), uint8, in and out.
    """
    return _with_torchvision() if library == "torchvision" else _with_kornia()


def _with_torchvision() -> Callable[[Tensor], Tensor]:
    from torchvision.transforms.v2 import AutoAugment, AutoAugmentPolicy

    change: Any = AutoAugment(AutoAugmentPolicy.IMAGENET)
    return lambda picture: change(picture)


def _with_kornia() -> Callable[[Tensor], Tensor]:
    from kornia.augmentation.auto import AutoAugment

    change: Any = AutoAugment(policy="imagenet")

    def augmented(picture: Tensor) -> Tensor:
        # kornia works on batches of numbers from 0 to 1.
        out = change(picture[None].to(torch.float32) / 255)[0]
        return (out * 255).round().clamp(0, 255).to(torch.uint8)

    return augmented
