"""The figures of a report: calibration, predictions against counts, sharpness, uncertainty, importances, effects."""

from functools import partial
from typing import Any

import numpy as np
import torch

from ddpn.analysis.explanations import Curve, Effect, Effects, Importances
from ddpn.analysis.explanations.column_effects import scale_of
from ddpn.analysis.figure_data import COVERAGES, Pit, Tenths, bin_probabilities
from ddpn.analysis.gains import wilson
from ddpn.analysis.numbers import fmt, percent, plural, quantile, value_text
from ddpn.analysis.report.chart import (
    CROSS,
    LINE,
    POINT,
    RANGE,
    Axis,
    Bar,
    Chart,
    Figure,
    bar_chart,
    count_bins,
    even_bins,
    histogram,
    wants_log,
)
from ddpn.analysis.report.evidence import LEVEL, Evidence, RowGroup
from ddpn.metrics import coverage_curve
from ddpn.networks.training import History

#: Rows whose intervals are computed at every level, and rows whose distributions are averaged.
_CURVE_ROWS, _MIXED_ROWS = 4000, 1000
#: Rows drawn one by one, and columns drawn.
_DRAWN, _SHOWN = 160, 12
#: Most and fewest bars of a distribution, and the probability left out in each tail.
_BARS, _FEWEST, _LEFT_OUT = 60, 5, 1e-3
#: Means are not integers, though they may round to one.
_decimal = partial(fmt, integers=False)


def spread_rows(values: np.ndarray, most: int) -> np.ndarray:
    """At most so many rows, evenly spread over the order of these values."""
    order = np.argsort(values, kind="stable")
    return order[np.round(np.linspace(0, len(order) - 1, min(most, len(order)))).astype(int)]


# Calibration ---------------------------------------------------------------------------------------------------------


def pit_figure(pit: Pit, words: str, name: str = "pit", title: str = "PIT histogram") -> Figure:
    """The PIT histogram, which is flat if the model is calibrated."""
    chart = Chart(Axis("probability integral transform", 0.0, 1.0), Axis("height (1 = calibrated)", 0.0, pit.top))
    chart.band(max(0.0, 1 - pit.chance), 1 + pit.chance)
    chart.bars(pit.edges, pit.heights, "bar clear")
    chart.draw(LINE, "ref", [0.0, 1.0], [1.0, 1.0])
    description = "Heights from left to right: " + ", ".join(f"{height:.2f}" for height in pit.heights) + "."
    caption = f"Position of each count within its predicted distribution; flat is calibrated. {words}"
    legend = (("bar clear", "rows"), ("band", "95% range of chance"), ("ref", "calibrated"))
    return chart.figure(name, title, description, caption, *legend)


def coverage_figure(evidence: Evidence) -> Figure:
    """Observed against nominal coverage, beside the coverage that the distributions themselves expect."""
    rows = torch.from_numpy(np.sort(spread_rows(evidence.mean, _CURVE_ROWS)))
    y, weight = torch.from_numpy(evidence.y)[rows], evidence.weight[rows.numpy()]
    curve = coverage_curve(evidence.dist.rows(rows), y, COVERAGES, weight=weight)
    observed = curve.observed.numpy()
    x = Axis("nominal coverage", 0.0, 1.0, percent=True)
    chart = Chart(x, x._replace(label="share of rows inside"))
    chart.draw(LINE, "ref", [0.0, 1.0], [0.0, 1.0])
    chart.draw(LINE, "line-2", COVERAGES, curve.expected.numpy())
    chart.draw(LINE, "line", COVERAGES, observed)
    chart.draw(POINT, "dot own", COVERAGES, observed)
    described = (
        f"{percent(level, 0)} nominal: {percent(share)}" for level, share in zip(COVERAGES, observed, strict=True)
    )
    words = (
        "Intervals of integers cover at least their nominal share, short ones much more. So the solid line should "
        "follow the dashed one and not the diagonal: below it the model is overconfident, above it too cautious."
    )
    if evidence.calibrated:
        words += " These are the intervals before calibration, which corrects both."
    if len(rows) < len(evidence.y):
        words += f" From {plural(len(rows), 'row')}."
    legend = (("line", "observed"), ("line-2", "expected by the model"), ("ref", "nominal"))
    return chart.figure("coverage", "Coverage of uncalibrated intervals", "; ".join(described) + ".", words, *legend)


