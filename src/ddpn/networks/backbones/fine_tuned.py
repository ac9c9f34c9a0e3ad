"""Backbones for fine-tuning: frozen first layers (the trunk), and trainable last layers of each network (its tail)."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from ddpn.networks.backbones.layers import MLP, Frozen, NetworkList


class NetworkTail(nn.Module):
    """The trainable last layers of M fine-tuned networks: an optional module and a perceptron per network.

    `make_module` builds the module of one network, which maps rows (B, ...) to (B, width). If it is None, there are
    only perceptrons. `width` is the number of inputs of each perceptron, and `hidden` has the widths of its layers.
    `row_axes` is the number of axes of a row, without the batch: 1 for a vector, 3 for an image. `n_networks` is M.

    Shape: (B, ...), or (B, M, ...) with separate rows for each network -> (B, M, hidden[-1]).
    """

    def __init__(
        self,
        make_module: Callable[[], nn.Module] | None,
        *,
        width: int,
        row_axes: int = 1,
        hidden: Sequence[int] = (384, 256),
        n_networks: int = 1,
    ) -> None:
        super().__init__()
        self.networks = None if make_module is None else NetworkList(make_module, n_networks, row_axes=row_axes)
        self.perceptron = MLP(n_in=width, hidden=hidden, n_networks=n_networks)
        self.output_dim = self.perceptron.output_dim

    def reset(self, generators: Sequence[torch.Generator]) -> None:
        """Draw new weights, using one random generator per network. Pretrained weights are not drawn, but restored."""
        if self.networks is not None:
            self.networks.reset(generators)
        self.perceptron.reset(generators)

    def forward(self, x: Tensor) -> Tensor:
        return self.perceptron(x if self.networks is None else self.networks(x))


class FineTuned(nn.Module):
    """A backbone for fine-tuning: frozen first layers that all networks share, and trainable ones for each network.

    The frozen layers are the `trunk`, and the trainable layers are the `tail`. If the same rows are used many times,
    compute the output of the `trunk` once and train the `tail` on it.

    Shape: (B, ...), or (B, M, ...) with separate rows for each network -> (B, M, output_dim).

    Parameters
    ----------
    trunk : Frozen or None
        The first layers, which all networks share. Their weights are not trained. None if all layers are trained.
    tail : NetworkTail
        The last layers, which are trained separately for each network.
    """

    def __init__(self, trunk: Frozen | None, tail: NetworkTail) -> None:
        super().__init__()
        self.trunk, self.tail = trunk, tail
        self.output_dim = tail.output_dim

    def reset(self, generators: Sequence[torch.Generator]) -> None:
        """Draw new weights of the `tail`, the trainable layers, using one random generator per network.

        The `trunk`, the frozen layers, keeps its weights.
        """
        self.tail.reset(generators)

    def forward(self, x: Tensor) -> Tensor:
        return self.tail(x if self.trunk is None else self.trunk(x))
