"""Backbones for fine-tuning: a frozen trunk that all networks share, and a trainable tail for each network."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from ddpn.networks.backbones.layers import MLP, Frozen, NetworkList


class NetworkTail(nn.Module):
    """The trainable part of M fine-tuned networks: an optional module per network, then a perceptron per network.

    `make` builds the module of one network; None means no module. `width` is the number of features that enter each
    perceptron, and `row_axes` the number of axes of an input row.

    Shape: (B, ...), or (B, M, ...) with separate rows for each network -> (B, M, hidden[-1]).
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

    def reset(self, generators: Sequence[torch.Generator]) -> None:
        """Draw new weights, using one random generator per network. Pretrained weights are restored, not drawn."""
        if self.networks is not None:
            self.networks.reset(generators)
        self.perceptron.reset(generators)

    def forward(self, x: Tensor) -> Tensor:
        return self.perceptron(x if self.networks is None else self.networks(x))


class FineTuned(nn.Module):
    """A frozen trunk that all networks share, followed by a trainable tail for each network.

    If the same rows are used many times, compute the output of the `trunk` once and train the `tail` on it.

    Shape: (B, ...), or (B, M, ...) with separate rows for each network -> (B, M, output_dim).

    Parameters
    ----------
    trunk : Frozen or None
        The shared part, whose weights are not trained.
    tail : NetworkTail
        The part that is trained separately for each network.
    """

    def __init__(self, trunk: Frozen | None, tail: NetworkTail) -> None:
        super().__init__()
        self.trunk, self.tail = trunk, tail
        self.output_dim = tail.output_dim

    def reset(self, generators: Sequence[torch.Generator]) -> None:
        """Draw new weights of the tail, using one random generator per network. The trunk keeps its weights."""
        self.tail.reset(generators)

    def forward(self, x: Tensor) -> Tensor:
        return self.tail(x if self.trunk is None else self.trunk(x))
