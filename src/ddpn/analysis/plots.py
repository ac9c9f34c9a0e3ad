"""Figures by matplotlib, which is optional (`ddpn[plot]`), in the style of the report's.

`plot_pit`, `plot_coverage` and `plot_reliability` are about predictions and observed counts; `Prediction.plot`,
`Effects.plot`, `Importances.plot` and `Contributions.plot` call the others.
"""

from collections.abc import Callable, Sequence
from functools import cache, wraps
from io import BytesIO
from typing import Any

import numpy as np

from ddpn.analysis.explanations.column_effects import scale_of
from ddpn.analysis.figure_data import COVERAGES, Pit, Tenths
from ddpn.analysis.numbers import value_text
from ddpn.metrics import coverage_curve
from ddpn.metrics.predictive import checked, checked_weight
from ddpn.runtime.extras import import_extra
from ddpn.runtime.validation import check_integer

_ACCENT, _SOFT, _CONTRAST, _BAND, _MUTED, _RULE, _INK = (
    "#1d5c9e", "#a9c8e8", "#b34a00", "#e6e9ef", "#566070", "#dfe3ea", "#1b212b",
)  # fmt: skip
_STYLE = {
    "axes.spines.top": False, "axes.spines.right": False, "axes.spines.left": False, "axes.edgecolor": _MUTED,
    "axes.grid": True, "axes.grid.axis": "y", "axes.axisbelow": True, "grid.color": _RULE, "grid.linewidth": 0.8,
    "axes.titlesize": 10.5, "axes.titleweight": "bold", "axes.titlelocation": "left", "axes.labelsize": 9.5,
    "axes.labelcolor": _INK, "xtick.labelsize": 8.5, "ytick.labelsize": 8.5, "xtick.color": _MUTED,
    "ytick.color": _MUTED, "ytick.major.size": 0, "legend.frameon": False, "legend.fontsize": 8.5,
}  # fmt: skip
#: Characters of a level or column beside an axis.
_CHARACTERS = 24


