"""Layers for ensembles: M networks with the same architecture but separate weights, computed side by side.

A batch of B rows with F inputs has shape (B, F) if all networks get the same rows, or (B, M, F) if each network has its
own. A backbone returns features of shape (B, M, output_dim). A single network has M = 1.

Every parameter has the networks along its first axis. Therefore, the gradient of the sum of all losses consists of the
gradients of each network's own loss.
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

#: Activations. Those whose derivative needs only the result work in place, because activations are most of a step's
#: memory traffic on a CPU.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu_,
    "gelu": nn.functional.gelu,
    "silu": nn.functional.silu,
    "tanh": torch.tanh_,
}


def make_generators(seeds: Sequence[int]) -> list[torch.Generator]:
    """Create one random generator per network, on the CPU, so that initial weights are the same on every device."""
    try:
        return [torch.Generator().manual_seed(seed) for seed in seeds]
    except (TypeError, ValueError, RuntimeError):
        raise ConfigError(f"seeds must be 64-bit integers, one per network, got {seeds!r:.40}.") from None


class DeepCopyFactory:
    """A callable that returns deep copies of a network, such as a pretrained one. Unlike a lambda, it can be pickled.

    A deep copy of the factory is the factory itself, because its network never changes.
    """

    def __init__(self, network: nn.Module) -> None:
        self._network = network

    def __call__(self) -> nn.Module:
        return copy.deepcopy(self._network)

    def __deepcopy__(self, memo: dict[int, object]) -> "DeepCopyFactory":
        return self


class Linear(nn.Module):
    """M linear layers with separate weights, one per network.

    Shape: (B, n_in), or (B, M, n_in) with separate rows for each network -> (B, M, n_out).

    Weights are zero until `reset` draws them as torch.nn.Linear does: uniformly between -1 / sqrt(n_in) and 1 /
    sqrt(n_in).

    Parameters
    ----------
    n_in, n_out : int
        The numbers of inputs and of outputs of each layer.
    n_networks : int
        M, the number of layers.

    Examples
    --------
    >>> layer = Linear(3, 2, n_networks=5)
    >>> layer(torch.zeros(4, 3)).shape, layer(torch.zeros(4, 5, 3)).shape
    (torch.Size([4, 5, 2]), torch.Size([4, 5, 2]))
    """

    @torch.inference_mode(False)  # weights that are created in inference mode could not be trained
    def __init__(self, n_in: int, n_out: int, n_networks: int) -> None:
        super().__init__()
        self.n_networks = check_integer("n_networks", n_networks, minimum=1)
        self.weight = nn.Parameter(torch.zeros(n_networks, n_in, n_out, dtype=torch.float32))
        self.bias = nn.Parameter(torch.zeros(n_networks, 1, n_out, dtype=torch.float32))

    def reset(self, generators: Sequence[torch.Generator]) -> None:
        """Draw new weights.

        Parameters
        ----------
        generators : sequence of torch.Generator
            One random generator per network.
        """
        check_seeds(generators, self.n_networks)
        bound = 1.0 / math.sqrt(max(1, self.weight.shape[1]))
        with torch.no_grad():
            for network, generator in enumerate(generators):
                for parameter in (self.weight, self.bias):
                    values = torch.rand(parameter.shape[1:], generator=generator, dtype=torch.float32)
                    parameter[network] = (2.0 * values - 1.0) * bound

    def extra_repr(self) -> str:
        return f"{self.weight.shape[1]}, {self.weight.shape[2]}, n_networks={self.n_networks}"

    def forward(self, x: Tensor) -> Tensor:
        check_rows(x, 1, None, self.n_networks)
        return self.transform_rows(put_networks_first(x, self.n_networks)).transpose(0, 1)

    def transform_rows(self, rows: Tensor) -> Tensor:
        """Compute rows @ weight + bias for the rows of each network, with the networks along the first axis.

        Shape: (M, B, n_in) -> (M, B, n_out).
        """
        check_dtype(rows, self.weight)
        return torch.baddbmm(self.bias, rows, self.weight)


class NetworkList(nn.ModuleList):
    """M separate networks of any kind, which are computed one after the other.

    Use it for layers that have no axis for networks. A network may have two attributes. `capturable` is True if its
    training steps can be captured as a CUDA graph: all steps run the same kernels, transfer no values to the CPU and
    use no randomness. `input_description` describes valid inputs in error messages.

    Shape: (B, ...), or (B, M, ...) with separate rows for each network -> (B, M, output_dim).

    Parameters
    ----------
    make : callable
        A function without arguments that builds a network. Every call must return a new network, with random weights or
        a copy of pretrained weights.
    n_networks : int
        M, the number of networks.
    row_axes : int
        The number of axes of a row: 1 for a vector, 3 for an image.
    output_dim : int, optional
        The number of features that a network returns. Required if the list is used as a backbone.

    Examples
    --------
    >>> NetworkList(lambda: nn.Linear(3, 2), n_networks=5)(torch.zeros(4, 3)).shape
    torch.Size([4, 5, 2])
    """

    @torch.inference_mode(False)
    def __init__(
        self, make: Callable[[], nn.Module], n_networks: int, *, row_axes: int = 1, output_dim: int | None = None
    ) -> None:
        super().__init__(make() for _ in range(check_integer("n_networks", n_networks, minimum=1)))
        self._make, self._row_axes = make, row_axes
        if output_dim is not None:  # a subclass may set it for all of its objects
            self.output_dim = output_dim
        weights = [id(p) for network in self for p in network.parameters() if p.requires_grad]
        if len(set(weights)) < len(weights):
            reason = "but some networks share weights"
            raise ConfigError(f"make must build a new network at every call, {reason}. Build all layers inside make.")

    @property
    def n_networks(self) -> int:
        """The number of networks."""
        return len(self)

    def reset(self, generators: Sequence[torch.Generator]) -> None:
        """Draw new weights.

        Parameters
        ----------
        generators : sequence of torch.Generator
            One random generator per network.
        """
        check_seeds(generators, len(self))
        for network, generator in zip(self, generators, strict=True):
            # Other libraries draw from torch's global generator, which is restored afterwards.
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(int(torch.randint(2**62, (), generator=generator)))
                network.load_state_dict(self._make().state_dict())

    def forward(self, x: Tensor) -> Tensor:
        check_rows(x, self._row_axes, getattr(self[0], "input_description", None), len(self))
        has_network_rows = x.dim() == self._row_axes + 2
        network_rows = x.unbind(1) if has_network_rows else [x] * len(self)
        return torch.stack([network(rows) for network, rows in zip(self, network_rows, strict=True)], dim=1)


class MLP(nn.Module):
    """A backbone of M multilayer perceptrons (Appendix B of the paper), for tables.

    Shape: (B, n_in), or (B, M, n_in) with separate rows for each network -> (B, M, hidden[-1]).

    Parameters
    ----------
    n_in : int
        The number of inputs.
    hidden : sequence of int
        The widths of the layers. With (), the features are the inputs themselves, so the networks are linear models.
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
        widths = [n_in, *check_widths("hidden", hidden, min_layers=0)]
        self.n_networks = check_integer("n_networks", n_networks, minimum=1)
        self.layers = nn.ModuleList(Linear(a, b, n_networks) for a, b in pairwise(widths))
        self.output_dim = widths[-1]
        self.activation = activation

    def reset(self, generators: Sequence[torch.Generator]) -> None:
        """Draw new weights, using one random generator per network."""
        for layer in self.layers:
            cast(Linear, layer).reset(generators)

    def extra_repr(self) -> str:
        return f"activation={self.activation}"

    def forward(self, x: Tensor) -> Tensor:
        activation = ACTIVATIONS[self.activation]
        check_rows(x, 1, n_networks=self.n_networks)
        rows = put_networks_first(x, self.n_networks)
        for layer in self.layers:
            rows = activation(cast(Linear, layer).transform_rows(rows))
        return rows.transpose(0, 1)


