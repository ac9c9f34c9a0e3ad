"""Bars that lie, one a name: importances and parts of a whole."""

from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

from ddpn.report.figures.chart import WIDTH, box, segment, svg, text
from ddpn.report.figures.scales import Axis

_LEFT, _RIGHT, _TOP, _ROW, _FOOT = 150, 74, 6, 24, 46
#: Letters that fit beside a bar.
_LETTERS = 19
#: Ticks that fit below.
_TICKS = 6


class Bar(NamedTuple):
    """Parts that follow each other from 0, a whisker (least, largest), and words at the end."""

    name: str
    parts: tuple[float, ...]
    words: str
    whisker: tuple[float, float] | None = None


def cut(name: str, letters: int = _LETTERS) -> str:
    """A name that fits."""
    return name if len(name) <= letters else name[: letters - 1] + "…"


def lying_bars(
    name: str,
    title: str,
    description: str,
    axis: Axis,
    bars: Sequence[Bar],
    kinds: Sequence[str],
    mark: float | None = None,
) -> str:
    """One bar a row, on a common axis; `mark` is a value to compare all with."""
    height, right = _TOP + _ROW * len(bars) + _FOOT, WIDTH - _RIGHT
    floor = height - _FOOT

    def at(value: float) -> float:
        return _LEFT + float(axis.share(value)) * (right - _LEFT)

    parts = []
    ticks = axis.ticks
    for tick in ticks if len(ticks) <= _TICKS else ticks[::2]:
        parts += [segment(at(tick), _TOP, at(tick), floor, "grid"), text(at(tick), floor + 16, axis.tick_label(tick))]
    for i, bar in enumerate(bars):
        # Words at the right end, clear of the mark.
        parts += _row(bar, _TOP + _ROW * i, at, kinds, _LEFT if mark is None else right)
    if mark is not None:
        parts.append(segment(at(mark), _TOP, at(mark), floor, "line-2"))
    parts.append(segment(at(0.0), _TOP, at(0.0), floor, "axis"))
    parts.append(text((_LEFT + right) / 2, height - 6, axis.label, "label"))
    return svg(name, title, description, WIDTH, height, parts)


def _row(bar: Bar, top: float, at: Callable[[float], float], kinds: Sequence[str], words_from: float) -> list[str]:
    middle = top + _ROW / 2
    full = f"<title>{escape(bar.name)}</title>"
    parts = [f"<g>{full}{text(_LEFT - 8, middle + 4, cut(bar.name), 'name', 'end')}</g>"]
    start = end = 0.0
    for value, kind in zip(bar.parts, kinds, strict=False):
        end = start + value
        left, right = sorted((at(start), at(end)))
        parts.append(box(left, top + 4, max(right - left, 0.8), _ROW - 8, kind))
        start = end
    reach = max(at(end), at(0.0), words_from)
    if bar.whisker:
        low, high = map(at, bar.whisker)
        parts.append(segment(low, middle, high, middle, "whisker"))
        reach = max(reach, high)
    return [*parts, text(reach + 6, middle + 4, bar.words, anchor="start")]
