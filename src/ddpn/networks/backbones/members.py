"""Ensembles side by side: M networks of one shape that share no parameters, such as `MLP` for tables.

The shape contract: B rows, M networks, P raw outputs. A network takes (B, F), the same rows for every network, or
(B, M, F), rows of each network, and returns (B, M, P). A single network is M = 1. Every parameter has the axis of
networks first, so the sum of their losses gives each of them exactly the gradient it would have alone.
"""

import copy
import math
from collections.abc import Callable, Iterable, Sequence, Sized
from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor, nn

from ddpn.runtime.errors import ConfigError, InputError
from ddpn.runtime.validation import check_choice, check_integer, is_integer

#: In place if the derivative needs only the result, because activations are most of a step's memory traffic on a CPU.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu_,
    "gelu": nn.functional.gelu,
    "silu": nn.functional.silu,
    "tanh": torch.tanh_,
}


def make_generators(seeds: Sequence[int]) -> list[torch.Generator]:
    """Make one random stream per network, on the CPU, so that weights are the same on every device."""
    try:
        return [torch.Generator().manual_seed(seed) for seed in seeds]
    except (TypeError, ValueError, RuntimeError):
        raise ConfigError(f"seeds must be 64-bit integers, one per network, got {seeds!r:.40}.") from None


class DeepCopyFactory:
    """Factory of deep copies of one network, such as a pretrained one; unlike a lambda it can be pickled.

    The network is never changed, so copies of a model share the factory.
    """

    def __init__(self, network: nn.Module) -> None:
        self._network = network

    def __call__(self) -> nn.Module:
        return copy.deepcopy(self._network)

    def __deepcopy__(self, memo: dict[int, object]) -> "DeepCopyFactory":
        return self


class Linear(nn.Module):
    """M linear layers. Shape: (B, F) or (B, M, F) -> (B, M, out).

    `reset` draws each network's weights from its own stream, as torch.nn.Linear does: uniform within 1 / sqrt(F).

    Parameters
    ----------
    n_in, n_out : int
        Width of the input (F) and of the output.
    n_networks : int
        M, the number of layers.

    Examples
    --------
    >>> layer = Linear(3, 2, n_networks=5)
    >>> layer(torch.zeros(4, 3)).shape, layer(torch.zeros(4, 5, 3)).shape
    (torch.Size([4, 5, 2]), torch.Size([4, 5, 2]))
    """

    @torch.inference_mode(False)  # weights made in inference mode could never be trained
    def __init__(self, n_in: int, n_out: int, n_networks: int) -> None:
        super().__init__()
        self.n_networks = check_integer("n_networks", n_networks, minimum=1)
        self.weight = nn.Parameter(torch.zeros(n_networks, n_in, n_out, dtype=torch.float32))
        self.bias = nn.Parameter(torch.zeros(n_networks, 1, n_out, dtype=torch.float32))

    def reset(self, streams: Sequence[torch.Generator]) -> None:
        """Draw fresh weights.

        Parameters
        ----------
        streams : sequence of torch.Generator
            One per network.
        """
        check_seeds(streams, self.n_networks)
        bound = 1.0 / math.sqrt(max(1, self.weight.shape[1]))
        with torch.no_grad():
            for network, stream in enumerate(streams):
                for parameter in (self.weight, self.bias):
                    values = torch.rand(parameter.shape[1:], generator=stream, dtype=torch.float32)
                    parameter[network] = (2.0 * values - 1.0) * bound

    def extra_repr(self) -> str:
        return f"{self.weight.shape[1]}, {self.weight.shape[2]}, n_networks={self.n_networks}"

    def forward(self, x: Tensor) -> Tensor:
        check_rows(x, 1, None, self.n_networks)
        check_dtype(x, self.weight)
        rows = x.unsqueeze(0).expand(self.n_networks, -1, -1) if x.dim() == 2 else x.transpose(0, 1)
        return torch.baddbmm(self.bias, rows, self.weight).transpose(0, 1)


class NetworkList(nn.ModuleList):
    """M networks of any kind, one after the other: for layers without an axis of networks.

    If a network's attribute `capturable` is true, it does the same in every step, without reading values and without
    randomness, so that a step can be captured as a CUDA graph; its attribute `takes` describes its input in messages.
    Shape: (B, ...) or (B, M, ...) -> (B, M, F).

    Parameters
    ----------
    make : callable
        Builds a network. Each call draws new weights or copies the same pretrained ones.
    n_networks : int
        M, the number of networks.
    row_axes : int
        The number of axes of a row, 3 for an image.

    Examples
    --------
    >>> NetworkList(lambda: nn.Linear(3, 2), n_networks=5)(torch.zeros(4, 3)).shape
    torch.Size([4, 5, 2])
    """

    @torch.inference_mode(False)
    def __init__(self, make: Callable[[], nn.Module], n_networks: int, *, row_axes: int = 1) -> None:
        super().__init__(make() for _ in range(check_integer("n_networks", n_networks, minimum=1)))
        self._make, self._row_axes = make, row_axes
        weights = [id(p) for network in self for p in network.parameters() if p.requires_grad]
        if len(set(weights)) < len(weights):
            got = "weights that networks share"
            raise ConfigError(f"make must build a new network at every call, got {got}. Build all layers in it.")

    @property
    def n_networks(self) -> int:
        """Number of networks."""
        return len(self)

    def reset(self, streams: Sequence[torch.Generator]) -> None:
        """Draw fresh weights.

        Parameters
        ----------
        streams : sequence of torch.Generator
            One per network.
        """
        check_seeds(streams, len(self))
        for network, stream in zip(self, streams, strict=True):
            # Networks of other libraries draw from torch's global stream, which is restored afterwards.
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(int(torch.randint(2**62, (), generator=stream)))
                network.load_state_dict(self._make().state_dict())

    def forward(self, x: Tensor) -> Tensor:
        check_rows(x, self._row_axes, getattr(self[0], "takes", None), len(self))
        has_network_rows = x.dim() == self._row_axes + 2
        network_rows = x.unbind(1) if has_network_rows else [x] * len(self)
        return torch.stack([network(rows) for network, rows in zip(self, network_rows, strict=True)], dim=1)


