"""Right-censored counts: min(Z, limit), where a count equal to the limit stands for that many or more."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ddpn.distributions.arguments import broadcast_shapes
from ddpn.distributions.components import Summaries
from ddpn.distributions.count import CountDistribution
from ddpn.distributions.gradients import without_gradient
from ddpn.distributions.range_mass import log_mass
from ddpn.distributions.stacking import reshaped, rows_of
from ddpn.runtime.errors import InputError


class Censored(CountDistribution):
    """The distribution of min(Z, limit), a count that is recorded as "limit or more" beyond a limit.

    `log_prob` is the likelihood of a right-censored count, `crps` the threshold-weighted score of Gneiting and Ranjan
    (2011), which compares cdfs below the limit only; both are proper where limits do not depend on the counts.

    Parameters
    ----------
    base : CountDistribution
        The distribution of Z, or a `Mixture` of count distributions.
    limit : Tensor or float
        The largest count that can be recorded, at least 0; infinite for counts that are known exactly. Broadcasts with
        the batch shape of `base`.
    validate_args : bool, optional
        Whether values are checked. Default: only on a CPU.

    Examples
    --------
    >>> from ddpn.distributions import Poisson
    >>> visits = Censored(Poisson(torch.tensor(8.0, dtype=torch.float64)), limit=10)  # "10 or more"
    >>> visits.log_prob(torch.tensor([9, 10, 11])).exp().round(decimals=4)
    tensor([0.1241, 0.2834, 0.0000], dtype=torch.float64)
    """

    def __init__(self, base: Any, limit: Tensor | float, validate_args: bool | None = None) -> None:
        if not isinstance(base, CountDistribution):
            raise InputError(f"base must be a count distribution, got {type(base).__name__}.")
        limit = torch.as_tensor(limit, dtype=torch.float64, device=base._device).detach()
        if validate_args is not False and limit.device.type == "cpu" and not bool((limit >= 0).all()):
            raise InputError(f"limit must be at least 0, got {limit.min().item():g}.")
        shape = torch.Size(broadcast_shapes(base=tuple(base.batch_shape), limit=tuple(limit.shape)))
        self.base: Any = base if base.batch_shape == shape else base.expand(shape)
        self.limit, self._like = limit.floor().expand(shape), base._like
        super().__init__(shape, validate_args)

    def log_prob(self, value: Tensor) -> Tensor:
        """Logarithm of P(Z = y) below the limit, of P(Z >= limit) at the limit; differentiable in the parameters of Z.

        Parameters
        ----------
        value : Tensor
            Recorded counts y; their shape broadcasts with `batch_shape`.
        """
        y = self._counts(value)
        shape = broadcast_shapes(y=tuple(y.shape), batch_shape=tuple(self.batch_shape))
        y, limit = y.double().expand(shape), self.limit.expand(shape)
        is_censored = y >= limit
        # Rows on the other branch get values at which nothing is infinite: gradients pass through both.
        exact = self.base.log_prob(torch.where(is_censored, 0.0, y))
        beyond = log_mass(self.base, torch.where(is_censored, limit, 0.0))
        return torch.where(is_censored, torch.where(y > limit, -torch.inf, beyond), exact)

    def bracket(self, depth: float) -> tuple[Tensor, Tensor]:
        first, last = self.base.bracket(depth)
        limit = self.limit.to(first)
        return torch.minimum(first, limit), torch.minimum(last, limit)

    def rows(self, index: Any) -> "Censored":
        return Censored(rows_of(self.base, index), self.limit[index], validate_args=False)

    def expand(self, batch_shape: Any, _instance: Any = None) -> "Censored":
        return Censored(self.base.expand(batch_shape), self.limit.expand(batch_shape), validate_args=False)

    def _reshape(self, shape: Sequence[int]) -> "Censored":
        return Censored(reshaped(self.base, tuple(shape)), self.limit.reshape(tuple(shape)), validate_args=False)

    def _leaves(self) -> tuple[Tensor, ...]:
        return self.base._leaves()

    # By way of the base, whose own methods are faster ----------------------------------------------------------------

    @without_gradient
    def cdf(self, value: Tensor) -> Tensor:
        """Cumulative distribution function P(min(Z, limit) <= y).

        Parameters
        ----------
        value : Tensor
            Counts y; their shape broadcasts with `batch_shape`.
        """
        y = self._counts(value, negative=True)
        found = self.base.cdf(y)
        return torch.where(y >= self.limit, torch.ones_like(found), found)

    @without_gradient
    def survival(self, value: Tensor) -> Tensor:
        """Survival function P(min(Z, limit) > y).

        Parameters
        ----------
        value : Tensor
            Counts y; their shape broadcasts with `batch_shape`.
        """
        y = self._counts(value, negative=True)
        found = self.base.survival(y)
        return torch.where(y >= self.limit, torch.zeros_like(found), found)

    def _groups(self) -> list[int]:
        return self.base._groups()

    def _summarised(self, shape: torch.Size | None = None, **asked: Any) -> Summaries:
        shape = self.batch_shape if shape is None else shape
        limits = self.limit.cpu().expand(shape).reshape(-1).contiguous().numpy()
        return self.base._summarised(shape, limits=limits, **asked)

    def _quantiles(self, levels: np.ndarray) -> np.ndarray:
        limit = self.limit.cpu().reshape(-1, 1).numpy()
        return np.minimum(self.base._quantiles(levels), limit)
