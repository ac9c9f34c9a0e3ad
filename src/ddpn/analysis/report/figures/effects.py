"""Figures of effects: curves of the mean and of the spread by one column, and of the mean by two."""

from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from ddpn.analysis.explanations import Curve, Effect, Interaction
from ddpn.analysis.report.figures.chart import LINE, POINT, Bar, Chart, Figure, bar_chart
from ddpn.analysis.report.figures.scales import Axis, short, wants_log
from ddpn.analysis.report.numbers import fmt

#: Values of a number that are bars; more are a line. Levels that are drawn, the most frequent ones.
_BARS, _LEVELS = 6, 12
#: Means are not integers, though they may round to one.
_fmt = partial(fmt, integers=False)
_LEGEND = (("line", "effect"), ("band", "90% band"), ("ref", "typical row"))


class Scales(NamedTuple):
    """The axes that all figures of means, and all of spreads, share."""

    mean: Axis
    spread: Axis


def scales(found: list[Effect]) -> Scales:
    """The ranges of all curves; bands may reach beyond."""
    both = [[one.mean for one in found], [one.spread for one in found]]
    return Scales(*(_axis(curves) for curves in both))


def _axis(curves: list[Curve]) -> Axis:
    levels = np.concatenate([curve.level for curve in curves])
    bands = np.concatenate([part for curve in curves for part in (curve.low, curve.high)])
    low, high = float(levels.min()), float(levels.max())
    room = max(0.6 * (high - low), 0.05 * abs(high), 1e-9)
    low, high = max(low - room, float(bands.min())), min(high + room, float(bands.max()))
    # From 0 where that costs at most a third of the height; 1, the Poisson, where it is near.
    if 0.0 <= low < (high - low) / 2.0:
        low = 0.0
    if curves[0].quantity == "variance / mean" and low - (high - low) < 1.0 < high + (high - low):
        low, high = min(low, 1.0), max(high, 1.0)
    margin = max(0.04 * (high - low), 1e-6 * max(abs(high), 1e-6))
    return Axis(f"predicted {curves[0].quantity}", low - margin if low else low, high + margin)


def point_text(point: Any) -> str:
    """A value of a column in words."""
    if isinstance(point, bool):
        return "yes" if point else "no"
    return short(float(f"{point:.4g}")) if isinstance(point, float) else str(point)


def effect_figures(one: Effect, place: int, found: Scales) -> list[Figure]:
    """The effect of one column on the mean, and on the spread."""
    return [
        _figure(one, one.mean, f"effect-mean-{place}", f"{one.name}: mean", found.mean),
        _figure(one, one.spread, f"effect-spread-{place}", f"{one.name}: spread", found.spread),
    ]


def _figure(one: Effect, curve: Curve, name: str, title: str, y: Axis) -> Figure:
    order = np.argsort(curve.level, kind="stable")
    low, high = ((_fmt(float(curve.level[i])), point_text(one.points[i])) for i in (order[0], order[-1]))
    words = f"From {low[0]} where {one.name} is {low[1]} to {high[0]} where it is {high[1]}."
    if len(order) == 1:
        words = f"{_fmt(curve.typical)}: these rows have one value only, {point_text(one.points[0])}."
    numbers = [point for point in one.points if isinstance(point, float)]
    if len(numbers) > _BARS and one.kind == "number":
        return _line(one, curve, y).figure(name, title, words, words, *_LEGEND)
    kept = np.sort(np.argsort(-one.share, kind="stable")[:_LEVELS])
    bars = [
        Bar(
            point_text(one.points[i]),
            (float(curve.level[i]),),
            _fmt(float(curve.level[i])),
            (curve.low[i], curve.high[i]),
        )
        for i in kept.tolist()
    ]
    if len(kept) < len(one.points):
        words += f" The {len(kept)} most frequent of {len(one.points)} levels are shown."
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


def interaction_figure(one: Interaction, place: int) -> Figure | None:
    """The mean along a column of numbers, for a low, a middle and a high value of the other; None without numbers."""
    numeric = [all(isinstance(point, float) for point in points) and len(points) > 2 for points in one.points]
    if not any(numeric):
        return None
    turned = not numeric[0] or (numeric[1] and len(one.points[1]) > len(one.points[0]))
    names, points = (one.names[::-1], one.points[::-1]) if turned else (one.names, one.points)
    level = one.level.T if turned else one.level
    chosen = _most_different(one, 0 if turned else 1)
    x, lines = np.array(points[0], dtype=float), level[:, chosen]
    low, high = float(lines.min()), float(lines.max())
    low = 0.0 if 0.0 <= low < (high - low) / 2.0 else low
    room = max(0.05 * (high - low), 1e-9)
    chart = Chart(
        Axis(names[0], float(x[0]), float(x[-1])), Axis("predicted mean", low - room if low else 0.0, high + room)
    )
    kinds = ("line", "line-2")
    for kind, values in zip(kinds, lines.T, strict=True):
        chart.draw(LINE, kind, x, values)
    legend = [(kind, f"{names[1]}: {point_text(points[1][at])}") for kind, at in zip(kinds, chosen, strict=True)]
    description = "; ".join(
        f"{words}: {fmt(float(values[0]))} to {fmt(float(values[-1]))}"
        for (_, words), values in zip(legend, lines.T, strict=True)
    )
    words = (
        f"The mean of a typical row by {names[0]}, for the two values of {names[1]} that differ most. Without an "
        "interaction the lines would be the same up to a factor."
    )
    return chart.figure(f"interaction-{place}", f"{names[0]} and {names[1]}", description + ".", words, *legend)


def _most_different(one: Interaction, axis: int) -> list[int]:
    """The two points of a column, among those with enough rows, at which the effect of the other differs most."""
    effect, share = (one.effect, one.share) if axis else (one.effect.T, one.share.T)
    rows = share.sum(0)
    usual = [point for point in range(len(rows)) if rows[point] >= 0.5 / len(rows)]
    apart = {(a, b): float(share.sum(1) @ (effect[:, a] - effect[:, b]) ** 2) for a, b in combinations(usual, 2)}
    return list(sorted(apart, key=lambda pair: -apart[pair])[0]) if apart else [0, len(rows) - 1]
