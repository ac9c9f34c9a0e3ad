"""Networks for tables: the paper's multilayer perceptron."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn

from ddpn.networks.backbones.members import Linear, check_rows, check_widths
from ddpn.runtime.validation import check_choice, check_integer

#: In place if the derivative needs only the result: activations are most of the memory traffic of a step on a CPU.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu_,
    "gelu": nn.functional.gelu,
    "silu": nn.functional.silu,
    "tanh": torch.tanh_,
}


class MLP(nn.Module):
    """M perceptrons side by side (Appendix B). Shape: (B, F) or (B, M, F) -> (B, M, hidden[-1]), or F without layers.

    Parameters
    ----------
    n_in : int
        F, the number of inputs.
    hidden : sequence of int
        Widths of the layers; with () the inputs are the features, so that raw outputs are linear in them.
    members : int
        M, the number of perceptrons.
    activation : {"relu", "gelu", "silu", "tanh"}
        The function after each layer.

    Examples
    --------
    >>> MLP(n_in=8, hidden=(128, 64), members=5)(torch.zeros(2, 8)).shape
    torch.Size([2, 5, 64])
    """

    def __init__(
        self, *, n_in: int, hidden: Sequence[int] = (128, 128, 128, 64), members: int = 1, activation: str = "relu"
    ) -> None:
        super().__init__()
        check_choice("activation", activation, ACTIVATIONS)
        widths = [n_in, *check_widths("hidden", hidden, least=0)]
        self.members = check_integer("members", members, minimum=1)
        self.layers = nn.ModuleList(Linear(a, b, members) for a, b in pairwise(widths))
        self.output_dim = widths[-1]
        self.activation = activation

    def reset(self, streams: Sequence[torch.Generator]) -> None:
        """Fresh weights, one stream per member."""
        for layer in self.layers:
            cast(Linear, layer).reset(streams)

    def extra_repr(self) -> str:
        return f"activation={self.activation}"

    def forward(self, x: Tensor) -> Tensor:
        activation = ACTIVATIONS[self.activation]
        check_rows(x, 1, members=self.members)
        for layer in self.layers:
            x = activation(layer(x))
        return x.unsqueeze(1).expand(-1, self.members, -1) if x.dim() == 2 else x