class Frozen(nn.Module):
    """A wrapper around a network that is not trained: it has no gradients and stays in evaluation mode.

    Shape: (B, ...) -> (B, ...), or (B, M, ...) with separate rows for each of M networks -> (B, M, ...). `network` maps
    a batch of rows (B, ...) to outputs (B, ...). `row_axes` is the number of axes of a row, without the batch: 1 for a
    vector, 3 for an image.
    """

    def __init__(self, network: nn.Module, row_axes: int) -> None:
        super().__init__()
        self.network = network.requires_grad_(False).eval()
        self.row_axes = row_axes

    def train(self, mode: bool = True) -> "Frozen":
        """Keep the network in evaluation mode, whatever `mode` is."""
        return super().train(False)

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        check_rows(x, self.row_axes, getattr(self.network, "input_description", None))
        if x.dim() == self.row_axes + 1:
            return self.network(x)
        return self.network(x.flatten(0, 1)).unflatten(0, x.shape[:2])


# Checks of networks' arguments ---------------------------------------------------------------------------------------
# Only type, shape and dtype of inputs are checked, because reading values would make a GPU wait.


def check_seeds(seeds: Sized, n_networks: int) -> None:
    """Raise a `ConfigError` unless there is one seed (or random generator) per network."""
    if len(seeds) != n_networks:
        raise ConfigError(f"seeds must have one entry per network ({n_networks}), got {len(seeds)}.")


