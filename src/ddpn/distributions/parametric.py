"""Count distributions that are given by parameters of their batch shape."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ddpn.distributions import components, rule
from ddpn.distributions.arguments import as_rows, broadcast_shapes, expanded, is_transformed
from ddpn.distributions.components import Part
from ddpn.distributions.count import CountDistribution, without_gradient
from ddpn.distributions.kernels.family import Family, is_family_normalised
from ddpn.runtime.errors import DDPNError


class ParametricDistribution(CountDistribution):
    """Distributions of a family: parameters named in `_names`, and kernels in `family`, which know their gradients.

    A family may have a formula in operations of torch, `torch_log_prob(y, *parameters)` in float64, for GPUs and
    `torch.func`. Without one, tensors of a GPU are copied to the kernels and back.
    """

    family: ClassVar[type[Family]]
    torch_log_prob: ClassVar[Callable[..., Tensor] | None] = None
    _names: ClassVar[tuple[str, ...]]

    def _parameters(self) -> tuple[Tensor, ...]:
        return tuple(getattr(self, name) for name in self._names)

    def _mapped(self, change: Callable[[Tensor], Tensor]) -> Self:
        new = object.__new__(type(self))
        for name, parameter in zip(self._names, self._parameters(), strict=True):
            setattr(new, name, change(parameter))
        CountDistribution.__init__(new, new._parameters()[0].shape, self._check)
        return new

    def log_prob(self, value: Tensor) -> Tensor:
        """Logarithm of the probability of counts, differentiable twice in the parameters.

        Parameters
        ----------
        value : Tensor
            Counts y; their shape broadcasts with `batch_shape`.
        """
        y = self.as_counts(value)
        shape = broadcast_shapes(y=tuple(y.shape), batch_shape=tuple(self.batch_shape))
        found = log_prob(type(self), *(expanded(x, shape) for x in (y, *self._parameters())))
        return found.to(self.dtype)

    def float32_log_prob(self, value: Tensor) -> Tensor:
        """`log_prob` to the digits of float32, which takes less time for some families; not validated.

        Parameters
        ----------
        value : Tensor
            Counts y; their shape broadcasts with `batch_shape`.
        """
        y = torch.as_tensor(value)
        shape = broadcast_shapes(y=tuple(y.shape), batch_shape=tuple(self.batch_shape))
        return log_prob(type(self), *(expanded(x, shape) for x in (y, *self._parameters())), name="float32")

    @classmethod
    def evaluated(cls, name: str, columns: Sequence[np.ndarray]) -> np.ndarray:
        """A kernel's value and derivatives (4, rows) of counts or ranges and parameters (rows,).

        Parameters
        ----------
        name : {"log_prob", "log_range", "float32"}
            Which kernel; "float32" is "log_prob" to the digits of float32, if the family has such a kernel.
        columns : sequence of array
            Its inputs, in float64.
        """
        if name != "log_range":
            name = "log_mass" if is_family_normalised(cls.family) else "log_prob"
        return components.row_wise(name, cls.family, columns, 4)

    def rows(self, index: Any) -> Self:
        """The distributions of some rows along the first batch axis."""
        return self._mapped(lambda x: x[index])

    def expand(self, batch_shape: Any, _instance: Any = None) -> Self:
        """The same distributions, repeated along new or singleton batch axes."""
        return self._mapped(lambda x: x.expand(torch.Size(batch_shape)))

    def _reshape(self, shape: Sequence[int]) -> Self:
        return self._mapped(lambda x: x.reshape(tuple(shape)))

    def bracket(self, depth: float) -> tuple[Tensor, Tensor]:
        """First and last integer of a window outside of which about e^-depth of the mass lies."""
        first, last = self._row_wise("extent", 2, np.full(self.batch_shape.numel(), float(depth)))
        return self._shaped(first), self._shaped(last)

    def _row_wise(self, name: str, results: int, *columns: np.ndarray) -> np.ndarray:
        """Call a kernel for every row: further columns (rows,), then the parameters. Shape: (results, rows)."""
        parameters = [as_rows(x, self.batch_shape) for x in self._parameters()]
        return components.row_wise(name, self.family, [*columns, *parameters], results)

    def _moments(self) -> np.ndarray:
        """Find mean and variance of every row. Shape: (2, rows)."""
        return self._row_wise("moments", 2)

    @property
    @without_gradient
    def mean(self) -> Tensor:
        """Exact mean E[Z]."""
        return self._shaped(self._moments()[0])

    @property
    @without_gradient
    def variance(self) -> Tensor:
        """Exact variance Var[Z]."""
        return self._shaped(self._moments()[1])

    def information(self) -> dict[str, Tensor]:
        """Expected second derivatives of -log p in each parameter, by its name: the diagonal of Fisher's information.

        Examples
        --------
        >>> from ddpn.distributions import Poisson
        >>> Poisson(4.0).information()
        {'mu': tensor(0.2500)}
        """
        curvatures = self._row_wise("information", 3)
        return {name: self._shaped(curvatures[i]) for i, name in enumerate(self._names)}

    def _leaves(self) -> tuple[Tensor, ...]:
        return self._parameters()

    def _parts(self, shape: torch.Size) -> list[Part]:
        return [Part(self.family, tuple(as_rows(x, shape)[:, None] for x in self._parameters()))]

    def _log_mass(self, low: Tensor, high: Tensor) -> Tensor:
        shape = broadcast_shapes(low=tuple(low.shape), high=tuple(high.shape), batch=tuple(self.batch_shape))
        low, high, *parameters = (x.expand(shape) for x in (low, high, *self._parameters()))
        return _call_kernel(type(self), "log_range", (low, high), parameters)

    @cached_property
    def _like(self) -> Tensor:
        return self._parameters()[0].detach()[..., :0] if self.batch_shape else self._parameters()[0].detach()


def log_prob(kind: Any, y: Tensor, *parameters: Tensor, name: str = "log_prob") -> Tensor:
    """log p(y) of a class of distributions in float64, with gradients. Shape: all of one."""
    if kind.torch_log_prob is not None and rule.needs_torch(y, *parameters):
        return kind.torch_log_prob(y.double(), *(x.double() for x in parameters))
    return _call_kernel(kind, name, (y,), parameters)


def _call_kernel(kind: Any, name: str, given: tuple[Tensor, ...], parameters: Sequence[Tensor]) -> Tensor:
    """A logarithm by a kernel, with gradients; `given` are its counts. Shape: all of one."""
    if is_transformed(*given, *parameters):
        raise DDPNError(f"{kind.__name__} has no formula for torch.func and torch.compile. Use torch.autograd instead.")
    return _Kernel.apply(kind, name, given, *parameters)


class _Kernel(torch.autograd.Function):
    """A logarithm by a kernel, which finds the derivatives in the parameters at the same time."""

    @staticmethod
    def forward(ctx: Any, kind: Any, name: str, given: tuple[Tensor, ...], *parameters: Tensor) -> Tensor:
        found = _evaluated(kind, name, given, parameters)
        ctx.kind, ctx.name, ctx.given = kind, name, given
        ctx.save_for_backward(*parameters, *found[1 : 1 + len(parameters)])
        return found[0]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        size = len(ctx.saved_tensors) // 2
        parameters, slopes = ctx.saved_tensors[:size], ctx.saved_tensors[size:]
        if torch.is_grad_enabled():  # second derivatives are wanted
            if ctx.name != "log_range" and ctx.kind.torch_log_prob is not None:
                return None, None, None, *_differentiable(ctx.kind, ctx.given[0], grad, parameters)
            slopes = _Slopes.apply(ctx.kind, ctx.name, ctx.given, *parameters)
        return None, None, None, *((grad * slope).to(x.dtype) for x, slope in zip(parameters, slopes, strict=True))


def _evaluated(kind: Any, name: str, given: Sequence[Tensor], parameters: Sequence[Tensor]) -> Tensor:
    """A kernel's value and its derivatives, one or more. Shape: (1 + derivatives, ...)."""
    columns = [as_rows(x, x.shape) for x in (*given, *parameters)]
    found = torch.from_numpy(kind.evaluated(name, columns))
    return found.reshape(len(found), *parameters[0].shape).to(parameters[0].device)


