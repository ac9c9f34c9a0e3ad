"""Networks for tables: the paper's multilayer perceptron, and none at all for generalised linear models."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn

from ddpn.backbones.arguments import check_members, check_rows, widths_of
from ddpn.backbones.members import Linear
from ddpn.errors import ConfigError

#: In place where the derivative needs the result alone: activations are what a step on a CPU moves most.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu_,
    "gelu": nn.functional.gelu,
    "silu": nn.functional.silu,
    "tanh": torch.tanh_,
}


class MLP(nn.Module):
    """M perceptrons side by side (Appendix B). Shape: (B, F) or (B, M, F) -> (B, M, hidden[-1]).

    >>> MLP(n_in=8, hidden=(128, 64), members=5)(torch.zeros(2, 8)).shape
    torch.Size([2, 5, 64])
    """

    def __init__(
        self,
        *,
        n_in: int,
        hidden: Sequence[int] = (128, 128, 128, 64),
        members: int = 1,
        activation: str = "relu",
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ConfigError(f'activation must be one of {", ".join(ACTIVATIONS)}, got "{activation}". Choose one.')
        widths = [n_in, *widths_of(hidden)]
        self.layers = nn.ModuleList(Linear(a, b, members) for a, b in pairwise(widths))
        self.output_dim = widths[-1]
        self.activation = activation

    def reset(self, streams: Sequence[torch.Generator]) -> None:
        """Fresh weights, one stream a member."""
        for layer in self.layers:
            cast(Linear, layer).reset(streams)

    def extra_repr(self) -> str:
        return f"activation={self.activation}"

    def forward(self, x: Tensor) -> Tensor:
        activation = ACTIVATIONS[self.activation]
        for layer in self.layers:
            x = activation(layer(x))
        return x


class Identity(nn.Module):
    """No network: the head's parameters are linear in the input, a generalised linear model for every parameter.

    >>> Identity(n_in=8, members=5)(torch.zeros(2, 8)).shape
    torch.Size([2, 5, 8])
    """

    def __init__(self, *, n_in: int, members: int = 1) -> None:
        super().__init__()
        check_members(members)
        self.output_dim = n_in
        self.members = members

    def reset(self, streams: Sequence[torch.Generator]) -> None:
        """Nothing to draw."""

    def forward(self, x: Tensor) -> Tensor:
        check_rows(x, 1, members=self.members)
        return x.unsqueeze(1).expand(-1, self.members, -1) if x.dim() == 2 else x
