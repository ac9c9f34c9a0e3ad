"""Pictures: a vision transformer whose patch tokens are averaged (Appendix B)."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ddpn.backbones.arguments import Takes, is_size
from ddpn.backbones.cut import LastBlocks, cut
from ddpn.backbones.encoder import loader
from ddpn.backbones.pixels import PICTURES, Pixels
from ddpn.backbones.tuned import Tuned
from ddpn.errors import ConfigError, InputError

_STATES = Takes("hidden states (B, L, H), or (B, M, L, H) with members' own", "Use backbone.trunk(x).")


class ViT(Tuned):
    """Pictures -> features, for every member.

    `pretrained` is a name of the hub, a folder, or "package:NAME/FOLDER" inside an installed package; `config` (a
    transformers configuration, or a dict with its model_type) gives random weights instead. `frozen` first blocks, with
    the embeddings, are shared and learn nothing: "none" by default, as the paper tunes all of them.
    `checkpointing` computes activations twice instead of keeping them. The class token is left out of the average.

    Shape: uint8 (B, 3, S, S) or (B, M, 3, S, S) with S the model's image size -> (B, M, hidden[-1]). The trunk gives
    hidden states (B, L, H); with frozen="all" the average of its patches, (B, H).
    """

    def __init__(
        self,
        *,
        pretrained: str | None = "google/vit-base-patch16-224-in21k",
        config: Any = None,
        frozen: int | str | None = "none",
        hidden: Sequence[int] = (384, 256),
        members: int = 1,
        dropout: float = 0.0,
        checkpointing: bool = False,
    ) -> None:
        make = loader(pretrained, config, dropout)
        self.size = _size(make())
        example = (torch.arange(3 * self.size**2) % 251).view(1, 3, self.size, self.size).to(torch.uint8)
        options: dict[str, Any] = {"frozen": frozen, "hidden": hidden, "members": members}
        super().__init__(*cut(make, _Pieces(self.size), example, checkpointing=checkpointing, **options))
        self.tail.capturable_if(dropout == 0.0 and not checkpointing)


def _size(model: Any) -> int:
    """How high and wide the pictures are that a model takes; some configurations have both."""
    given = getattr(model.config, "image_size", None)
    sides: list[Any] = list(given) if isinstance(given, list | tuple) else [given]
    if len(set(sides)) != 1 or not is_size(sides[0]):
        raise ConfigError(
            f"the model must take pictures as high as wide, got image_size {given} of {type(model).__name__}. "
            "Use a vision transformer; ddpn.backbones.Text for texts."
        )
    return int(sides[0])


class _Pieces:
    def __init__(self, size: int) -> None:
        self.size = size

    def whole(self, model: nn.Module) -> nn.Module:
        return Whole(model, self.size)

    def first(self, model: nn.Module) -> nn.Module:
        return First(model, self.size)

    def last(self, blocks: LastBlocks) -> nn.Module:
        return Last(blocks)


def patches(hidden: Tensor) -> Tensor:
    """The mean of all tokens but the first, which stands for the class. Shape: (B, L, H) -> (B, H)."""
    return hidden[:, 1:].mean(1)


def _states(model: nn.Module, pixels: Tensor, size: int) -> Tensor:
    """Shape: (B, 3, S, S) -> (B, L, H)."""
    if len(pixels) == 0:
        raise InputError(f"x must hold a picture at least, got shape {tuple(pixels.shape)}. Leave it out.")
    try:
        return model(pixel_values=pixels).last_hidden_state
    except (RuntimeError, ValueError) as error:
        # Some families take other sizes too.
        if pixels.shape[-2:] == (size, size):
            raise
        raise InputError(
            f"x must be pictures of {size} x {size}, got shape {tuple(pixels.shape)}. Use Images(..., size={size})."
        ) from error


class Whole(nn.Module):
    """A whole encoder and the average. Shape: (B, 3, S, S) -> (B, H)."""

    capturable, takes = True, PICTURES

    def __init__(self, model: nn.Module, size: int) -> None:
        super().__init__()
        self.model, self.size, self.pixels = model, size, Pixels()

    def forward(self, x: Tensor) -> Tensor:
        return patches(_states(self.model, self.pixels(x), self.size))


class First(nn.Module):
    """The embeddings and first blocks. Shape: (B, 3, S, S) -> (B, L, H)."""

    takes = PICTURES

    def __init__(self, model: nn.Module, size: int) -> None:
        super().__init__()
        self.model, self.size, self.pixels = model, size, Pixels()

    def forward(self, x: Tensor) -> Tensor:
        return _states(self.model, self.pixels(x), self.size)


class Last(nn.Module):
    """The last blocks and the average. Shape: (B, L, H) -> (B, H)."""

    capturable, takes = True, _STATES

    def __init__(self, blocks: LastBlocks) -> None:
        super().__init__()
        self.blocks = blocks

    def forward(self, states: Tensor) -> Tensor:
        return patches(self.blocks(states.to(next(self.parameters()).dtype)))
