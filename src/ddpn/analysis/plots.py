"""All figures except that of `Prediction.plot`: figures of reports, of `plot` methods, and of calibration.

A function `draw_...` draws into axes. `draw_panel` makes a figure with one panel, and `render_svg` the image that
reports embed. `plot_pit` takes predictions and observed counts.
"""

import math
import re
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from html import escape
from io import StringIO
from typing import TYPE_CHECKING, Any, NamedTuple
from unicodedata import east_asian_width

import numpy as np
from numpy.typing import ArrayLike

from ddpn.distributions import CountDistribution
from ddpn.metrics import pit_histogram
from ddpn.metrics.predictive import Predicted, validate_prediction, validate_weights
from ddpn.runtime.display import format_day, value_text
from ddpn.runtime.figures import (
    ACCENT,
    BAND,
    BAR,
    CONTRAST,
    INK,
    MUTED,
    REFERENCE,
    RULE,
    SECOND,
    SOFT,
    figure_class,
    make_panels,
    set_ticks,
    use_style,
)
from ddpn.statistics import Z, bonferroni_z, effective_rows, mean_and_error

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ddpn.analysis.explanations.column_effects import Curve, Effect
    from ddpn.analysis.explanations.permutation import Importance
    from ddpn.analysis.explanations.shapley import Contributions

#: The CSS names of the colours. A page has other colours in dark mode.
_PAGE_COLORS = {
    ACCENT: "accent", SOFT: "soft", CONTRAST: "contrast", BAND: "band", MUTED: "muted", RULE: "rule", INK: "ink",
}  # fmt: skip
#: The width of a level or column beside an axis, in points: fewer than the left margin has beside `NAMED` bars.
_LABEL_POINTS = 106.0
#: Sizes in inches: width and height of a figure, and heights of a named bar, of a line of a legend, and of an axis with
#: its label.
_WIDTH, _HEIGHT, _BAR_HEIGHT, _LEGEND_HEIGHT, _AXIS_HEIGHT = 4.3, 2.75, 0.25, 0.19, 0.5
#: Left and right margins in inches: without named bars, with named bars, and with a mark beside the axes.
PLAIN, NAMED, BESIDE = (0.62, 0.22), (1.62, 0.66), (0.62, 0.6)


@use_style
def draw_panel(
    draw: Callable[["Axes"], object],
    height: float = _HEIGHT,
    width: float = _WIDTH,
    margins: tuple[float, float] = PLAIN,
    title: str = "",
) -> "Figure":
    """Make a figure with one panel, drawn by `draw`, and its legend above. `margins` are left and right, in inches."""
    figure = figure_class()((width, height))
    ax = figure.subplots()
    draw(ax)
    entries = ax.get_legend_handles_labels()
    number = len(entries[1])
    columns = 2 if number == 4 else 3
    top = height - 0.12 - _LEGEND_HEIGHT * -(-number // columns) - 0.3 * bool(title)
    edges = {
        "left": margins[0] / width,
        "right": 1 - margins[1] / width,
        "bottom": _AXIS_HEIGHT / height,
        "top": top / height,
    }
    figure.subplots_adjust(**edges)
    if number:
        position: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0.1 / width, top / height)}
        figure.legend(*entries, ncols=columns, columnspacing=1.1, handlelength=1.7, labelspacing=0.25, **position)
    if title:
        figure.suptitle(title, x=0.12 / width, ha="left", y=1 - 0.08 / height)
    return figure


@use_style
def render_svg(figure: "Figure", name: str, title: str, description: str) -> str:
    """Render a figure as an SVG element of a page: with text as text, the page's colours, and reproducible bytes.

    `name` must be unique on the page; it prefixes all ids of the image. `title` and `description` are for screen
    readers.
    """
    import matplotlib

    buffer = StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with matplotlib.rc_context({"svg.hashsalt": name}), warnings.catch_warnings():
        # Glyphs that matplotlib's font lacks are in the fonts of the browser.
        warnings.filterwarnings("ignore", "Glyph", UserWarning)
        figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    body = buffer.getvalue().partition("<svg")[2].partition(">")[2].replace("xlink:href", "href")
    body = re.sub(r'(\bid="|url\(#|href="#)', rf"\1{name}-", body)
    for color, variable in _PAGE_COLORS.items():
        body = body.replace(f": {color}", f": var(--{variable})")
    width, height = 72 * figure.get_size_inches()
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-labelledby="{name}-t {name}-d">'
        f'<title id="{name}-t">{escape(title)}</title><desc id="{name}-d">{escape(description)}</desc>{body}'
    )


