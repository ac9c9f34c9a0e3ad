"""Distributions of counts that are bounded, or recorded only up to a limit, row by row as a `Sample` says."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ddpn.distributions.censored import Censored
from ddpn.distributions.truncated import Truncated
from ddpn.sample import Sample

Bound = Tensor | np.ndarray | float | None


def bounded(dist: Any, lower: Bound, upper: Bound) -> Any:
    """The distributions, given that counts are at least `lower` and at most `upper`; None is no bound.

    Shape: dist (N,) or (N, k); bounds (N,), a number, or tensors that broadcast.
    """
    if lower is None and upper is None:
        return dist
    return Truncated(dist, 0 if lower is None else _beside(lower, dist), _beside(upper, dist), validate_args=False)


def as_recorded(dist: Any, sample: Sample) -> Any:
    """The distributions of the counts of a sample as they are recorded: between its bounds, and at most its limits.

    A count equal to the limit then stands for that many or more: `log_prob` is the likelihood of a right-censored
    count, and `crps` compares cdfs below the limit only.
    """
    return limited(bounded(dist, sample.lower, sample.upper), sample.limit)


def limited(dist: Any, limit: Bound) -> Any:
    """The distributions of counts that are recorded up to a limit per row, see `Censored`; None is no limit.

    Shape: as in `bounded`.
    """
    return dist if limit is None else Censored(dist, _beside(limit, dist), validate_args=False)


def _beside(bound: Bound, dist: Any) -> Any:
    """A vector as a tensor that broadcasts with distributions per row, or per row and member."""
    if not isinstance(bound, np.ndarray):
        return bound
    return torch.from_numpy(bound).reshape(-1, *[1] * (len(dist.batch_shape) - 1))
