"""Where uncertainty comes from: parts of the variance, and the columns that move it."""

import numpy as np

from ddpn.report.evidence import LEVEL, Evidence
from ddpn.report.figures.bars import Bar, lying_bars
from ddpn.report.figures.chart import Figure
from ddpn.report.figures.scales import Axis, short
from ddpn.report.groups import Group, group_of
from ddpn.report.importance import REPEATS, Importances
from ddpn.report.numbers import fmt, percent, plural, wilson

#: Columns drawn, and groups of rows by predicted mean.
_SHOWN, _FIFTHS = 12, 5


def fifths(evidence: Evidence) -> list[Group]:
    """Rows in up to five groups by their predicted mean, the smallest first."""
    order = np.argsort(evidence.model.mean, kind="stable")
    found = []
    for part in np.array_split(order, min(_FIFTHS, len(order))):
        mask = np.zeros(len(order), dtype=bool)
        mask[part] = True
        low, high = evidence.model.mean[part[0]], evidence.model.mean[part[-1]]
        found.append(group_of(f"{_round(low)} to {_round(high)}", evidence, mask))
    return found


def _round(value: float) -> str:
    """Three digits, short enough to stand beside a bar."""
    return short(float(f"{value:.3g}"))


def split_figure(evidence: Evidence) -> Figure:
    """Aleatoric and epistemic shares of the variance, by predicted mean."""
    found = fifths(evidence)
    bars = [Bar(g.label, (1.0 - g.share, g.share), f"± {fmt(g.variance**0.5)}") for g in found]
    title = "Aleatoric and epistemic uncertainty"
    told = " ".join(f"Predicted mean {g.label}: {percent(g.share)} epistemic." for g in found)
    picture = lying_bars(
        "split", title, told, Axis("share of the variance", 0.0, 1.0, percent=True), bars, ("bar", "bar-2")
    )
    words = (
        "Rows in equal groups by their predicted mean; at the right the standard deviation. Aleatoric is in the "
        "counts themselves: more rows do not remove it. Epistemic is what the members disagree about: "
        "more rows like these do."
    )
    return Figure("split", title, picture, words, (("bar", "aleatoric"), ("bar-2", "epistemic")))


def held_figure(evidence: Evidence) -> Figure:
    """How often the interval held, by predicted mean."""
    found = fifths(evidence)
    bars = [Bar(g.label, (g.coverage,), percent(g.coverage), wilson(g.coverage, g.size)) for g in found]
    title = f"Where the {percent(LEVEL, 0)} interval held"
    told = " ".join(f"Predicted mean {g.label}: {percent(g.coverage)} of {plural(g.rows, 'row')}." for g in found)
    axis = Axis("share of rows inside", 0.0, 1.0, percent=True)
    picture = lying_bars("held", title, told, axis, bars, ("bar",), LEVEL)
    words = "The same groups: the share of rows inside their interval, with Wilson's 95% interval."
    return Figure(
        "held", title, picture, words, (("bar", "inside"), ("whisker", "95% interval"), ("line-2", "promised"))
    )


def importance_figures(found: Importances) -> tuple[Figure, Figure]:
    """What shuffling a column does to the CRPS, and to the predicted standard deviation."""
    axes = ("increase of the CRPS", "change of the standard deviation")
    names, titles = ("drives-mean", "drives-spread"), ("What drives the predictions", "What drives the uncertainty")
    words = (
        f"Each column is shuffled {REPEATS} times over {plural(found.rows, 'row')}, so that it says nothing. Bars: how "
        "much worse the CRPS gets. Lines: the least and the largest of the repeats. Near 0: not needed.",
        "The same shuffles: by how much a row's predicted standard deviation changes, up or down, on average. "
        "Columns that stand in for each other share their worth in both figures.",
    )
    first, second = (
        _importance(found, key, name, title, label, text)
        for key, name, title, label, text in zip(("crps", "deviation"), names, titles, axes, words, strict=True)
    )
    return first, second


def _importance(found: Importances, key: str, name: str, title: str, label: str, words: str) -> Figure:
    shown = found.by(key)[:_SHOWN]
    values = [getattr(one, key) for one in shown]
    spreads = [getattr(one, f"{key}_spread") for one in shown]
    low = min(0.0, *(spread[0] for spread in spreads))
    high = max(*(spread[1] for spread in spreads), 0.0, 1e-3) if spreads else 1.0
    digits = 0 if high >= 1 else 1
    bars = [
        Bar(one.name, (value,), _change(value, digits) if key == "crps" else percent(value), spread)
        for one, value, spread in zip(shown, values, spreads, strict=True)
    ]
    told = "; ".join(f"{bar.name}: {bar.words}" for bar in bars) + "."
    if len(found.each) > len(shown):
        words += f" The {len(shown)} largest of {plural(found.columns, 'column')} are shown."
    picture = lying_bars(name, title, told, Axis(label, low, high, percent=True), bars, ("bar",))
    return Figure(name, title, picture, words)


def _change(value: float, digits: int) -> str:
    """Percent with its sign; what rounds to nothing has none."""
    shown = round(100 * value, digits)
    return f"{shown:+.{digits}f}%" if shown else "0%"
