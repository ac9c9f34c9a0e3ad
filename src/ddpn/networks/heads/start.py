"""Fits without features: the raw outputs that fit all rows best."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from ddpn.runtime.threads import single_blas_thread
from ddpn.sample import Sample

#: Slopes of the mean loss below this end the search: no network starts that close.
_SLOPE = 1e-7
#: So does a relative gain below this: 0/1 data have a ridge along which the loss hardly changes.
_GAIN = 1e-12


class WeightedCounts:
    """Counts with their weights (1 where none are given) and exposures, in float64."""

    @torch.inference_mode(False)
    def __init__(self, y: Tensor, weight: Tensor | None, exposure: Tensor | None) -> None:
        # Copied, because autograd takes no tensors that were made in inference mode.
        self.y = y.double().clone()
        self.weight = torch.ones_like(self.y) if weight is None else weight.double().expand_as(self.y).clone()
        self.exposure = None if exposure is None else exposure.double().expand_as(self.y).clone()
        if exposure is None:
            # Equal counts as one row: the likelihood is then evaluated a few hundred times, not once per row.
            self.y, place = self.y.unique(return_inverse=True)
            self.weight = torch.zeros_like(self.y).index_add_(0, place, self.weight)

    def mean(self, values: Tensor) -> Tensor:
        """Weighted mean over the rows."""
        return (self.weight * values).sum() / self.weight.sum()

    @property
    def scale(self) -> Tensor:
        """Every row's exposure."""
        return torch.ones_like(self.y) if self.exposure is None else self.exposure


def mean_loss(head: Any, sample: Sample) -> Callable[[Tensor], Tensor]:
    """The weighted mean of the losses of what was recorded, as a function of the raw outputs (P,) that all rows share.

    Equal rows are evaluated as one.
    """
    names = [name for name in sample.parts if name not in ("X", "weight")]
    columns = torch.stack([sample.parts[name].double() for name in names], dim=1)
    weight = torch.ones_like(sample.y, dtype=torch.float64) if sample.weight is None else sample.weight.double()
    with torch.inference_mode(False):
        if len(names) == 1:  # torch sorts numbers a hundred times faster than rows
            values, place = columns[:, 0].clone().unique(return_inverse=True)
            distinct = values.unsqueeze(1)
        else:
            distinct, place = columns.clone().unique(dim=0, return_inverse=True)
        total = torch.zeros_like(distinct[:, 0]).index_add_(0, place, weight.clone())
    rows, share = Sample(None, **dict(zip(names, distinct.unbind(1), strict=True))), total / total.sum()
    return lambda raw: share @ head.sample_loss(raw.expand(len(rows), -1), rows)


def fit(loss: Callable[[Tensor], Tensor], guess: Tensor, bounds: Sequence[tuple[float, float]]) -> Tensor:
    """The raw outputs (P,) within `bounds` that minimise the scalar `loss`, searched from `guess`."""

    @torch.inference_mode(False)
    def value_and_slope(x: np.ndarray) -> tuple[float, np.ndarray]:
        raw = torch.tensor(x, dtype=torch.float64, device=guess.device, requires_grad=True)
        value = loss(raw)
        (slope,) = torch.autograd.grad(value, raw)
        return value.item(), slope.cpu().numpy()

    options = {"ftol": _GAIN, "gtol": _SLOPE}
    with single_blas_thread():  # of matrices of a few rows: two threads on a busy machine take twice as long in all
        found = minimize(
            value_and_slope, guess.cpu().numpy(), jac=True, method="L-BFGS-B", bounds=bounds, options=options
        )
    return torch.tensor(found.x, dtype=torch.float64, device=guess.device)
