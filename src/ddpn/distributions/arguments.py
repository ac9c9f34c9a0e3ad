"""Convert and validate the arguments of distributions.

Distributions take the option `validate_args`. True validates the values of all tensors, and False validates none. By
default (None), only tensors on a CPU are validated, because reading the values of a tensor on a GPU makes the CPU wait.
"""

import math
from collections.abc import Sequence
from numbers import Real

import numpy as np
import torch
from torch import Tensor

from ddpn.runtime.errors import InputError

#: Largest inverse dispersion in multiples of max(mean, 1); beyond, float64 has no rate with exactly this mean.
NARROWEST = 20.0
_LOW_PRECISION = (torch.float16, torch.bfloat16)


def as_parameters(**values: Tensor | float) -> tuple[Tensor, ...]:
    """Convert the parameters of a distribution to floating-point tensors of one dtype and one shape.

    Parameters are passed by keyword, and returned in the same order. The dtype is the common dtype of the
    floating-point tensors, but float32 in place of half precision. If there is no such tensor, it is torch's default
    dtype. Raise an `InputError` for complex tensors, or if shapes do not broadcast. The message names the keywords.
    """
    tensors = {k: v if isinstance(v, Tensor) else torch.as_tensor(v, dtype=torch.float64) for k, v in values.items()}
    dtype = torch.float32 if any(t.dtype in _LOW_PRECISION for t in tensors.values()) else None
    # Numbers take the dtype of the tensors beside them.
    for t in [v for v in values.values() if isinstance(v, Tensor)]:
        if t.is_complex():
            raise InputError(f"parameters must be real numbers, got dtype {t.dtype}. Pass real tensors.")
        if t.is_floating_point() and t.dtype not in _LOW_PRECISION:
            dtype = t.dtype if dtype is None else torch.promote_types(dtype, t.dtype)
    dtype = dtype or torch.get_default_dtype()
    shape = broadcast_shapes(**{k: tuple(t.shape) for k, t in tensors.items()})
    return tuple(expand_to(t.to(dtype), shape) for t in tensors.values())


def expand_to(x: Tensor, shape: torch.Size) -> Tensor:
    """Expand a tensor to a shape, or return the tensor itself if it has this shape already.

    The shortcut saves time, because autograd would record even an expansion without effect.
    """
    return x if x.shape == shape else x.expand(shape)


def flatten_rows(x: Tensor, shape: Sequence[int]) -> np.ndarray:
    """Expand a tensor to `shape` and return its elements as a flat float64 array, the input of compiled kernels."""
    return expand_to(x.detach(), torch.Size(shape)).reshape(-1).cpu().double().numpy()


def broadcast_shapes(**shapes: tuple[int, ...]) -> torch.Size:
    """Return the shape to which all given shapes broadcast.

    The shapes are passed as keywords, for example `y=(3, 1), mu=(4,)`. Raise an `InputError` that names them if they do
    not broadcast.
    """
    first, *others = shapes.values()
    if all(other == first for other in others):
        return torch.Size(first)
    try:
        # torch.broadcast_shapes takes longer than a small log_prob, and its first call imports sympy (half a second).
        return torch.Size(np.broadcast_shapes(*shapes.values()))
    except ValueError:
        got = " and ".join(f"{name} {tuple(shape)}" for name, shape in shapes.items())
        raise InputError(f"shapes must broadcast, got {got}. Reshape one of them.") from None


def _first_bad(bad: Tensor, values: Tensor) -> tuple[str, str]:
    where = bad.nonzero()[0].tolist()
    position = f" at {where[0] if len(where) == 1 else tuple(where)}" if where else ""
    value = values[tuple(where)].detach().cpu()
    value = value.float() if value.dtype in _LOW_PRECISION else value
    # The shortest digits that identify the value in its dtype.
    return np.format_float_positional(
        value.numpy().item() if value.dtype == torch.float64 else np.float32(value), trim="-"
    ), position


def is_transformed(*tensors: Tensor) -> bool:
    """Return True inside a `torch.func` transform or `torch.compile`, where values of tensors cannot be read."""
    if torch.compiler.is_compiling():
        return True
    try:
        for x in tensors:
            x.data_ptr()
    except RuntimeError:
        return True
    return False


