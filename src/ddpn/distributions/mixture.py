"""Weighted mixtures of distributions, such as the prediction of an ensemble."""

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import NoReturn, Self

import torch
from torch import Tensor
from torch.distributions import Distribution, Normal, constraints

from ddpn.distributions import arguments, continuous
from ddpn.distributions.arguments import broadcast_shapes, flatten_rows, needs_validation
from ddpn.distributions.batch_shapes import join_stacks, reshape_batch, select_rows
from ddpn.distributions.components import ComponentStack
from ddpn.distributions.count import CountDistribution
from ddpn.runtime.errors import InputError


class Mixture(Distribution):
    """A weighted mixture of K distributions, p(y) = sum_k w_k p_k(y) (Section 3.4 of the paper).

    Components are count distributions, of one or several families, or torch's Normals. The variance is the sum of
    `aleatoric`, the mean of the components' variances, and `epistemic`, the variance of their means. The entropy is the
    sum of `expected_entropy` and `mutual_information`.

    Parameters
    ----------
    components : Distribution or sequence of Distribution
        Either one distribution whose last batch axis enumerates the components, or a sequence of distributions, one per
        component, whose batch shapes broadcast. Use `concatenate` for a sequence of distributions with several
        components each.
    weights : Tensor or sequence of float, optional
        K mixture weights for all rows (K,), or for each row (..., K); finite, at least 0, with sum 1. Default: 1/K.
    validate_args : bool, optional
        Validate values. Default: only on a CPU.

    Notes
    -----
    After construction, the attribute `components` is one distribution of batch shape (..., K), or a tuple of such
    distributions if there are several families. The batch shape of the mixture has the leading axes (...).

    Examples
    --------
    >>> from ddpn.distributions import DoublePoisson, Poisson
    >>> ensemble = Mixture(DoublePoisson(torch.tensor([4.0, 6.0]), torch.tensor([1.0, 2.0])))
    >>> round(ensemble.mean.item(), 3), round((ensemble.aleatoric + ensemble.epistemic - ensemble.variance).item(), 6)
    (5.002, 0.0)
    >>> blend = Mixture([Poisson(2.0), DoublePoisson(9.0, 3.0)], weights=[0.25, 0.75])
    >>> round(blend.cdf(torch.tensor(3)).item(), 4)
    0.2144
    """

    arg_constraints = {}
    components: Distribution | tuple[Distribution, ...]
    _stacks: tuple[Distribution, ...]
    _weights: Tensor | None
    _check: bool | None
    _like: Tensor

    def __new__(
        cls,
        components: Distribution | Sequence[Distribution],
        weights: Tensor | Sequence[float] | None = None,
        validate_args: bool | None = None,
    ) -> "Mixture":
        return super().__new__(_class_for(components) if cls is Mixture else cls)

    def __init__(
        self,
        components: Distribution | Sequence[Distribution],
        weights: Tensor | Sequence[float] | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if isinstance(components, Distribution):
            self._set([components], weights, validate_args)
        else:
            self._set([reshape_batch(c, (*c.batch_shape, 1)) for c in components], weights, validate_args)

    @classmethod
    def concatenate(
        cls,
        stacks: Sequence[Distribution],
        weights: Tensor | Sequence[float] | None = None,
        validate_args: bool | None = None,
    ) -> "Mixture":
        """Make a mixture of all components of several stacks, in order.

        A stack is a distribution whose last batch axis enumerates components.

        Parameters
        ----------
        stacks : sequence of Distribution
            Distributions of batch shape (..., k_i), of any families, each with k_i components.
        weights, validate_args
            As in `Mixture`, with one weight per component of all stacks.

        Examples
        --------
        >>> from ddpn.distributions import DoublePoisson, Poisson
        >>> networks, tree = DoublePoisson(torch.tensor([2.0, 3.0, 4.0]), 1.5), Poisson(torch.tensor([3.5]))
        >>> Mixture.concatenate([networks, tree], weights=[0.2, 0.2, 0.2, 0.4]).size
        4
        """
        new = object.__new__(_class_for(list(stacks)))
        new._set(list(stacks), weights, validate_args)
        return new

    def _set(
        self, stacks: list[Distribution], weights: Tensor | Sequence[float] | None, validate_args: bool | None
    ) -> None:
        for stack in stacks:
            if not stack.batch_shape:
                raise InputError("components must have a last axis, one entry per component, got batch_shape ().")
        likes = [stack._like if isinstance(stack, CountDistribution | Mixture) else stack.mean for stack in stacks]
        dtype = reduce(torch.promote_types, (like.dtype for like in likes))
        self._like = torch.empty(0, dtype=dtype, device=likes[0].device)
        size = sum(stack.batch_shape[-1] for stack in stacks)
        weights = None if weights is None else _normalise_weights(weights, size, self._like.device, validate_args)
        shapes = {f"stack {i}": tuple(stack.batch_shape[:-1]) for i, stack in enumerate(stacks)}
        shape = broadcast_shapes(**shapes, weights=shapes["stack 0"] if weights is None else tuple(weights.shape[:-1]))
        stacks = [s if s.batch_shape[:-1] == shape else s.expand((*shape, s.batch_shape[-1])) for s in stacks]
        self._stacks = tuple(join_stacks(stacks))
        self.components = self._stacks[0] if len(self._stacks) == 1 else self._stacks
        super().__init__(shape, validate_args=False)
        self._weights, self._check = weights, validate_args

    def __reduce__(self) -> tuple[Callable[..., "Mixture"], tuple[object, ...]]:
        # Pickling would call __new__ without the components that determine the class.
        weights = None if self._weights is None else self._weights.detach()
        return Mixture.concatenate, (self._stacks, weights, self._check)

    @property
    def size(self) -> int:
        """K, the number of components."""
        return sum(stack.batch_shape[-1] for stack in self._stacks)

    @property
    def weights(self) -> Tensor:
        """Mixture weights, with sum 1. Shape: (K,), or (..., K) if each row has its own weights."""
        return (
            self._like.new_full((self.size,), 1.0 / self.size)
            if self._weights is None
            else self._weights.to(self._like)
        )

    def _average(self, values: Tensor) -> Tensor:
        return values.mean(-1) if self._weights is None else (self._weights.to(values.dtype) * values).sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        """Compute the log probability, or the log density of a mixture of Normals.

        The result is differentiable in the parameters of the components and in the weights.
        """
        y = torch.as_tensor(value).unsqueeze(-1)
        log_p = _join([stack.log_prob(y) for stack in self._stacks])
        if self._weights is None:
            return torch.logsumexp(log_p, dim=-1) - math.log(self.size)
        return weighted_logsumexp(log_p, self._weights.to(log_p.dtype))

    @property
    def mean(self) -> Tensor:
        """Weighted mean of the components' means."""
        return self._average(_join([stack.mean for stack in self._stacks]))

    @property
    def aleatoric(self) -> Tensor:
        """Weighted mean of the components' variances."""
        return self._average(_join([stack.variance for stack in self._stacks]))

    @property
    def epistemic(self) -> Tensor:
        """Weighted variance of the components' means."""
        means = _join([stack.mean for stack in self._stacks])
        return self._average((means - self._average(means).unsqueeze(-1)) ** 2)

    @property
    def variance(self) -> Tensor:
        """Exact total variance, `aleatoric` + `epistemic`."""
        return self.aleatoric + self.epistemic

    @property
    def expected_entropy(self) -> Tensor:
        """Weighted mean of the components' entropies, in nats."""
        return self._average(_join([stack.entropy() for stack in self._stacks]))

    @property
    def mutual_information(self) -> Tensor:
        """Disagreement of the components in nats: the entropy of the mixture minus `expected_entropy`."""
        return (self.entropy() - self.expected_entropy).clamp(min=0.0)

    def expand(self, batch_shape: Sequence[int], _instance: Distribution | None = None) -> Self:
        return self._with([s.expand((*batch_shape, s.batch_shape[-1])) for s in self._stacks], self._weights)

    def rows(self, index: Tensor) -> Self:
        """Select distributions along the first batch axis, by a tensor `index` of positions."""
        return self._with(
            [select_rows(stack, index) for stack in self._stacks], self._change_weights(lambda x: x[index])
        )

    def _reshape(self, shape: Sequence[int]) -> Self:
        weights = self._change_weights(lambda x: x.reshape(*shape, self.size))
        return self._with([reshape_batch(s, (*shape, s.batch_shape[-1])) for s in self._stacks], weights)

    def _change_weights(self, change: Callable[[Tensor], Tensor]) -> Tensor | None:
        weights = self._weights
        if weights is None or weights.dim() == 1:
            return weights
        return change(weights.expand(*self.batch_shape, self.size))

    def _flatten(self) -> Self:
        """Return the same mixture without nesting: components that are mixtures are replaced by their components.

        Their mixture weights are multiplied by the weight of the component.
        """
        if not any(isinstance(stack, Mixture) for stack in self._stacks):
            return self
        stacks, weights = [], []
        parts = self.weights.split([stack.batch_shape[-1] for stack in self._stacks], -1)
        for stack, stack_weights in zip(self._stacks, parts, strict=True):
            flat = stack if isinstance(stack, Mixture) else Mixture(reshape_batch(stack, (*stack.batch_shape, 1)))
            inner = flat._flatten()
            sizes = [part.batch_shape[-1] for part in inner._stacks]
            joint = (stack_weights.unsqueeze(-1) * inner.weights).expand(*inner.batch_shape, -1).split(sizes, -1)
            stacks += [
                reshape_batch(part, (*self.batch_shape, inner.batch_shape[-1] * part.batch_shape[-1]))
                for part in inner._stacks
            ]
            weights += [part.flatten(-2) for part in joint]
        return self._with(stacks, torch.cat(weights, dim=-1))

    def __repr__(self) -> str:
        parts = ", ".join(f"{stack.batch_shape[-1]} {type(stack).__name__}" for stack in self._stacks)
        return f"Mixture({parts}, batch_shape={tuple(self.batch_shape)})"

    def _with(self, stacks: Sequence[Distribution], weights: Tensor | None) -> Self:
        new = object.__new__(type(self))
        new._set(list(stacks), weights, False)
        new._check = self._check
        return new


def _class_for(components: Distribution | Sequence[Distribution]) -> type["Mixture"]:
    parts = [components] if isinstance(components, Distribution) else list(components)
    if not parts:
        raise InputError("components must hold at least one distribution, got none.")
    for part in parts:
        if not isinstance(part, CountDistribution | Mixture | Normal):
            kinds = "count distributions of ddpn.distributions or Normals"
            raise InputError(f"components must be {kinds}, got {type(part).__name__}.")
    counts = [isinstance(part, CountDistribution) for part in parts]
    mixed = any(isinstance(part, _MixedMixture) for part in parts)
    return CountMixture if all(counts) else _MixedMixture if mixed or any(counts) else ContinuousMixture


def _join(values: Sequence[Tensor]) -> Tensor:
    """Concatenate tensors (..., k_i), one per element of `Mixture._stacks`, to a tensor (..., K)."""
    return values[0] if len(values) == 1 else torch.cat(list(values), dim=-1)


class CountMixture(Mixture, CountDistribution):
    """A mixture of count distributions. `Mixture(...)` makes one if all components are count distributions."""

    _stacks: tuple[CountDistribution, ...]

    def log_prob(self, value: Tensor) -> Tensor:
        y = self.as_counts(value)
        broadcast_shapes(y=tuple(y.shape), batch_shape=tuple(self.batch_shape))
        return super().log_prob(y)

    def float32_log_prob(self, value: Tensor) -> Tensor:
        y = torch.as_tensor(value).unsqueeze(-1)
        log_p = _join([stack.float32_log_prob(y) for stack in self._stacks])
        return weighted_logsumexp(log_p, self.weights.to(log_p.dtype) if self._weights is None else self._weights)

    def bracket(self, depth: float) -> tuple[Tensor, Tensor]:
        """Return the first and the last count of a window outside of which there is only about e^-depth of the mass."""
        ends = [stack.bracket(depth) for stack in self._stacks]
        first, last = (torch.cat([pair[i].to(self._like) for pair in ends], dim=-1) for i in (0, 1))
        used = self.weights > 0
        return torch.where(used, first, torch.inf).amin(-1), torch.where(used, last, -torch.inf).amax(-1)

    def _log_mass(self, low: Tensor, high: Tensor) -> Tensor:
        bounds = low.unsqueeze(-1), high.unsqueeze(-1)
        log_masses = _join([stack._log_mass(*bounds) for stack in self._stacks])
        weights = self.weights.double() if self._weights is None else self._weights
        return weighted_log_masses(log_masses, weights)

    def _leaves(self) -> tuple[Tensor, ...]:
        weights = () if self._weights is None else (self._weights,)
        return tuple(t for stack in self._stacks for t in stack._leaves()) + weights

    def _component_stacks(self, shape: torch.Size) -> list[ComponentStack]:
        whole = self.weights if self._weights is None else self._weights
        weights = flatten_rows(whole, (*shape, self.size)).reshape(-1, self.size)
        parts, start = [], 0
        for stack in self._stacks:
            k = stack.batch_shape[-1]
            stack_weights = weights[:, start : start + k]
            parts += [part.join(stack_weights, start) for part in stack._component_stacks(torch.Size((*shape, k)))]
            start += k
        return parts


def _raise_for_normals(self: Mixture, *args: object, **options: object) -> NoReturn:
    raise InputError(
        "A mixture with Normals has no mode and no entropy, and only moments if it has counts, too. Use "
        "discretize() to get a count distribution."
    )


class ContinuousMixture(Mixture):
    """A mixture of Normals. `Mixture(...)` makes one if all components are Normals."""

    components: Normal
    support = constraints.real
    entropy = _raise_for_normals
    mode = property(_raise_for_normals)

    def cdf(self, value: Tensor) -> Tensor:
        """Compute the cdf P(Z <= y)."""
        y = torch.as_tensor(value).unsqueeze(-1)
        return self._average(_join([stack.cdf(y) for stack in self._stacks]))

    def survival(self, value: Tensor) -> Tensor:
        """Compute the survival function P(Z > y)."""
        return 1.0 - self.cdf(value)

    def icdf(self, value: Tensor) -> Tensor:
        """Compute the quantile of each level q, the y with P(Z <= y) = q."""
        q = torch.as_tensor(value)
        if needs_validation(self._check, q):
            arguments.check_probabilities("q", q)
        with torch.no_grad():
            return continuous.find_mixture_quantile(self._flatten(), q)

    def crps(self, value: Tensor) -> Tensor:
        """Compute the continuous ranked probability score (CRPS) by a closed formula; smaller is better."""
        simple = self._flatten()
        normal = simple.components
        return continuous.normal_mixture_crps(normal.loc, normal.scale, torch.as_tensor(value), simple.weights)

    def interval(self, coverage: float) -> tuple[Tensor, Tensor]:
        """Compute central prediction intervals, with (1 - coverage) / 2 of the mass beyond either end.

        Return two tensors, the lower and the upper ends.
        """
        tail = torch.full_like(self.mean, 0.5 * (1.0 - arguments.check_coverage(coverage)))
        return self.icdf(tail), self.icdf(1.0 - tail)

    def sample(self, sample_shape: Sequence[int] = torch.Size(), generator: torch.Generator | None = None) -> Tensor:
        """Draw random values.

        For each draw, a component is chosen at random with the mixture weights, and a value is drawn from it.

        Parameters
        ----------
        sample_shape : sequence of int
            The shape of the draws from each distribution. Default: a single draw.
        generator : torch.Generator, optional
            The source of randomness. Default: torch's own.
        """
        shape = self._extended_shape(torch.Size(sample_shape))
        with torch.no_grad():
            u = torch.rand(2, *shape, dtype=torch.float64, device=self._like.device, generator=generator)
            upto = self.weights.double().cumsum(-1)
            chosen = (upto.expand(*shape, -1) < u[0].unsqueeze(-1) * upto[..., -1:]).sum(-1, keepdim=True)
            levels = u[1].clamp(2**-53, 1 - 2**-53).unsqueeze(-1)
            draws = _join([stack.icdf(levels) for stack in self._stacks])
            return draws.expand(*shape, -1).gather(-1, chosen).squeeze(-1).to(self._like)


class _MixedMixture(Mixture):
    """A mixture of count distributions and Normals. `Mixture(...)` makes one if there are components of both kinds.

    It has a mean and a variance only. `discretize` turns it into a count distribution by rounding the Normals.
    """

    log_prob = cdf = survival = icdf = crps = interval = entropy = sample = _raise_for_normals
    mode = property(_raise_for_normals)


def _normalise_weights(
    weights: Tensor | Sequence[float], size: int, device: torch.device, validate_args: bool | None
) -> Tensor:
    """Validate mixture weights and convert them to a float64 tensor, divided by their sum along the last axis.

    The result is on `device`. Raise an `InputError` if the length of the last axis is not `size`, the number of
    components, or if values are validated (see `validate_args`) and are not weights.
    """
    weights = torch.as_tensor(weights, dtype=None if isinstance(weights, Tensor) else torch.float64, device=device)
    if weights.dim() == 0 or weights.shape[-1] != size:
        raise InputError(f"weights must have a last axis of {size}, got shape {tuple(weights.shape)}.")
    if needs_validation(validate_args, weights):
        arguments.check_weights(weights)
    return weights.double() / weights.double().sum(-1, keepdim=True)


def weighted_logsumexp(logs: Tensor, weights: Tensor) -> Tensor:
    """Compute the weighted log-sum-exp, log sum_k w_k exp(logs_k), over the last axis.

    `logs` and `weights` have the shape (..., K) and broadcast; the result has the shape (...). It is differentiable in
    both, even where a weight is 0.
    """
    with torch.no_grad():
        top = torch.where(weights > 0, logs, -torch.inf).amax(-1, keepdim=True)
        top = torch.where(torch.isfinite(top), top, 0.0)
    # A component of weight 0 may exceed the others by any factor; the clamp only cuts its gradient.
    scaled = (logs - top).clamp(max=80.0).exp()
    return (weights * scaled).sum(-1).log() + top.squeeze(-1)


def weighted_log_masses(log_masses: Tensor, weights: Tensor) -> Tensor:
    """Compute the log probability of an event under a mixture, log sum_k w_k exp(log_masses_k).

    `log_masses` (..., K) has the log probabilities of the event under the K components, and `weights`, which broadcast
    with it, the mixture weights. The result has the shape (...). If the probability of the event is close to 1, the sum
    runs over 1 minus the probabilities, so that its logarithm has a small relative error.
    """
    missing = (weights * torch.expm1(log_masses)).sum(-1)
    most = missing.detach() > -0.5
    empty = ((weights > 0) & (log_masses > -torch.inf)).logical_not().all(-1)
    summed = weighted_logsumexp(torch.where(empty.unsqueeze(-1), -1.0, log_masses), weights)
    return torch.where(most, torch.log1p(torch.where(most, missing, 0.0)), summed.masked_fill(empty, -torch.inf))
