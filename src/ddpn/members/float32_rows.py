"""Which rows networks predict in float32, where a caller allows it, and which in float64.

The raw outputs of a row in float32 are within about 1e-6 of those in float64, and so are the logarithms of the
parameters of its distribution:

- the last layer, whose sums cancel most, is multiplied in float64;
- rows with inputs beyond the encoder's limit and rows with large means are predicted in float64;
- one row of `_PER_SAMPLE` is predicted both ways: where they differ by more, all rows are predicted in float64.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import reduce
from math import log

import numpy as np
from torch import Tensor

from ddpn.heads import Head

#: Rows from which on float32 is used.
FLOAT32_ROWS = 1024
#: What raw outputs of sampled rows may differ by: the largest of many differences, which are 1e-7 on average.
TOLERANCE = 2e-6
#: Where a mean, or that times gamma, is above this, quantiles depend on more digits: for a unit of log(mu) the cdf of a
#: count changes by up to 0.4 sqrt(mu gamma). Where that times alpha is, quantiles may be larger than float32 can count.
LARGEST = 1000.0
#: One row of so many is sampled, and at least so many are.
_PER_SAMPLE, _LEAST = 256, 16

_ALLOWED: ContextVar[bool] = ContextVar("float32", default=False)


@contextmanager
def float32_allowed(allowed: bool = True) -> Iterator[None]:
    """Within this, networks may predict many rows in float32."""
    token = _ALLOWED.set(allowed)
    try:
        yield
    finally:
        _ALLOWED.reset(token)


def uses_float32(head: Head, rows: int) -> bool:
    """Whether so many rows are predicted in float32: all parameters must be exponentials of raw outputs."""
    known = ("log mu", "log gamma", "log alpha", "logit")
    is_exponential = all(name.startswith(known) for name in head.parameter_names)
    return _ALLOWED.get() and is_exponential and rows >= FLOAT32_ROWS


def is_large(head: Head, raw: Tensor, scale: Tensor | None) -> np.ndarray:
    """Whether a component of each row has a mean, or a mean times gamma or alpha, above `LARGEST`.

    Parameters
    ----------
    head : Head
        The head of the networks.
    raw : Tensor, shape (M, P, rows)
        Raw outputs in float32.
    scale : Tensor, shape (rows,), optional
        What multiplies the means.
    """
    second = [i for i, name in enumerate(head.parameter_names) if name.startswith(("log gamma", "log alpha"))]
    networks = list(raw.numpy())
    logs = [network[i] for network in networks for i in head.locations]
    logs += [network[i - 1] + network[i] for network in networks for i in second]
    highest = reduce(np.maximum, logs)
    if scale is not None:
        highest = highest + scale.log().numpy()
    # Not "above": NaN must not stay in float32.
    return ~(highest <= log(LARGEST))


def is_far(values: np.ndarray, limit: float) -> np.ndarray:
    """Whether an input of each row is beyond the limit of the encoder. Shape: (rows, V)."""
    return ~(np.abs(values).max(axis=1) <= limit)


def rows_for_float64(lost: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of the rows that are predicted both ways, and of those that lose digits. Shape: (rows,)."""
    sample = np.arange(0, len(lost), max(1, min(_PER_SAMPLE, len(lost) // _LEAST)))
    return sample[~lost[sample]], np.flatnonzero(lost)


def agrees(rough: Tensor, exact: Tensor) -> bool:
    """Whether raw outputs in float32 are those in float64, up to the tolerance."""
    return bool(((rough - exact).abs() <= TOLERANCE).all())