def counts_chart(dist: Any, target: str, y: np.ndarray, weight: np.ndarray, rows: np.ndarray) -> tuple[Chart, Any]:
    """How often each count was observed, and is expected: the distributions of some `rows`, averaged.

    Returns the chart, and (bins, observed shares, expected shares).
    """
    bins = count_bins(y)
    observed = bins.shares(y, weight)
    # Probability below the first bin and above the last is not shown.
    expected = np.average(bin_probabilities(dist, bins.edges), axis=1, weights=weight[rows])
    chart = histogram(f"observed {target}", bins, observed, expected)
    left, right = bins.ends[:-1], bins.ends[1:]
    # On a log axis the middle of a wide bar is the geometric one; that of a single count is the count.
    middle = np.where(np.diff(bins.edges) == 1, bins.edges[:-1], np.sqrt((left + 1) * (right + 1)) - 1)
    chart.draw(POINT, "dot big", middle if bins.log else 0.5 * (left + right), expected)
    return chart, (bins, observed, expected)


def counts_figure(evidence: Evidence, target: str) -> Figure:
    """How often each count was observed, and how often the model expects it: marginal calibration."""
    rows = spread_rows(evidence.mean, _MIXED_ROWS)
    dist = evidence.dist.rows(torch.from_numpy(rows))
    chart, (bins, observed, _) = counts_chart(dist, target, evidence.y, evidence.weight, rows)
    unit, top = "count" if bins.unit else "range of counts", int(np.argmax(observed))
    description = f"The most frequent {unit} starts at {bins.edges[top]:,.0f}, with {percent(observed[top])} of rows."
    words = f"Each bar is a {unit}. Dots are the predicted probabilities, averaged over {plural(len(rows), 'row')}."
    legend = (("bar", "observed"), ("dot big", "expected by the model"))
    return chart.figure("counts", "Observed and expected counts", description, words, *legend)


# Predictions ---------------------------------------------------------------------------------------------------------


def scatter_figure(evidence: Evidence, target: str) -> Figure:
    """Observed counts against predicted means, with intervals."""
    y, rows = evidence.y, spread_rows(evidence.mean, _DRAWN)
    inside = evidence.scores.coverage[rows] > 0
    at, low, high, seen = (values[rows] for values in (evidence.mean, evidence.low, evidence.high, y))
    log = wants_log(np.concatenate([at, high, seen, y]))
    up = Axis("observed", *_range(np.concatenate([at, low, high, seen]), log), log, integers=True)
    chart = Chart(Axis(f"predicted mean of {target}", *_range(at, log), log), up)
    chart.draw(RANGE, "range", at, low, high)
    diagonal = [max(up.low, chart.x.low), min(up.high, chart.x.high)]
    chart.draw(LINE, "ref", diagonal, diagonal)
    chart.draw(POINT, "dot", at[inside], seen[inside])
    chart.draw(CROSS, "cross", at[~inside], seen[~inside])
    tenths = Tenths.of(evidence.mean, y, evidence.weight)
    chart.draw(LINE, "line-2", tenths.predicted, tenths.observed)
    level = f"{percent(LEVEL, 0)} interval"
    description = f"{(~inside).sum()} of {len(rows)} rows shown are outside their {level}."
    if len(rows) < len(y):
        description = f"{len(rows)} of {plural(len(y), 'row')}, evenly spread over the predictions. {description}"
    words = f"{description} The dashed line joins the means of tenths of all rows; it should follow the diagonal."
    if log:
        words += " Both axes are logarithmic, in 1 + count."
    legend = (("range", level), ("dot", "inside"), ("cross", "outside"), ("line-2", "mean of a tenth"))
    return chart.figure("scatter", "Predicted and observed", description, words, *legend)


