"""A pretrained network in two parts: a frozen trunk that networks share, and a tail that each network trains."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from ddpn.networks.backbones.members import MLP, Frozen, NetworkList


class NetworkTail(nn.Module):
    """The part that each network trains: an optional module that `make` builds, then a perceptron (Appendix B).

    `width` is the number of features that this module returns, or of the input without a module. `row_axes` is the
    number of axes of an input row.

    Shape: (B, ...) or (B, M, ...) -> (B, M, hidden[-1]).
    """

    def __init__(
        self,
        make: Callable[[], nn.Module] | None,
        *,
        width: int,
        row_axes: int = 1,
        hidden: Sequence[int] = (384, 256),
        n_networks: int = 1,
    ) -> None:
        super().__init__()
        self.networks = None if make is None else NetworkList(make, n_networks, row_axes=row_axes)
        self.perceptron = MLP(n_in=width, hidden=hidden, n_networks=n_networks)
        self.output_dim = self.perceptron.output_dim

    def reset(self, streams: Sequence[torch.Generator]) -> None:
        """Draw new weights with one random generator per network; pretrained weights are the same for all networks."""
        if self.networks is not None:
            self.networks.reset(streams)
        self.perceptron.reset(streams)

    def forward(self, x: Tensor) -> Tensor:
        return self.perceptron(x if self.networks is None else self.networks(x))


class FineTuned(nn.Module):
    """A frozen trunk that all networks share, and a tail for each network.

    To train on the same rows many times, compute the output of the `trunk` once and train the `tail` on it.

    Shape: (B, ...) or (B, M, ...) -> (B, M, output_dim).

    Parameters
    ----------
    trunk : Frozen or None
        The shared part, whose weights are not trained.
    tail : NetworkTail
        The part that each network trains.
    """

    def __init__(self, trunk: Frozen | None, tail: NetworkTail) -> None:
        super().__init__()
        self.trunk, self.tail = trunk, tail
        self.output_dim = tail.output_dim

    def reset(self, streams: Sequence[torch.Generator]) -> None:
        """Draw new weights of the tail with one random generator per network; the trunk keeps its weights."""
        self.tail.reset(streams)

    def forward(self, x: Tensor) -> Tensor:
        return self.tail(x if self.trunk is None else self.trunk(x))
