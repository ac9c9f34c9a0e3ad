"""Pictures: a vision transformer whose patch tokens are averaged (Appendix B)."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ddpn.backbones.encoder import LastBlocks, cut, loader
from ddpn.backbones.pixels import Pixels
from ddpn.backbones.tuned import Tuned


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
        settings: Any = make().config
        self.size = int(settings.image_size)
        example = (torch.arange(3 * self.size**2) % 251).view(1, 3, self.size, self.size)
        options: dict[str, Any] = {"frozen": frozen, "hidden": hidden, "members": members}
        super().__init__(*cut(make, _Pieces(), example, checkpointing=checkpointing, **options))
        self.tail.capturable_if(dropout == 0.0 and not checkpointing)


class _Pieces:
    def whole(self, model: nn.Module) -> nn.Module:
        return Whole(model)

    def first(self, model: nn.Module) -> nn.Module:
        return First(model)

    def last(self, blocks: LastBlocks) -> nn.Module:
        return Last(blocks)


def patches(hidden: Tensor) -> Tensor:
    """The mean of all tokens but the first, which stands for the class. Shape: (B, L, H) -> (B, H)."""
    return hidden[:, 1:].mean(1)


class Whole(nn.Module):
    """A whole encoder and the average. Shape: (B, 3, S, S) -> (B, H)."""

    capturable = True

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.pixels = model, Pixels()

    def forward(self, x: Tensor) -> Tensor:
        return patches(self.model(pixel_values=self.pixels(x)).last_hidden_state)


class First(nn.Module):
    """The embeddings and first blocks. Shape: (B, 3, S, S) -> (B, L, H)."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.pixels = model, Pixels()

    def forward(self, x: Tensor) -> Tensor:
        return self.model(pixel_values=self.pixels(x)).last_hidden_state


class Last(nn.Module):
    """The last blocks and the average. Shape: (B, L, H) -> (B, H)."""

    capturable = True

    def __init__(self, blocks: LastBlocks) -> None:
        super().__init__()
        self.blocks = blocks

    def forward(self, states: Tensor) -> Tensor:
        return patches(self.blocks(states.to(next(self.parameters()).dtype)))
