"""`CountModel`: a backbone, a projection and a head give a count distribution per row and network."""

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
    """Protocol of networks that map inputs (B, ...) to features (B, M, output_dim)."""

    output_dim: int

    def __call__(self, x: Tensor) -> Tensor: ...

    def reset(self, streams: Sequence[torch.Generator]) -> None:
        """Draw fresh weights.

        Parameters
        ----------
        streams : sequence of torch.Generator
            One random stream per network.
        """


class Projection(Linear):
    """Linear map from features to raw outputs; `sees` says what each raw output depends on.

    An entry of `sees` is "features", "detached" (features without gradient, as for the variance of a faithful Gaussian)
    or "constant" (one number for all rows).

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
    """Backbone, projection and head, of M networks at once.

    Shape: x (B, F), or (B, M, F) with rows per network; `raw` (B, M, P); `forward` makes a distribution (B, M).

    Parameters
    ----------
    backbone : torch.nn.Module
        A network from inputs to features, see `Backbone`.
    head : Head
        From raw outputs to a distribution.
    n_networks : int
        M, the number of networks, which is that of the backbone.
    sees : sequence of str, optional
        What each raw output depends on, see `Projection`. Default: that of the head.

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
        """Draw fresh weights.

        Parameters
        ----------
        seeds : sequence of int
            One seed per network.
        start : Tensor, shape (P,) or (M, 1, P), optional
            The head's intercept-only fit, or one per network, which becomes the bias. The first predictions are then
            close to those of the intercept: the projection's weights are a tenth as large.
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
        """Return a model with another backbone, which has the head and the projection of this one: weights are shared.

        Parameters
        ----------
        backbone : torch.nn.Module
            A network whose features are as wide.
        """
        model = CountModel(backbone, self.head, self.n_networks)
        model.projection = self.projection
        return model

    def raw(self, x: Tensor) -> Tensor:
        """Compute raw outputs before any link. Shape: (B, M, P).

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

        Each row of a table meets each weight once; networks for other inputs apply theirs at many places: infinity.
        """
        return len(x) * self._largest_weight if holds_table_rows(x) else float("inf")

    def forward(self, x: Tensor, exposure: Tensor | None = None) -> Distribution:
        return self.head(self.raw(x), None if exposure is None else exposure.unsqueeze(-1))

    def mixture(self, x: Tensor, exposure: Tensor | None = None) -> Mixture:
        """Predict with the ensemble: the uniform mixture of its networks. Shape: batch (B,).

        Parameters
        ----------
        x : Tensor
            Inputs, (B, ...).
        exposure : Tensor, shape (B,), optional
            The known scale of each row.
        """
        return Mixture(self(x, exposure))


def _check_backbone(backbone: nn.Module, n_networks: int) -> None:
    """Raise an error if a backbone is invalid, as far as this shows before it sees a row."""
    name = f"backbone {backbone.__class__.__name__}"
    check_integer(f"output_dim of {name}, the width of its features,", getattr(backbone, "output_dim", None), minimum=1)
    if not callable(getattr(backbone, "reset", None)):
        raise ConfigError(
            f"{name} must have a method reset(streams) that draws weights, one random stream per network."
        )
    for module in backbone.modules():
        if isinstance(module, NetworkList | Linear | MLP) and module.n_networks != n_networks:
            raise ConfigError(f"n_networks must be that of the backbone, {module.n_networks}, got {n_networks}.")
