"""Distributions of some rows, over counts, and of ranges of counts."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from ddpn.distributions import CountDistribution, Mixture, discretized
from ddpn.errors import InputError
from ddpn.metrics.predictive import known


def count_distribution(name: str, dist: Distribution, rows: int) -> Any:
    """A baseline as a count distribution per row: a Normal is rounded, a single distribution serves every row."""
    shape = tuple(known(dist).batch_shape)
    if shape not in ((), (1,), (rows,)):
        raise InputError(f"baseline '{name}' must have one distribution per row of X ({rows}), got batch {shape}.")
    return discretized(dist if shape == (rows,) else dist.expand((rows,)))


def rows_of(law: Any, index: Tensor) -> Any:
    """The distributions of these rows, the first axis of the batch.

    >>> import torch
    >>> from ddpn.distributions import Poisson
    >>> rows_of(Poisson(torch.tensor([1.0, 2.0, 3.0])), torch.tensor([2, 0])).mean
    tensor([3., 1.])
    """
    if isinstance(law, CountDistribution | Mixture):
        return law.rows(index)
    parameters = {name: getattr(law, name).expand(law.batch_shape)[index] for name in law.arg_constraints}
    return type(law)(**parameters, validate_args=False)


def bin_probabilities(dist: Any, edges: np.ndarray) -> np.ndarray:
    """Probability of the counts from edges[i] to edges[i + 1] - 1. Shape: (bins, rows)."""
    upto = torch.from_numpy(edges - 1.0).unsqueeze(1)
    return np.diff(torch.where(upto < 0, 0.0, dist.cdf(upto.clamp(min=0.0))).numpy(), axis=0)
