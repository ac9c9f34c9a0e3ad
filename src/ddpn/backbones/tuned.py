"""A pretrained network cut in two: a frozen part that all members share, and a part that each tunes for itself."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from ddpn.backbones.arguments import check_rows
from ddpn.backbones.members import Members
from ddpn.backbones.mlp import MLP


class Frozen(nn.Module):
    """A network that learns nothing: no gradients, and in evaluation mode whatever happens around it.

    Rows have `row_axes` axes; one more behind the batch's is the members', each with rows of its own.
    """

    def __init__(self, network: nn.Module, row_axes: int) -> None:
        super().__init__()
        self.network = network.requires_grad_(False).eval()
        self.row_axes = row_axes

    def train(self, mode: bool = True) -> "Frozen":
        """Stays as it is."""
        return super().train(False)

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        check_rows(x, self.row_axes, getattr(self.network, "takes", None))
        if x.dim() == self.row_axes + 1:
            return self.network(x)
        return self.network(x.flatten(0, 1)).unflatten(0, x.shape[:2])


class Tail(nn.Module):
    """What each member has of its own: a network that `make` builds, if any, and a perceptron (Appendix B).

    `width` is the number of features the network, or where there is none x, gives; rows of x have `row_axes` axes.

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
        """Members' networks can be captured if they say so and are `plain`: they draw and recompute nothing."""
        for network in self.networks or ():
            network.capturable = plain and getattr(network, "capturable", False)  # type: ignore[assignment]

    def reset(self, streams: Sequence[torch.Generator]) -> None:
        """Fresh weights, one stream a member; pretrained ones are the same for all."""
        if self.networks is not None:
            self.networks.reset(streams)
        self.perceptron.reset(streams)

    def forward(self, x: Tensor) -> Tensor:
        return self.perceptron(x if self.networks is None else self.networks(x))


class Tuned(nn.Module):
    """A trunk that all members share and their own tails.

    Whoever trains on the same rows again and again computes `trunk` once and trains `tail` on what it gave.

    Shape: (B, ...) or (B, M, ...) -> (B, M, output_dim).
    """

    def __init__(self, trunk: Frozen | None, tail: Tail) -> None:
        super().__init__()
        self.trunk, self.tail = trunk, tail
        self.output_dim = tail.output_dim

    def reset(self, streams: Sequence[torch.Generator]) -> None:
        """Fresh weights, one stream a member; the trunk keeps its own."""
        self.tail.reset(streams)

    def forward(self, x: Tensor) -> Tensor:
        return self.tail(x if self.trunk is None else self.trunk(x))
