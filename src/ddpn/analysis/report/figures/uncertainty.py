"""Figures of uncertainty: the parts of the variance, coverage by group, and importances."""

from collections import Counter

import numpy as np

from ddpn.analysis.explanations import Importances
from ddpn.analysis.gains import wilson
from ddpn.analysis.report.evidence import LEVEL, Evidence
from ddpn.analysis.report.figures.chart import Bar, Figure, bar_chart
from ddpn.analysis.report.figures.scales import Axis, short
from ddpn.analysis.report.groups import Group, group_of
from ddpn.analysis.report.numbers import fmt, percent, plural

#: Columns drawn, and groups of rows by predicted mean.
_SHOWN, _FIFTHS = 12, 5


def fifths(evidence: Evidence) -> list[Group]:
    """Rows in up to five groups by their predicted mean, the smallest first."""
    predicted = evidence.model.mean
    parts = np.array_split(np.argsort(predicted, kind="stable"), min(_FIFTHS, len(predicted)))
    labels = (" to ".join(short(float(f"{predicted[row]:.3g}")) for row in part[[0, -1]]) for part in parts)
    return [group_of("predicted mean", label, evidence, part) for label, part in zip(labels, parts, strict=True)]


def split_figure(found: list[Group]) -> Figure:
    """Aleatoric and epistemic shares of the variance in each of the `fifths`."""
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


def calibration_groups(evidence: Evidence) -> list[Group]:
    """The largest of the groups that intervals are calibrated by, in the order of their names."""
    if evidence.grouped is None:
        return []
    name, labels = evidence.grouped
    number = Counter(labels.tolist())
    largest = sorted(label for label, _ in number.most_common(_SHOWN))
    return [group_of(name, label, evidence, np.flatnonzero(labels == label)) for label in largest]


def calibrated_coverage_figure(found: list[Group], rows: dict[str, int]) -> Figure:
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


def group_coverage_figure(found: list[Group]) -> Figure:
    """The coverage of the intervals in each of the `fifths`."""
    description = " ".join(
        f"Predicted mean {g.label}: {percent(g.coverage)} of {plural(g.rows, 'row')}." for g in found
    )
    words = "The same groups: the share of rows inside their interval, with Wilson's 95% interval."
    return _coverage_figure(
        found, "group-coverage", f"Coverage of the {percent(LEVEL, 0)} interval", description, words
    )


def _coverage_figure(found: list[Group], name: str, title: str, description: str, words: str) -> Figure:
    bars = [Bar(g.label, (g.coverage,), percent(g.coverage), wilson(g.coverage, g.size)) for g in found]
    chart = bar_chart(Axis("share of rows inside", 0.0, 1.0, percent=True), bars, mark=LEVEL)
    legend = (("bar", "inside"), ("whisker", "95% interval"), ("line-2", "nominal"))
    return chart.figure(name, title, description, words, *legend)


def importance_figures(found: Importances) -> list[Figure]:
    """The effect of shuffling a column on the CRPS, on the predicted mean and on the predicted spread."""
    return [
        _importance(found, "crps", "Importance for the predictions", "increase of the CRPS"),
        _importance(found, "mean", "Importance for the mean", "change of the mean"),
        _importance(found, "spread", "Importance for the spread", "change of variance / mean"),
    ]


def importance_notes(found: Importances) -> list[tuple[str, str]]:
    """How to read the figures of importances, by topic."""
    repeats = plural(len(found.each[0].crps), "time")
    return [
        (
            "Shuffling",
            f"Each column is shuffled {repeats} on {plural(found.rows, 'row')}: that removes its information.",
        ),
        ("Bars and lines", "The mean of the repeats, and their range."),
        ("Predictions", "Increase of the CRPS, the error of the whole distribution. Columns near 0 are not needed."),
        ("Mean", "Mean change of a row's predicted mean, up or down, relative to the average mean."),
        ("Spread", "The same for variance / mean. A column that changes the mean of a Poisson alone has none."),
        ("Similar columns", "Columns that can replace each other share their importance."),
    ]


def _importance(found: Importances, key: str, title: str, label: str) -> Figure:
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
