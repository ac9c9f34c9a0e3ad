"""`ViT`, a backbone for images, based on a pretrained vision transformer."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ddpn.networks.backbones.images import IMAGES, ImageNormalization
from ddpn.networks.backbones.pretrained import make_encoder_factory
from ddpn.networks.backbones.transformer import Encoder, Transformer
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.runtime.validation import is_integer


class ViT(Transformer):
    """A backbone of M fine-tuned vision transformers for images, each followed by a perceptron.

    Shape: uint8 images (B, 3, size, size), or (B, M, 3, size, size) with separate images for each network -> features
    (B, M, hidden[-1]). The images must have the model's size. The `trunk` consists of the frozen blocks, so its output
    can be computed in advance. The output of the trunk is the hidden states of all tokens, (B, tokens, width). With
    frozen="all", the output of the trunk is the pooled features, (B, width).

    Parameters
    ----------
    pretrained, config, hidden, n_networks, dropout
        As for `ddpn.networks.backbones.Text`.
    frozen : int, "all" or "none"
        As for `Text`. The default is "none", because the paper trains all blocks.
    pooling : {"mean", "cls", "pooler"}
        The features of an image: the average hidden state of its patches, the hidden state of the class token, or the
        output of the model's own pooling layer.
    """

    def __init__(
        self,
        *,
        pretrained: str | None = "google/vit-base-patch16-224-in21k",
        config: Any = None,
        frozen: int | str | None = "none",
        hidden: Sequence[int] = (384, 256),
        n_networks: int = 1,
        pooling: str = "mean",
        dropout: bool = False,
    ) -> None:
        make = make_encoder_factory(partial(ImageEncoder, pooling=pooling), pretrained, config, dropout)
        super().__init__(make, frozen=frozen, hidden=hidden, n_networks=n_networks, dropout=dropout)


class ImageEncoder(Encoder):
    """An encoder that maps uint8 images to features. Shape: (B, 3, size, size) -> (B, width).

    The attribute `size` is the height and width of the model's images in pixels.
    """

    input_description = IMAGES
    states = "hidden states (B, L, H), or (B, M, L, H) with states of each network, as backbone.trunk(x) gives"
    capturable = True

    def __init__(self, model: Any, pooling: str = "mean") -> None:
        super().__init__(model, pooling)
        image_size = getattr(model.config, "image_size", None)
        sides: list[Any] = (
            list(image_size) if isinstance(image_size, list | tuple) else [image_size]
        )  # some models list height and width
        if len(set(sides)) != 1 or not is_integer(sides[0]) or sides[0] < 1:
            got = f"image_size {image_size} of {type(model).__name__}"
            remedy = "Use a vision transformer, or Text for texts."
            raise ConfigError(f"the model must take square images, got {got}. {remedy}")
        self.size, self.normalize = int(sides[0]), ImageNormalization()

    def make_example(self) -> Tensor:
        """Make a batch of one uint8 image with many different pixel values. Shape: (1, 3, size, size)."""
        return (torch.arange(3 * self.size**2) % 251).view(1, 3, self.size, self.size).to(torch.uint8)

    def compute_states(self, x: Tensor) -> tuple[Tensor, None]:
        """Compute the hidden states of the class token and of all patches. The mask is None: images have no padding.

        Shape: (B, 3, size, size) -> (B, tokens, width), where the class token is the first.
        """
        pixels = self.normalize(x)
        if len(x) == 0:
            raise InputError(f"x must hold at least one image, got shape {tuple(x.shape)}.")
        try:
            return self.model(pixel_values=pixels).last_hidden_state, None
        except (RuntimeError, ValueError) as error:
            # Some models accept other sizes as well, so sizes are not checked in advance.
            if x.shape[-2:] == (self.size, self.size):
                raise
            raise InputError(f"x must be images of {self.size} x {self.size}, got shape {tuple(x.shape)}.") from error
