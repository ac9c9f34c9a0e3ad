"""AutoAugment for images, by torchvision or kornia."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from ddpn.errors import ConfigError, InputError

#: Images that are changed in the same way; which ones they are is random.
_GROUP = 8


def augmentation_library() -> str:
    """The installed library that provides AutoAugment: torchvision, which works on bytes and is faster, or kornia."""
    for name in ("torchvision", "kornia"):
        if find_spec(name) is not None:
            return name
    raise ConfigError("ddpn[images] is not installed: pip install 'ddpn[images]'")


def make_auto_augment(library: str) -> Callable[[Tensor], Tensor]:
    """AutoAugment's policy for ImageNet (Cubuk et al., 2018): the same change for all images of a call.

    It is drawn from torch's generator. Shape: (N, 3, height, width), uint8, in and out.
    """
    change: Any
    if library == "torchvision":
        from torchvision.transforms.v2 import AutoAugment, AutoAugmentPolicy

        change = AutoAugment(AutoAugmentPolicy.IMAGENET)
        return lambda images: change(images)
    from kornia.augmentation.auto import AutoAugment

    change = AutoAugment(policy="imagenet")
    # kornia works on floats between 0 and 1.
    return lambda images: (change(images.to(torch.float32) / 255) * 255).round().clamp(0, 255).to(torch.uint8)


def auto_augment(images: Tensor) -> Tensor:
    """Change images at random by AutoAugment on their device, eight at a time by the same policy.

    Shape: (N, 3, height, width), uint8, in and out.
    """
    is_tensor = isinstance(images, Tensor)
    if not is_tensor or images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != 3:
        found = f"{images.dtype} of shape {tuple(images.shape)}" if is_tensor else type(images).__name__
        raise InputError(f"images must be a uint8 tensor (N, 3, height, width), got {found}. Use decode_images.")
    change, changed = make_auto_augment(augmentation_library()), torch.empty_like(images)
    for index in torch.randperm(len(images)).split(_GROUP):
        index = index.to(images.device)
        changed[index] = change(images[index])
    return changed
