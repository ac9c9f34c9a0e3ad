"""What is predicted: against what was seen, how widely, and of single rows."""

import numpy as np
import torch

from ddpn.report.distributions import rows_of
from ddpn.report.evidence import LEVEL, Evidence
from ddpn.report.figures.calibration import spread_rows
from ddpn.report.figures.chart import Chart, Figure
from ddpn.report.figures.scales import Axis, count_bins, wants_log
from ddpn.report.numbers import fmt, mean, percent, plural, quantile

#: Rows drawn one by one, and groups of rows whose means are drawn.
_DRAWN, _TENTHS = 160, 10
#: A pmf: bars at most, and the share of the law left out at each side.
_BARS, _LEFT_OUT = 60, 1e-3
#: And at least.
_FEWEST = 5


def scatter_figure(evidence: Evidence, target: str) -> Figure:
    """Predicted means against observed counts, each with its interval."""
    y, model = evidence.y, evidence.model
    rows = spread_rows(model.mean, _DRAWN)
    reach = np.concatenate([y[rows], model.high[rows], model.mean[rows]])
    log, top = wants_log(np.append(reach, y)), 1.04 * max(float(reach.max()), 1.0)
    low = _floor(min(float(reach.min()), float(model.low[rows].min())), top, log)
    chart = Chart(Axis(f"predicted mean of {target}", low, top, log), Axis("observed", low, top, log, whole=True))
    chart.ranges(model.mean[rows], model.low[rows], model.high[rows])
    chart.line([low, top], [low, top], "ref")
    inside = model.inside(y)[rows] > 0
    chart.points(model.mean[rows][inside], y[rows][inside])
    chart.crosses(model.mean[rows][~inside], y[rows][~inside])
    tenths = _tenths(evidence)
    chart.line(*tenths, "line-2")
    title = "Predicted against observed"
    thinned = (
        f"{plural(len(rows), 'row')} of {len(y):,}, evenly spread over the predictions. " if len(rows) < len(y) else ""
    )
    told = f"{thinned}{int((~inside).sum())} of {len(rows)} drawn rows lie outside their {percent(LEVEL, 0)} interval."
    words = f"{told} The dashed line joins the mean counts of tenths of all rows; it should follow the diagonal."
    if log:
        words += " Both axes are logarithmic, in 1 + count."
    legend = (
        ("range", f"{percent(LEVEL, 0)} interval"),
        ("dot", "inside"),
        ("cross", "outside"),
        ("line-2", "mean of a tenth"),
    )
    return Figure("scatter", title, chart.svg("scatter", title, told), words, legend)


def _floor(least: float, top: float, log: bool) -> float:
    """Where axes of counts start: at 0, unless that would leave much of the figure empty."""
    if log:
        return 0.8 * least if least > 10 else 0.0
    return least - 0.05 * (top - least) if least > 0.4 * top else 0.0


def _tenths(evidence: Evidence) -> tuple[np.ndarray, np.ndarray]:
    """Mean prediction and mean count of rows in ten groups by prediction."""
    parts = np.array_split(np.argsort(evidence.model.mean, kind="stable"), min(_TENTHS, len(evidence.y)))
    x = [mean(evidence.model.mean[part], evidence.weight[part]) for part in parts]
    return np.array(x), np.array([mean(evidence.y[part], evidence.weight[part]) for part in parts])


def sharpness_figure(evidence: Evidence, rival: str | None) -> Figure:
    """How wide the intervals are, and those of the best baseline."""
    widths = evidence.model.high - evidence.model.low
    others = None if rival is None else evidence.baselines[rival].high - evidence.baselines[rival].low
    bins = count_bins(widths if others is None else np.concatenate([widths, others]))
    shares = bins.shares(widths, evidence.weight)
    of_others = None if others is None else bins.shares(others, evidence.weight)
    top = float(max(shares.max(), 0.0 if of_others is None else of_others.max()))
    x = Axis(f"width of the {percent(LEVEL, 0)} interval", bins.edges[0] - 0.5, bins.edges[-1] - 0.5, bins.log, True)
    chart = Chart(x, Axis("share of rows", 0.0, 1.08 * top, percent=True))
    chart.bars(bins.edges[:-1] - 0.5, bins.edges[1:] - 0.5, shares)
    legend: tuple[tuple[str, str], ...] = (("bar", "this model"),)
    if of_others is not None:
        chart.steps(bins.edges - 0.5, of_others, "line-2")
        legend += (("line-2", str(rival)),)
    half, most = (fmt(quantile(widths, evidence.weight, q)) for q in (0.5, 0.9))
    told = f"Half of all intervals have a width of {half} or less, nine in ten {most} or less."
    words = f"{told} A width of 0 is a single count. Narrow is good only where the coverage holds."
    title = "Sharpness"
    return Figure("sharpness", title, chart.svg("sharpness", title, told), words, legend)


def pmf_svg(evidence: Evidence, row: int, name: str) -> str:
    """The law of one row, with its observed count."""
    law = rows_of(evidence.model.law, torch.tensor([row]))
    y = float(evidence.y[row])
    ends = [float(law.icdf(torch.tensor([q], dtype=torch.float64))) for q in (_LEFT_OUT, 1 - _LEFT_OUT)]
    low, high = min(ends[0], y), max(ends[1], y) + 1.0
    # A law on one or two counts is shown with its neighbours.
    low, high = max(0.0, min(low, high - _FEWEST + 1)), max(high, low + _FEWEST - 1)
    step = max(1.0, np.ceil((high - low) / _BARS))
    edges = low + step * np.arange(int(np.ceil((high - low) / step)) + 1)
    upto = torch.from_numpy(edges - 1.0).unsqueeze(1)
    heights = np.diff(torch.where(upto < 0, 0.0, law.cdf(upto.clamp(min=0.0))).numpy()[:, 0])
    x = Axis("count" if step == 1 else f"count, {step:,.0f} a bar", edges[0] - 0.5, edges[-1] - 0.5, whole=True)
    chart = Chart(x, Axis("", 0.0, 1.1 * float(heights.max())), 300, 150, bare_y=True)
    chart.bars(edges[:-1] - 0.5, edges[1:] - 0.5, heights)
    chart.upright(y, "seen")
    told = f"Most likely around {edges[int(np.argmax(heights))]:,.0f}; observed {y:,.0f}."
    return chart.svg(name, f"Predicted probabilities of row {evidence.rows[row]:,}", told)
