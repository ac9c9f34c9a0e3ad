"""The figures of a report as HTML, drawn by `ddpn.analysis.plots`: what they show, in numbers and in words."""

from functools import partial

import numpy as np
import torch

from ddpn.analysis import plots
from ddpn.analysis.explanations import Curve, Effect, Effects, Importances
from ddpn.analysis.explanations.column_effects import scale_of
from ddpn.analysis.figure_data import COVERAGES, Pit, Tenths, bin_probabilities, count_bins, even_bins, wants_log
from ddpn.analysis.gains import weighted_quantile, wilson
from ddpn.analysis.report.evidence import LEVEL, Evidence, RowGroup
from ddpn.analysis.report.page import figure_html
from ddpn.metrics import coverage_curve
from ddpn.networks.training import History
from ddpn.runtime.display import fmt, percent, plural, value_text

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


def pit_figure(pit: Pit, words: str, name: str = "pit", title: str = "PIT histogram") -> str:
    """The PIT histogram, which is flat if the model is calibrated."""
    description = "Heights from left to right: " + ", ".join(f"{height:.2f}" for height in pit.heights) + "."
    caption = f"Position of each count within its predicted distribution; flat is calibrated. {words}"
    return figure_html(plots.panel(partial(plots.draw_pit, pit=pit)), name, title, description, caption)


def coverage_figure(evidence: Evidence) -> str:
    """Observed against nominal coverage, beside the coverage that the distributions themselves expect."""
    rows = torch.from_numpy(np.sort(spread_rows(evidence.mean, _CURVE_ROWS)))
    y, weight = torch.from_numpy(evidence.y)[rows], evidence.weight[rows.numpy()]
    curve = coverage_curve(evidence.dist.rows(rows), y, COVERAGES, weight=weight)
    described = (
        f"{percent(level, 0)} nominal: {percent(share)}"
        for level, share in zip(COVERAGES, curve.observed.tolist(), strict=True)
    )
    words = (
        "Intervals of integers cover at least their nominal share, short ones much more. So the solid line should "
        "follow the dashed one and not the diagonal: below it the model is overconfident, above it too cautious."
    )
    if evidence.calibrated:
        words += " These are the intervals before calibration, which corrects both."
    if len(rows) < len(evidence.y):
        words += f" From {plural(len(rows), 'row')}."
    drawn = plots.panel(partial(plots.draw_coverage, curve=curve))
    return figure_html(drawn, "coverage", "Coverage of uncalibrated intervals", "; ".join(described) + ".", words)


def counts_figure(evidence: Evidence, target: str) -> str:
    """How often each count was observed, and how often the model expects it: marginal calibration."""
    rows, bins = spread_rows(evidence.mean, _MIXED_ROWS), count_bins(evidence.y)
    observed = bins.shares(evidence.y, evidence.weight)
    # Probability below the first bin and above the last is not shown.
    masses = bin_probabilities(evidence.dist.rows(torch.from_numpy(rows)), bins.edges)
    expected = np.average(masses, axis=1, weights=evidence.weight[rows])
    unit, top = "count" if bins.unit else "range of counts", int(np.argmax(observed))
    description = f"The most frequent {unit} starts at {bins.edges[top]:,.0f}, with {percent(observed[top])} of rows."
    words = f"Each bar is a {unit}. Dots are the predicted probabilities, averaged over {plural(len(rows), 'row')}."
    label = f"observed {target}"
    draw = partial(plots.draw_counts, label=label, bins=bins, observed=observed, expected=expected)
    return figure_html(plots.panel(draw), "counts", "Observed and expected counts", description, words)


# Predictions ---------------------------------------------------------------------------------------------------------


def scatter_figure(evidence: Evidence, target: str) -> str:
    """Observed counts against predicted means, with intervals."""
    y, rows = evidence.y, spread_rows(evidence.mean, _DRAWN)
    inside = evidence.scores.coverage[rows] > 0
    mean, low, high = (values[rows] for values in (evidence.mean, evidence.low, evidence.high))
    log = wants_log(np.concatenate([mean, high, y]))
    description = f"{(~inside).sum()} of {len(rows)} rows shown are outside their {percent(LEVEL, 0)} interval."
    if len(rows) < len(y):
        description = f"{len(rows)} of {plural(len(y), 'row')}, evenly spread over the predictions. {description}"
    words = f"{description} The dashed line joins the means of tenths of all rows; it should follow the diagonal."
    if log:
        words += " Both axes are logarithmic, in 1 + count."
    known = {"mean": mean, "ends": np.array([low, high]), "y": y[rows], "inside": inside, "log": log}
    tenths = Tenths.of(evidence.mean, y, evidence.weight)
    drawn = plots.panel(partial(plots.draw_scatter, **known, tenths=tenths, label=f"predicted mean of {target}"))
    return figure_html(drawn, "scatter", "Predicted and observed", description, words)


