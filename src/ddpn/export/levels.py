"""Which outputs a file has, and how they are taken from a pmf on a grid: quantiles, intervals and probabilities."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ddpn.distributions.recalibrated import MonotoneMap
from ddpn.export.graph import Graph, Value
from ddpn.workflow.prediction_request import quantile_name

#: Sums in another order may differ by so much, relatively: quantiles must not.
_ROUNDING = 1e-13
#: The highest level of a quantile, as in `ddpn.calibration.intervals`.
_TOP = 1.0 - 1e-9
#: Outputs before quantiles.
_MOMENTS = ("mean", "variance", "aleatoric", "epistemic")


@dataclass(frozen=True)
class Wanted:
    """The outputs: quantiles, an interval, and probabilities of the counts up to `pmf`.

    `levels` are those of the interval: one per group of rows, the last of rows in no group. `edges` are the inner ends
    of ranges of the predicted mean where these are the groups.
    """

    quantiles: tuple[float, ...]
    levels: np.ndarray
    pmf: int
    edges: np.ndarray | None = None

    @property
    def names(self) -> dict[str, int]:
        """Outputs and the number of columns of each."""
        plain = (*_MOMENTS, "median", "lower", "upper", *(quantile_name(level) for level in self.quantiles), "pmf_mass")
        return dict.fromkeys(plain, 1) | {"pmf": self.pmf + 1}

    @property
    def width(self) -> int:
        """Columns of all outputs."""
        return sum(self.names.values())


class Levels:
    """Takes outputs from the pmf of some rows.

    `is_changed` says which rows are recalibrated, (R, 1), and `code` is the group of each, (R, 1).
    """

    def __init__(
        self, graph: Graph, wanted: Wanted, change: MonotoneMap | None, is_changed: Value | None, code: Value | None
    ) -> None:
        self._graph, self._wanted, self._change = graph, wanted, change
        self._is_changed, self._code = is_changed, code

    def outputs(self, moments: Any, pmf: Value, cdf: Value) -> Value:
        """All outputs side by side. Shape: (R, columns); pmf and the cdf before recalibration (R, K)."""
        graph = self._graph
        quantiles = self._quantiles(moments.mean, cdf)
        # A row that cannot be predicted has no quantiles either.
        plain = graph.where(moments.mean.is_nan(), np.nan, graph.concat([*moments, quantiles]))
        first = pmf.at(0, self._wanted.pmf + 1)
        return graph.concat([plain, first.sum(1), first])

    def _quantiles(self, mean: Value, cdf: Value) -> Value:
        """Median, ends of the interval and quantiles. Shape: (R, columns)."""
        each = [self._quantile(cdf, np.array([level])) for level in (0.5, *self._wanted.quantiles)]
        return self._graph.concat([each[0], *self._interval(mean, cdf), *each[1:]])

    def _interval(self, mean: Value, cdf: Value) -> tuple[Value, Value]:
        """The ends of the calibrated interval, as `ddpn.calibration.intervals.interval_at`."""
        levels, code = self._wanted.levels, self._code
        if self._wanted.edges is not None:
            code = (mean > self._wanted.edges[None]).cast("i").sum(1)
        rest = 0.5 * (1.0 - np.minimum(levels, _TOP))
        low, high = self._quantile(cdf, rest, code), self._quantile(cdf, 1.0 - rest, code)
        share = np.maximum(levels - 1.0, 0.0)
        if not share.any():
            return low, high
        more = ((high - low + 1.0) * self._per_row(share, code)).floor()
        return (low - more).clip(0.0, np.inf), high + more

    def _per_row(self, values: np.ndarray, code: Value | None) -> Value:
        """The value of each row's group. Shape: (R, 1), or () where there is one group."""
        known = self._graph.constant(values)
        return known.take(len(values) - 1, axis=0) if code is None else known.take(code, axis=0)

    def _quantile(self, cdf: Value, level: np.ndarray, code: Value | None = None) -> Value:
        """The smallest count with so much mass up to it, NaN beyond the grid; at a level, or one per group. (R, 1)."""
        graph = self._graph
        needed = self._needed(level)
        wanted = self._per_row(needed, code)
        if self._change is not None and self._is_changed is not None:
            inverse = self._change.inverse(torch.from_numpy(np.ascontiguousarray(level))).numpy()
            wanted = graph.where(self._is_changed, self._per_row(self._needed(inverse), code), wanted)
        return graph.where(cdf.max(1) >= wanted, (cdf < wanted).cast("f").sum(1), np.nan)

    @staticmethod
    def _needed(level: np.ndarray) -> np.ndarray:
        return level - _ROUNDING * np.minimum(level, 1.0 - level)
