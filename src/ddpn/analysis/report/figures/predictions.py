"""Figures of predicted distributions: calibration, predictions against counts, sharpness, single rows."""

import math
from typing import Any, NamedTuple

import numpy as np
import torch

from ddpn.analysis.gains import Z, effective_rows, z_of
from ddpn.analysis.report.evidence import LEVEL, Evidence
from ddpn.analysis.report.figures.chart import CROSS, LINE, POINT, RANGE, Chart, Figure, histogram
from ddpn.analysis.report.figures.scales import Axis, bin_probabilities, count_bins, even_bins, wants_log
from ddpn.analysis.report.numbers import fmt, mean, percent, plural, quantile
from ddpn.metrics import coverage_curve, pit_histogram

PIT_BINS = 10
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
#: Rows whose intervals are computed at every level, and rows whose distributions are averaged.
_CURVE_ROWS, _MIXED_ROWS = 4000, 1000
#: Rows drawn one by one, and groups of rows whose means are drawn.
_DRAWN, _TENTHS = 160, 10
#: Most and fewest bars of a distribution, and the probability left out in each tail.
_BARS, _FEWEST, _LEFT_OUT = 60, 5, 1e-3


def spread_rows(values: np.ndarray, most: int) -> np.ndarray:
    """At most so many rows, evenly spread over the order of these values."""
    order = np.argsort(values, kind="stable")
    return order[np.round(np.linspace(0, len(order) - 1, min(most, len(order)))).astype(int)]


class Pit(NamedTuple):
    """Heights of the PIT histogram, and how far chance moves one of them in 95% of samples."""

    heights: np.ndarray
    chance: float

    @property
    def chance_of_all(self) -> float:
        """How far chance moves the one that it moves farthest, in at most 5% of samples (Bonferroni)."""
        return self.chance * z_of(len(self.heights)) / Z


def pit_of(evidence: Evidence, dist: Any = None) -> Pit:
    """The non-randomised PIT; `chance` is that of a continuous distribution, an upper bound for counts.

    `dist` are other distributions of the same rows than the model's.
    """
    dist = evidence.model.dist if dist is None else dist
    heights = pit_histogram(dist, torch.from_numpy(evidence.y), PIT_BINS, evidence.weight).numpy()
    return Pit(heights, Z * math.sqrt((PIT_BINS - 1) / effective_rows(evidence.weight)))


def pit_figure(pit: Pit, words: str, name: str = "pit", title: str = "PIT histogram") -> Figure:
    """The PIT histogram, which is flat if the model is calibrated."""
    top = max(1.6, 1.1 * float(pit.heights.max()), 1.05 * (1 + pit.chance))
    chart = Chart(Axis("probability integral transform", 0.0, 1.0), Axis("height (1 = calibrated)", 0.0, top))
    chart.band(max(0.0, 1 - pit.chance), 1 + pit.chance)
    chart.bars(np.linspace(0.0, 1.0, PIT_BINS + 1), pit.heights, "bar clear")
    chart.draw(LINE, "ref", [0.0, 1.0], [1.0, 1.0])
    description = "Heights from left to right: " + ", ".join(f"{height:.2f}" for height in pit.heights) + "."
    caption = f"Position of each count within its predicted distribution; flat is calibrated. {words}"
    legend = (("bar clear", "rows"), ("band", "95% range of chance"), ("ref", "calibrated"))
    return chart.figure(name, title, description, caption, *legend)


def coverage_figure(evidence: Evidence) -> Figure:
    """Observed against nominal coverage, beside the coverage that the distributions themselves expect."""
    rows = torch.from_numpy(np.sort(spread_rows(evidence.model.mean, _CURVE_ROWS)))
    y, weight = torch.from_numpy(evidence.y)[rows], evidence.weight[rows.numpy()]
    curve = coverage_curve(evidence.model.dist.rows(rows), y, LEVELS, weight=weight)
    observed = curve.observed.numpy()
    x = Axis("nominal coverage", 0.0, 1.0, percent=True)
    chart = Chart(x, x._replace(label="share of rows inside"))
    chart.draw(LINE, "ref", [0.0, 1.0], [0.0, 1.0])
    chart.draw(LINE, "line-2", LEVELS, curve.expected.numpy())
    chart.draw(LINE, "line", LEVELS, observed)
    chart.draw(POINT, "dot own", LEVELS, observed)
    described = (
        f"{percent(level, 0)} nominal: {percent(share)}" for level, share in zip(LEVELS, observed, strict=True)
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


def counts_figure(evidence: Evidence, target: str) -> Figure:
    """How often each count was observed, and how often the model expects it: marginal calibration."""
    bins, rows = count_bins(evidence.y), spread_rows(evidence.model.mean, _MIXED_ROWS)
    observed = bins.shares(evidence.y, evidence.weight)
    # Probability below the first bin and above the last is not shown.
    each = bin_probabilities(evidence.model.dist.rows(torch.from_numpy(rows)), bins.edges)
    expected = np.average(each, axis=1, weights=evidence.weight[rows])
    chart = histogram(f"observed {target}", bins, observed, expected)
    left, right = bins.ends[:-1], bins.ends[1:]
    # On a log axis the middle of a wide bar is the geometric one; that of a single count is the count.
    middle = np.where(np.diff(bins.edges) == 1, bins.edges[:-1], np.sqrt((left + 1) * (right + 1)) - 1)
    chart.draw(POINT, "dot big", middle if bins.log else 0.5 * (left + right), expected)
    unit, top = "count" if bins.unit else "range of counts", int(np.argmax(observed))
    description = f"The most frequent {unit} starts at {bins.edges[top]:,.0f}, with {percent(observed[top])} of rows."
    words = f"Each bar is a {unit}. Dots are the predicted probabilities, averaged over {plural(len(rows), 'row')}."
    legend = (("bar", "observed"), ("dot big", "expected by the model"))
    return chart.figure("counts", "Observed and expected counts", description, words, *legend)


def scatter_figure(evidence: Evidence, target: str) -> Figure:
    """Observed counts against predicted means, with intervals."""
    y, model = evidence.y, evidence.model
    rows = spread_rows(model.mean, _DRAWN)
    at, low, high, seen, inside = (v[rows] for v in (model.mean, model.low, model.high, y, model.inside > 0))
    log = wants_log(np.concatenate([at, high, seen, y]))
    up = Axis("observed", *_range(np.concatenate([at, low, high, seen]), log), log, integers=True)
    chart = Chart(Axis(f"predicted mean of {target}", *_range(at, log), log), up)
    chart.draw(RANGE, "range", at, low, high)
    diagonal = [max(up.low, chart.x.low), min(up.high, chart.x.high)]
    chart.draw(LINE, "ref", diagonal, diagonal)
    chart.draw(POINT, "dot", at[inside], seen[inside])
    chart.draw(CROSS, "cross", at[~inside], seen[~inside])
    parts = np.array_split(np.argsort(model.mean, kind="stable"), min(_TENTHS, len(y)))
    tenths = ([mean(values[part], evidence.weight[part]) for part in parts] for values in (model.mean, y))
    chart.draw(LINE, "line-2", *tenths)
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
    dist, y = evidence.model.dist.rows(torch.tensor([row])), float(evidence.y[row])
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
