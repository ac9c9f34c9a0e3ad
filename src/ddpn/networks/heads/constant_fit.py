"""Fit raw outputs that are the same for all rows: merged counts, and the search for the lowest loss."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from ddpn.rows.count_rows import CountRows
from ddpn.runtime.threads import single_blas_thread

#: The range in which `minimise_loss` searches extends this far from the guess in both directions (e^20 on a log scale),
#: because some minima lie at infinity.
_SEARCH_REACH = 20.0
#: The search ends when the slope of the mean loss is smaller. No network needs a more accurate start.
_MIN_SLOPE = 1e-7
#: The search also ends when the relative gain is smaller: data of zeros and ones have a ridge along which the loss
#: hardly changes.
_MIN_RELATIVE_GAIN = 1e-12


class WeightedCounts:
    """Counts in which equal rows are merged, for fitting raw outputs that are the same for all rows.

    A row consists of a count with its exposure, bounds and censoring limit. The weights of merged rows are added up.
    The likelihood then has to be evaluated for a few hundred rows instead of all. Counts with exposures but without
    bounds are not merged, because such rows are hardly ever equal.

    The attributes are float64 tensors of shape (merged rows,): the counts `y`, their summed weights `weight`, their
    exposures `exposure` (None if there are none), and `scale` (the exposures, or 1 if there are none). `sample` has the
    merged rows as `CountRows`.
    """

    @torch.inference_mode(False)
    def __init__(self, sample: CountRows[object, Tensor]) -> None:
        # Copied, because autograd refuses tensors that were created in inference mode.
        parts = {k: part.double().expand_as(sample.y).clone() for k, part in sample.parts.items() if k != "X"}
        self.weight = parts.pop("weight", torch.ones_like(parts["y"]))
        if sample.exposure is None or not sample.is_unrestricted:
            columns = list(parts.values())
            if len(columns) == 1:  # torch sorts numbers a hundred times faster than rows
                distinct, group = columns[0].unique(return_inverse=True)
                columns = [distinct]
            else:
                distinct, group = torch.stack(columns, dim=1).unique(dim=0, return_inverse=True)
                columns = list(distinct.unbind(1))
            parts = dict(zip(parts, columns, strict=True))
            self.weight = torch.zeros_like(parts["y"]).index_add_(0, group, self.weight)
        self.sample: CountRows[None, Tensor] = CountRows(None, **parts)
        self.y, self.exposure = self.sample.y, self.sample.exposure
        #: The exposure of each row; 1 if there are no exposures.
        self.scale = torch.ones_like(self.y) if self.exposure is None else self.exposure

    def mean(self, values: Tensor) -> Tensor:
        """Compute the weighted mean of `values`, which has one value per merged row. Shape: (merged rows,) -> ()."""
        return (self.weight * values).sum() / self.weight.sum()

    def make_mean_loss(
        self, sample_loss: Callable[[Tensor, CountRows[object, Tensor]], Tensor]
    ) -> Callable[[Tensor], Tensor]:
        """Return a function that maps raw outputs (n_raw,), shared by all rows, to the weighted mean of a loss.

        `sample_loss` returns the loss of each row, as `Head.sample_loss` does. The mean is a scalar tensor.
        """
        return lambda raw: self.mean(sample_loss(raw, self.sample))


def minimise_loss(
    loss: Callable[[Tensor], Tensor], guess: Tensor, bounds: Sequence[tuple[float, float]] | None = None
) -> Tensor:
    """Find the raw outputs (n_raw,) that minimise a loss, by L-BFGS from `guess`, of shape (n_raw,).

    `loss` maps raw outputs (n_raw,) to a scalar tensor that is differentiable in them. `bounds` has a pair (low, high)
    per raw output, between which the search stays. Default: 20 plus |guess| below and above `guess`. The result is
    float64.
    """
    bounds = bounds or [(x - _SEARCH_REACH - abs(x), x + _SEARCH_REACH + abs(x)) for x in guess.tolist()]

    @torch.inference_mode(False)
    def value_and_slope(x: np.ndarray) -> tuple[float, np.ndarray]:
        raw = torch.tensor(x, dtype=torch.float64, device=guess.device, requires_grad=True)
        value = loss(raw)
        (slope,) = torch.autograd.grad(value, raw)
        return value.item(), slope.cpu().numpy()

    options = {"ftol": _MIN_RELATIVE_GAIN, "gtol": _MIN_SLOPE}
    with single_blas_thread():  # the matrices are tiny: with two threads on a busy machine it takes twice as long
        result = minimize(
            value_and_slope, guess.cpu().numpy(), jac=True, method="L-BFGS-B", bounds=bounds, options=options
        )
    return torch.tensor(result.x, dtype=torch.float64, device=guess.device)
