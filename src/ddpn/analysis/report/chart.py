"""A figure as SVG: axes with ticks, bins of counts, and marks.

Colours and line widths are the page's, by CSS class, and follow its mode.
"""

import math
from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np

#: The largest number of ticks of an axis.
_TICKS = 7
WIDTH, HEIGHT = 480, 300
_TOP, _BOTTOM = 12, 48
#: Left margin with a y axis and without, right margin; both margins of named bars.
_LEFT, _BARE, _RIGHT, _NAMED = 64, 14, 22, (150, 74)
#: Height of a named bar, characters that fit beside it, and the width of a tick's label.
_ROW, _CHARACTERS, _LABEL = 24, 19, 42
#: Marks as the part of an SVG path that draws one point of the data. A dot is a line of length 0 with round ends.
LINE, POINT, RANGE = "L{:.1f} {:.1f}", "M{:.1f} {:.1f}h0", "M{:.1f} {:.1f}V{:.1f}"
CROSS = "M{:.1f} {:.1f}m-2.6 -2.6l5.2 5.2m-5.2 0l5.2 -5.2"


class Axis(NamedTuple):
    """A range of data. `log`: in log(1 + x), which is defined at 0; `integers`: ticks at integers only."""

    label: str
    low: float
    high: float
    log: bool = False
    integers: bool = False
    percent: bool = False

    def share(self, values: np.ndarray | float) -> np.ndarray:
        """Position of values between the ends, 0 to 1; values beyond an end are put there."""
        low, high, at = (_log(v) if self.log else v for v in (self.low, self.high, values))
        return np.clip((np.asarray(at, dtype=float) - low) / (high - low), 0.0, 1.0)

    @property
    def ticks(self) -> list[float]:
        """Round numbers within the range."""
        return _log_ticks(self.low, self.high) if self.log else _even_ticks(self.low, self.high, self.integers)

    def tick_label(self, value: float) -> str:
        return f"{100 * value:.6g}%" if self.percent else short(value)


def _log(values: np.ndarray | float) -> np.ndarray:
    """log(1 + x). The left end of the bar of 0 is at -0.5, so values a little below 0 are allowed."""
    return np.log1p(np.maximum(values, -0.75))


