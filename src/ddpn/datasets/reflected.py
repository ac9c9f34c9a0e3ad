"""The distribution of top - Z for a count Z: its long tail points towards 0."""

from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from ddpn.distributions import CountDistribution
from ddpn.errors import InputError

#: The largest `top`: `CountDistribution` sums over single counts up to here.
_MOST = 100


class Reflected(CountDistribution):
    """top - Z given Z <= top, on {0, ..., top}; Z follows `dist`, or the conflation of `folds` copies of it.

    A conflation of copies is p^folds, normalized: on so few counts a table of probabilities.

    >>> from ddpn.distributions import Poisson
    >>> dist = Reflected(Poisson(2.0), top=30)
    >>> round(dist.mean.item(), 4), round(dist.variance.item(), 4), dist.mode.item()
    (28.0, 2.0, 28.0)
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}

    def __init__(self, dist: CountDistribution, top: int, folds: int = 1, validate_args: bool | None = None) -> None:
        if not 1 <= top <= _MOST:
            raise InputError(f"top must be between 1 and {_MOST}, got {top}.")
        counts = torch.arange(float(top), -1.0, -1.0, dtype=torch.float64, device=dist._device)
        with torch.no_grad():
            log_p = dist.log_prob(counts.view(-1, *[1] * len(dist.batch_shape)))
        self._table = (folds * log_p.double()).movedim(0, -1).log_softmax(-1)
        self._kind = log_p.dtype
        super().__init__(dist.batch_shape, validate_args)

    @classmethod
    def _from_table(cls, table: Tensor, kind: torch.dtype, check: bool | None) -> "Reflected":
        new = cls.__new__(cls)
        new._table, new._kind = table, kind
        CountDistribution.__init__(new, table.shape[:-1], check)
        return new

    def expand(self, batch_shape: Any, _instance: Any = None) -> "Reflected":
        shape = torch.Size(batch_shape)
        return self._from_table(self._table.expand(*shape, -1), self._kind, self._check)

    @property
    def top(self) -> int:
        """The largest count."""
        return self._table.shape[-1] - 1

    def log_prob(self, value: Tensor) -> Tensor:
        """log p(y); minus infinity above `top`."""
        y, dist, shape = self._paired(self._counts(value))
        return dist._log_pmf(y).reshape(shape).to(self._dtype)

    @property
    def mean(self) -> Tensor:
        """E[Y]."""
        return self._mean_variance()[0].reshape(self.batch_shape).to(self._dtype)

    @property
    def variance(self) -> Tensor:
        """Var[Y]."""
        return self._mean_variance()[1].reshape(self.batch_shape).to(self._dtype)

    @property
    def _dtype(self) -> torch.dtype:
        return self._kind

    def _tensors(self) -> tuple[Tensor, ...]:
        return (self._table.reshape(-1, self._table.shape[-1]),)

    def _of(self, tensors: tuple[Tensor, ...]) -> Self:
        return self._from_table(tensors[0], self._kind, False)  # type: ignore[return-value]

    def _log_pmf(self, y: Tensor) -> Tensor:
        at = y.clamp(max=float(self.top)).long()
        found = self._table.gather(1, at.view(len(self._table), -1)).view_as(y)
        return torch.where(y <= self.top, found, -torch.inf)

    def _mean_variance(self) -> tuple[Tensor, Tensor]:
        (table,) = self._tensors()
        pmf = table.exp()
        # Distances from the top, where nearly all mass is: a variance of 1e-40 there keeps its digits.
        below = torch.arange(float(self.top), -1.0, -1.0, dtype=pmf.dtype, device=pmf.device)
        shift = pmf @ below
        return self.top - shift, (pmf * (below - shift.unsqueeze(1)) ** 2).sum(1)

    def _window(self, depth: float | Tensor = 0.0) -> tuple[Tensor, Tensor]:
        first = torch.zeros_like(self._tensors()[0][:, 0])
        return first, first + self.top

    def _tail_end(self, y: Tensor, lower: Tensor) -> Tensor:
        return torch.where(lower, 0.0, torch.full_like(y, float(self.top)))