def _styled(draw: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose figure has the style of the report; the settings of matplotlib stay as they are."""

    @wraps(draw)
    def styled(*given: Any, **known: Any) -> Any:
        with import_extra("matplotlib", "plot").rc_context(_STYLE):
            return draw(*given, **known)

    return styled


@cache
def _figure_class() -> Any:
    """A figure that a notebook draws, also one in which nothing has imported pyplot."""

    class NotebookFigure(import_extra("matplotlib.figure", "plot").Figure):  # type: ignore[misc]
        def _repr_png_(self) -> bytes:
            self.savefig(content := BytesIO(), format="png")
            return content.getvalue()

    return NotebookFigure


def _panels(heights: Sequence[float], columns: int = 1, width: float = 5.6, **options: Any) -> tuple[Any, Any]:
    """A figure and its axes, a row per height in inches; without pyplot: no window and no global state."""
    figure = _figure_class()((width * columns, sum(heights)), layout="constrained")
    return figure, figure.subplots(len(heights), columns, height_ratios=list(heights), squeeze=False, **options)


def _shown(point: Any) -> str:
    """A value of a column as a label."""
    text = value_text(point)
    return text if len(text) <= _CHARACTERS else f"{text[: _CHARACTERS - 1]}…"


# Predictions -----------------------------------------------------------------------------------------------------


@_styled
def plot_pit(dist: Any, y: Any, bins: int = 10, weight: Any = None) -> Any:
    """Draw the PIT histogram of predictions, which is flat if they are calibrated.

    A valley means that distributions are too narrow, a hill too wide, a slope that they are biased. The band is where
    chance leaves each bar in 95% of samples.

    Parameters
    ----------
    dist, y
        As for `ddpn.metrics.crps`.
    bins : int
        Number of equally wide bins.
    weight : array-like, optional
        How many times each row counts. Default: once.

    Returns
    -------
    matplotlib Figure
    """
    pit = Pit.of(dist, y, checked_weight(weight, checked(dist, y)[1]).numpy(), bins)
    figure, axes = _panels([3.5])
    ax, bars = axes[0, 0], {"color": _SOFT, "edgecolor": _ACCENT, "linewidth": 0.8, "alpha": 0.75}
    ax.axhspan(max(0.0, 1.0 - pit.chance), 1.0 + pit.chance, color=_BAND, label="95% range of chance")
    ax.bar(pit.edges[:-1], pit.heights, 1.0 / bins, align="edge", **bars)
    ax.axhline(1.0, color=_MUTED, linestyle=":", linewidth=1.2, label="calibrated")
    ax.set(xlim=(0, 1), ylim=(0, pit.top), title="PIT histogram")
    ax.set(xlabel="probability integral transform", ylabel="height (1 = calibrated)")
    ax.legend(loc="upper right", ncols=2)
    return figure


@_styled
def plot_coverage(dist: Any, y: Any, weight: Any = None) -> Any:
    """Draw observed against nominal coverage of central intervals.

    Intervals of integers cover more than asked: the solid line should follow the dashed one, which is what the
    distributions themselves expect, and not the diagonal.

    Parameters
    ----------
    dist, y
        As for `ddpn.metrics.crps`.
    weight : array-like, optional
        How many times each row counts. Default: once.

    Returns
    -------
    matplotlib Figure
    """
    curve = coverage_curve(dist, y, COVERAGES, weight=weight)
    figure, axes = _panels([4.2], width=4.6)
    ax = axes[0, 0]
    ax.plot([0, 1], [0, 1], color=_MUTED, linestyle=":", linewidth=1.2, label="nominal")
    ax.plot(curve.level, curve.expected, color=_CONTRAST, linestyle="--", label="expected by the model")
    ax.plot(curve.level, curve.observed, color=_ACCENT, marker="o", markersize=4.5, linewidth=2, label="observed")
    ax.set(xlim=(0, 1.01), ylim=(0, 1.01), xlabel="nominal coverage", ylabel="share of rows inside", title="Coverage")
    _in_percent(ax.xaxis, ax.yaxis)
    ax.legend(loc="lower right")
    return figure


@_styled
def plot_reliability(dist: Any, y: Any, weight: Any = None) -> Any:
    """Draw mean counts against mean predictions, in tenths of the rows by their predicted mean.

    Reliable means lie on the diagonal, up to their 95% intervals.

    Parameters
    ----------
    dist, y
        As for `ddpn.metrics.crps`.
    weight : array-like, optional
        How many times each row counts. Default: once.

    Returns
    -------
    matplotlib Figure
    """
    known, counts = checked(dist, y)
    weights = checked_weight(weight, counts).numpy()
    predicted, observed = (values.detach().double().expand(counts.shape).numpy() for values in (known.mean, counts))
    tenths = Tenths.of(predicted, observed, weights)
    figure, axes = _panels([4.2], width=4.6)
    ax, ends = axes[0, 0], [0.0, 1.08 * float(max(tenths.predicted.max(), (tenths.observed + tenths.reach).max()))]
    ax.plot(ends, ends, color=_MUTED, linestyle=":", linewidth=1.2, label="reliable")
    ax.errorbar(
        *tenths, fmt="o", color=_ACCENT, ecolor=_INK, elinewidth=1.2, markersize=5.5,
        label="a tenth of the rows, with 95% interval",
    )  # fmt: skip
    ax.set(xlim=ends, ylim=ends, xlabel="mean prediction", ylabel="mean count", title="Reliability of the mean")
    ax.legend(loc="upper left")
    return figure


@_styled
def distributions_figure(
    names: Sequence[str], edges: np.ndarray, shares: np.ndarray, low: np.ndarray, high: np.ndarray
) -> Any:
    """The distribution of each row; counts inside its interval are darker."""
    figure, axes = _panels([1.3] * len(names), sharex=True, sharey=True)
    for place, (ax, name) in enumerate(zip(axes[:, 0], names, strict=True)):
        inside = (edges[:-1] <= high[place]) & (edges[1:] > low[place])
        colors = np.where(inside, _ACCENT, _SOFT)
        ax.bar(edges[:-1] - 0.5, shares[:, place], np.diff(edges), align="edge", color=colors, edgecolor="white")
        ax.set_title(f"{name}: 90% interval {low[place]:,.0f} to {high[place]:,.0f}")
        _in_percent(ax.yaxis)
    axes[-1, 0].locator_params(axis="x", integer=True)
    axes[-1, 0].set_xlabel("count" if edges[1] - edges[0] == 1 else f"count, {edges[1] - edges[0]:,.0f} per bar")
    return figure


def _in_percent(*axes: Any) -> None:
    for axis in axes:
        axis.set_major_formatter(lambda value, position: f"{100 * value:.6g}%")


# Explanations ----------------------------------------------------------------------------------------------------


@_styled
def effects_figure(found: list[Any]) -> Any:
    """The effects of columns on the mean (left) and on the spread (right), each side on one scale."""
    heights = [3.0 if one.is_line else 1.0 + 0.28 * len(one.frequent) for one in found]
    figure, axes = _panels(heights or [3.0], 2, 4.8)
    for side, of in enumerate(("mean", "spread")):
        curves = [getattr(one, of) for one in found]
        for ax, one, curve in zip(axes[:, side], found, curves, strict=False):
            (_draw_line if one.is_line else _draw_bars)(ax, one, curve, scale_of(curves))
            ax.set_title(f"{_shown(one.name)}: {of}")
    return figure


def _draw_line(ax: Any, one: Any, curve: Any, scale: tuple[float, float]) -> None:
    size = len(one.points) - one.has_missing
    x = np.array(one.points[:size], dtype=float)
    ax.fill_between(x, curve.low[:size], curve.high[:size], color=_BAND, linewidth=0)
    ax.axhline(curve.typical, color=_MUTED, linestyle=":", linewidth=1.2)
    ax.plot(x, curve.level[:size], color=_ACCENT, linewidth=2, marker="" if one.continuous else "o", markersize=4)
    if one.continuous:
        ax.plot(x, np.zeros(size), "|", color=_MUTED, transform=ax.get_xaxis_transform(), markersize=6, clip_on=False)
    if one.has_missing:
        at = x[-1] + 0.1 * max(float(np.ptp(x)), 1e-12)
        reach = [[curve.level[size] - curve.low[size]], [curve.high[size] - curve.level[size]]]
        ax.errorbar([at], [curve.level[size]], np.maximum(reach, 0.0), fmt="o", color=_CONTRAST, ecolor=_INK)
        ax.annotate("missing", (at, 0.98), xycoords=("data", "axes fraction"), ha="center", va="top", fontsize=8)
    ax.locator_params(axis="x", nbins=6)
    ax.set(ylim=scale, xlabel=_shown(one.name), ylabel=f"predicted {curve.quantity}")


def _draw_bars(ax: Any, one: Any, curve: Any, scale: tuple[float, float]) -> None:
    """A bar per value, the most frequent ones where there are many, with names that cannot overlap."""
    kept = one.frequent
    level = curve.level[kept]
    reach = np.maximum([level - curve.low[kept], curve.high[kept] - level], 0.0)
    ax.barh(
        np.arange(len(kept)), level, color=_SOFT, edgecolor=_ACCENT, linewidth=0.8, xerr=reach, ecolor=_INK,
        error_kw={"elinewidth": 1.2},
    )  # fmt: skip
    ax.axvline(curve.typical, color=_CONTRAST, linestyle="--", linewidth=1.4)
    ax.set_yticks(np.arange(len(kept)), [_shown(one.points[i]) for i in kept])
    ax.grid(visible=False, axis="y")
    ax.invert_yaxis()
    ax.set(xlim=(min(0.0, scale[0]), scale[1]), xlabel=f"predicted {curve.quantity}")


@_styled
def importance_figure(found: Any, most: int) -> Any:
    """The most important columns: for the CRPS, the mean and the spread."""
    check_integer("most", most, 1)
    chosen = found.by("crps")[:most][::-1]
    figure, axes = _panels([1.2 + 0.3 * len(chosen)], 3, 3.6)
    titles = {"crps": "increase of the CRPS", "mean": "change of the mean", "spread": "change of the spread"}
    for ax, (name, title) in zip(axes[0], titles.items(), strict=True):
        values = np.array([getattr(one, name) for one in chosen]).reshape(len(chosen), -1)
        ax.barh(np.arange(len(chosen)), values.mean(1), color=_SOFT, edgecolor=_ACCENT, linewidth=0.8)
        ax.hlines(np.arange(len(chosen)), values.min(1), values.max(1), color=_INK, linewidth=1.2)
        ax.set_yticks(np.arange(len(chosen)), [_shown(one.name) for one in chosen] if name == "crps" else [])
        ax.grid(visible=False, axis="y")
        ax.locator_params(axis="x", nbins=4)
        ax.set_title(title)
        _in_percent(ax.xaxis)
    return figure


@_styled
def contributions_figure(found: Any, row: int, most: int) -> Any:
    """The contributions to one row, the largest on top, each starting where the one above it ends."""
    top = found.top(row, most)
    parts = [(f"{name} = {_shown(cell)}", value) for name, cell, value in top]
    rest = float(found.values[row].sum() - sum(value for _, value in parts))
    if found.values.shape[1] > len(parts):
        parts.append((f"{found.values.shape[1] - len(parts)} others", rest))
    figure, axes = _panels([1.2 + 0.35 * len(parts)], width=7.0)
    ax, start = axes[0, 0], found.base
    for place, (_, value) in enumerate(parts):
        ax.barh(place, value, left=start, color=_CONTRAST if value > 0 else _ACCENT)
        start += value
    ax.axvline(found.base, color=_MUTED, linewidth=1.2, linestyle=":")
    ax.axvline(start, color=_INK, linewidth=1.0)
    ax.set_yticks(np.arange(len(parts)), [words for words, _ in parts])
    ax.grid(visible=False, axis="y")
    ax.invert_yaxis()
    ax.set_xlabel(f"log of {found.quantity}" if found.log else found.quantity)
    return figure
