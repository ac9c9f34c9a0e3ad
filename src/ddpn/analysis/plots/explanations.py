"""Figures of explanations: importance, effects of columns, and contributions to a row."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ddpn.analysis.plots.panels import LOG_SCALE, compute_bars_height, draw_bars, needs_log_axis, shorten_label
from ddpn.runtime.display import format_day
from ddpn.runtime.figures import (
    ACCENT,
    BAND,
    CONTRAST,
    INK,
    MUTED,
    REFERENCE,
    SECOND,
    make_panels,
    set_ticks,
    use_style,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ddpn.analysis.explanations.effect import Curve, Effect
    from ddpn.analysis.explanations.permutation import Importance
    from ddpn.analysis.explanations.shapley import Contributions


#: The axis label of each measure of importance.
_CHANGES = {"crps": "increase of the CRPS", "mean": "change of the mean", "spread": "change of the spread"}


def draw_importance(ax: "Axes", importances: Sequence["Importance"], measure: str, texts: Sequence[str] = ()) -> None:
    """Draw the importance of columns as bars: the means over the repeats, with error bars from minimum to maximum.

    `measure` is "crps", "mean" or "spread". `texts` are written to the right of the bars, one per bar.
    """
    values = np.array([getattr(importance, measure) for importance in importances]).reshape(len(importances), -1)
    draw_bars(
        ax,
        [importance.name for importance in importances],
        values.mean(1),
        np.array([values.min(1), values.max(1)]),
        texts,
    )
    ax.set(xlim=(min(0.0, values.min()), max(1e-3, values.max())), xlabel=_CHANGES[measure])
    set_ticks(ax.xaxis, percent=True, max_ticks=4)


def choose_axis_limits(curves: Sequence["Curve"]) -> tuple[float, float]:
    """Choose common limits of the axis for several curves, so that their figures can be compared.

    The limits include all curves with some margin, but not necessarily all of their 90% bands. The axis starts at 0 if
    this leaves at most a third of it empty. For variance / mean, the limits also include 1, the value of a Poisson, if
    the curves come close to it.
    """
    levels = np.concatenate([curve.level for curve in curves])
    bands = np.concatenate([part for curve in curves for part in (curve.low, curve.high)])
    low, high = float(levels.min()), float(levels.max())
    room = max(0.6 * (high - low), 0.05 * abs(high), 1e-9)
    low, high = max(low - room, float(bands.min())), min(high + room, float(bands.max()))
    if 0.0 <= low < (high - low) / 2.0:
        low = 0.0
    if curves[0].quantity == "variance / mean" and low - (high - low) < 1.0 < high + (high - low):
        low, high = min(low, 1.0), max(high, 1.0)
    margin = max(0.04 * (high - low), 1e-6 * max(abs(high), 1e-6))
    return low - margin if low else low, high + margin


@use_style
def draw_effects(effects: Sequence["Effect"], figure: "Figure | None" = None) -> "Figure":
    """Draw the effect of each column on the mean (left) and on the spread (right) of predictions.

    The left panels share the limits of their axes, and so do the right panels. They are drawn into `figure`, or into a
    new figure of pyplot.
    """
    heights = [3.0 if effect.is_line else 0.4 + compute_bars_height(len(effect.frequent)) for effect in effects]
    figure, axes = make_panels(heights or [3.0], 2, 4.8, figure)
    for side, quantity in enumerate(("mean", "spread")):
        curves = [getattr(effect, quantity) for effect in effects]
        for ax, effect, curve in zip(axes[:, side], effects, curves, strict=False):
            draw_effect(ax, effect, curve, choose_axis_limits(curves))
            ax.set_title(f"{shorten_label(effect.name)}: {quantity}")
    return figure


def draw_effect(
    ax: "Axes", effect: "Effect", curve: "Curve", axis_limits: tuple[float, float], texts: Sequence[str] = ()
) -> None:
    """Draw the effect of one column on one quantity, such as the predicted mean.

    The effect is drawn as a line if the column is a number with many values, otherwise as bars. `curve` is the effect
    on this quantity. `axis_limits` are the limits of the axis that shows the quantity. `texts` are written to the right
    of the bars.
    """
    if effect.is_line:
        _draw_line(ax, effect, curve, axis_limits)
        return
    kept, error_bars = effect.frequent, np.array([curve.low, curve.high])
    points = effect.format_points()
    names = [points[i] for i in kept]
    draw_bars(ax, names, curve.level[kept], error_bars[:, kept], texts, "effect, with 90% interval")
    ax.axvline(curve.typical, **SECOND, label="typical row")
    ax.set(xlim=(min(0.0, axis_limits[0]), axis_limits[1]), xlabel=f"predicted {curve.quantity}")
    set_ticks(ax.xaxis, max_ticks=5)


def _draw_line(ax: "Axes", one: "Effect", curve: "Curve", axis_limits: tuple[float, float]) -> None:
    size = len(one.points) - one.has_missing
    x = np.array(one.points[:size], dtype=float)
    log = bool(
        not one.is_day
        and x[0] >= 0
        and needs_log_axis(np.repeat(x, np.maximum(1, np.round(200 * one.share[:size])).astype(int)))
    )
    if log:
        ax.set_xscale("function", **LOG_SCALE)
    marker = "" if one.continuous else "o"
    ax.plot(x, curve.level[:size], color=ACCENT, linewidth=1.8, marker=marker, markersize=4, label="effect")
    ax.fill_between(x, curve.low[:size], curve.high[:size], color=BAND, linewidth=0, label="90% band")
    ax.axhline(curve.typical, **REFERENCE, label="typical row")
    if one.continuous:
        ax.plot(x, np.zeros(size), "|", color=MUTED, transform=ax.get_xaxis_transform(), markersize=7)
    if one.has_missing:
        beside: dict[str, Any] = {"transform": ax.get_yaxis_transform(), "clip_on": False}
        ax.vlines(1.09, curve.low[size], curve.high[size], color=INK, linewidth=1.3, **beside)
        ax.plot([1.09], [curve.level[size]], "o", color=CONTRAST, markersize=5, **beside)
        ax.annotate("missing", (1.09, -0.04), xycoords="axes fraction", ha="center", va="top", fontsize=9)
    ax.set(xlim=x[[0, -1]], ylim=axis_limits, xlabel=shorten_label(one.name), ylabel=f"predicted {curve.quantity}")
    set_ticks(ax.xaxis, log=log, max_ticks=3 if one.is_day else 7)
    if one.is_day:
        ax.xaxis.set_major_formatter(lambda value, position: format_day(value))
    set_ticks(ax.yaxis)


@use_style
def draw_contributions(
    contributions: "Contributions", row: int, max_columns: int, figure: "Figure | None" = None
) -> "Figure":
    """Draw the contributions to the prediction of one row as horizontal bars, the largest on top.

    Each bar starts where the bar above it ends. The `max_columns` largest contributions have one bar each. The sum of
    all others is the last bar. The bars are drawn into `figure`, or into a new figure of pyplot.
    """
    parts = [(f"{name} = {shorten_label(cell)}", value) for name, cell, value in contributions.top(row, max_columns)]
    others = float(contributions.values[row].sum() - sum(value for _, value in parts))
    if contributions.values.shape[1] > len(parts):
        parts.append((f"{contributions.values.shape[1] - len(parts)} others", others))
    figure, axes = make_panels([1.2 + 0.35 * len(parts)], width=7.0, figure=figure)
    ax, start = axes[0, 0], contributions.base
    for index, (_, value) in enumerate(parts):
        ax.barh(index, value, left=start, color=CONTRAST if value > 0 else ACCENT)
        start += value
    ax.axvline(contributions.base, **REFERENCE)
    ax.axvline(start, color=INK, linewidth=1.0)
    ax.set_yticks(np.arange(len(parts)), [words for words, _ in parts])
    ax.grid(visible=False, axis="y")
    ax.invert_yaxis()
    ax.set_xlabel(f"log of {contributions.quantity}" if contributions.log else contributions.quantity)
    return figure