def sharpness_figure(evidence: Evidence) -> str:
    """The widths of the intervals of all rows, and of those of the best alternative."""
    board = evidence.board
    names = ["mixture", *board.evaluation.others[:1]]
    widths = [board.scores[name].width for name in names]
    weight = np.ones(board.rows) if board.weight is None else board.weight
    bins = count_bins(np.concatenate(widths))
    half, most = (fmt(weighted_quantile(widths[0], weight, q)) for q in (0.5, 0.9))
    description = f"Half of the intervals have a width of {half} or less, 90% of {most} or less."
    words = f"{description} An interval of width 0 is a single count. Narrow is good only if the coverage is right."
    labels = (board.evaluation.labels.get(name, name) for name in names)
    known = {name: bins.shares(each, weight) for name, each in zip(labels, widths, strict=True)}
    label = f"width of the {percent(LEVEL, 0)} interval"
    drawn = plots.panel(partial(plots.draw_widths, label=label, bins=bins, shares=known))
    return figure_html(drawn, "sharpness", "Sharpness", description, words)


def distribution_svg(evidence: Evidence, row: int, name: str) -> str:
    """The predicted distribution of one row, with its observed count."""
    dist, y = evidence.dist.rows(torch.tensor([row])), float(evidence.y[row])
    tails = [float(dist.icdf(torch.tensor([q], dtype=torch.float64))) for q in (_LEFT_OUT, 1 - _LEFT_OUT)]
    low, high = min(tails[0], y), max(tails[1], y) + 1.0
    # A distribution on one or two counts is shown with its neighbours.
    bins = even_bins(max(0.0, min(low, high - _FEWEST + 1)), max(high, low + _FEWEST - 1), _BARS)
    heights = bin_probabilities(dist, bins.edges)[:, 0]
    description = f"Most likely around {bins.edges[int(np.argmax(heights))]:,.0f}; observed {y:,.0f}."
    drawn = plots.panel(partial(plots.draw_distribution, bins=bins, heights=heights, y=y), 1.5, 2.9, (0.15, 0.2))
    return plots.svg_of(drawn, name, f"Predicted probabilities of row {evidence.labels[row]}", description)


# Uncertainty ---------------------------------------------------------------------------------------------------------


def split_figure(found: list[RowGroup]) -> str:
    """Aleatoric and epistemic shares of the variance in groups by predicted mean."""
    description = " ".join(f"Predicted mean {g.label}: {percent(g.share)} epistemic." for g in found)
    words = (
        "Rows in equal groups by their predicted mean, with the standard deviation. Aleatoric variance is noise in the "
        "counts: more training rows do not remove it. Epistemic variance is disagreement between the components: "
        "more training rows of the same kind reduce it."
    )
    names, parts = [g.label for g in found], np.array([1.0 - g.share for g in found])
    draw = partial(plots.draw_shares, names=names, parts=parts, words=[f"± {fmt(g.variance**0.5)}" for g in found])
    drawn = plots.panel(draw, plots.bars_height(len(found)), margins=plots.NAMED)
    return figure_html(drawn, "split", "Aleatoric and epistemic uncertainty", description, words)


def calibrated_coverage_figure(found: list[RowGroup], rows: dict[str, int]) -> str:
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


def group_coverage_figure(found: list[RowGroup]) -> str:
    """The coverage of the intervals in groups by predicted mean."""
    parts = (f"Predicted mean {g.label}: {percent(g.coverage)} of {plural(g.rows, 'row')}." for g in found)
    words = "The same groups: the share of rows inside their interval, with Wilson's 95% interval."
    title = f"Coverage of the {percent(LEVEL, 0)} interval"
    return _coverage_figure(found, "group-coverage", title, " ".join(parts), words)


