"""A figure as SVG: axes and marks. Colours and widths are the page's, by class, so that they follow its mode."""

from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np

from ddpn.report.figures.scales import Axis

WIDTH, HEIGHT = 480, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 22, 12, 48


class Figure(NamedTuple):
    """A picture with its title, the words below it, and a legend of (mark, words)."""

    name: str
    title: str
    svg: str
    words: str
    legend: tuple[tuple[str, str], ...] = ()


def svg(name: str, title: str, description: str, width: float, height: float, parts: Sequence[str]) -> str:
    """One picture that a screen reader can tell of."""
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-labelledby="{name}-t {name}-d">'
        f'<title id="{name}-t">{escape(title)}</title><desc id="{name}-d">{escape(description)}</desc>'
        f"{''.join(parts)}</svg>"
    )


def text(x: float, y: float, words: str, kind: str = "tick", anchor: str = "middle", more: str = "") -> str:
    """Words at a place."""
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}"{more}>{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, kind: str) -> str:
    """A rectangle."""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" class="{kind}"/>'


def segment(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    """A straight line between two places."""
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" class="{kind}"/>'


class Chart:
    """Two axes; marks are added in the order they lie upon each other."""

    def __init__(self, x: Axis, y: Axis, width: float = WIDTH, height: float = HEIGHT, bare_y: bool = False) -> None:
        self.x, self.y = x, y
        self.width, self.height, self._bare_y = width, height, bare_y
        self._left = 14 if bare_y else _LEFT
        self._marks: list[str] = []

    def _px(self, values: Any) -> np.ndarray:
        return self._left + self.x.share(values) * (self.width - self._left - _RIGHT)

    def _py(self, values: Any) -> np.ndarray:
        return self.height - _BOTTOM - self.y.share(values) * (self.height - _BOTTOM - _TOP)

    # Marks -------------------------------------------------------------------------------------------------------

    def bars(self, left: np.ndarray, right: np.ndarray, top: np.ndarray, kind: str = "bar", gap: float = 1.0) -> None:
        """From the lower end of y up to `top`; bars narrower than a few pixels touch."""
        x1, x2, up = self._px(left), self._px(right), self._py(top)
        floor = float(self._py(self.y.low))
        for a, b, high in zip(x1, x2, up, strict=True):
            if floor - high > 0.05:
                inset = gap if b - a > 4 * gap else 0.0
                self._marks.append(box(a + inset, high, max(b - a - 2 * inset, 0.6), floor - high, kind))

    def line(self, x: Any, y: Any, kind: str = "line") -> None:
        self._path(zip(self._px(x), self._py(y), strict=True), "M{:.1f} {:.1f}", "L{:.1f} {:.1f}", kind)

    def steps(self, edges: np.ndarray, height: np.ndarray, kind: str) -> None:
        """The outline of a histogram."""
        x = np.repeat(edges, 2)
        self.line(x, np.concatenate([[self.y.low], np.repeat(height, 2), [self.y.low]]), kind)

    def points(self, x: Any, y: Any, kind: str = "dot") -> None:
        """Dots: lines of no length with round ends, all in one path."""
        self._path(zip(self._px(x), self._py(y), strict=True), "M{:.1f} {:.1f}h0", "M{:.1f} {:.1f}h0", kind)

    def crosses(self, x: Any, y: Any, kind: str = "cross", size: float = 2.6) -> None:
        one = f"M{{:.1f}} {{:.1f}}m{-size} {-size}l{2 * size} {2 * size}m{-2 * size} 0l{2 * size} {-2 * size}"
        self._path(zip(self._px(x), self._py(y), strict=True), one, one, kind)

    def ranges(self, x: Any, low: Any, high: Any, kind: str = "range") -> None:
        """Upright lines."""
        one = "M{:.1f} {:.1f}V{:.1f}"
        self._path(zip(self._px(x), self._py(low), self._py(high), strict=True), one, one, kind)

    def band(self, low: float, high: float, kind: str = "band") -> None:
        """Across the whole width."""
        top, bottom = float(self._py(high)), float(self._py(low))
        self._marks.append(box(self._left, top, self.width - self._left - _RIGHT, bottom - top, kind))

    def across(self, y: float, kind: str = "ref") -> None:
        self._marks.append(segment(self._left, float(self._py(y)), self.width - _RIGHT, float(self._py(y)), kind))

    def upright(self, x: float, kind: str = "ref") -> None:
        self._marks.append(segment(float(self._px(x)), _TOP, float(self._px(x)), self.height - _BOTTOM, kind))

    def _path(self, places: Any, first: str, later: str, kind: str) -> None:
        parts = [(first if i == 0 else later).format(*place) for i, place in enumerate(places)]
        if parts:
            self._marks.append(f'<path d="{"".join(parts)}" class="{kind}"/>')

    # The whole ----------------------------------------------------------------------------------------------------

    def _axes(self) -> list[str]:
        floor, right = self.height - _BOTTOM, self.width - _RIGHT
        parts = [segment(self._left, floor, right, floor, "axis")]
        for tick in self.x.ticks:
            at = float(self._px(tick))
            parts += [segment(at, floor, at, floor + 4, "axis"), text(at, floor + 18, self.x.tick_label(tick))]
        parts.append(text((self._left + right) / 2, self.height - 8, self.x.label, "label"))
        if self._bare_y:
            return parts
        for tick in self.y.ticks:
            at = float(self._py(tick))
            parts.append(segment(self._left, at, right, at, "grid"))
            parts.append(text(self._left - 6, at + 4, self.y.tick_label(tick), anchor="end"))
        middle = (_TOP + floor) / 2
        turn = f' transform="rotate(-90 13 {middle:.1f})"'
        return [*parts, text(13, middle, self.y.label, "label", more=turn)]

    def svg(self, name: str, title: str, description: str) -> str:
        return svg(name, title, description, self.width, self.height, [*self._axes(), *self._marks])
