"""Laws of some rows, and any law as one over counts."""

from typing import Any

from torch import Tensor
from torch.distributions import Distribution

from ddpn.distributions import CountDistribution, Mixture, discretized
from ddpn.errors import InputError
from ddpn.metrics.predictive import known


def count_law(name: str, law: Distribution, rows: int) -> Any:
    """`law` over counts, one a row: Normals as the counts they round to, a single law for all rows."""
    shape = tuple(known(law).batch_shape)
    if shape not in ((), (1,), (rows,)):
        raise InputError(
            f"baseline '{name}' must hold one law a row of X, got batch_shape {shape} for {rows} rows. Align the two."
        )
    return discretized(law if shape == (rows,) else law.expand((rows,)))


def rows_of(law: Any, index: Tensor) -> Any:
    """The laws of these rows, the first axis of `law`'s batch.

    >>> import torch
    >>> from ddpn.distributions import Poisson
    >>> rows_of(Poisson(torch.tensor([1.0, 2.0, 3.0])), torch.tensor([2, 0])).mean
    tensor([3., 1.])
    """
    if isinstance(law, CountDistribution | Mixture):
        return law.rows(index)
    parameters = {name: getattr(law, name).expand(law.batch_shape)[index] for name in law.arg_constraints}
    return type(law)(**parameters, validate_args=False)
