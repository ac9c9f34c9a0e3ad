"""The uniform mixture of M laws: what an ensemble predicts."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, Normal, constraints

from ddpn.distributions import continuous as line
from ddpn.distributions.arguments import (
    broadcast_shapes,
    check_coverage,
    check_interval_kind,
    check_probabilities,
    is_checked,
)
from ddpn.distributions.count import CountDistribution
from ddpn.distributions.mixture_rows import MixtureRows
from ddpn.distributions.normal import normal_mixture_crps
from ddpn.distributions.quantiles import smallest_count
from ddpn.errors import ConfigError, InputError


class UniformMixture(Distribution):
    """p(y) = 1/M sum_m p(y | member m), the members along the last axis of `members.batch_shape` (Section 3.4).

    For any count law of this package, and for torch's Normal and other laws on the line. The variance splits exactly
    into `aleatoric` (mean of variances) and `epistemic` (variance of means, divided by M), the entropy into
    `expected_entropy` and `mutual_information`.

    Shape: members (..., M) -> batch_shape (...).

    >>> from ddpn.distributions import DoublePoisson
    >>> ensemble = UniformMixture(DoublePoisson(torch.tensor([4.0, 6.0]), torch.tensor([1.0, 2.0])))
    >>> round(ensemble.mean.item(), 3), round((ensemble.aleatoric + ensemble.epistemic - ensemble.variance).item(), 6)
    (5.002, 0.0)
    """

    arg_constraints = {}
    members: Any
    _check: bool | None

    def __new__(cls, members: Distribution, validate_args: bool | None = None) -> "UniformMixture":
        kind = _CountMixture if isinstance(members, CountDistribution) else _LineMixture
        return super().__new__(kind if cls is UniformMixture else cls)

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickling would call __new__ without the members it chooses a class by.
        return UniformMixture, (self.members, self._check)

    @property
    def size(self) -> int:
        """M, the number of members."""
        return self.members.batch_shape[-1]

    def log_prob(self, value: Tensor) -> Tensor:
        """log p(y), differentiable in the members' parameters."""
        each = self.members.log_prob(torch.as_tensor(value).unsqueeze(-1))
        return torch.logsumexp(each, dim=-1) - math.log(self.size)

    @property
    def mean(self) -> Tensor:
        """Mean of the members' means."""
        return self.members.mean.mean(-1)

    @property
    def aleatoric(self) -> Tensor:
        """Mean of the members' variances."""
        return self.members.variance.mean(-1)

    @property
    def epistemic(self) -> Tensor:
        """Variance of the members' means, divided by M."""
        return self.members.mean.var(-1, correction=0)

    @property
    def variance(self) -> Tensor:
        """Exact total variance."""
        return self.aleatoric + self.epistemic

    @property
    def expected_entropy(self) -> Tensor:
        """Mean of the members' entropies."""
        return self.members.entropy().mean(-1)

    @property
    def mutual_information(self) -> Tensor:
        """Entropy of the mixture beyond its members': what they disagree about, in nats."""
        return (self.entropy() - self.expected_entropy).clamp(min=0.0)

    def expand(self, batch_shape: Any, _instance: Any = None) -> "UniformMixture":
        return UniformMixture(self.members.expand((*batch_shape, self.size)), self._check)


def _checked(members: Distribution) -> torch.Size:
    if not members.batch_shape:
        raise InputError(
            "members must have a last axis, one entry a member, got batch_shape (). Stack their parameters."
        )
    if members.event_shape:
        raise InputError(f"members must be univariate, got event_shape {tuple(members.event_shape)}. Mix each margin.")
    return members.batch_shape[:-1]


