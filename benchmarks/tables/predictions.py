"""Predictions of other packages as count distributions of `ddpn`, so that all are scored in the same way.

If a package predicts the parameters of a family, they are used directly. Quantiles become a distribution as follows:
the predicted quantiles of a row are sorted (so that they do not cross), values below 0 become 0, and the points
(quantile, level) are joined by straight lines to a cumulative distribution function. The mass of [k - 1/2, k + 1/2) is
assigned to the count k, as for any continuous prediction; the mass below the first level is assigned to the first
quantile and that above the last level to the last quantile. With exact quantiles of a count distribution, in which
every integer is repeated for each of its levels, the result differs from that distribution by at most half a step
between levels. Because no mass is left outside, the negative log-likelihood is not defined.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ddpn.distributions import DoublePoisson, NegativeBinomial, Poisson
from ddpn.distributions.count import CountDistribution

#: Families by name: the class, and its parameters in order.
FAMILIES: dict[str, tuple[Any, tuple[str, ...]]] = {
    "poisson": (Poisson, ("mean",)),
    "negative_binomial": (NegativeBinomial, ("mean", "alpha")),
    "double_poisson": (DoublePoisson, ("mean", "gamma")),
}


class CountTable(CountDistribution):
    """Any distribution on consecutive counts per row, given by its probabilities.

    Parameters
    ----------
    first : Tensor
        The smallest count of each row. Shape: (rows,).
    pmf : Tensor
        Probabilities of `first`, `first` + 1, ... Shape: (rows, counts).
    """

    def __init__(self, first: Tensor, pmf: Tensor) -> None:
        self.first, self.pmf = first, pmf
        super().__init__(first.shape)

    def log_prob(self, value: Tensor) -> Tensor:
        value, first = torch.broadcast_tensors(torch.as_tensor(value, dtype=self.pmf.dtype), self.first)
        offset = (value - first).long()
        inside = (offset >= 0) & (offset < self.pmf.shape[-1])
        pmf = self.pmf.expand(*value.shape, -1)
        probability = pmf.gather(-1, offset.clamp(0, self.pmf.shape[-1] - 1).unsqueeze(-1)).squeeze(-1)
        return torch.where(inside, probability, 0.0).log()

    def bracket(self, depth: float) -> tuple[Tensor, Tensor]:
        steps = torch.arange(self.pmf.shape[-1], dtype=self.pmf.dtype)
        last = torch.where(self.pmf > 0, steps, 0.0).amax(-1)
        return self.first, self.first + last

    def rows(self, index: Any) -> "CountTable":
        return CountTable(self.first[index], self.pmf[index])


def from_quantiles(levels: np.ndarray, quantiles: np.ndarray) -> CountTable:
    """Make distributions from quantiles. Shape: levels (m,), quantiles (rows, m)."""
    points = np.maximum(np.sort(np.asarray(quantiles, dtype=float), axis=1), 0.0)
    if not np.isfinite(points).all():
        raise ValueError("Quantiles must be finite.")
    first = np.floor(points[:, 0] + 0.5)
    width = int((np.floor(points[:, -1] + 0.5) - first).max()) + 1
    cdf = np.empty((len(points), width))
    for i, row in enumerate(points):
        # Between equal quantiles np.interp takes the last level: an integer that many levels share gets all their mass.
        edges = first[i] + np.arange(width) + 0.5
        cdf[i] = np.interp(edges, row, levels, left=levels[0], right=1.0)
        cdf[i, edges >= row[-1]] = 1.0
    pmf = np.diff(cdf, axis=1, prepend=0.0)
    return CountTable(torch.from_numpy(first), torch.from_numpy(pmf))


def read_prediction(path: Path) -> tuple[Any, bool]:
    """Read the distributions in a file of an adapter; return them and True if they have a likelihood."""
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    if "quantiles" in arrays:
        return from_quantiles(arrays["levels"], arrays["quantiles"]), False
    family, names = FAMILIES[str(arrays["family"])]
    return family(*(torch.from_numpy(np.asarray(arrays[name], dtype=float)) for name in names)), True
