"""AutoAugment for pictures, by whichever library is there."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from ddpn.errors import ConfigError, InputError

#: So many of a set are changed alike, another few every time.
_ALIKE = 8


def augmenter() -> str:
    """The library that does it: torchvision, which works on bytes and is the faster, or kornia."""
    for name in ("torchvision", "kornia"):
        if find_spec(name) is not None:
            return name
    raise ConfigError(
        'torchvision or kornia must be installed for augment=True, got neither. Run: pip install "ddpn[images]"'
    )


def auto_augment(library: str) -> Callable[[Tensor], Tensor]:
    """AutoAugment's policy for ImageNet (Cubuk et al., 2018), one for all that are given; random by torch's generator.

    Shape: (N, 3, height, width), uint8, in and out.
    """
    return _with_torchvision() if library == "torchvision" else _with_kornia()


def auto_augmented(pictures: Tensor) -> Tensor:
    """Many pictures changed by it on the device where they are, a few at a time by the same policy.

    Which ones go together is random. Shape: (N, 3, height, width), uint8, in and out.
    """
    _check(pictures)
    change, out = auto_augment(augmenter()), torch.empty_like(pictures)
    for index in torch.randperm(len(pictures)).split(_ALIKE):
        index = index.to(pictures.device)
        out[index] = change(pictures[index])
    return out


def _check(pictures: Any) -> None:
    is_tensor = isinstance(pictures, Tensor)
    if not is_tensor or pictures.dtype != torch.uint8 or pictures.ndim != 4 or pictures.shape[1] != 3:
        what = f"{pictures.dtype} of shape {tuple(pictures.shape)}" if is_tensor else type(pictures).__name__
        raise InputError(
            f"pictures must be a tensor of uint8 (N, 3, height, width), got {what}. Make them with in_memory."
        )


def _with_torchvision() -> Callable[[Tensor], Tensor]:
    from torchvision.transforms.v2 import AutoAugment, AutoAugmentPolicy

    change: Any = AutoAugment(AutoAugmentPolicy.IMAGENET)
    return lambda pictures: change(pictures)


def _with_kornia() -> Callable[[Tensor], Tensor]:
    from kornia.augmentation.auto import AutoAugment

    change: Any = AutoAugment(policy="imagenet")

    def augmented(pictures: Tensor) -> Tensor:
        # kornia works on batches of numbers from 0 to 1.
        out = change(pictures.to(torch.float32) / 255)
        return (out * 255).round().clamp(0, 255).to(torch.uint8)

    return augmented
