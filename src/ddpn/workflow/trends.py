"""Find counts that trend with time, where rows are split by time: later rows then leave what the model has seen.

Imports no torch.
"""

from typing import Any, NamedTuple

import numpy as np

from ddpn.sample import Sample
from ddpn.workflow.quick_model import QuickModel, most_rows

#: Fewer rows do not show a trend.
_MIN_ROWS = 100
#: The share of the rows that a quick model is fitted to, the earliest ones; it predicts the others.
_EARLY = 0.7
#: Successive blocks of later rows: within one, rows need not be independent.
_BLOCKS = 10
#: The least relative difference of the later counts that is reported, and its least size in standard errors of the
#: blocks: chance exceeds that in 0.3% of tables (Student's t with 9 degrees of freedom).
_LEAST, _CLEAR = 0.1, 4.0


class Trend(NamedTuple):
    """`change` is how much higher later counts are than predicted, as a share; `is_input` if the model has the time."""

    time: str
    change: float
    is_input: bool

    @property
    def sentence(self) -> str:
        """The warning."""
        side = "higher" if self.change > 0 else "lower"
        remedy = "" if self.is_input else f" --use {self.time} makes the time an input, too."
        return (
            f"Counts trend with {self.time}: those of the latest training and validation rows are "
            f"{abs(self.change):.0%} {side} than a quick model of the earlier rows predicts. Test rows, and rows to "
            f"predict, may be as far off: trees and networks do not extrapolate a trend. Fit again as new rows come "
            f"in.{remedy}"
        )


def find_trend(sample: Sample, times: Any, time: str, is_input: bool) -> Trend | None:
    """How far later counts are from what a quick model of earlier rows predicts, if that is clear.

    Parameters
    ----------
    sample : Sample
        The rows that are known, test rows left out.
    times : polars Series
        The time of each row.
    time : str
        The name of the column of times.
    is_input : bool
        Whether the model has the time as an input.
    """
    if len(sample) < _MIN_ROWS or not np.ptp(sample.y):
        return None
    order = times.arg_sort().to_numpy()
    most = most_rows(sample.X.width)
    if len(order) > most:
        order = order[np.linspace(0, len(order) - 1, most).astype(np.int64)]
    sample = sample.rows(order)
    early, late = np.split(np.arange(len(sample)), [round(_EARLY * len(sample))])
    if not sample.y[early].any():
        return None
    mean = QuickModel(sample).predict([(early, late)]).mean[late]
    weight, y = sample.weight_or_ones[late], sample.y[late]
    excess = np.array([block.sum() for block in np.array_split(weight * (y - mean), _BLOCKS)])
    change = float(excess.sum() / (weight * mean).sum())
    error = float(excess.std(ddof=1) * np.sqrt(_BLOCKS))
    is_clear = abs(excess.sum()) > _CLEAR * error and abs(change) >= _LEAST
    return Trend(time, change, is_input) if is_clear else None
