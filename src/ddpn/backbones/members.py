"""Members side by side: M networks of one shape that share no parameter.

The shape contract, once: B rows, M members, P raw outputs. A network takes (B, F), the same rows for every member, or
(B, M, F), each member's own rows, and returns (B, M, P). A single network is M = 1. Every parameter has the member axis
first, so the sum of the members' losses gives each of them exactly the gradient it would have alone.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from ddpn.errors import ConfigError


def generators(seeds: Sequence[int]) -> list[torch.Generator]:
    """One random stream a member, on the CPU, so that a member is the same network on every device."""
    return [torch.Generator().manual_seed(seed) for seed in seeds]


class Linear(nn.Module):
    """M linear layers. Shape: (B, F) or (B, M, F) -> (B, M, out).

    `reset` draws each member's weights from its own stream, as torch.nn.Linear does: uniform within 1 / sqrt(F).

    >>> layer = Linear(3, 2, members=5)
    >>> layer(torch.zeros(4, 3)).shape, layer(torch.zeros(4, 5, 3)).shape
    (torch.Size([4, 5, 2]), torch.Size([4, 5, 2]))
    """

    def __init__(self, n_in: int, n_out: int, members: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(members, n_in, n_out))
        self.bias = nn.Parameter(torch.zeros(members, 1, n_out))

    def reset(self, streams: Sequence[torch.Generator]) -> None:
        """Fresh weights, one stream a member."""
        bound = 1.0 / math.sqrt(max(1, self.weight.shape[1]))
        with torch.no_grad():
            for member, stream in enumerate(streams):
                for parameter in (self.weight, self.bias):
                    values = torch.rand(parameter.shape[1:], generator=stream)
                    parameter[member] = (2.0 * values - 1.0) * bound

    def extra_repr(self) -> str:
        members, n_in, n_out = self.weight.shape
        return f"{n_in}, {n_out}, members={members}"

    def forward(self, x: Tensor) -> Tensor:
        members = len(self.weight)
        rows = x.unsqueeze(0).expand(members, -1, -1) if x.dim() == 2 else x.transpose(0, 1)
        return torch.baddbmm(self.bias, rows, self.weight).transpose(0, 1)


class Members(nn.ModuleList):
    """M networks of any kind, one after the other: for those whose layers know no member axis.

    `make` builds one of them, each call with weights of its own or the same pretrained ones; `row_axes` is how many
    axes a row has, 3 for a picture. A network with an attribute `capturable` that is true does the same in every step,
    without a look at a value and without chance, so that a GPU can be given all of a step at once. Shape: (B, ...) or
    (B, M, ...) -> (B, M, F).

    >>> Members(lambda: nn.Linear(3, 2), members=5)(torch.zeros(4, 3)).shape
    torch.Size([4, 5, 2])
    """

    def __init__(self, make: Callable[[], nn.Module], members: int, *, row_axes: int = 1) -> None:
        super().__init__(make() for _ in range(members))
        self._make, self._row_axes = make, row_axes
        weights = [id(p) for network in self for p in network.parameters() if p.requires_grad]
        if len(set(weights)) < len(weights):
            raise ConfigError(
                "make must build another network at every call, got weights that members share. "
                "Build all layers inside it, or return a copy.deepcopy."
            )

    def reset(self, streams: Sequence[torch.Generator]) -> None:
        """Fresh weights, one stream a member."""
        for network, stream in zip(self, streams, strict=True):
            # Foreign networks draw from torch's own stream; it is put back afterwards.
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(int(torch.randint(2**62, (), generator=stream)))
                network.load_state_dict(self._make().state_dict())

    def forward(self, x: Tensor) -> Tensor:
        own = x.dim() == self._row_axes + 2
        each = x.unbind(1) if own else [x] * len(self)
        return torch.stack([network(rows) for network, rows in zip(self, each, strict=True)], dim=1)