def _range(values: np.ndarray, log: bool) -> tuple[float, float]:
    """The ends of an axis of counts: from 0, unless much of the axis would be empty."""
    least, top = float(values.min()), 1.04 * max(float(values.max()), 1.0)
    if log:
        return 0.8 * least if least > 10 else 0.0, top
    return least - 0.05 * (top - least) if least > 0.4 * top else 0.0, top


def sharpness_figure(evidence: Evidence) -> Figure:
    """The widths of the intervals of all rows, and of those of the best alternative."""
    board = evidence.board
    names = ["mixture", *board.evaluation.others[:1]]
    widths = [board.scores[name].width for name in names]
    weight = np.ones(board.rows) if board.weight is None else board.weight
    bins = count_bins(np.concatenate(widths))
    shares, *others = (bins.shares(each, weight) for each in widths)
    chart = histogram(f"width of the {percent(LEVEL, 0)} interval", bins, shares, *others)
    for each in others:
        chart.draw(LINE, "line-2", np.repeat(bins.ends, 2), np.pad(np.repeat(each, 2), 1))
    half, most = (fmt(quantile(widths[0], weight, q)) for q in (0.5, 0.9))
    description = f"Half of the intervals have a width of {half} or less, 90% of {most} or less."
    words = f"{description} An interval of width 0 is a single count. Narrow is good only if the coverage is right."
    labels = board.evaluation.labels
    legend = (("bar", "this model"), *(("line-2", labels.get(name, name)) for name in names[1:]))
    return chart.figure("sharpness", "Sharpness", description, words, *legend)


def distribution_svg(evidence: Evidence, row: int, name: str) -> str:
    """The predicted distribution of one row, with its observed count."""
    dist, y = evidence.dist.rows(torch.tensor([row])), float(evidence.y[row])
    tails = [float(dist.icdf(torch.tensor([q], dtype=torch.float64))) for q in (_LEFT_OUT, 1 - _LEFT_OUT)]
    low, high = min(tails[0], y), max(tails[1], y) + 1.0
    # A distribution on one or two counts is shown with its neighbours.
    bins = even_bins(max(0.0, min(low, high - _FEWEST + 1)), max(high, low + _FEWEST - 1), _BARS)
    heights = bin_probabilities(dist, bins.edges)[:, 0]
    label = "count" if bins.unit else f"count, {bins.edges[1] - bins.edges[0]:,.0f} per bar"
    chart = Chart(bins.axis(label), Axis("", 0.0, 1.1 * float(heights.max())), 300, 150, bare=True)
    chart.bars(bins.ends, heights)
    chart.draw(LINE, "seen", [y, y], [0.0, chart.y.high])
    description = f"Most likely around {bins.edges[int(np.argmax(heights))]:,.0f}; observed {y:,.0f}."
    return chart.svg(name, f"Predicted probabilities of row {evidence.labels[row]}", description)


# Uncertainty ---------------------------------------------------------------------------------------------------------


def split_figure(found: list[RowGroup]) -> Figure:
    """Aleatoric and epistemic shares of the variance in groups by predicted mean."""
    bars = [Bar(g.label, (1.0 - g.share, g.share), f"± {fmt(g.variance**0.5)}") for g in found]
    description = " ".join(f"Predicted mean {g.label}: {percent(g.share)} epistemic." for g in found)
    words = (
        "Rows in equal groups by their predicted mean, with the standard deviation. Aleatoric variance is noise in the "
        "counts: more training rows do not remove it. Epistemic variance is disagreement between the components: "
        "more training rows of the same kind reduce it."
    )
    chart = bar_chart(Axis("share of the variance", 0.0, 1.0, percent=True), bars, ("bar", "bar-2"))
    legend = (("bar", "aleatoric"), ("bar-2", "epistemic"))
    return chart.figure("split", "Aleatoric and epistemic uncertainty", description, words, *legend)


