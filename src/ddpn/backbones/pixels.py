"""From bytes to what networks trained on ImageNet expect."""

from typing import cast

import torch
from torch import Tensor, nn

from ddpn.backbones.arguments import Takes
from ddpn.errors import InputError

#: Means and standard deviations of ImageNet's channels.
_MEAN = (0.485, 0.456, 0.406)
_STD = (0.229, 0.224, 0.225)


PICTURES = Takes(
    "uint8 pictures (B, 3, S, S), or (B, M, 3, S, S) with members' own",
    "Use ddpn.inputs.decode_images, or x.unsqueeze(0) for one picture.",
)


class Pixels(nn.Module):
    """Bytes 0..255 -> normalised numbers, channel by channel. Shape: (..., 3, S, S) as given."""

    def __init__(self) -> None:
        super().__init__()
        # (x / 255 - mean) / std as one product and one sum.
        std = 255.0 * torch.tensor(_STD).view(3, 1, 1)
        self.register_buffer("_scale", 1.0 / std, persistent=False)
        self.register_buffer("_shift", -torch.tensor(_MEAN).view(3, 1, 1) * 255.0 / std, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if x.dtype != torch.uint8:
            raise InputError(
                f"x must be uint8 pictures of 0 to 255, got {x.dtype}. "
                "Use (255 * x).round().to(torch.uint8) for numbers from 0 to 1."
            )
        if x.shape[-3] != 3:
            remedy = "Use x.movedim(-1, -3)." if x.shape[-1] == 3 else "Give each three colours, red, green and blue."
            raise InputError(f"x must be {PICTURES.what}, got shape {tuple(x.shape)}. {remedy}")
        scale = cast(Tensor, self._scale)
        return torch.addcmul(cast(Tensor, self._shift), x.to(scale.dtype), scale)
