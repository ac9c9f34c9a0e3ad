"""The law of top - Z for a count law Z: its long tail turned towards 0."""

from typing import Any

import torch
from torch import Tensor

from ddpn.distributions import CountDistribution
from ddpn.errors import InputError

#: Counts up to here are looked at one by one by the machinery of `CountDistribution`; no more are offered.
_MOST = 100


class Reflected(CountDistribution):
    """top - Z given Z <= top, on {0, ..., top}; Z follows `law`, or the conflation of `folds` copies of it.

    A conflation of copies is p^folds, normalised: on so few counts that is one table, with no search for its peak.

    >>> from ddpn.distributions import Poisson
    >>> law = Reflected(Poisson(2.0), top=30)
    >>> round(law.mean.item(), 4), round(law.variance.item(), 4), law.mode.item()
    (28.0, 2.0, 28.0)
    """

    def __init__(self, law: CountDistribution, top: int, folds: int = 1, validate_args: bool | None = None) -> None:
        if not 1 <= top <= _MOST:
            raise InputError(f"top must lie between 1 and {_MOST}, got {top}. Reflect at a smaller count.")
        counts = torch.arange(float(top), -1.0, -1.0, dtype=torch.float64)
        with torch.no_grad():
            log_p = law.log_prob(counts.view(-1, *[1] * len(law.batch_shape)))
        self._table = (folds * log_p.double()).movedim(0, -1).log_softmax(-1).to(log_p.dtype)
        super().__init__(law.batch_shape, validate_args)

    @property
    def top(self) -> int:
        """The largest count."""
        return self._table.shape[-1] - 1

    def log_prob(self, value: Tensor) -> Tensor:
        """log p(y); minus infinity above `top`."""
        y = torch.as_tensor(value, device=self._table.device)
        shape = torch.broadcast_shapes(y.shape, self.batch_shape)
        at = y.expand(shape).clamp(max=self.top).long().unsqueeze(-1)
        found = self._table.expand(*shape, -1).gather(-1, at).squeeze(-1)
        return torch.where(y <= self.top, found, -torch.inf)

    def bracket(self, depth: float) -> tuple[Tensor, Tensor]:
        """0 and `top`."""
        first = torch.zeros_like(self._table[..., 0])
        return first, first + self.top

    def rows(self, index: Any) -> "Reflected":
        """The distributions of some rows along the first batch axis."""
        new = object.__new__(Reflected)
        new._table = self._table[index]
        CountDistribution.__init__(new, new._table.shape[:-1], self._check)
        return new
