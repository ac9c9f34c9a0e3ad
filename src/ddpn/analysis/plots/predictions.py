"""Figures of predictions and observed counts: PIT histogram and scatter plot."""

from functools import partial
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import ArrayLike

from ddpn.analysis.pit import Pit
from ddpn.analysis.plots.panels import LOG_SCALE, draw_panel
from ddpn.metrics.predictive import Predicted, validate_prediction, validate_weights
from ddpn.runtime.figures import (
    BAND,
    BAR,
    CONTRAST,
    INK,
    REFERENCE,
    SECOND,
    SOFT,
    make_pyplot_figure,
    set_ticks,
    use_style,
)
from ddpn.statistics import Z, mean_and_error

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def summarize_tenths(mean: np.ndarray, y: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Divide rows into tenths by predicted mean, and compare predictions with counts in each tenth.

    `mean`, `y` and `weight` have the predicted mean, the count and the weight of each row. Rows of weight 0 are left
    out.

    Return three arrays with one value per tenth: the mean prediction, the mean count, and the half-width of the 95%
    interval of the mean count.
    """
    order = np.argsort(mean, kind="stable")
    order = order[weight[order] > 0]
    parts = np.array_split(order, min(10, len(order)))
    counts = np.array([mean_and_error(y[part], weight[part]) for part in parts])
    predicted = np.array([np.average(mean[part], weights=weight[part]) for part in parts])
    return predicted, counts[:, 0], Z * counts[:, 1]


def draw_pit(ax: "Axes", pit: Pit) -> None:
    """Draw a PIT histogram with the 95% range of chance for each bar."""
    ax.axhspan(max(0.0, 1.0 - pit.chance), 1.0 + pit.chance, color=BAND, label="95% range of chance")
    bins = len(pit.heights)
    ax.bar(np.arange(bins) / bins, pit.heights, 1.0 / bins, align="edge", **BAR, alpha=0.75, label="rows")
    ax.axhline(1.0, **REFERENCE, label="calibrated")
    top = max(1.6, 1.1 * float(pit.heights.max()), 1.05 * (1 + pit.chance))
    ax.set(xlim=(0, 1), ylim=(0, top), xlabel="probability integral transform", ylabel="height (1 = calibrated)")
    set_ticks(ax.xaxis)
    set_ticks(ax.yaxis)


def draw_scatter(
    ax: "Axes",
    label: str,
    mean: np.ndarray,
    interval_ends: np.ndarray,
    y: np.ndarray,
    inside: np.ndarray,
    tenths: tuple[np.ndarray, ...],
    log: bool,
) -> None:
    """Draw observed counts `y` against predicted means, with intervals and with the averages of tenths of the rows.

    `label` is the label of the horizontal axis. `interval_ends` has the lowest and the highest count of each row's
    interval, shape (2, rows). `inside` is True for rows whose count is in its interval. `tenths` has the mean
    prediction and the mean count of each tenth (`summarize_tenths`). If `log` is True, axes are logarithmic.
    """
    if log:
        ax.set_xscale("function", **LOG_SCALE)
        ax.set_yscale("function", **LOG_SCALE)
    ax.vlines(mean, *interval_ends, color=SOFT, linewidth=1.2, label="90% interval")
    ax.plot(mean[inside], y[inside], ".", color=INK, markersize=3.6, alpha=0.75, label="inside")
    ax.plot(mean[~inside], y[~inside], "x", color=CONTRAST, markersize=4.5, label="outside")
    ax.plot(*tenths[:2], **SECOND, label="mean of a tenth")
    across, up = _choose_axis_range(mean, log), _choose_axis_range(np.concatenate([mean, *interval_ends, y]), log)
    diagonal = [max(across[0], up[0]), min(across[1], up[1])]
    ax.plot(diagonal, diagonal, **REFERENCE)
    ax.set(xlim=across, ylim=up, xlabel=label, ylabel="observed")
    set_ticks(ax.xaxis, log=log)
    set_ticks(ax.yaxis, integers=True, log=log)


def _choose_axis_range(values: np.ndarray, log: bool) -> tuple[float, float]:
    """Return the limits of an axis on which `values` are drawn. `log` is True for a logarithmic axis.

    The axis starts at 0 unless much of it would then be empty.
    """
    least, top = float(values.min()), 1.04 * max(float(values.max()), 1.0)
    if log:
        return 0.8 * least if least > 10 else 0.0, top
    return least - 0.05 * (top - least) if least > 0.4 * top else 0.0, top


def plot_pit(
    dist: Predicted, y: ArrayLike, bins: int = 10, weight: ArrayLike | None = None, ax: "Axes | None" = None
) -> "Figure":
    """Plot the PIT histogram of predictions, which is flat if they are calibrated.

    A valley means that distributions are too narrow, a hill that they are too wide, and a slope that they are biased.
    If predictions are calibrated, a single bar ends inside the band in at least 95% of samples. With ten bars, it is
    therefore not unusual that one of them ends outside.

    Parameters
    ----------
    dist, y
        The predicted distributions and the counts, as for `ddpn.metrics.crps`.
    bins : int
        The number of bins, which have equal widths.
    weight : array-like, optional
        The weight of each row. Default: 1.
    ax : matplotlib Axes, optional
        The axes to draw into. Default: those of a new figure of pyplot, which `plt.show()` shows.

    Returns
    -------
    matplotlib Figure
    """
    pit = Pit.from_counts(dist, y, validate_weights(weight, validate_prediction(dist, y)[1]).numpy(), bins)
    if ax is not None:
        use_style(draw_pit)(ax, pit)
        return cast("Figure", ax.figure)
    return draw_panel(partial(draw_pit, pit=pit), 3.5, title="PIT histogram", figure=make_pyplot_figure())
