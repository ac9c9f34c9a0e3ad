"""Normalisation of uint8 images with the statistics of ImageNet."""

from typing import cast

import torch
from torch import Tensor, nn

from ddpn.runtime.errors import InputError

#: Means and standard deviations of ImageNet's channels.
_MEAN = (0.485, 0.456, 0.406)
_STD = (0.229, 0.224, 0.225)
#: The input of image networks, as error messages describe it.
IMAGES = "a uint8 tensor of RGB images (B, 3, S, S), or (B, M, 3, S, S) with images of each network"


class ImageNormalization(nn.Module):
    """Converts uint8 images to floats, and standardises each channel with its mean and deviation in ImageNet.

    Pixels are divided by 255. Then the mean of the channel in ImageNet is subtracted, and the difference is divided by
    its standard deviation. Shape: (..., 3, size, size) -> (..., 3, size, size).
    """

    def __init__(self) -> None:
        super().__init__()
        # (x / 255 - mean) / std as one product and one sum.
        mean, std = (255.0 * torch.tensor(values, dtype=torch.float32).view(3, 1, 1) for values in (_MEAN, _STD))
        self.register_buffer("_scale", 1.0 / std, persistent=False)
        self.register_buffer("_shift", -mean / std, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if x.dtype != torch.uint8 or x.shape[-3] != 3:
            raise InputError(f"x must be {IMAGES}, got {x.dtype} of shape {tuple(x.shape)}.")
        scale = cast(Tensor, self._scale)
        return torch.addcmul(cast(Tensor, self._shift), x.to(scale.dtype), scale)
