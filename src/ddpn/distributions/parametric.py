"""`ParametricDistribution`: the base class of families such as the Poisson, which are defined by parameters."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.distributions import Distribution

from ddpn.distributions import calls, torch_formulas
from ddpn.distributions.arguments import broadcast_shapes, expand_to, flatten_rows, is_transformed
from ddpn.distributions.components import ComponentStack
from ddpn.distributions.count import CountDistribution
from ddpn.distributions.gradients import without_gradient
from ddpn.distributions.kernels import loops
from ddpn.distributions.kernels.family import Family, is_family_normalised
from ddpn.runtime.errors import DDPNError


class ParametricDistribution(CountDistribution):
    """Base class of distributions that are defined by one to three parameters of shape `batch_shape`.

    A subclass has a class attribute `family`, with the formulas for compiled kernels (`kernels.family`), and an
    attribute `_names`, the names of its parameters in the order of `family.prepare`. It may also have a static method
    `torch_log_prob(y, *parameters)`, a formula of log p(y) for float64 tensors in torch operations. It is used on GPUs
    and in `torch.func` transforms. Without this method, tensors on a GPU are copied to the CPU and back, and
    `torch.func` is not supported.

    Parameters
    ----------
    batch_shape : sequence of int
        The shape of the parameters. The constructor of a subclass takes the parameters, sets them as attributes, and
        passes this shape on.
    validate_args : bool, optional
        As for `CountDistribution`.
    """

    family: ClassVar[type[Family]]
    torch_log_prob: ClassVar[Callable[..., Tensor] | None] = None
    _names: ClassVar[tuple[str, ...]]

    def _parameters(self) -> tuple[Tensor, ...]:
        return tuple(getattr(self, name) for name in self._names)

    def _map_parameters(self, change: Callable[[Tensor], Tensor]) -> Self:
        new = object.__new__(type(self))
        for name, parameter in zip(self._names, self._parameters(), strict=True):
            setattr(new, name, change(parameter))
        CountDistribution.__init__(new, new._parameters()[0].shape, self._check)
        return new

    def log_prob(self, value: Tensor) -> Tensor:
        """Compute the log probability of counts. It can be differentiated twice in the parameters."""
        return self._compute_log_prob(self.as_counts(value), "log_prob").to(self.dtype)

    def float32_log_prob(self, value: Tensor) -> Tensor:
        """Compute `log_prob` without validation of the counts and with the precision of float32.

        It is faster than `log_prob` for families that have a formula of this precision.
        """
        return self._compute_log_prob(torch.as_tensor(value), "float32")

    def _compute_log_prob(self, y: Tensor, name: str) -> Tensor:
        """Compute log p(y) as float64, with gradients in the parameters.

        `name` is the kernel to use. "log_prob" is accurate to float64. "float32" is faster for some families, but
        accurate only to float32. Both return float64. On GPUs and in `torch.func` transforms, `torch_log_prob` is used
        instead of either kernel, if the class has it.
        """
        shape = broadcast_shapes(y=tuple(y.shape), batch_shape=tuple(self.batch_shape))
        y, *parameters = (expand_to(x, shape) for x in (y, *self._parameters()))
        if self.torch_log_prob is not None and torch_formulas.needs_torch(y, *parameters):
            return self.torch_log_prob(y.double(), *(x.double() for x in parameters))
        return _call_kernel(type(self), name, (y,), parameters)

    @classmethod
    def evaluate_kernel(cls, name: str, columns: Sequence[np.ndarray]) -> np.ndarray:
        """Evaluate a log probability and its derivatives in the parameters for many rows.

        Parameters
        ----------
        name : {"log_prob", "log_range", "float32"}
            The kernel. "log_prob" computes log p(y), and "log_range" log P(low <= Z <= high). "float32" is "log_prob"
            with the accuracy of float32, which is faster for some families; its results are float64 as well.
        columns : sequence of array, (rows,) each
            The inputs of the kernel in float64: y (or low and high), followed by the parameters.

        Returns
        -------
        array, (4, rows)
            The log probability and its derivatives in three parameters, which are 0 for parameters that do not exist.
            For "float32", the last row may be missing.
        """
        log_prob = loops.compute_normalised_log_probs if is_family_normalised(cls.family) else loops.compute_log_probs
        function = loops.compute_log_ranges if name == "log_range" else log_prob
        return calls.call_per_row(function, cls.family, columns, 4)

    def rows(self, index: Tensor) -> Self:
        """Select distributions along the first batch axis, by a tensor `index` of positions."""
        return self._map_parameters(lambda x: x[index])

    def expand(self, batch_shape: Sequence[int], _instance: Distribution | None = None) -> Self:
        """Return the distributions with a larger batch shape, repeated along new axes and axes of length 1."""
        return self._map_parameters(lambda x: x.expand(torch.Size(batch_shape)))

    def _reshape(self, shape: Sequence[int]) -> Self:
        return self._map_parameters(lambda x: x.reshape(tuple(shape)))

    def bracket(self, depth: float) -> tuple[Tensor, Tensor]:
        """Return the first and the last count of a window outside of which there is only about e^-depth of the mass."""
        first, last = self._call_per_row(loops.compute_extents, 2, np.full(self.batch_shape.numel(), float(depth)))
        return self._to_tensor(first), self._to_tensor(last)

    def _call_per_row(self, function: Callable[..., None], n_results: int, *columns: np.ndarray) -> np.ndarray:
        """Call a compiled kernel for each distribution of the batch, flattened to rows.

        Parameters
        ----------
        function : function
            The kernel, such as `kernels.loops.compute_moments`.
        n_results : int
            The number of results per row.
        *columns : array, (rows,)
            Inputs of the kernel that precede the parameters.

        Returns
        -------
        array, (n_results, rows)
        """
        parameters = [flatten_rows(x, self.batch_shape) for x in self._parameters()]
        return calls.call_per_row(function, self.family, [*columns, *parameters], n_results)

    def _moments(self) -> np.ndarray:
        """Compute the mean and the variance of all distributions, flattened to rows. Shape: (2, rows)."""
        return self._call_per_row(loops.compute_moments, 2)

    @property
    @without_gradient
    def mean(self) -> Tensor:
        """Exact mean E[Z]."""
        return self._to_tensor(self._moments()[0])

    @property
    @without_gradient
    def variance(self) -> Tensor:
        """Exact variance Var[Z]."""
        return self._to_tensor(self._moments()[1])

    def information(self) -> dict[str, Tensor]:
        """Compute the diagonal of the Fisher information, by parameter name.

        It is the expected second derivative of -log p(Z) in each parameter.

        Examples
        --------
        >>> from ddpn.distributions import Poisson
        >>> Poisson(4.0).information()
        {'mu': tensor(0.2500)}
        """
        curvatures = self._call_per_row(loops.compute_information, 3)
        return {name: self._to_tensor(curvatures[i]) for i, name in enumerate(self._names)}

    def _leaves(self) -> tuple[Tensor, ...]:
        return self._parameters()

    def _component_stacks(self, shape: torch.Size) -> list[ComponentStack]:
        return [ComponentStack(self.family, tuple(flatten_rows(x, shape)[:, None] for x in self._parameters()))]

    def _log_mass(self, low: Tensor, high: Tensor) -> Tensor:
        shape = broadcast_shapes(low=tuple(low.shape), high=tuple(high.shape), batch=tuple(self.batch_shape))
        low, high, *parameters = (x.expand(shape) for x in (low, high, *self._parameters()))
        return _call_kernel(type(self), "log_range", (low, high), parameters)

    @cached_property
    def _like(self) -> Tensor:
        return self._parameters()[0].detach()


def _call_kernel(
    kind: type[ParametricDistribution], name: str, counts: tuple[Tensor, ...], parameters: Sequence[Tensor]
) -> Tensor:
    """Compute a log probability by a compiled kernel, with gradients in the parameters.

    Parameters
    ----------
    kind : type
        The class of the distribution.
    name : str
        The kernel, see `ParametricDistribution.evaluate_kernel`.
    counts : tuple of Tensor
        The counts y, or low and high.
    parameters : sequence of Tensor
        The parameters. All tensors have the same shape.
    """
    if is_transformed(*counts, *parameters):
        raise DDPNError(f"{kind.__name__} has no formula for torch.func and torch.compile. Use torch.autograd instead.")
    return _Kernel.apply(kind, name, counts, *parameters)


class _KernelContext(FunctionCtx):
    """The context that PyTorch passes to the autograd functions `_Kernel` and `_Slopes`.

    Its attributes are what `forward` saves for `backward`: the class of distributions, the name of the kernel, the
    counts, and tensors.
    """

    kind: type[ParametricDistribution]
    name: str
    counts: tuple[Tensor, ...]
    saved_tensors: tuple[Tensor, ...]


class _Kernel(torch.autograd.Function):
    """Autograd function that computes a log probability by a compiled kernel.

    The same call of the kernel computes the gradient, which is kept for `backward`. If second derivatives are needed,
    the gradient is computed again: from the class's `torch_log_prob`, or by `_Slopes` if there is no such formula.
    """

    @staticmethod
    def forward(
        ctx: _KernelContext,
        kind: type[ParametricDistribution],
        name: str,
        counts: tuple[Tensor, ...],
        *parameters: Tensor,
    ) -> Tensor:
        outputs = _evaluate_kernel(kind, name, counts, parameters)
        ctx.kind, ctx.name, ctx.counts = kind, name, counts
        ctx.save_for_backward(*parameters, *outputs[1 : 1 + len(parameters)])
        return outputs[0]

    @staticmethod
    def backward(ctx: _KernelContext, grad: Tensor) -> tuple[Tensor | None, ...]:
        size = len(ctx.saved_tensors) // 2
        parameters, slopes = ctx.saved_tensors[:size], ctx.saved_tensors[size:]
        if torch.is_grad_enabled():  # for second derivatives
            formula = None if ctx.name == "log_range" else ctx.kind.torch_log_prob
            if formula is not None:
                return None, None, None, *_differentiate_formula(formula, ctx.counts[0], grad, parameters)
            slopes = _Slopes.apply(ctx.kind, ctx.name, ctx.counts, *parameters)
        return None, None, None, *((grad * slope).to(x.dtype) for x, slope in zip(parameters, slopes, strict=True))


def _evaluate_kernel(
    kind: type[ParametricDistribution], name: str, counts: Sequence[Tensor], parameters: Sequence[Tensor]
) -> Tensor:
    """Evaluate a compiled kernel for tensors of one shape.

    The arguments are those of `_call_kernel`. Return a tensor (1 + derivatives, ...): the log probability, and its
    derivatives in the parameters.
    """
    columns = [flatten_rows(x, x.shape) for x in (*counts, *parameters)]
    outputs = torch.from_numpy(kind.evaluate_kernel(name, columns))
    return outputs.reshape(len(outputs), *parameters[0].shape).to(parameters[0].device)


def _differentiate_formula(
    formula: Callable[..., Tensor], y: Tensor, grad: Tensor, parameters: Sequence[Tensor]
) -> list[Tensor | None]:
    """Differentiate a formula of log p(y) in torch operations, and multiply each derivative by `grad`.

    `formula(y, *parameters)` returns log p(y). Return one tensor per parameter, or None for a parameter that needs no
    gradient. The tensors can be differentiated again.
    """
    total = formula(y.double(), *(x.double() for x in parameters)).sum()
    leaves = [x for x in parameters if x.requires_grad]
    # `grad` is multiplied afterwards: it may itself depend on the logarithms, as in a mixture.
    slopes = iter(torch.autograd.grad(total, leaves, create_graph=True))
    return [(grad * next(slopes)).to(x.dtype) if x.requires_grad else None for x in parameters]


class _Slopes(torch.autograd.Function):
    """Autograd function of the derivatives of a log probability in the parameters, computed by a compiled kernel.

    Its gradient consists of the second derivatives of the log probability. They are computed by central differences,
    which are accurate to six digits.
    """

    @staticmethod
    def forward(
        ctx: _KernelContext,
        kind: type[ParametricDistribution],
        name: str,
        counts: tuple[Tensor, ...],
        *parameters: Tensor,
    ) -> tuple[Tensor, ...]:
        ctx.kind, ctx.name, ctx.counts = kind, name, counts
        ctx.save_for_backward(*parameters)
        return tuple(_evaluate_kernel(kind, name, counts, parameters)[1 : 1 + len(parameters)])

    @staticmethod
    @once_differentiable
    def backward(ctx: _KernelContext, *grads: Tensor) -> tuple[Tensor | None, ...]:
        parameters, totals = ctx.saved_tensors, []
        for i, parameter in enumerate(parameters):
            step = _RELATIVE_STEP * parameter.double().abs()
            moved = [[x.double() + sign * step if j == i else x for j, x in enumerate(parameters)] for sign in (1, -1)]
            up, down = (_evaluate_kernel(ctx.kind, ctx.name, ctx.counts, arguments)[1:] for arguments in moved)
            slopes = (up - down) / (2.0 * step)
            total = sum((g * slopes[j] for j, g in enumerate(grads)), torch.zeros_like(step))
            totals.append(total.to(parameter.dtype))
        return None, None, None, *totals


#: Relative step of central differences, for kernels that are exact to about 1e-12.
_RELATIVE_STEP = 1e-5