def _differentiable(kind: Any, y: Tensor, grad: Tensor, parameters: Sequence[Tensor]) -> list[Tensor | None]:
    """Derivatives of log p times `grad` by the formula in torch, which can be differentiated again."""
    total = kind.torch_log_prob(y.double(), *(x.double() for x in parameters)).sum()
    wanted = [x for x in parameters if x.requires_grad]
    # Not of `grad` times the logarithms: it may depend on them, as in a mixture, and lead back here.
    found = iter(torch.autograd.grad(total, wanted, create_graph=True))
    return [(grad * next(found)).to(x.dtype) if x.requires_grad else None for x in parameters]


class _Slopes(torch.autograd.Function):
    """Derivatives by a kernel, whose own derivatives are central differences: six digits of second derivatives."""

    @staticmethod
    def forward(ctx: Any, kind: Any, name: str, given: tuple[Tensor, ...], *parameters: Tensor) -> tuple[Tensor, ...]:
        ctx.kind, ctx.name, ctx.given = kind, name, given
        ctx.save_for_backward(*parameters)
        return tuple(_evaluated(kind, name, given, parameters)[1 : 1 + len(parameters)])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        parameters, found = ctx.saved_tensors, []
        for i, parameter in enumerate(parameters):
            step = _STEP * parameter.double().abs()
            moved = [[x.double() + sign * step if j == i else x for j, x in enumerate(parameters)] for sign in (1, -1)]
            up, down = (_evaluated(ctx.kind, ctx.name, ctx.given, each)[1:] for each in moved)
            slopes = (up - down) / (2.0 * step)
            found.append(sum(g * slopes[j] for j, g in enumerate(grads)).to(parameter.dtype))
        return None, None, None, *found


#: Relative step of central differences of kernels, which are exact to 1e-12 or so.
_STEP = 1e-5
