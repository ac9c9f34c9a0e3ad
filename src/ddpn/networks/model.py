"""`CountModel`: a backbone, a projection and a head, which predict a count distribution per row and network."""

from collections.abc import Sequence
from typing import Protocol, cast

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from ddpn.distributions import Mixture
from ddpn.networks.backbones import MLP, NetworkList
from ddpn.networks.backbones.members import Linear, check_seeds, make_generators
from ddpn.networks.backbones.packed import holds_table_rows
from ddpn.networks.heads import Head
from ddpn.runtime.errors import ConfigError
from ddpn.runtime.validation import check_integer


class Backbone(Protocol):
    """The protocol of M networks that turn inputs (B, ...) into features (B, M, output_dim)."""

    output_dim: int

    def __call__(self, x: Tensor) -> Tensor: ...

    def reset(self, streams: Sequence[torch.Generator]) -> None:
        """Draw new weights.

        Parameters
        ----------
        streams : sequence of torch.Generator
            One random generator per network.
        """


class Projection(Linear):
    """A linear map from the F features of M networks to P raw outputs.

    `sees` has an entry per raw output, which says what it is computed from: "features", "detached" (features without
    gradient, as for the variance of a faithful Gaussian) or "constant" (one number for all rows).

    Shape: (B, M, F) -> (B, M, P).
    """

    @torch.inference_mode(False)
    def __init__(self, n_in: int, sees: Sequence[str], n_networks: int) -> None:
        super().__init__(n_in, len(sees), n_networks)
        self._any_detached, self._any_constant = "detached" in sees, "constant" in sees
        for name in ("detached", "constant"):
            self.register_buffer(f"_{name}", torch.tensor([what == name for what in sees]), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.transpose(0, 1)
        raw = torch.baddbmm(self.bias, rows, self.weight)
        if self._any_detached:
            raw = torch.where(cast(Tensor, self._detached), torch.baddbmm(self.bias, rows.detach(), self.weight), raw)
        if self._any_constant:
            raw = torch.where(cast(Tensor, self._constant), self.bias, raw)
        return raw.transpose(0, 1)


class CountModel(nn.Module):
    """A backbone, a projection and a head for M networks at once.

    Shape: x (B, F), or (B, M, F) with separate rows for each network; `raw` (B, M, P); `forward` returns a distribution
    (B, M).

    Parameters
    ----------
    backbone : torch.nn.Module
        Turns inputs into features, see `Backbone`.
    head : Head
        Turns raw outputs into a distribution.
    n_networks : int
        M, the number of networks. It must equal the number in the backbone.
    sees : sequence of str, optional
        What each raw output is computed from, see `Projection`. Default: `head.sees`.

    Examples
    --------
    >>> from ddpn.networks.backbones import MLP
    >>> from ddpn.networks.heads import make_head
    >>> model = CountModel(MLP(n_in=3, hidden=(8,), n_networks=5), make_head("double_poisson"), n_networks=5)
    >>> model.reset(seeds=range(5))
    >>> model.mixture(torch.zeros(4, 3)).mean.shape
    torch.Size([4])
    """

    def __init__(self, backbone: nn.Module, head: Head, n_networks: int, sees: Sequence[str] | None = None) -> None:
        super().__init__()
        check_integer("n_networks", n_networks, minimum=1)
        _check_backbone(backbone, n_networks)
        if not isinstance(head, Head):
            raise ConfigError(f"head must be a Head, got {head!r}. Use ddpn.networks.heads.make_head(name).")
        self.backbone, self.head, self.n_networks = backbone, head, n_networks
        self.projection = Projection(cast(Backbone, backbone).output_dim, sees or head.sees, n_networks)
        self._largest_weight = max(weight.numel() for weight in self.parameters())

    def reset(self, seeds: Sequence[int], start: Tensor | None = None) -> None:
        """Draw new weights.

        Parameters
        ----------
        seeds : sequence of int
            One seed per network.
        start : Tensor, shape (P,) or (M, 1, P), optional
            The head's fit without features, for all networks or for each of them. It becomes the bias, and the weights
            of the projection are divided by ten, so that the first predictions are close to this fit.
        """
        streams = make_generators(seeds)
        check_seeds(streams, self.n_networks)
        cast(Backbone, self.backbone).reset(streams)
        self.projection.reset(streams)
        if start is not None:
            with torch.no_grad():
                self.projection.bias.copy_(start.to(self.projection.bias))
                self.projection.weight.mul_(0.1)

    def with_backbone(self, backbone: nn.Module) -> "CountModel":
        """Return a model with another backbone that shares the head and the projection with this one.

        Parameters
        ----------
        backbone : torch.nn.Module
            A backbone that returns the same number of features.
        """
        model = CountModel(backbone, self.head, self.n_networks)
        model.projection = self.projection
        return model

    def raw(self, x: Tensor) -> Tensor:
        """Compute the raw outputs of every row and network, to which the head applies its links. Shape: (B, M, P).

        Parameters
        ----------
        x : Tensor
            Inputs, (B, ...) or (B, M, ...).
        """
        backbone = cast(Backbone, self.backbone)
        features = backbone(x)
        if features.shape[1:] != (self.n_networks, backbone.output_dim):
            expected_shape = f"(B, {self.n_networks}, {backbone.output_dim}) by its n_networks and output_dim"
            raise ConfigError(f"backbone must return features of shape {expected_shape}, got {tuple(features.shape)}.")
        return self.projection(features)

    def multiply_adds(self, x: Tensor) -> float:
        """Estimate the multiply-adds of the largest operation on these rows, for `threads_for`. Shape: x (B, ...).

        For tables, each row meets each weight once. Networks for other inputs apply their weights at many positions, so
        the estimate is infinity.
        """
        return len(x) * self._largest_weight if holds_table_rows(x) else float("inf")

    def forward(self, x: Tensor, exposure: Tensor | None = None) -> Distribution:
        return self.head(self.raw(x), None if exposure is None else exposure.unsqueeze(-1))

    def mixture(self, x: Tensor, exposure: Tensor | None = None) -> Mixture:
        """Predict the distribution of every row: the mixture of all networks with equal weights. Batch shape: (B,).

        Parameters
        ----------
        x : Tensor
            Inputs, (B, ...).
        exposure : Tensor, shape (B,), optional
            The known scale of each row.
        """
        return Mixture(self(x, exposure))


def _check_backbone(backbone: nn.Module, n_networks: int) -> None:
    """Raise an error if a backbone is invalid, as far as that shows without computing features."""
    name = f"backbone {backbone.__class__.__name__}"
    check_integer(f"output_dim of {name}, the width of its features,", getattr(backbone, "output_dim", None), minimum=1)
    if not callable(getattr(backbone, "reset", None)):
        raise ConfigError(
            f"{name} must have a method reset(streams) that draws weights, one random stream per network."
        )
    for module in backbone.modules():
        if isinstance(module, NetworkList | Linear | MLP) and module.n_networks != n_networks:
            raise ConfigError(f"n_networks must be {module.n_networks} as in the backbone, got {n_networks}.")
