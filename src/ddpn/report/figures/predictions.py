"""Is the model as sure as it should be? PIT histogram, coverage curve, expected against observed counts."""

import math
from typing import NamedTuple

import numpy as np
import torch

from ddpn.metrics import coverage_curve, pit_histogram
from ddpn.report.distributions import rows_of
from ddpn.report.evidence import Evidence
from ddpn.report.figures.chart import Chart, Figure
from ddpn.report.figures.scales import Axis, Bins, count_bins
from ddpn.report.numbers import Z, effective_rows, percent, plural

PIT_BINS = 10
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
#: Rows whose intervals are searched at every level, and rows whose whole laws are averaged.
_CURVE_ROWS, _MIXED_ROWS = 4000, 1000


def spread_rows(order_by: np.ndarray, most: int) -> np.ndarray:
    """At most so many rows, evenly spread over the order of these values: all kinds of rows are among them."""
    order = np.argsort(order_by, kind="stable")
    if len(order) <= most:
        return order
    return order[np.round(np.linspace(0, len(order) - 1, most)).astype(int)]


class Pit(NamedTuple):
    """Heights of the PIT histogram, and how far chance alone moves one."""

    heights: np.ndarray
    chance: float


def pit_of(evidence: Evidence) -> Pit:
    """Non-randomised; the chance is that of a continuous law's bins, which bounds that of counts."""
    heights = pit_histogram(evidence.model.law, torch.from_numpy(evidence.y), PIT_BINS, evidence.weight).numpy()
    return Pit(heights, Z * math.sqrt((PIT_BINS - 1) / effective_rows(evidence.weight)))


def pit_figure(pit: Pit, words: str) -> Figure:
    """Flat where the model is calibrated."""
    title = "PIT histogram"
    top = max(1.6, 1.1 * float(pit.heights.max()), 1.05 * (1 + pit.chance))
    chart = Chart(Axis("probability integral transform", 0.0, 1.0), Axis("height (1 = calibrated)", 0.0, top))
    edges = np.linspace(0.0, 1.0, PIT_BINS + 1)
    chart.band(max(0.0, 1 - pit.chance), 1 + pit.chance)
    chart.bars(edges[:-1], edges[1:], pit.heights, "bar clear")
    chart.across(1.0)
    told = "Heights from left to right: " + ", ".join(f"{height:.2f}" for height in pit.heights) + "."
    legend = (("bar clear", "rows"), ("band", "where chance keeps 95% of bars"), ("ref", "perfect"))
    return Figure("pit", title, chart.svg("pit", title, told), words, legend)


def coverage_figure(evidence: Evidence) -> Figure:
    """Nominal against observed, beside what the laws themselves expect."""
    rows = torch.from_numpy(np.sort(spread_rows(evidence.model.mean, _CURVE_ROWS)))
    y, weight = torch.from_numpy(evidence.y)[rows], evidence.weight[rows.numpy()]
    curve = coverage_curve(rows_of(evidence.model.law, rows), y, LEVELS, weight=weight)
    seen, expected = curve.observed.numpy(), curve.expected.numpy()
    chart = Chart(
        Axis("nominal coverage", 0.0, 1.0, percent=True), Axis("share of rows inside", 0.0, 1.0, percent=True)
    )
    chart.line([0.0, 1.0], [0.0, 1.0], "ref")
    chart.line(LEVELS, expected, "line-2")
    chart.line(LEVELS, seen, "line")
    chart.points(LEVELS, seen, "dot own")
    told = "; ".join(f"{percent(a, 0)} nominal: {percent(b)}" for a, b in zip(LEVELS, seen, strict=True)) + "."
    title = "Coverage of the laws' own intervals"
    thinned = "" if len(rows) == len(evidence.y) else f" From {plural(len(rows), 'row')}."
    words = (
        "A law's own intervals of whole counts hold at least their nominal share, most of all short ones. So the solid "
        "line should follow the dashed one, not the diagonal: below it the model is too sure, above it too "
        f"cautious.{_made_up(evidence)}{thinned}"
    )
    legend = (("line", "observed"), ("line-2", "what the model itself expects"), ("ref", "nominal"))
    return Figure("coverage", title, chart.svg("coverage", title, told), words, legend)


def _made_up(evidence: Evidence) -> str:
    return " The intervals above are calibrated, which makes up for both." if evidence.calibrated else ""


def counts_figure(evidence: Evidence, target: str) -> Figure:
    """How often each count was seen, and how often the model expects it: marginal calibration."""
    bins = count_bins(evidence.y)
    seen = bins.shares(evidence.y, evidence.weight)
    rows = spread_rows(evidence.model.mean, _MIXED_ROWS)
    expected = _expected_shares(evidence, rows, bins)
    x = Axis(f"observed {target}", bins.edges[0] - 0.5, bins.edges[-1] - 0.5, whole=True, log=bins.log)
    chart = Chart(x, Axis("share of rows", 0.0, 1.08 * float(max(seen.max(), expected.max())), percent=True))
    left, right = bins.edges[:-1] - 0.5, bins.edges[1:] - 0.5
    chart.bars(left, right, seen)
    # On a log axis the middle of a wide bar is the geometric one; that of a single count is the count.
    middle = np.where(np.diff(bins.edges) == 1, bins.edges[:-1], np.sqrt((left + 1) * (right + 1)) - 1)
    chart.points(middle if bins.log else 0.5 * (left + right), expected, "dot big")
    each = "count" if bins.unit else "range of counts"
    title = "Observed counts and what the model expects"
    top = int(np.argmax(seen))
    told = f"The commonest {each} starts at {bins.edges[top]:,.0f}, with {percent(float(seen[top]))} of rows."
    words = f"Each bar is a {each}. The dots are the model's probabilities, averaged over {plural(len(rows), 'row')}."
    legend = (("bar", "observed"), ("dot big", "expected by the model"))
    return Figure("counts", title, chart.svg("counts", title, told), words, legend)


def _expected_shares(evidence: Evidence, rows: np.ndarray, bins: Bins) -> np.ndarray:
    law = rows_of(evidence.model.law, torch.from_numpy(rows))
    # Below the first bin and beyond the last there is no bar: that mass is not shown.
    upto = torch.from_numpy(bins.edges - 1.0).unsqueeze(1)
    cdf = torch.where(upto < 0, 0.0, law.cdf(upto.clamp(min=0.0))).numpy()
    return np.average(np.diff(cdf, axis=0), axis=1, weights=evidence.weight[rows])