# Axes ----------------------------------------------------------------------------------------------------------------


def shorten_label(point: object) -> str:
    """Write a value or a name of a column as a label of limited width, which keeps its beginning and its end.

    >>> shorten_label("Aufnahme-Datum weekday"), shorten_label("ward")
    ('Aufnahme… weekday', 'ward')
    """
    text = value_text(point)
    short, kept = text, len(text)
    while _estimate_width(short) > _LABEL_POINTS:
        kept -= 1
        short = f"{text[: kept // 2]}…{text[len(text) - (kept + 1) // 2 :]}"
    return short


def _estimate_width(text: str) -> float:
    """Estimate the width of a label in points: that in a wide font such as matplotlib's, or a little more."""
    wide = sum(character in "mwMW%@…" or east_asian_width(character) in "WF" for character in text)
    narrow = sum(character in "fijlrtI .,:;'|()-" for character in text)
    upper = sum(character.isupper() and character not in "MWI" for character in text)
    return 9.0 * wide + 3.7 * narrow + 7.2 * upper + 5.8 * (len(text) - wide - narrow - upper)


def _log1p(values: np.ndarray) -> np.ndarray:
    """Return log(1 + x), which is finite at 0. The bar of 0 begins at -0.5."""
    return np.log1p(np.maximum(values, -0.75))


_LOG = {"functions": (_log1p, np.expm1)}


# Predictions and counts ----------------------------------------------------------------------------------------------

#: The meaning of each shape of a PIT histogram.
_MEANINGS = {
    "flat": "uniform up to chance",
    "up": "counts higher than predicted",
    "down": "counts lower than predicted",
    "U": "predictions too narrow",
    "hump": "predictions too wide",
    "uneven": "uneven",
}


class Pit(NamedTuple):
    """The heights of the PIT histogram, and how far chance moves one of them in 95% of samples.

    `chance` is computed for a continuous distribution and is an upper limit for counts.
    """

    heights: np.ndarray
    chance: float

    @classmethod
    def from_counts(cls, dist: Predicted, y: ArrayLike, weight: np.ndarray, bins: int = 10) -> "Pit":
        """Compute the histogram of counts under their predicted distributions."""
        return cls(pit_histogram(dist, y, bins, weight).numpy(), Z * math.sqrt((bins - 1) / effective_rows(weight)))

    @classmethod
    def from_blocks(cls, dists: Sequence[CountDistribution], y: np.ndarray, weight: np.ndarray) -> "Pit":
        """Compute the histogram of all rows, whose distributions are given in consecutive blocks."""
        ends = np.cumsum([dist.batch_shape[0] for dist in dists])[:-1]
        parts = [cls.from_counts(*part) for part in zip(dists, np.split(y, ends), np.split(weight, ends), strict=True)]
        heights = np.average([part.heights for part in parts], 0, [part.sum() for part in np.split(weight, ends)])
        return cls(heights, Z * math.sqrt((len(heights) - 1) / effective_rows(weight)))

    @property
    def shape(self) -> str:
        """The shape of the histogram: "flat" up to chance, "up", "down", "U", "hump" or else "uneven"."""
        h, half = self.heights, len(self.heights) // 2
        ends, slope = 0.5 * (h[0] + h[-1]) - 1.0, float(h[half:].mean() - h[:half].mean())
        # In at least 95% of samples, chance moves no bar farther than this (Bonferroni).
        if np.abs(h - 1.0).max() <= self.chance * bonferroni_z(len(h)) / Z:
            return "flat"
        # Relative to one bar, chance moves a difference of halves by sqrt(2 / 5), and the mean of two bars by sqrt(1 /
        # 2).
        if abs(slope) > 0.63 * self.chance and abs(slope) > abs(ends):
            return "up" if slope > 0 else "down"
        return "U" if ends > 0.71 * self.chance else "hump" if ends < -0.71 * self.chance else "uneven"

    @property
    def meaning(self) -> str:
        """The meaning of the shape, in a few words."""
        return _MEANINGS[self.shape]


