"""Draw the figure of `Prediction.plot`: the distributions of some rows with their intervals."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import numpy as np
import torch

from ddpn.distributions import CountDistribution
from ddpn.runtime.display import interval_words
from ddpn.runtime.figures import ACCENT, CONTRAST, SOFT, make_panels, set_ticks, use_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def bin_probabilities(dist: CountDistribution, low: float, high: float, max_bins: int) -> tuple[np.ndarray, np.ndarray]:
    """Sum the probabilities of the counts from `low` to `high` in at most `max_bins` equally wide bins.

    Return the edges of the bins, shape (bins + 1,), and the probability of each bin in each row of `dist`, shape (bins,
    rows). Bin i contains the counts from edges[i] to edges[i + 1] - 1.
    """
    step = max(1.0, math.ceil((high - low) / max_bins))
    edges = low + step * np.arange(math.ceil((high - low) / step) + 1)
    upto = torch.from_numpy(edges - 1.0).unsqueeze(1)
    return edges, np.diff(torch.where(upto < 0, 0.0, dist.cdf(upto.clamp(min=0.0))).numpy(), axis=0)


def draw_masses(
    ax: "Axes", edges: np.ndarray, shares: np.ndarray, interval: tuple[float, float], y: float | None = None
) -> None:
    """Draw the predicted probabilities of one row's counts as bars, which are darker inside the row's interval.

    `edges` (bins + 1,) are the edges of the bars and `shares` (bins,) their probabilities, from `bin_probabilities`.
    `interval` has the lowest and the highest count of the interval. The observed count `y`, unless it is None, is drawn
    as a line.
    """
    inside = (edges[:-1] <= interval[1]) & (edges[1:] > interval[0])
    width = edges[1] - edges[0]
    ax.bar(edges[:-1] + 0.5 * (width - 1.0), shares, 0.92 * width, color=np.where(inside, ACCENT, SOFT))
    if y is not None:
        ax.axvline(y, color=CONTRAST, linewidth=1.8)
    ax.set_xlim(edges[0] - 0.5, edges[-1] - 0.5)
    set_ticks(ax.xaxis, integers=True, max_ticks=5)
    ax.set_xlabel("count" if width == 1 else f"count, {width:,.0f} per bar")


@use_style
def draw_predictions(
    names: Sequence[str],
    edges: np.ndarray,
    shares: np.ndarray,
    intervals: Sequence[tuple[float, float, float]],
    axes: "Sequence[Axes]" = (),
) -> "Figure":
    """Draw the predicted distributions of several rows as bars, one subplot per row, darker inside the row's interval.

    `names` are the titles of the subplots. `edges` and `shares` are the results of `bin_probabilities`, and `intervals`
    has (low, high, probability) of each row's interval. `axes` are the subplots; without them, they belong to a new
    figure of pyplot.
    """
    panels = list(axes) or make_panels([1.3] * len(names), sharex=True, sharey=True)[1][:, 0]
    for row, (ax, name, interval) in enumerate(zip(panels, names, intervals, strict=True)):
        draw_masses(ax, edges, shares[:, row], interval[:2])
        ax.set_title(f"{name}: {interval_words(*interval)}")
        set_ticks(ax.yaxis, percent=True, max_ticks=4)
        if not len(axes):
            ax.label_outer()
    return cast("Figure", panels[0].figure)