def _coverage_figure(found: list[RowGroup], name: str, title: str, description: str, words: str) -> str:
    draw = partial(
        plots.draw_against,
        names=[g.label for g in found],
        level=np.array([g.coverage for g in found]),
        reach=np.array([wilson(g.coverage, g.size) for g in found]).T,
        words=[percent(g.coverage) for g in found],
        labels=("share of rows inside", "inside, with 95% interval", "nominal"),
        mark=LEVEL,
    )
    drawn = plots.panel(draw, plots.bars_height(len(found)), margins=plots.NAMED)
    return figure_html(drawn, name, title, description, words)


# Importances and effects ---------------------------------------------------------------------------------------------


def importance_figure(found: Importances, key: str, title: str, label: str) -> str:
    """What shuffling the most important columns changes: "crps", "mean" or "spread"."""
    shown = found.by(key)[:_SHOWN]
    values = np.array([getattr(one, key) for one in shown])
    digits, words = 0 if values.max() >= 1 else 1, []
    for each in values:
        rounded = round(100 * float(each.mean()), digits)
        words.append(f"{rounded:{'+' if key == 'crps' and rounded else ''}.{digits}f}%")
    names = [one.name for one in shown]
    draw = partial(plots.draw_importance, names=names, values=values, words=words, label=label)
    drawn = plots.panel(draw, plots.bars_height(len(shown)), margins=plots.NAMED)
    more = f"The {len(shown)} largest of {plural(found.columns, 'column')} are shown."
    description = "; ".join(f"{name}: {text}" for name, text in zip(names, words, strict=True)) + "."
    return figure_html(drawn, f"importance-{key}", title, description, more if len(found.each) > len(shown) else "")


def effect_figures(found: Effects) -> list[list[str]]:
    """The effect of each column on the mean, and on the spread; all figures of a side have the same scale."""
    scales = {of: scale_of([getattr(one, of) for one in found]) for of in ("mean", "spread")}
    return [
        [_effect(one, getattr(one, of), f"effect-{of}-{place}", f"{one.name}: {of}", scales[of]) for of in scales]
        for place, one in enumerate(found)
    ]


def _effect(one: Effect, curve: Curve, name: str, title: str, scale: tuple[float, float]) -> str:
    order = np.argsort(curve.level, kind="stable")
    low, high = ((_decimal(float(curve.level[i])), value_text(one.points[i])) for i in (order[0], order[-1]))
    words = f"From {low[0]} where {one.name} is {low[1]} to {high[0]} where it is {high[1]}."
    if len(order) == 1:
        words = f"{_decimal(curve.typical)}: these rows have one value only, {value_text(one.points[0])}."
    draw = partial(plots.draw_effect, one=one, curve=curve, scale=scale)
    if one.is_line:
        drawn = plots.panel(draw, margins=plots.BESIDE if one.has_missing else plots.PLAIN)
        return figure_html(drawn, name, title, words, words)
    kept = one.frequent
    if len(kept) < len(one.points):
        words += f" The {len(kept)} most frequent of {len(one.points)} levels are shown."
    texts = [_decimal(float(curve.level[i])) for i in kept]
    drawn = plots.panel(partial(draw, words=texts), plots.bars_height(len(kept)), margins=plots.NAMED)
    return figure_html(drawn, name, title, words, words)


# Training ------------------------------------------------------------------------------------------------------------


def training_figure(history: History, key: str, title: str, label: str) -> str:
    """The "loss", or the "score" of validation rows that chose each member's epoch; "" where it was not recorded."""
    members = max((len(record.get(key) or ()) for record in history.epochs), default=0)
    # Shape: (epochs, members), NaN where nothing was recorded.
    values = np.array([record.get(key) or [None] * members for record in history.epochs], dtype=float)
    if not np.isfinite(values).any():
        return ""
    kept = np.empty((0, 2))
    if key == "score":
        pairs = zip(values.T, history.best_epoch, strict=False)
        kept = np.array([(best, member[best - 1]) for member, best in pairs if 1 <= best <= len(values)]).reshape(-1, 2)
    start, end = (fmt(float(np.nanmean(row))) for row in values[np.isfinite(values).any(1)][[0, -1]])
    words = f"The mean over members went from {start} to {end}."
    drawn = plots.panel(partial(plots.draw_training, values=values, kept=kept, label=label))
    return figure_html(drawn, f"training-{key}", title, words, words)
