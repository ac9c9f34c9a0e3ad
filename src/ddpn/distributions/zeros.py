"""Count distributions with a separate probability of zero: zero-inflated and hurdle distributions."""

from abc import abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Self

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from ddpn.distributions import arguments, torch_formulas
from ddpn.distributions.arguments import broadcast_shapes, flatten_rows, needs_validation
from ddpn.distributions.components import ComponentStack
from ddpn.distributions.count import CountDistribution
from ddpn.distributions.families.poisson import Poisson
from ddpn.distributions.limits import Truncated
from ddpn.distributions.mixture import weighted_log_masses, weighted_logsumexp
from ddpn.distributions.modified import Modified
from ddpn.runtime.errors import InputError


class ZeroModified(Modified):
    """Base class of `ZeroInflated` and `Hurdle`, which change the probability of zero of another distribution.

    With probability pi, the count is an "extra" zero. Otherwise it is drawn from `base` (`ZeroInflated`), or from
    `base` truncated to at least 1 (`Hurdle`).
    """

    _pi: Tensor | None
    _logits: Tensor | None

    def __init__(
        self,
        base: CountDistribution,
        pi: Tensor | float | None = None,
        logits: Tensor | float | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(base, CountDistribution):
            raise InputError(f"base must be a count distribution of ddpn.distributions, got {type(base).__name__}.")
        if (pi is None) == (logits is None):
            raise InputError("Pass exactly one of pi and logits.")
        parameter = pi if logits is None else logits
        like = base._like
        dtype = parameter.dtype if isinstance(parameter, Tensor) and parameter.is_floating_point() else like.dtype
        parameter = torch.as_tensor(parameter, dtype=torch.promote_types(dtype, like.dtype), device=like.device)
        if needs_validation(validate_args, parameter):
            if logits is None:
                arguments.check_probabilities("pi", parameter)
            elif bool(torch.isnan(parameter).any()):
                raise InputError("logits must be numbers, got nan. Look for a loss that diverged.")
        shape = broadcast_shapes(pi=tuple(parameter.shape), base=tuple(base.batch_shape))
        self.base, parameter = base if base.batch_shape == shape else base.expand(shape), parameter.expand(shape)
        self._pi, self._logits = (parameter, None) if logits is None else (None, parameter)
        super().__init__(shape, validate_args)

    @property
    def pi(self) -> Tensor:
        """Probability of an extra zero, one that is not drawn from `base`.

        In a `Hurdle`, no other zeros exist, so it is the probability of zero.
        """
        return self._pi if self._logits is None else self._logits.sigmoid()  # type: ignore[return-value]

    @property
    def logits(self) -> Tensor:
        """The log-odds log(pi / (1 - pi)) of an extra zero, one that is not drawn from `base`."""
        return torch.special.logit(self._pi) if self._logits is None else self._logits

    @property
    def _parameter(self) -> Tensor:
        return self._pi if self._logits is None else self._logits  # type: ignore[return-value]

    @property
    @abstractmethod
    def _other_counts(self) -> CountDistribution:
        """The distribution of counts that are not extra zeros: `base`, or `base` truncated to at least 1."""

    @property
    def _like(self) -> Tensor:
        return self._parameter

    def _weights(self) -> Tensor:
        """Return pi and 1 - pi as a tensor (..., 2), the mixture weights of extra zeros and of all other counts."""
        if self._logits is None:
            pi = self._parameter.double()
            return torch.stack([pi, 1.0 - pi], dim=-1)
        logits = self._logits.double()
        return torch.stack([logits.sigmoid(), (-logits).sigmoid()], dim=-1)

    def _log_other_weight(self, positive: Tensor) -> Tensor:
        """Compute log(1 - pi) in float64 for the rows where the boolean tensor `positive` is True.

        In other rows, the result must not be used. It has no gradient in pi there, because the gradient would be NaN at
        pi = 1.
        """
        if self._logits is None:
            return torch.log1p(-torch.where(positive, self._parameter.double(), 0.0))
        return logsigmoid(-self._logits.double())

    @property
    def mean(self) -> Tensor:
        """Mean of the counts: (1 - pi) m, where m is the mean of the counts that are not extra zeros.

        It is differentiable if m is.
        """
        return self._weights()[..., 1].to(self.dtype) * self._other_counts.mean

    @property
    def variance(self) -> Tensor:
        """Variance of the counts: (1 - pi) (v + pi m^2).

        m and v are the mean and the variance of the counts that are not extra zeros.
        """
        pi, other_weight = self._weights().to(self.dtype).unbind(-1)
        return other_weight * (self._other_counts.variance + pi * self._other_counts.mean**2)

    def bracket(self, depth: float) -> tuple[Tensor, Tensor]:
        """Return the first and the last count of a window outside of which there is only about e^-depth of the mass."""
        first, last = self._other_counts.bracket(depth)
        return torch.zeros_like(first), last

    def _modify(self, base: CountDistribution, change: Callable[[Tensor], Tensor]) -> Self:
        pi, logits = (None if x is None else change(x) for x in (self._pi, self._logits))
        return type(self)(base, pi, logits, validate_args=False)

    def _log_mass(self, low: Tensor, high: Tensor) -> Tensor:
        others = self._other_counts._log_mass(low, high)
        zero = torch.where((low <= 0) & (high >= 0), 0.0, -torch.inf).to(others).expand(others.shape)
        return weighted_log_masses(torch.stack([zero, others], dim=-1), self._weights())

    def _leaves(self) -> tuple[Tensor, ...]:
        return *self.base._leaves(), self._parameter

    def _component_stacks(self, shape: torch.Size) -> list[ComponentStack]:
        weights = flatten_rows(self._weights(), (*shape, 2)).reshape(-1, 2)
        # Any distribution that is restricted to the count 0 is a point mass.
        zeros = np.zeros((len(weights), 1))
        point_mass = ComponentStack(Poisson.family, (zeros + 1.0,), low=zeros, high=zeros)
        weighted_stacks = [
            (point_mass, weights[:, :1]),
            *((stack, weights[:, 1:]) for stack in self._other_counts._component_stacks(shape)),
        ]
        return [stack.join(weight, 0)._replace(group=(0,) * stack.size) for stack, weight in weighted_stacks]


class ZeroInflated(ZeroModified):
    """Zero-inflated counts: a zero with probability pi, else a count of `base`, which may also be 0.

    p(0) = pi + (1 - pi) base.p(0), and p(y) = (1 - pi) base.p(y) for y > 0.

    Parameters
    ----------
    base : CountDistribution
        Any count distribution.
    pi : Tensor or float, optional
        Probability of an extra zero, in [0, 1]; broadcasts with `base.batch_shape`.
    logits : Tensor or float, optional
        log(pi / (1 - pi)), instead of `pi`. Networks should predict logits, which stay accurate if pi is close to 0
        or 1.
    validate_args : bool, optional
        Validate values. Default: only on a CPU.

    Examples
    --------
    >>> from ddpn.distributions import Poisson
    >>> dist = ZeroInflated(Poisson(3.0), pi=0.25)
    >>> dist.mean.item(), round(dist.cdf(torch.tensor(0)).item(), 4)
    (2.25, 0.2873)
    """

    @property
    def _other_counts(self) -> CountDistribution:
        return self.base

    def log_prob(self, value: Tensor) -> Tensor:
        """Compute the log probability of counts. It is differentiable in pi and in the parameters of `base`."""
        y = self.as_counts(value)
        broadcast_shapes(y=tuple(y.shape), batch_shape=tuple(self.batch_shape))
        log_p, positive = self.base.log_prob(y).double(), y > 0
        at_zero = torch.where(positive, 0.0, log_p)
        if self._logits is None:
            logs = torch.stack([torch.zeros_like(at_zero), at_zero], dim=-1)
            zero = weighted_logsumexp(logs, self._weights())
        else:
            logits = self._logits.double()
            # log(pi + (1 - pi) p(0)) has finite second derivatives, unlike logaddexp.
            zero = logsigmoid(logits) + softplus(at_zero - logits)
        return torch.where(positive, self._log_other_weight(positive) + log_p, zero).to(self.dtype)


class Hurdle(ZeroModified):
    """Hurdle counts: a zero with probability pi, else a count of `base` truncated to at least 1.

    p(0) = pi, and p(y) = (1 - pi) base.p(y) / (1 - base.p(0)) for y > 0. Unlike with `ZeroInflated`, zeros may also be
    less probable than under `base`.

    Parameters
    ----------
    base : CountDistribution
        Any count distribution.
    pi : Tensor or float, optional
        Probability of zero, in [0, 1]; broadcasts with `base.batch_shape`.
    logits : Tensor or float, optional
        log(pi / (1 - pi)), instead of `pi`.
    validate_args : bool, optional
        Validate values. Default: only on a CPU.

    Examples
    --------
    >>> from ddpn.distributions import Poisson
    >>> dist = Hurdle(Poisson(3.0), pi=0.25)
    >>> round(dist.mean.item(), 4), round(dist.cdf(torch.tensor(0)).item(), 4)
    (2.3679, 0.25)
    """

    @cached_property
    def _other_counts(self) -> CountDistribution:
        return Truncated(self.base, low=1, validate_args=False)

    def log_prob(self, value: Tensor) -> Tensor:
        """Compute the log probability of counts. It is differentiable in pi and in the parameters of `base`."""
        y = self.as_counts(value)
        broadcast_shapes(y=tuple(y.shape), batch_shape=tuple(self.batch_shape))
        positive = y > 0
        # Where y is 0, any positive count may stand in, as its gradient is cut.
        beyond = self._log_other_weight(positive) + self._log_positive(y.clamp(min=1))
        if self._logits is None:
            zero = torch.where(positive, 1.0, self._parameter.double()).log()
        else:
            zero = logsigmoid(self._logits.double())
        return torch.where(positive, beyond, zero).to(self.dtype)

    def _log_positive(self, y: Tensor) -> Tensor:
        """Compute log P(Z = y | Z > 0) in float64, where Z follows `base`."""
        if torch_formulas.needs_torch(y, *self._leaves()):
            at_zero = self.base.log_prob(torch.zeros_like(y)).double()
            return self.base.log_prob(y).double() - torch.log(-torch.expm1(at_zero.clamp(max=-1e-300)))
        return self._other_counts.log_prob(y).double()