def needs_validation(validate_args: bool | None, x: Tensor) -> bool:
    """Return True if the values of x should be validated.

    With `validate_args=None`, x is validated if it is on a CPU and outside of `torch.func` transforms and
    `torch.compile`, where its values cannot be read.
    """
    if validate_args is None:
        return x.device.type == "cpu" and not is_transformed(x)
    return validate_args


def _find_range(values: Tensor) -> tuple[float, float]:
    """Return the smallest and the largest value of a tensor. If a value is NaN, both are NaN."""
    low, high = torch.aminmax(values.detach())
    return low.item(), high.item()


def check_positive(
    name: str, values: Tensor, remedy: str = "Emit its logarithm and exponentiate, or clamp it."
) -> None:
    """Raise an `InputError` unless every value is finite and above 0.

    `name` is the name of the argument in the error message. `remedy` is the last sentence of the message, which says
    what to do.
    """
    if values.numel() == 0:
        return
    low, high = _find_range(values)
    if not (low > 0 and high < math.inf):
        _require(name, (values > 0) & (values < torch.inf), values, "be finite and positive", remedy)


def check_counts(name: str, values: Tensor, allow_negative: bool = False) -> None:
    """Raise an `InputError` unless every value is a non-negative integer, or any integer if `allow_negative` is True.

    `name` is the name of the argument in the error message.
    """
    if values.numel() == 0:
        return
    low, high = _find_range(values)
    below, kind = (-math.inf, "integers") if allow_negative else (-1.0, "non-negative integers")
    whole = not values.is_floating_point() or torch.equal(values, values.floor())
    if not (low > below and high < math.inf and whole):
        is_valid = (values > below) & (values < torch.inf) & (values == values.floor())
        _require(name, is_valid, values, f"hold {kind}", "Recode, round or drop such values.")


def _require(name: str, is_valid: Tensor, values: Tensor, must: str, remedy: str = "") -> None:
    """Raise an `InputError` about the first of `values` for which the boolean tensor `is_valid` is False, if any.

    The message reads "<name> must <must>, got <value> at <position>. <remedy>".
    """
    if not is_valid.all():
        value, position = _first_bad(~is_valid, values)
        raise InputError(f"{name} must {must}, got {value}{position}. {remedy}".rstrip())


def check_narrowness(name: str, values: Tensor, mean: Tensor) -> None:
    """Raise an `InputError` if an inverse dispersion in `values` exceeds 20 times the larger of the mean and 1.

    With such an inverse dispersion, nearly all mass is on one count. Then there may be no rate parameter in float64
    with exactly the mean that was asked for. `name` is the name of the argument in the message.
    """
    is_too_narrow = values > NARROWEST * mean.clamp(min=1.0)
    if is_too_narrow.any():
        got = f"{values[is_too_narrow][0].item():g} for a mean of {mean[is_too_narrow][0].item():g}"
        raise InputError(f"{name} must be at most {NARROWEST:g} times the larger of the mean and 1, got {got}.")


def check_totals(name: str, values: Tensor) -> None:
    """Raise an `InputError` unless every value is an integer of at least 1."""
    is_valid = (values >= 1) & (values < torch.inf) & (values == values.floor())
    _require(name, is_valid, values, "hold integers of at least 1")


def check_probabilities(name: str, values: Tensor) -> None:
    """Raise an `InputError` unless every value is in [0, 1]."""
    if values.numel() == 0:
        return
    low, high = _find_range(values)
    if not (low >= 0 and high <= 1):
        is_valid = (values >= 0) & (values <= 1)
        _require(name, is_valid, values, "lie in [0, 1]", "Give it as a fraction, not in percent.")


def check_weights(weights: Tensor) -> None:
    """Raise an `InputError` unless mixture weights are finite, at least 0 and sum to 1 along the last axis."""
    _require("weights", (weights >= 0) & (weights < torch.inf), weights, "be finite and at least 0")
    total = weights.detach().double().sum(-1)
    _require("weights", (total - 1.0).abs() <= 1e-6, total, "have sum 1", "Divide them by their sum.")


def check_coverage(coverage: float) -> float:
    """Return the coverage of an interval as a float. Raise an `InputError` unless it is strictly between 0 and 1."""
    if not isinstance(coverage, Real):
        raise InputError(f"coverage must be one number strictly between 0 and 1, such as 0.9, got {coverage!r}.")
    if not 0.0 < coverage < 1.0:
        raise InputError(f"coverage must lie strictly between 0 and 1, got {coverage:g}. Use 0.9 for 90%.")
    return float(coverage)
