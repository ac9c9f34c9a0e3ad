"""Images: a vision transformer whose patch tokens are averaged (Appendix B)."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ddpn.networks.backbones.fine_tuning import IMAGES, ImageNormalization
from ddpn.networks.backbones.transformer import Reader, Transformer, loader
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.runtime.validation import is_integer


class ViT(Transformer):
    """A pretrained vision transformer: images -> features, for every member.

    The class token is left out of the average over patches.

    Shape: uint8 (B, 3, S, S) or (B, M, 3, S, S) with S the model's image size -> (B, M, hidden[-1]). The trunk gives
    hidden states (B, L, H); with frozen="all" the average of its patches, (B, H).

    Parameters
    ----------
    pretrained, config, hidden, members, dropout, checkpointing
        As for `ddpn.networks.backbones.Text`.
    frozen : int, "all" or "none"
        So many first blocks, with the embeddings, are shared and not trained. The default is "none", as the paper tunes
        all of them.
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
        self.size = ImageReader(make()).size
        example = (torch.arange(3 * self.size**2) % 251).view(1, 3, self.size, self.size).to(torch.uint8)
        options: dict[str, Any] = {"frozen": frozen, "hidden": hidden, "members": members, "dropout": dropout}
        super().__init__(make, ImageReader, example, checkpointing=checkpointing, **options)


class ImageReader(Reader):
    """Reads images of `size` x `size`."""

    takes = IMAGES
    states = "hidden states (B, L, H), or (B, M, L, H) with states of each member, as backbone.trunk(x) gives"
    capturable = True

    def __init__(self, model: Any) -> None:
        super().__init__()
        given = getattr(model.config, "image_size", None)
        sides: list[Any] = list(given) if isinstance(given, list | tuple) else [given]  # some have height and width
        if len(set(sides)) != 1 or not is_integer(sides[0]) or sides[0] < 1:
            got, remedy = (
                f"image_size {given} of {type(model).__name__}",
                "Use a vision transformer, or Text for texts.",
            )
            raise ConfigError(f"the model must take square images, got {got}. {remedy}")
        self.size, self.normalize = int(sides[0]), ImageNormalization()

    def read(self, model: nn.Module, x: Tensor) -> tuple[Tensor, None]:
        """Hidden states of the class token and the patches."""
        pixels = self.normalize(x)
        if len(x) == 0:
            raise InputError(f"x must hold at least one image, got shape {tuple(x.shape)}.")
        try:
            return model(pixel_values=pixels).last_hidden_state, None
        except (RuntimeError, ValueError) as error:
            # Some families take other sizes too.
            if x.shape[-2:] == (self.size, self.size):
                raise
            raise InputError(f"x must be images of {self.size} x {self.size}, got shape {tuple(x.shape)}.") from error

    @staticmethod
    def pool(hidden: Tensor, keep: Tensor | None) -> Tensor:
        """The mean of all tokens but the first, which stands for the class."""
        return hidden[:, 1:].mean(1)
