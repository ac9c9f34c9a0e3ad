"""`CountModel`: a backbone, a linear projection and a head, which predict one distribution per row and network."""

from collections.abc import Sequence
from typing import Protocol, cast

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from ddpn.distributions import Mixture
from ddpn.networks.backbones import MLP, NetworkList
from ddpn.networks.backbones.layers import Linear, check_seeds, make_generators
from ddpn.networks.backbones.packed import holds_table_rows
from ddpn.networks.heads import Head
from ddpn.runtime.errors import ConfigError
from ddpn.runtime.validation import check_integer, refuse_old_names


class Backbone(Protocol):
    """The protocol of backbones: modules of M networks that map inputs (B, ...) to features (B, M, output_dim)."""

    output_dim: int

    def __call__(self, x: Tensor) -> Tensor: ...

    def reset(self, generators: Sequence[torch.Generator]) -> None:
        """Draw new weights.

        Parameters
        ----------
        generators : sequence of torch.Generator
            One random generator per network.
        """


class Projection(Linear):
    """M linear layers that map the features of each network to the raw outputs of a head, such as log mu.

    `projection_inputs` has one entry per raw output: "features" for the usual linear map, "detached" for features whose
    gradient is blocked (as for the variance in Stirn et al., 2023), or "constant" for a bias alone, which all rows
    share.

    Shape: (B, M, n_in) -> (B, M, len(projection_inputs)).
    """

    @torch.inference_mode(False)
    def __init__(self, n_in: int, projection_inputs: Sequence[str], n_networks: int) -> None:
        super().__init__(n_in, len(projection_inputs), n_networks)
        self._any_detached, self._any_constant = "detached" in projection_inputs, "constant" in projection_inputs
        for name in ("detached", "constant"):
            self.register_buffer(
                f"_{name}", torch.tensor([source == name for source in projection_inputs]), persistent=False
            )

    def forward(self, x: Tensor) -> Tensor:
        rows = x.transpose(0, 1)
        raw = torch.baddbmm(self.bias, rows, self.weight)
        if self._any_detached:
            raw = torch.where(cast(Tensor, self._detached), torch.baddbmm(self.bias, rows.detach(), self.weight), raw)
        if self._any_constant:
            raw = torch.where(cast(Tensor, self._constant), self.bias, raw)
        return raw.transpose(0, 1)