def check_widths(name: str, widths: object, min_layers: int = 1) -> tuple[int, ...]:
    """Validate layer widths and return them as a tuple of integers.

    Raise a `ConfigError` if there are fewer than `min_layers` widths or if one is not a positive integer. `name` is the
    name of the argument in the message.
    """
    layer_widths = tuple(widths) if isinstance(widths, Iterable) else (None,)
    if len(layer_widths) < min_layers or not all(is_integer(width) and width >= 1 for width in layer_widths):
        raise ConfigError(f"{name} must list integers of at least 1, such as (128, 64), got {widths!r:.40}.")
    return tuple(int(width) for width in layer_widths)


def put_networks_first(x: Tensor, n_networks: int) -> Tensor:
    """Move the axis of networks to the front; rows that all networks share are repeated for each, without copying.

    Shape: (B, n_in), or (B, M, n_in) with separate rows for each network -> (M, B, n_in).
    """
    return x.unsqueeze(0).expand(n_networks, -1, -1) if x.dim() == 2 else x.transpose(0, 1)


def check_rows(x: Any, row_axes: int, input_description: str | None = None, n_networks: int | None = None) -> None:
    """Raise an `InputError` unless `x` is a batch of rows, where a row has `row_axes` axes.

    `x` may have a second axis for networks. If `n_networks` is given, this axis must have that length.
    `input_description` describes valid inputs in the message.
    """
    axes = x.dim() - row_axes if isinstance(x, Tensor) else 0
    if axes == 1 or (axes == 2 and n_networks in (None, x.shape[1])):
        return
    if axes == 2:
        raise InputError(f"x must have {n_networks} networks on its second axis, got shape {tuple(x.shape)}.")
    got = f"shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
    sizes = ", ".join(f"d{axis}" for axis in range(1, row_axes + 1))
    expected = f"a tensor of shape (rows, {sizes}), or (rows, networks, {sizes}) if each network has its own rows"
    raise InputError(f"x must be {input_description or expected}, got {got}.")


def check_dtype(x: Tensor, weight: Tensor) -> None:
    """Raise an `InputError` if the inputs `x` and the weights differ in dtype.

    Under autocast, all floating-point dtypes are valid, because they are converted.
    """
    if x.dtype != weight.dtype and not (x.is_floating_point() and torch.is_autocast_enabled(x.device.type)):
        raise InputError(f"x must be {weight.dtype} like the weights, got {x.dtype}.")
