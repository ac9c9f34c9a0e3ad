"""Figures of a report as SVG, with a title, a description for screen readers and a caption."""

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from markupsafe import Markup

from ddpn.analysis.explanations import Effect, Importances
from ddpn.analysis.pit import Pit
from ddpn.analysis.plots import explanations, panels, predictions
from ddpn.analysis.report.evidence import Evidence
from ddpn.analysis.row_scores import COVERAGE as LEVEL
from ddpn.prediction.figure import bin_probabilities, draw_masses
from ddpn.runtime.display import format_number, percent, plural

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

#: The most columns whose importance is drawn.
MAX_IMPORTANT_COLUMNS = 12
#: The most rows that are drawn one by one in the scatter plot.
_MAX_POINTS = 160
#: The most and the fewest bars of a distribution, and the probability of each tail that is left out.
_MAX_BARS, _MIN_BARS, _TAIL_LEFT_OUT = 60, 5, 1e-3
#: Writes a mean with decimals, even if it is close to an integer.
format_mean = partial(format_number, integers=False)


class Figure(NamedTuple):
    """Figure of a report: an SVG element with a title and a caption. Its `name` is unique on the page."""

    name: str
    title: str
    svg: Markup
    caption: str = ""


def to_figure(drawing: "Drawing", name: str, title: str, description: str, caption: str = "") -> Figure:
    """Convert a matplotlib figure to a figure of the report.

    `name` must be unique on the page. `title` is shown and is read by screen readers. `description` is only for screen
    readers. `caption` is shown below the figure.
    """
    return Figure(name, title, Markup(panels.render_svg(drawing, name, title, description)), caption)


def draw_scatter(evidence: Evidence, target: str) -> Figure:
    """Draw observed counts against predicted means, with intervals. `target` is the name of the target."""
    y, order = evidence.y, np.argsort(evidence.mean, kind="stable")
    rows = order[np.round(np.linspace(0, len(y) - 1, min(_MAX_POINTS, len(y)))).astype(int)]
    inside = evidence.scores.coverage[rows] > 0
    mean, low, high = (values[rows] for values in (evidence.mean, evidence.low, evidence.high))
    log = panels.needs_log_axis(np.concatenate([mean, high, y]))
    description = f"{(~inside).sum()} of {len(rows)} rows shown are outside their {percent(LEVEL, 0)} interval."
    if len(rows) < len(y):
        description = f"{len(rows)} of {plural(len(y), 'row')}, evenly spread over the predictions. {description}"
    caption = f"{description} The dashed line joins the means of tenths of all rows; it should follow the diagonal."
    if log:
        caption += " Both axes are logarithmic, in 1 + count."
    draw = partial(
        predictions.draw_scatter,
        label=f"predicted mean of {target}",
        mean=mean,
        interval_ends=np.array([low, high]),
        y=y[rows],
        inside=inside,
        tenths=predictions.summarize_tenths(evidence.mean, y, evidence.weight),
        log=log,
    )
    return to_figure(panels.draw_panel(draw), "scatter", "Predicted and observed", description, caption)


def draw_pit(pit: Pit, caption: str) -> Figure:
    """Draw the PIT histogram with a caption about its shape."""
    heights = "Heights from left to right: " + ", ".join(f"{height:.2f}" for height in pit.heights) + "."
    return to_figure(
        panels.draw_panel(partial(predictions.draw_pit, pit=pit)), "pit", "PIT histogram", heights, caption
    )


def draw_importance(importances: Importances, measure: str, title: str) -> Figure:
    """Draw the importance of the most important columns (at most 12) by `measure`: "crps", "mean" or "spread".

    `title` is the title of the figure.
    """
    shown, words = importances.by(measure)[:MAX_IMPORTANT_COLUMNS], []
    digits = 0 if max(getattr(one, measure).max() for one in shown) >= 1 else 1
    for one in shown:
        rounded = round(100 * one.strength(measure), digits)
        words.append(f"{rounded:{'+' if measure == 'crps' and rounded else ''}.{digits}f}%")
    draw = partial(explanations.draw_importance, importances=shown, measure=measure, texts=words)
    drawing = panels.draw_panel(draw, panels.compute_bars_height(len(shown)), margins=panels.NAMED)
    caption = ""
    if len(importances.results) > len(shown):
        caption = f"The {len(shown)} largest of {plural(importances.columns, 'column')} are shown."
    description = "; ".join(f"{one.name}: {text}" for one, text in zip(shown, words, strict=True)) + "."
    return to_figure(drawing, f"importance-{measure}", title, description, caption)


def draw_effect(effect: Effect, quantity: str, name: str, axis_limits: tuple[float, float]) -> Figure:
    """Draw the effect of a column on the mean or on the spread of predictions.

    `quantity` is "mean" or "spread". `name` must be unique on the page. `axis_limits` are the limits of the axis that
    shows the quantity.
    """
    curve = getattr(effect, quantity)
    order = np.argsort(curve.level, kind="stable")
    points = effect.format_points()
    low, high = ((format_mean(float(curve.level[i])), points[i]) for i in (order[0], order[-1]))
    caption = f"From {low[0]} where {effect.name} is {low[1]} to {high[0]} where it is {high[1]}."
    if len(order) == 1:
        caption = f"{format_mean(curve.typical)}: these rows have one value only, {points[0]}."
    draw = partial(explanations.draw_effect, effect=effect, curve=curve, axis_limits=axis_limits)
    if effect.is_line:
        drawing = panels.draw_panel(draw, margins=panels.BESIDE if effect.has_missing else panels.PLAIN)
    else:
        kept = effect.frequent
        if len(kept) < len(effect.points):
            caption += f" The {len(kept)} most frequent of {len(effect.points)} levels are shown."
        words = [format_mean(float(curve.level[i])) for i in kept]
        drawing = panels.draw_panel(
            partial(draw, texts=words), panels.compute_bars_height(len(kept)), margins=panels.NAMED
        )
    return to_figure(drawing, name, f"{effect.name}: {quantity}", caption, caption)


def draw_distribution(evidence: Evidence, row: int, name: str) -> Markup:
    """Draw the predicted distribution of one row with its observed count; return the figure as SVG.

    `name` must be unique on the page.
    """
    dist, y = evidence.distribution(row), float(evidence.y[row])
    levels = (_TAIL_LEFT_OUT, 1 - _TAIL_LEFT_OUT)
    tails = [float(dist.icdf(torch.tensor([level], dtype=torch.float64))) for level in levels]
    low, high = min(tails[0], y), max(tails[1], y) + 1.0
    # If a distribution covers only one or two counts, their neighbours are shown as well.
    low, high = max(0.0, min(low, high - _MIN_BARS + 1)), max(high, low + _MIN_BARS - 1)
    edges, shares = bin_probabilities(dist, low, high, _MAX_BARS)
    interval = float(evidence.low[row]), float(evidence.high[row])
    description = f"Most likely around {edges[int(np.argmax(shares))]:,.0f}; observed {y:,.0f}."
    draw = partial(draw_masses, edges=edges, shares=shares[:, 0], interval=interval, y=y)
    drawing = panels.draw_panel(draw, 1.5, 2.9, (0.15, 0.2))
    drawing.axes[0].set_yticks([])
    title = f"Predicted probabilities of row {evidence.labels[row]}"
    return Markup(panels.render_svg(drawing, name, title, description))
