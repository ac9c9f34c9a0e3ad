"""A pretrained network in two parts: a frozen part that all members share, and a part that each member tunes."""

from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from ddpn.networks.backbones.members import Members, check_rows
from ddpn.networks.backbones.mlp import MLP
from ddpn.runtime.errors import InputError

#: Means and standard deviations of ImageNet's channels.
_MEAN = (0.485, 0.456, 0.406)
_STD = (0.229, 0.224, 0.225)
#: What networks for images take.
IMAGES = "a uint8 tensor of RGB images (B, 3, S, S), or (B, M, 3, S, S) with images of each member"


class Frozen(nn.Module):
    """A network that is not trained: no gradients, and always in evaluation mode.

    Rows have `row_axes` axes; with one more axis behind the batch's, each member has rows of its own.
    """

    def __init__(self, network: nn.Module, row_axes: int) -> None:
        super().__init__()
        self.network = network.requires_grad_(False).eval()
        self.row_axes = row_axes

    def train(self, mode: bool = True) -> "Frozen":
        """Stays in evaluation mode."""
        return super().train(False)

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        check_rows(x, self.row_axes, getattr(self.network, "takes", None))
        if x.dim() == self.row_axes + 1:
            return self.network(x)
        return self.network(x.flatten(0, 1)).unflatten(0, x.shape[:2])


class Tail(nn.Module):
    """The part of each member: a network that `make` builds, if any, and a perceptron (Appendix B).

    `width` is the number of features of that network, or of x without one; rows of x have `row_axes` axes.

    Shape: (B, ...) or (B, M, ...) -> (B, M, hidden[-1]).
    """

    def __init__(
        self,
        make: Callable[[], nn.Module] | None,
        *,
        width: int,
        row_axes: int = 1,
        hidden: Sequence[int] = (384, 256),
        members: int = 1,
    ) -> None:
        super().__init__()
        self.networks = None if make is None else Members(make, members, row_axes=row_axes)
        self.perceptron = MLP(n_in=width, hidden=hidden, members=members)
        self.output_dim = self.perceptron.output_dim

    def capturable_if(self, plain: bool) -> None:
        """Members' networks can be captured if they say so and are `plain`: without dropout and recomputation."""
        for network in self.networks or ():
            network.capturable = plain and getattr(network, "capturable", False)  # type: ignore[assignment]

    def reset(self, streams: Sequence[torch.Generator]) -> None:
        """Fresh weights, one stream per member; pretrained ones are the same for all."""
        if self.networks is not None:
            self.networks.reset(streams)
        self.perceptron.reset(streams)

    def forward(self, x: Tensor) -> Tensor:
        return self.perceptron(x if self.networks is None else self.networks(x))


class Tuned(nn.Module):
    """A trunk that all members share, and a tail per member.

    To train on the same rows many times, compute `trunk` once and train `tail` on its output.

    Shape: (B, ...) or (B, M, ...) -> (B, M, output_dim).

    Parameters
    ----------
    trunk : Frozen or None
        The part with shared weights, which are not trained.
    tail : Tail
        The part of each member.
    """

    def __init__(self, trunk: Frozen | None, tail: Tail) -> None:
        super().__init__()
        self.trunk, self.tail = trunk, tail
        self.output_dim = tail.output_dim

    def reset(self, streams: Sequence[torch.Generator]) -> None:
        """Fresh weights, one stream per member; the trunk keeps its own."""
        self.tail.reset(streams)

    def forward(self, x: Tensor) -> Tensor:
        return self.tail(x if self.trunk is None else self.trunk(x))


class ImageNormalization(nn.Module):
    """Bytes 0..255 -> normalised numbers, channel by channel. Shape: (..., 3, S, S) as given."""

    def __init__(self) -> None:
        super().__init__()
        # (x / 255 - mean) / std as one product and one sum.
        mean, std = (255.0 * torch.tensor(each, dtype=torch.float32).view(3, 1, 1) for each in (_MEAN, _STD))
        self.register_buffer("_scale", 1.0 / std, persistent=False)
        self.register_buffer("_shift", -mean / std, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if x.dtype != torch.uint8 or x.shape[-3] != 3:
            raise InputError(f"x must be {IMAGES}, got {x.dtype} of shape {tuple(x.shape)}.")
        scale = cast(Tensor, self._scale)
        return torch.addcmul(cast(Tensor, self._shift), x.to(scale.dtype), scale)