@refuse_old_names(sees="projection_inputs")
class CountModel(nn.Module):
    """M networks, each with a backbone, a linear projection and a head, computed at once.

    Calling the model with inputs, and optionally with the exposure of each row, (B,), returns a distribution of batch
    shape (B, M). Shape of the inputs: (B, ...), or (B, M, ...) with separate rows for each network.

    Parameters
    ----------
    backbone : torch.nn.Module
        Maps inputs to features, see `Backbone`.
    head : Head
        Maps the raw outputs of the projection to a distribution.
    n_networks : int
        M, the number of networks. The backbone must have the same number.
    projection_inputs : sequence of str, optional
        For each raw output, how it depends on the features, see `Projection`. Default: `head.projection_inputs`.

    Examples
    --------
    >>> from ddpn.networks.backbones import MLP
    >>> from ddpn.networks.heads import make_head
    >>> model = CountModel(MLP(n_in=3, hidden=(8,), n_networks=5), make_head("double_poisson"), n_networks=5)
    >>> model.reset(seeds=range(5))
    >>> model.mixture(torch.zeros(4, 3)).mean.shape
    torch.Size([4])
    """

    def __init__(
        self, backbone: nn.Module, head: Head, n_networks: int, projection_inputs: Sequence[str] | None = None
    ) -> None:
        super().__init__()
        check_integer("n_networks", n_networks, minimum=1)
        _check_backbone(backbone, n_networks)
        if not isinstance(head, Head):
            raise ConfigError(f"head must be a Head, got {head!r}. Use ddpn.networks.heads.make_head(name).")
        self.backbone, self.head, self.n_networks = backbone, head, n_networks
        self.projection = Projection(
            cast(Backbone, backbone).output_dim, projection_inputs or head.projection_inputs, n_networks
        )
        self._largest_weight = max(weight.numel() for weight in self.parameters())

    def reset(self, seeds: Sequence[int], start: Tensor | None = None) -> None:
        """Draw new weights.

        Parameters
        ----------
        seeds : sequence of int
            One seed per network.
        start : Tensor, shape (n_raw,) or (M, 1, n_raw), optional
            The raw outputs of an intercept-only fit (`Head.start`), for all networks or for each of them. They become
            the biases of the projection. The weights of the projection are divided by ten, so that the first
            predictions are close to this fit.
        """
        generators = make_generators(seeds)
        check_seeds(generators, self.n_networks)
        cast(Backbone, self.backbone).reset(generators)
        self.projection.reset(generators)
        if start is not None:
            with torch.no_grad():
                self.projection.bias.copy_(start.to(self.projection.bias))
                self.projection.weight.mul_(0.1)

    def with_backbone(self, backbone: nn.Module) -> "CountModel":
        """Return a model with another backbone. Both models share the head and the projection, including its weights.

        Parameters
        ----------
        backbone : torch.nn.Module
            A backbone that returns the same number of features.
        """
        model = CountModel(backbone, self.head, self.n_networks)
        model.projection = self.projection
        return model

    def raw(self, x: Tensor) -> Tensor:
        """Compute the raw outputs, the inputs of the head, for each row and network. Shape: (B, M, n_raw).

        Parameters
        ----------
        x : Tensor
            Inputs, (B, ...), or (B, M, ...) with separate rows for each network.
        """
        backbone = cast(Backbone, self.backbone)
        features = backbone(x)
        if features.shape[1:] != (self.n_networks, backbone.output_dim):
            expected_shape = f"(B, {self.n_networks}, {backbone.output_dim}) by its n_networks and output_dim"
            raise ConfigError(f"backbone must return features of shape {expected_shape}, got {tuple(features.shape)}.")
        return self.projection(features)

    def estimate_multiply_adds(self, x: Tensor) -> float:
        """Estimate the multiply-adds of the largest matrix product for a batch `x`, to choose a number of threads.

        For rows of a table, this is the number of rows times the number of weights in the largest matrix. For other
        inputs it is infinity, because their networks apply the same weights at many positions.
        """
        return len(x) * self._largest_weight if holds_table_rows(x) else float("inf")

    def forward(self, x: Tensor, exposure: Tensor | None = None) -> Distribution:
        return self.head(self.raw(x), None if exposure is None else exposure.unsqueeze(-1))

    def mixture(self, x: Tensor, exposure: Tensor | None = None) -> Mixture:
        """Predict the distribution of each row: the mixture of all networks with equal weights. Batch shape: (B,).

        Parameters
        ----------
        x : Tensor
            Inputs, (B, ...).
        exposure : Tensor, shape (B,), optional
            The exposure of each row, such as days observed, which multiplies the location.
        """
        return Mixture(self(x, exposure))


def _check_backbone(backbone: nn.Module, n_networks: int) -> None:
    """Raise an error if a backbone lacks `output_dim` or `reset`, or if its number of networks is not `n_networks`."""
    name = f"backbone {backbone.__class__.__name__}"
    check_integer(f"output_dim of {name}, the width of its features,", getattr(backbone, "output_dim", None), minimum=1)
    if not callable(getattr(backbone, "reset", None)):
        raise ConfigError(
            f"{name} must have a method reset(generators) that draws weights, one random generator per network."
        )
    for module in backbone.modules():
        if isinstance(module, NetworkList | Linear | MLP) and module.n_networks != n_networks:
            raise ConfigError(f"n_networks must be {module.n_networks} as in the backbone, got {n_networks}.")
