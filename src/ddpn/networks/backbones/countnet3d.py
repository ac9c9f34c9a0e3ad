"""The CountNet3D backbone (Appendix B of the paper) for point clouds: a PointNet for each beam.

A beam is a set of points with a geometry class. It is packed into a float32 matrix with 2 + N rows for N points, and 4
columns. Row 0 is [geometry class, centre x, y, z], and row 1 is [0, extent x, y, z], where centre and extent describe
the box around all visible points. Every other row is a point [1, x, y, z] or padding (zeros). A batch of B beams has
shape (B, 2 + N, 4).
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn

from ddpn.networks.backbones.layers import MLP, Linear, check_dtype, check_rows, check_widths
from ddpn.runtime.errors import InputError
from ddpn.runtime.validation import check_integer

#: The width of the embedding of the class.
_EMBEDDING_WIDTH = 16
#: Lengths within a beam are divided by this, in metres, so that products have sizes around 1. The centre, some metres
#: away, is not rescaled.
_UNIT_METRES = 0.1
#: The most numbers in the widest layer of points when no gradients are kept: 256 MiB in float32.
_MAX_FEATURES = 2**26
_BEAMS = "a tensor of packed beams (B, 2 + N, 4), or (B, M, 2 + N, 4) with beams of each network"


class CountNet3D(nn.Module):
    """A backbone of M networks for packed beams of N points.

    Shape: (B, 2 + N, 4), or (B, M, 2 + N, 4) with separate beams for each network -> (B, M, hidden[-1]).

    Every point, relative to the centre of its beam, is encoded by layers of the given `widths`. Each feature is then
    replaced by its maximum over all points, which depends neither on their order nor on padding. These maxima are
    concatenated with an embedding of the geometry class, the centre and the extent, and passed through a perceptron
    with `hidden` widths.

    Parameters
    ----------
    n_classes : int
        The number of geometry classes.
    n_networks : int
        M, the number of networks.
    widths : sequence of int
        The widths of the layers that encode points.
    hidden : sequence of int
        The widths of the perceptron.

    Examples
    --------
    >>> CountNet3D(n_classes=4, widths=(8, 16), hidden=(8,), n_networks=5)(torch.zeros(2, 2 + 64, 4)).shape
    torch.Size([2, 5, 8])
    """

    # No batch normalisation: its statistics would mix padding, networks and rows.

    def __init__(
        self,
        *,
        n_classes: int,
        n_networks: int = 1,
        widths: Sequence[int] = (64, 128, 1024),
        hidden: Sequence[int] = (512, 256),
    ) -> None:
        super().__init__()
        check_integer("n_classes", n_classes, minimum=1)
        widths = check_widths("widths", widths)
        self.n_networks, self.n_classes = n_networks, n_classes
        self.points = nn.ModuleList(Linear(a, b, n_networks) for a, b in pairwise([3, *widths]))
        self.embedding = Linear(n_classes, _EMBEDDING_WIDTH, n_networks)
        self.mlp = MLP(n_in=widths[-1] + _EMBEDDING_WIDTH + 6, hidden=hidden, n_networks=n_networks)
        self.output_dim = self.mlp.output_dim

    def reset(self, generators: Sequence[torch.Generator]) -> None:
        """Draw new weights, using one random generator per network."""
        for layer in (*self.points, self.embedding, self.mlp):
            cast(Linear, layer).reset(generators)

    def forward(self, x: Tensor) -> Tensor:
        self._check(x)
        rows = x.unsqueeze(1).expand(-1, self.n_networks, -1, -1) if x.dim() == 3 else x
        centre, extent = rows[:, :, 0, 1:], rows[:, :, 1, 1:] / _UNIT_METRES
        one_hot = (rows[:, :, 0, :1] == torch.arange(self.n_classes, device=rows.device)).to(rows.dtype)
        beam_features = [self.embedding(one_hot), centre, extent]
        return self.mlp(torch.cat([self._pool_points(rows), *beam_features], dim=-1))

    def _check(self, x: Tensor) -> None:
        check_rows(x, 2, _BEAMS, self.n_networks)
        if x.shape[-1] != 4 or x.shape[-2] < 2:
            raise InputError(f"x must be {_BEAMS}, got shape {tuple(x.shape)}.")
        check_dtype(x, self.embedding.weight)
        # A training step on a GPU may be captured as a CUDA graph, which must not read values.
        if x.device.type == "cpu" or not self.training or not torch.is_grad_enabled():
            classes = x[..., 0, 0].flatten()
            unknown = ((classes < 0) | (classes >= self.n_classes) | (classes != classes.floor())).nonzero()
            if len(unknown):
                unknown_class = float(classes[unknown[0, 0]])
                raise InputError(f"x must hold geometry classes 0 to {self.n_classes - 1}, got {unknown_class:g}.")

    def _pool_points(self, rows: Tensor) -> Tensor:
        """Encode the points of each beam, and take the maximum of each feature over the points of the beam.

        `rows` has B packed beams for each of M networks. A packed beam has 2 rows with the geometry class, the centre
        and the extent of the beam, and then N rows with one point or padding each (see the module). The extent, the
        class and padding are ignored. The maximum is 0 for a beam without points.

        Shape: (B, M, 2 + N, 4) -> (B, M, widths[-1]).
        """
        if torch.is_grad_enabled():
            return self._encode_points(rows)
        # Thousands of beams may be predicted at once, so point features are computed for a few beams at a time.
        largest = max(cast(Linear, layer).weight.shape[2] for layer in self.points)
        size = max(1, _MAX_FEATURES // (largest * rows.shape[1] * rows.shape[2]))
        return torch.cat([self._encode_points(part) for part in rows.split(size)])

    def _encode_points(self, rows: Tensor) -> Tensor:
        beams, n_networks, n = len(rows), rows.shape[1], rows.shape[2] - 2
        offsets = (rows[:, :, 2:, 1:] - rows[:, :, :1, 1:]) / _UNIT_METRES
        # The layers take (rows, M, features), and each point is a row.
        features = offsets.transpose(1, 2).reshape(beams * n, n_networks, 3)
        for layer in self.points[:-1]:
            features = torch.relu_(layer(features))
        is_padding = (rows[:, :, 2:, :1] == 0).transpose(1, 2)
        features = self.points[-1](features)
        if n == 0:
            return features.new_zeros(beams, n_networks, features.shape[-1])
        features = features.view(beams, n, n_networks, features.shape[-1]).masked_fill_(is_padding, -torch.inf)
        # relu comes after the maximum: it has fewer values then, and turns -inf into 0.
        return torch.relu(features.max(1).values)
