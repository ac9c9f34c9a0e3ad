"""Figures of explanations by matplotlib, which is optional: `ddpn[plot]`. The results call them, and are `Any` here."""

from typing import Any

import numpy as np

from ddpn.runtime.extras import import_extra
from ddpn.runtime.validation import check_integer

_LINE, _BAND, _OTHER = "#2166ac", "#b3cde3", "#b34a00"
#: Characters of a level or column beside an axis.
_CHARACTERS = 24


def _panels(rows: int, columns: int, size: tuple[float, float]) -> tuple[Any, Any]:
    """A figure and its axes (rows, columns), without pyplot: no window and no global state."""
    figure = import_extra("matplotlib.figure", "plot").Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def shown(point: Any) -> str:
    """A value of a column as a label."""
    if isinstance(point, bool):
        return "yes" if point else "no"
    text = f"{point:.4g}" if isinstance(point, float) else str(point)
    return text if len(text) <= _CHARACTERS else f"{text[: _CHARACTERS - 1]}…"


def effects_figure(found: list[Any]) -> Any:
    """The effects of columns on the mean (left) and on the spread (right)."""
    figure, axes = _panels(max(len(found), 1), 2, (9.0, 2.6 * max(len(found), 1)))
    for row, one in zip(axes, found, strict=False):
        for ax, curve in zip(row, (one.mean, one.spread), strict=True):
            if one.continuous:
                _draw_line(ax, one, curve)
            else:
                _draw_points(ax, one, curve)
            ax.set_ylabel(curve.quantity)
            ax.set_xlabel(one.name)
            ax.axhline(curve.typical, color="0.6", linewidth=0.8, linestyle=":")
    return figure


def _draw_line(ax: Any, one: Any, curve: Any) -> None:
    size = len(one.points) - one.has_missing
    x = np.array(one.points[:size], dtype=float)
    ax.fill_between(x, curve.low[:size], curve.high[:size], color=_BAND, linewidth=0)
    ax.plot(x, curve.level[:size], color=_LINE)
    ax.plot(x, np.zeros(size), "|", color="0.3", transform=ax.get_xaxis_transform(), markersize=6, clip_on=False)
    if one.has_missing:
        at = x[-1] + 0.08 * max(float(np.ptp(x)), 1e-12)
        _draw_bar(ax, at, curve, size)
        ax.annotate("missing", (at, curve.high[size]), ha="center", va="bottom", fontsize="small", color=_OTHER)


def _draw_points(ax: Any, one: Any, curve: Any) -> None:
    for place in range(len(one.points)):
        _draw_bar(ax, place, curve, place)
    turned = {"rotation": 40, "ha": "right"} if sum(len(shown(point)) for point in one.points) > 40 else {}
    ax.set_xticks(np.arange(len(one.points)), [shown(point) for point in one.points], **turned)


def _draw_bar(ax: Any, at: float, curve: Any, place: int) -> None:
    level = curve.level[place]
    reach = [[level - curve.low[place]], [curve.high[place] - level]]
    ax.errorbar([at], [level], np.maximum(reach, 0.0), fmt="o", color=_LINE, ecolor="0.4", markersize=5, linewidth=1.2)


def interaction_figure(one: Any) -> Any:
    """What two columns together add to the sum of their effects, as a map."""
    figure, axes = _panels(1, 1, (5.5, 4.2))
    ax, most = axes[0, 0], max(float(np.abs(one.effect).max()), 1e-12)
    drawn = ax.imshow(one.effect.T, origin="lower", aspect="auto", cmap="RdBu_r", vmin=-most, vmax=most)
    for name, axis, points in zip(one.names, (ax.xaxis, ax.yaxis), one.points, strict=True):
        axis.set_ticks(np.arange(len(points)), [shown(point) for point in points])
        axis.set_label_text(name)
    figure.colorbar(drawn, label="added to log mean" if one.log else "added to the mean")
    return figure


def importance_figure(found: Any, most: int) -> Any:
    """The most important columns: for the CRPS, the mean and the spread."""
    check_integer("most", most, 1)
    chosen = found.by("crps")[:most][::-1]
    figure, axes = _panels(1, 3, (11.0, 1.2 + 0.3 * len(chosen)))
    titles = {"crps": "increase of the CRPS", "mean": "change of the mean", "spread": "change of the spread"}
    for ax, (name, title) in zip(axes[0], titles.items(), strict=True):
        values = 100.0 * np.array([getattr(one, name) for one in chosen]).reshape(len(chosen), -1)
        ax.barh(np.arange(len(chosen)), values.mean(1), color=_BAND, edgecolor=_LINE)
        ax.hlines(np.arange(len(chosen)), values.min(1), values.max(1), color="0.2", linewidth=1.2)
        ax.set_yticks(np.arange(len(chosen)), [shown(one.name) for one in chosen] if name == "crps" else [])
        ax.set_xlabel(f"{title}, %")
    return figure


def contributions_figure(found: Any, row: int, most: int) -> Any:
    """The contributions to one row, the largest on top, each starting where the one above it ends."""
    top = found.top(row, most)
    parts = [(f"{name} = {shown(cell)}", value) for name, cell, value in top]
    rest = float(found.values[row].sum() - sum(value for _, value in parts))
    if found.values.shape[1] > len(parts):
        parts.append((f"{found.values.shape[1] - len(parts)} others", rest))
    figure, axes = _panels(1, 1, (7.0, 1.2 + 0.35 * len(parts)))
    ax, start = axes[0, 0], found.base
    for place, (_, value) in enumerate(parts):
        ax.barh(place, value, left=start, color=_OTHER if value > 0 else _LINE)
        start += value
    ax.axvline(found.base, color="0.6", linewidth=0.8, linestyle=":")
    ax.axvline(start, color="0.2", linewidth=0.8)
    ax.set_yticks(np.arange(len(parts)), [words for words, _ in parts])
    ax.invert_yaxis()
    ax.set_xlabel(f"log of {found.quantity}" if found.log else found.quantity)
    return figure