class MLP(nn.Module):
    """M perceptrons side by side (Appendix B). Shape: (B, F) or (B, M, F) -> (B, M, hidden[-1]), or F without layers.

    Parameters
    ----------
    n_in : int
        F, the number of inputs.
    hidden : sequence of int
        Widths of the layers; with () the inputs are the features, so that raw outputs are linear in them.
    n_networks : int
        M, the number of perceptrons.
    activation : {"relu", "gelu", "silu", "tanh"}
        The function after each layer.

    Examples
    --------
    >>> MLP(n_in=8, hidden=(128, 64), n_networks=5)(torch.zeros(2, 8)).shape
    torch.Size([2, 5, 64])
    """

    def __init__(
        self, *, n_in: int, hidden: Sequence[int] = (128, 128, 128, 64), n_networks: int = 1, activation: str = "relu"
    ) -> None:
        super().__init__()
        check_choice("activation", activation, ACTIVATIONS)
        widths = [n_in, *check_widths("hidden", hidden, least=0)]
        self.n_networks = check_integer("n_networks", n_networks, minimum=1)
        self.layers = nn.ModuleList(Linear(a, b, n_networks) for a, b in pairwise(widths))
        self.output_dim = widths[-1]
        self.activation = activation

    def reset(self, streams: Sequence[torch.Generator]) -> None:
        """Draw fresh weights, one stream per network."""
        for layer in self.layers:
            cast(Linear, layer).reset(streams)

    def extra_repr(self) -> str:
        return f"activation={self.activation}"

    def forward(self, x: Tensor) -> Tensor:
        activation = ACTIVATIONS[self.activation]
        check_rows(x, 1, n_networks=self.n_networks)
        for layer in self.layers:
            x = activation(layer(x))
        return x.unsqueeze(1).expand(-1, self.n_networks, -1) if x.dim() == 2 else x


class Frozen(nn.Module):
    """A network that is not trained: no gradients, and always in evaluation mode.

    Rows have `row_axes` axes; with one more axis behind the batch's, each network has separate rows.
    """

    def __init__(self, network: nn.Module, row_axes: int) -> None:
        super().__init__()
        self.network = network.requires_grad_(False).eval()
        self.row_axes = row_axes

    def train(self, mode: bool = True) -> "Frozen":
        """Stay in evaluation mode, whatever the mode."""
        return super().train(False)

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        check_rows(x, self.row_axes, getattr(self.network, "takes", None))
        if x.dim() == self.row_axes + 1:
            return self.network(x)
        return self.network(x.flatten(0, 1)).unflatten(0, x.shape[:2])


# Checks of networks' arguments ---------------------------------------------------------------------------------------
# Inputs are checked by type, shape and dtype only, so that a GPU need not wait.


def check_seeds(seeds: Sized, n_networks: int) -> None:
    """Raise a `ConfigError` if there is not one seed, or random stream, per network."""
    if len(seeds) != n_networks:
        raise ConfigError(f"seeds must have one entry per network ({n_networks}), got {len(seeds)}.")


def check_widths(name: str, widths: object, least: int = 1) -> tuple[int, ...]:
    """Return the widths of at least so many layers as integers, or raise a `ConfigError`."""
    layer_widths = tuple(widths) if isinstance(widths, Iterable) else (None,)
    if len(layer_widths) < least or not all(is_integer(width) and width >= 1 for width in layer_widths):
        raise ConfigError(f"{name} must list integers of at least 1, such as (128, 64), got {widths!r:.40}.")
    return tuple(int(width) for width in layer_widths)


def check_rows(x: Any, row_axes: int, takes: str | None = None, n_networks: int | None = None) -> None:
    """Raise an `InputError` if `x` is not a batch of rows with `row_axes` axes, or of such rows per network."""
    axes = x.dim() - row_axes if isinstance(x, Tensor) else 0
    if axes == 1 or (axes == 2 and n_networks in (None, x.shape[1])):
        return
    if axes == 2:
        raise InputError(f"x must have {n_networks} networks on its second axis, got shape {tuple(x.shape)}.")
    got = f"shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
    sizes = ", ".join(f"d{axis}" for axis in range(1, row_axes + 1))
    expected = f"a tensor of shape (rows, {sizes}), or (rows, networks, {sizes}) if each network has its own rows"
    raise InputError(f"x must be {takes or expected}, got {got}.")


def check_dtype(x: Tensor, weight: Tensor) -> None:
    """Raise an `InputError` if `x` has another dtype than the weights; autocast converts floats itself."""
    if x.dtype != weight.dtype and not (x.is_floating_point() and torch.is_autocast_enabled(x.device.type)):
        raise InputError(f"x must be {weight.dtype} like the weights, got {x.dtype}.")