def calibrated_coverage_figure(found: list[RowGroup], rows: dict[str, int]) -> Figure:
    """The coverage of the intervals in each group that they are calibrated by; `rows` are its calibration rows."""
    name = found[0].column
    parts = (
        f"{g.label}: {percent(g.coverage)} of {plural(g.rows, 'row')}, calibrated on {rows.get(g.label, 0):,}"
        for g in found
    )
    words = (
        f"Intervals are calibrated within groups by {name}. Groups of few calibration rows, or of none, have the level "
        "of all rows, or one near it."
    )
    return _coverage_figure(found, "calibrated-groups", f"Coverage by {name}", "; ".join(parts) + ".", words)


def group_coverage_figure(found: list[RowGroup]) -> Figure:
    """The coverage of the intervals in groups by predicted mean."""
    parts = (f"Predicted mean {g.label}: {percent(g.coverage)} of {plural(g.rows, 'row')}." for g in found)
    words = "The same groups: the share of rows inside their interval, with Wilson's 95% interval."
    title = f"Coverage of the {percent(LEVEL, 0)} interval"
    return _coverage_figure(found, "group-coverage", title, " ".join(parts), words)


def _coverage_figure(found: list[RowGroup], name: str, title: str, description: str, words: str) -> Figure:
    bars = [Bar(g.label, (g.coverage,), percent(g.coverage), wilson(g.coverage, g.size)) for g in found]
    chart = bar_chart(Axis("share of rows inside", 0.0, 1.0, percent=True), bars, mark=LEVEL)
    legend = (("bar", "inside"), ("whisker", "95% interval"), ("line-2", "nominal"))
    return chart.figure(name, title, description, words, *legend)


# Importances and effects ---------------------------------------------------------------------------------------------


def importance_figure(found: Importances, key: str, title: str, label: str) -> Figure:
    """What shuffling the most important columns changes: "crps", "mean" or "spread"."""
    shown = found.by(key)[:_SHOWN]
    repeats = np.array([getattr(one, key) for one in shown])
    axis = Axis(label, min(0.0, float(repeats.min())), max(1e-3, float(repeats.max())), percent=True)
    digits = 0 if axis.high >= 1 else 1
    bars = []
    for one, each in zip(shown, repeats, strict=True):
        rounded = round(100 * float(each.mean()), digits)
        sign = "+" if key == "crps" and rounded else ""
        bars.append(Bar(one.name, (each.mean(),), f"{rounded:{sign}.{digits}f}%", (each.min(), each.max())))
    words = ""
    if len(found.each) > len(shown):
        words = f"The {len(shown)} largest of {plural(found.columns, 'column')} are shown."
    description = "; ".join(f"{bar.name}: {bar.words}" for bar in bars) + "."
    return bar_chart(axis, bars).figure(f"importance-{key}", title, description, words)


def effect_figures(found: Effects) -> list[list[Figure]]:
    """The effect of each column on the mean, and on the spread; all figures of a side have the same scale."""
    sides = {"mean": [one.mean for one in found], "spread": [one.spread for one in found]}
    axes = {of: Axis(f"predicted {curves[0].quantity}", *scale_of(curves)) for of, curves in sides.items()}
    return [
        [_effect(one, getattr(one, of), f"effect-{of}-{place}", f"{one.name}: {of}", axes[of]) for of in sides]
        for place, one in enumerate(found)
    ]