def short(value: float) -> str:
    """A number as the label of a tick.

    >>> [short(v) for v in (0.25, 1974.0, 20_000.0, 3e6)]
    ['0.25', '1974', '20k', '3M']
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= max(size, 1e4):
            return f"{value / size:.6g}{letter}"
    return f"{value:.6g}"


def _even_ticks(low: float, high: float, integers: bool) -> list[float]:
    rough = (high - low) / _TICKS
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * m for m in (1, 2, 5, 10) if size * m >= rough * (1 - 1e-9))
    step = max(step, 1.0) if integers else step
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    # Rounded to the step's digits: 3 * 0.1 is not 0.3.
    digits = max(0, -math.floor(math.log10(step)))
    return [round(i * step, digits) for i in range(first, last + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    """0 and powers of ten, with multiples of 3 or of 2 and 5 between them as far as there is room."""
    top = math.ceil(math.log10(max(high, 10.0)))
    for parts in ((1, 2, 5), (1, 3), (1,)):
        ticks = [0.0, *(float(part * 10**power) for power in range(top + 1) for part in parts)]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) <= _TICKS + 1:
            return ticks
    return ticks[:: math.ceil(len(ticks) / _TICKS)]


def wants_log(values: np.ndarray) -> bool:
    """Whether the largest counts are so far from the median that an even axis would crowd most of them at one end."""
    return bool(values.max() > 60 and values.max() > 12 * (np.median(values) + 1))


class Bins(NamedTuple):
    """Integer edges: bin i has the counts from edges[i] to edges[i + 1] - 1."""

    edges: np.ndarray
    log: bool = False

    @property
    def unit(self) -> bool:
        """Whether each bin is a single count."""
        return bool(np.all(np.diff(self.edges) == 1))

    @property
    def ends(self) -> np.ndarray:
        """Where the bars of neighbouring bins meet: halfway between their counts."""
        return self.edges - 0.5

    def axis(self, label: str) -> Axis:
        return Axis(label, float(self.ends[0]), float(self.ends[-1]), self.log, integers=True)

    def shares(self, values: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """The share of the weight in each bin."""
        return np.histogram(values, self.ends, weights=weight)[0] / weight.sum()


def count_bins(values: np.ndarray, most: int = 40) -> Bins:
    """A bin per count where there are few; else ranges of equal width or, for a long tail, of increasing width."""
    low, high = float(values.min()), float(values.max()) + 1.0
    if wants_log(values):
        edges = np.expm1(np.linspace(np.log1p(low), np.log1p(high), most + 1))
        return Bins(np.unique(np.append(np.floor(edges[:-1]), high)), True)
    low = low if high - low <= most or low > 0.2 * high else 0.0
    return even_bins(low, high, most)


def even_bins(low: float, high: float, most: int) -> Bins:
    """At most about so many bins of equal width, from `low` to at least `high`."""
    step = max(1.0, math.ceil((high - low) / most))
    return Bins(low + step * np.arange(math.ceil((high - low) / step) + 1))


# Figures ----------------------------------------------------------------------------------------------------------


class Figure(NamedTuple):
    """An image with its title, its caption, and a legend of (CSS class of the mark, text)."""

    name: str
    title: str
    svg: str
    words: str
    legend: tuple[tuple[str, str], ...] = ()


def text(x: float, y: float, words: str, kind: str = "tick", anchor: str = "middle", more: str = "") -> str:
    """Text at a position."""
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}"{more}>{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, kind: str) -> str:
    """A rectangle."""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" class="{kind}"/>'


def segment(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    """A straight line between two positions."""
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" class="{kind}"/>'


class Chart:
    """Two axes with marks, each drawn above those added before it; `bare` hides the y axis."""

    def __init__(self, x: Axis, y: Axis, width: float = WIDTH, height: float = HEIGHT, bare: bool = False) -> None:
        self.x, self.y, self.width, self.height, self.bare = x, y, width, height, bare
        self.left, self.right, self.floor = _BARE if bare else _LEFT, width - _RIGHT, height - _BOTTOM
        self.marks: list[str] = []

    def px(self, values: Any) -> np.ndarray:
        """Horizontal positions of values."""
        return self.left + self.x.share(values) * (self.right - self.left)

    def py(self, values: Any) -> np.ndarray:
        """Vertical positions of values."""
        return self.floor - self.y.share(values) * (self.floor - _TOP)

    def bars(self, ends: np.ndarray, top: np.ndarray, kind: str = "bar", gap: float = 1.0) -> None:
        """A bar between each two neighbouring `ends`, from the lower end of y up to `top`; narrow bars touch."""
        x = self.px(ends)
        for left, right, high in zip(x[:-1], x[1:], self.py(top), strict=True):
            if self.floor - high > 0.05:
                inset = gap if right - left > 4 * gap else 0.0
                self.marks.append(box(left + inset, high, max(right - left - 2 * inset, 0.6), self.floor - high, kind))

    def draw(self, mark: str, kind: str, x: Any, *y: Any) -> None:
        """All points of the data as one path of `LINE`, `POINT`, `CROSS` or `RANGE` (which has two y)."""
        path = "".join(mark.format(*place) for place in zip(self.px(x), *map(self.py, y), strict=True))
        if path:
            self.marks.append(f'<path d="M{path[1:]}" class="{kind}"/>')

    def area(self, x: Any, low: Any, high: Any, kind: str = "band") -> None:
        """The area between two lines."""
        there = [f"{a:.1f} {b:.1f}" for a, b in zip(self.px(x), self.py(high), strict=True)]
        back = [f"{a:.1f} {b:.1f}" for a, b in zip(self.px(x), self.py(low), strict=True)][::-1]
        self.marks.append(f'<path d="M{"L".join([*there, *back])}Z" class="{kind}"/>')

    def rug(self, x: Any) -> None:
        """A short mark on the x axis at each value."""
        for at in self.px(x):
            self.marks.append(segment(at, self.floor, at, self.floor - 6, "axis"))

    def beside(self, words: str, level: float, low: float, high: float) -> None:
        """A value with its range, to the right of the axes."""
        at = self.right + 36.0
        top, middle, bottom = (float(self.py(value)) for value in (high, level, low))
        self.marks += [
            segment(at, top, at, bottom, "whisker"),
            f'<path d="{POINT.format(at, middle)}" class="dot big"/>',
            text(at, self.floor + 18, words),
        ]

    def band(self, low: float, high: float, kind: str = "band") -> None:
        """A band across the whole width."""
        top, bottom = self.py([high, low])
        self.marks.append(box(self.left, top, self.right - self.left, bottom - top, kind))

    @property
    def x_ticks(self) -> list[float]:
        """The ticks of the x axis that there is room for."""
        ticks = self.x.ticks
        return ticks[:: math.ceil(len(ticks) * _LABEL / (self.right - self.left))]

    def _axes(self) -> list[str]:
        left, right, floor = self.left, self.right, self.floor
        parts = [segment(left, floor, right, floor, "axis")]
        for tick in self.x_ticks:
            at = float(self.px(tick))
            parts += [segment(at, floor, at, floor + 4, "axis"), text(at, floor + 18, self.x.tick_label(tick))]
        parts.append(text((left + right) / 2, self.height - 8, self.x.label, "label"))
        if self.bare:
            return parts
        for tick in self.y.ticks:
            at = float(self.py(tick))
            parts.append(segment(left, at, right, at, "grid"))
            parts.append(text(left - 6, at + 4, self.y.tick_label(tick), anchor="end"))
        middle = (_TOP + floor) / 2
        turn = f' transform="rotate(-90 13 {middle:.1f})"'
        return [*parts, text(13, middle, self.y.label, "label", more=turn)]

    def svg(self, name: str, title: str, description: str) -> str:
        """The image, with a title and a description for screen readers."""
        return (
            f'<svg viewBox="0 0 {self.width:g} {self.height:g}" role="img" aria-labelledby="{name}-t {name}-d">'
            f'<title id="{name}-t">{escape(title)}</title><desc id="{name}-d">{escape(description)}</desc>'
            f"{''.join([*self._axes(), *self.marks])}</svg>"
        )

    def figure(self, name: str, title: str, description: str, words: str, *legend: tuple[str, str]) -> Figure:
        """The image with its caption and legend."""
        return Figure(name, title, self.svg(name, title, description), words, legend)


def histogram(label: str, bins: Bins, shares: np.ndarray, *others: np.ndarray) -> Chart:
    """A chart of the share of rows in each bin, with room for the shares of `others`."""
    top = max(float(each.max()) for each in (shares, *others))
    chart = Chart(bins.axis(label), Axis("share of rows", 0.0, 1.08 * top, percent=True))
    chart.bars(bins.ends, shares)
    return chart


class Bar(NamedTuple):
    """A named bar of parts that follow each other from 0, with text at the end and a whisker (low, high)."""

    name: str
    parts: tuple[float, ...]
    words: str
    whisker: tuple[float, float] | None = None


def bar_chart(x: Axis, bars: Sequence[Bar], kinds: Sequence[str] = ("bar",), mark: float | None = None) -> Chart:
    """Horizontal bars with names; `mark` is a value to compare all of them with."""
    chart = Chart(x, Axis("", 0.0, 1.0), height=_TOP + _ROW * len(bars) + _BOTTOM, bare=True)
    chart.left, chart.right = _NAMED[0], WIDTH - _NAMED[1]
    for tick in chart.x_ticks:
        chart.draw(LINE, "grid", [tick, tick], [0.0, 1.0])
    for i, bar in enumerate(bars):
        # With a mark the text is at the right end, clear of it.
        chart.marks += _bar(chart, bar, _TOP + _ROW * i, kinds, chart.left if mark is None else chart.right)
    if mark is not None:
        chart.draw(LINE, "line-2", [mark, mark], [0.0, 1.0])
    chart.draw(LINE, "axis", [0.0, 0.0], [0.0, 1.0])
    return chart


def _bar(chart: Chart, bar: Bar, top: float, kinds: Sequence[str], words_from: float) -> list[str]:
    middle = top + _ROW / 2
    name = bar.name if len(bar.name) <= _CHARACTERS else bar.name[: _CHARACTERS - 1] + "…"
    label = text(chart.left - 8, middle + 4, name, "name", "end")
    parts = [f"<g><title>{escape(bar.name)}</title>{label}</g>"]
    ends = chart.px(np.cumsum([0.0, *bar.parts]))
    for start, end, kind in zip(ends[:-1], ends[1:], kinds, strict=False):
        parts.append(box(min(start, end), top + 4, max(abs(end - start), 0.8), _ROW - 8, kind))
    reach = max(ends[0], ends[-1], words_from)
    if bar.whisker:
        low, high = chart.px(bar.whisker)
        parts.append(segment(low, middle, high, middle, "whisker"))
        reach = max(reach, high)
    return [*parts, text(reach + 6, middle + 4, bar.words, anchor="start")]