class _CountMixture(UniformMixture, CountDistribution):
    """A mixture of count laws. Its rows hold each member's tensors as (rows, M)."""

    def __init__(self, members: CountDistribution, validate_args: bool | None = None) -> None:
        shape = _checked(members)
        self.members: Any = members
        CountDistribution.__init__(self, shape, validate_args)

    def log_prob(self, value: Tensor) -> Tensor:
        y = self._counts(value)
        broadcast_shapes(y=tuple(y.shape), batch_shape=tuple(self.batch_shape))
        return super().log_prob(y)

    @property
    def _dtype(self) -> torch.dtype:
        return self.members._dtype

    def _tensors(self) -> tuple[Tensor, ...]:
        return tuple(t.reshape(-1, self.size, *t.shape[1:]) for t in self.members._tensors())

    def _of(self, tensors: tuple[Tensor, ...]) -> Any:
        return MixtureRows(self.members, tensors)

    def sample(self, sample_shape: Any = torch.Size(), generator: torch.Generator | None = None) -> Tensor:
        """A member at random, then a draw from it."""
        shape = self._extended_shape(torch.Size(sample_shape))
        with torch.no_grad():
            tensors: tuple[Tensor, ...] = self._flat(shape)._tensors()
            rows = torch.arange(len(tensors[0]), device=self._device)
            chosen = torch.randint(self.size, (len(rows),), device=self._device, generator=generator)
            picked = self.members._of(tuple(t[rows, chosen] for t in tensors))
            u = torch.rand(len(rows), dtype=torch.float64, device=self._device, generator=generator)
            return smallest_count(picked, u).reshape(shape).to(self._dtype)


def _simple_members(members: Distribution) -> Distribution:
    """The members, those of a mixture among them side by side along one axis."""
    if not isinstance(members, _LineMixture):
        return members
    inner = _simple_members(members.members)
    parameters = {name: getattr(inner, name).flatten(-2) for name in inner.arg_constraints}
    return type(inner)(**parameters, validate_args=False)


class _LineMixture(UniformMixture):
    """A mixture of laws on the real line, such as Normals."""

    support = constraints.real

    def __init__(self, members: Distribution, validate_args: bool | None = None) -> None:
        shape = _checked(members)
        self.members = members
        self._simple = _simple_members(members)
        self._check = validate_args
        super().__init__(shape, validate_args=False)

    def cdf(self, value: Tensor) -> Tensor:
        """P(Z <= y)."""
        return self.members.cdf(torch.as_tensor(value).unsqueeze(-1)).mean(-1)

    def survival(self, value: Tensor) -> Tensor:
        """P(Z > y)."""
        return 1.0 - self.cdf(value)

    def icdf(self, value: Tensor) -> Tensor:
        """The y with P(Z <= y) = q."""
        q = torch.as_tensor(value)
        if is_checked(self._check, q):
            check_probabilities("q", q)
        with torch.no_grad():
            return line.quantile(self._simple, q)

    @property
    def mode(self) -> Tensor:
        """Where the density is highest."""
        with torch.no_grad():
            return line.mode(self._simple)

    def entropy(self) -> Tensor:
        """-E[log p(Z)] in nats."""
        return line.entropy(self._simple)

    def crps(self, value: Tensor) -> Tensor:
        """Continuous ranked probability score, in closed form for Normal members."""
        if not isinstance(self._simple, Normal):
            kind = type(self._simple).__name__
            raise ConfigError(f"crps of a mixture must have Normal or count members, got {kind}. Use nll instead.")
        return normal_mixture_crps(self._simple.loc, self._simple.scale, torch.as_tensor(value))

    def interval(self, coverage: float, kind: str = "central") -> tuple[Tensor, Tensor]:
        """Real (low, high) that hold `coverage`: between equal tails, or the shortest for `kind="highest"`."""
        coverage = check_coverage(coverage)
        check_interval_kind(kind)
        with torch.no_grad():
            return line.shortest(self._simple, coverage) if kind == "highest" else line.central(self._simple, coverage)

    def sample(self, sample_shape: Any = torch.Size(), generator: torch.Generator | None = None) -> Tensor:
        """A member at random, then a draw from it by inversion."""
        shape = self._extended_shape(torch.Size(sample_shape))
        mean = self.members.mean
        with torch.no_grad():
            chosen = torch.randint(self.size, shape, device=mean.device, generator=generator)
            u = torch.rand(shape, dtype=torch.float64, device=mean.device, generator=generator)
            draws = self.members.expand((*shape, self.size)).icdf(u.unsqueeze(-1).clamp(2**-53, 1 - 2**-53))
            return draws.gather(-1, chosen.unsqueeze(-1)).squeeze(-1).to(mean.dtype)