def _effect(one: Effect, curve: Curve, name: str, title: str, y: Axis) -> Figure:
    order = np.argsort(curve.level, kind="stable")
    low, high = ((_decimal(float(curve.level[i])), value_text(one.points[i])) for i in (order[0], order[-1]))
    words = f"From {low[0]} where {one.name} is {low[1]} to {high[0]} where it is {high[1]}."
    if len(order) == 1:
        words = f"{_decimal(curve.typical)}: these rows have one value only, {value_text(one.points[0])}."
    if one.is_line:
        legend = (("line", "effect"), ("band", "90% band"), ("ref", "typical row"))
        return _line(one, curve, y).figure(name, title, words, words, *legend)
    bars = []
    for i in one.frequent:
        level = float(curve.level[i])
        bars.append(Bar(value_text(one.points[i]), (level,), _decimal(level), (curve.low[i], curve.high[i])))
    if len(bars) < len(one.points):
        words += f" The {len(bars)} most frequent of {len(one.points)} levels are shown."
    axis = y._replace(low=min(0.0, y.low))
    legend = (("bar", "effect"), ("whisker", "90% interval"), ("line-2", "typical row"))
    return bar_chart(axis, bars, mark=curve.typical).figure(name, title, words, words, *legend)


def _line(one: Effect, curve: Curve, y: Axis) -> Chart:
    size = len(one.points) - one.has_missing
    x = np.array(one.points[:size], dtype=float)
    log = bool(x[0] >= 0 and wants_log(np.repeat(x, np.maximum(1, np.round(200 * one.share[:size])).astype(int))))
    chart = Chart(Axis(one.name, float(x[0]), float(x[-1]), log=log), y)
    if one.has_missing:
        chart.right -= 60.0
    chart.area(x, curve.low[:size], curve.high[:size])
    chart.draw(LINE, "ref", x[[0, -1]], [curve.typical] * 2)
    chart.draw(LINE, "line", x, curve.level[:size])
    if not one.continuous:
        chart.draw(POINT, "dot own", x, curve.level[:size])
    else:
        chart.rug(x)
    if one.has_missing:
        chart.beside("missing", curve.level[size], curve.low[size], curve.high[size])
    return chart


# Training ------------------------------------------------------------------------------------------------------------


def training_figure(history: History, key: str, title: str, label: str) -> Figure | None:
    """The "loss", or the "score" of validation rows that chose each member's epoch; None where it was not recorded."""
    members = max((len(record.get(key) or ()) for record in history.epochs), default=0)
    # Shape: (epochs, members), NaN where nothing was recorded.
    values = np.array([record.get(key) or [None] * members for record in history.epochs], dtype=float)
    finite = values[np.isfinite(values)]
    if not len(finite):
        return None
    low = float(finite.min())
    # A start far above the rest would make the rest flat.
    top = min(float(finite.max()), float(np.quantile(finite, 0.5) + 4 * (np.quantile(finite, 0.9) - low)))
    room = max(top - low, 1e-9 * max(1.0, abs(top)))
    up = Axis(label, low - 0.06 * room, low + 1.06 * room)
    chart = Chart(Axis("epoch", 1.0, max(2.0, float(len(values))), integers=True), up)
    for member in values.T:
        usable = np.isfinite(member)
        chart.draw(LINE, "line thin", np.flatnonzero(usable) + 1, member[usable])
    legend = [("line thin", "a member")]
    if key == "score":
        pairs = zip(values.T, history.best_epoch, strict=False)
        kept = np.array([(best, member[best - 1]) for member, best in pairs if 1 <= best <= len(values)]).reshape(-1, 2)
        chart.draw(POINT, "dot big", *kept[np.isfinite(kept[:, 1])].T)
        legend.append(("dot big", "the epoch kept"))
    start, end = (fmt(float(np.nanmean(row))) for row in values[np.isfinite(values).any(1)][[0, -1]])
    words = f"The mean over members went from {start} to {end}."
    return chart.figure(f"training-{key}", title, words, words, *legend)