def summarize_tenths(mean: np.ndarray, y: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Divide rows into tenths by predicted mean.

    Return mean predictions, mean counts, and half-widths of 95% intervals.
    """
    order = np.argsort(mean, kind="stable")
    order = order[weight[order] > 0]
    parts = np.array_split(order, min(10, len(order)))
    counts = np.array([mean_and_error(y[part], weight[part]) for part in parts])
    predicted = np.array([np.average(mean[part], weights=weight[part]) for part in parts])
    return predicted, counts[:, 0], Z * counts[:, 1]


def wants_log(values: np.ndarray) -> bool:
    """Return True if a linear axis would crowd most counts at one end, because the largest are far from the median."""
    return bool(values.max() > 60 and values.max() > 12 * (np.median(values) + 1))


def draw_pit(ax: "Axes", pit: Pit) -> None:
    """Draw a PIT histogram with the range of chance."""
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
    ends: np.ndarray,
    y: np.ndarray,
    inside: np.ndarray,
    tenths: tuple[np.ndarray, ...],
    log: bool,
) -> None:
    """Draw observed counts against predicted means, with the `ends` of intervals. Shape of `ends`: (2, rows)."""
    if log:
        ax.set_xscale("function", **_LOG)
        ax.set_yscale("function", **_LOG)
    ax.vlines(mean, *ends, color=SOFT, linewidth=1.2, label="90% interval")
    ax.plot(mean[inside], y[inside], ".", color=INK, markersize=3.6, alpha=0.75, label="inside")
    ax.plot(mean[~inside], y[~inside], "x", color=CONTRAST, markersize=4.5, label="outside")
    ax.plot(*tenths[:2], **SECOND, label="mean of a tenth")
    across, up = _axis_range(mean, log), _axis_range(np.concatenate([mean, *ends, y]), log)
    diagonal = [max(across[0], up[0]), min(across[1], up[1])]
    ax.plot(diagonal, diagonal, **REFERENCE)
    ax.set(xlim=across, ylim=up, xlabel=label, ylabel="observed")
    set_ticks(ax.xaxis, log=log)
    set_ticks(ax.yaxis, integers=True, log=log)


def _axis_range(values: np.ndarray, log: bool) -> tuple[float, float]:
    """Return the limits of an axis of counts. It starts at 0 unless much of the axis would be empty."""
    least, top = float(values.min()), 1.04 * max(float(values.max()), 1.0)
    if log:
        return 0.8 * least if least > 10 else 0.0, top
    return least - 0.05 * (top - least) if least > 0.4 * top else 0.0, top


def plot_pit(dist: Predicted, y: ArrayLike, bins: int = 10, weight: ArrayLike | None = None) -> "Figure":
    """Plot the PIT histogram of predictions, which is flat if they are calibrated.

    A valley shows distributions that are too narrow, a hill distributions that are too wide, and a slope a bias. In 95%
    of samples, chance leaves a bar inside the band.

    Parameters
    ----------
    dist, y
        As for `ddpn.metrics.crps`.
    bins : int
        Number of equally wide bins.
    weight : array-like, optional
        The weight of each row. Default: 1.

    Returns
    -------
    matplotlib Figure
    """
    pit = Pit.from_counts(dist, y, validate_weights(weight, validate_prediction(dist, y)[1]).numpy(), bins)
    return draw_panel(partial(draw_pit, pit=pit), 3.5, title="PIT histogram")


# Named bars ----------------------------------------------------------------------------------------------------------


def bars_height(number: int) -> float:
    """Return the height in inches of a figure with this number of named bars."""
    return 0.35 + _AXIS_HEIGHT + _BAR_HEIGHT * number


def draw_bars(
    ax: "Axes",
    names: Sequence[object],
    level: np.ndarray,
    reach: np.ndarray,
    words: Sequence[str] = (),
    label: str = "",
) -> None:
    """Draw named horizontal bars, the first on top, with whiskers `reach` (low, high) and `words` at the right."""
    positions = np.arange(len(names))
    ax.barh(positions, level, 0.66, **BAR, label=label)
    ax.hlines(positions, *reach, color=INK, linewidth=1.3)
    ax.set_yticks(positions, [shorten_label(name) for name in names])
    for position, text in zip(positions, words, strict=False):
        ax.annotate(
            text, (1.02, position), xycoords=("axes fraction", "data"), va="center", fontsize=9, annotation_clip=False
        )
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.grid(visible=False, axis="y")
    ax.grid(visible=True, axis="x")
    ax.axvline(0.0, color=MUTED, linewidth=0.8)


# Explanations --------------------------------------------------------------------------------------------------------


#: The axis label of each measure of importance.
_CHANGES = {"crps": "increase of the CRPS", "mean": "change of the mean", "spread": "change of the spread"}


def draw_importance(ax: "Axes", importances: Sequence["Importance"], of: str, words: Sequence[str] = ()) -> None:
    """Draw the importance of columns as means and ranges over repeats; `of` is "crps", "mean" or "spread"."""
    values = np.array([getattr(importance, of) for importance in importances]).reshape(len(importances), -1)
    draw_bars(
        ax,
        [importance.name for importance in importances],
        values.mean(1),
        np.array([values.min(1), values.max(1)]),
        words,
    )
    ax.set(xlim=(min(0.0, values.min()), max(1e-3, values.max())), xlabel=_CHANGES[of])
    set_ticks(ax.xaxis, percent=True, max_ticks=4)


def choose_axis_limits(curves: Sequence["Curve"]) -> tuple[float, float]:
    """Choose axis limits that several curves share: all levels with some room, but not necessarily whole bands.

    The axis starts at 0 if that takes at most a third of its height. It includes 1, the value of a Poisson, if it is
    near.
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
def draw_effects(effects: Sequence["Effect"]) -> "Figure":
    """Draw the effects of columns on the mean (left) and on the spread (right). Each side has the same axis limits."""
    heights = [3.0 if effect.is_line else 0.4 + bars_height(len(effect.frequent)) for effect in effects]
    figure, axes = make_panels(heights or [3.0], 2, 4.8)
    for side, of in enumerate(("mean", "spread")):
        curves = [getattr(effect, of) for effect in effects]
        for ax, effect, curve in zip(axes[:, side], effects, curves, strict=False):
            draw_effect(ax, effect, curve, choose_axis_limits(curves))
            ax.set_title(f"{shorten_label(effect.name)}: {of}")
    return figure


def draw_effect(
    ax: "Axes", one: "Effect", curve: "Curve", scale: tuple[float, float], words: Sequence[str] = ()
) -> None:
    """Draw the effect of a column on one quantity: a line, or bars with `words` for few values or for levels."""
    if one.is_line:
        _draw_line(ax, one, curve, scale)
        return
    kept, reach = one.frequent, np.array([curve.low, curve.high])
    points = one.format_points()
    names = [points[i] for i in kept]
    draw_bars(ax, names, curve.level[kept], reach[:, kept], words, "effect, with 90% interval")
    ax.axvline(curve.typical, **SECOND, label="typical row")
    ax.set(xlim=(min(0.0, scale[0]), scale[1]), xlabel=f"predicted {curve.quantity}")
    set_ticks(ax.xaxis, max_ticks=5)


def _draw_line(ax: "Axes", one: "Effect", curve: "Curve", scale: tuple[float, float]) -> None:
    size = len(one.points) - one.has_missing
    x = np.array(one.points[:size], dtype=float)
    log = bool(
        not one.is_day
        and x[0] >= 0
        and wants_log(np.repeat(x, np.maximum(1, np.round(200 * one.share[:size])).astype(int)))
    )
    if log:
        ax.set_xscale("function", **_LOG)
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
    ax.set(xlim=x[[0, -1]], ylim=scale, xlabel=shorten_label(one.name), ylabel=f"predicted {curve.quantity}")
    set_ticks(ax.xaxis, log=log, max_ticks=3 if one.is_day else 7)
    if one.is_day:
        ax.xaxis.set_major_formatter(lambda value, position: format_day(value))
    set_ticks(ax.yaxis)


@use_style
def draw_contributions(contributions: "Contributions", row: int, max_columns: int) -> "Figure":
    """Draw the contributions to one row, the largest on top. Each bar starts where the bar above it ends."""
    parts = [(f"{name} = {shorten_label(cell)}", value) for name, cell, value in contributions.top(row, max_columns)]
    others = float(contributions.values[row].sum() - sum(value for _, value in parts))
    if contributions.values.shape[1] > len(parts):
        parts.append((f"{contributions.values.shape[1] - len(parts)} others", others))
    figure, axes = make_panels([1.2 + 0.35 * len(parts)], width=7.0)
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
