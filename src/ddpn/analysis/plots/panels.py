"""Figures with a single panel: layout, axis labels and scales, bar charts, and conversion to SVG for reports."""

import re
import warnings
from collections.abc import Callable, Sequence
from html import escape
from io import StringIO
from typing import TYPE_CHECKING, Any
from unicodedata import east_asian_width

import numpy as np

from ddpn.runtime.display import value_text
from ddpn.runtime.figures import ACCENT, BAND, BAR, CONTRAST, INK, MUTED, RULE, SOFT, figure_class, use_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


#: The CSS names of the colours. A page has other colours in dark mode.
_PAGE_COLORS = {
    ACCENT: "accent", SOFT: "soft", CONTRAST: "contrast", BAND: "band", MUTED: "muted", RULE: "rule", INK: "ink",
}  # fmt: skip
#: The width of a level or column beside an axis, in points: fewer than the left margin has beside `NAMED` bars.
_LABEL_POINTS = 106.0
#: Sizes in inches: width and height of a figure, and heights of a named bar, of a line of a legend, and of an axis with
#: its label.
_WIDTH, _HEIGHT, _BAR_HEIGHT, _LEGEND_HEIGHT, _AXIS_HEIGHT = 4.3, 2.75, 0.25, 0.19, 0.5
#: Left and right margins in inches: without named bars, with named bars, and with a mark beside the axes.
PLAIN, NAMED, BESIDE = (0.62, 0.22), (1.62, 0.66), (0.62, 0.6)


@use_style
def draw_panel(
    draw: Callable[["Axes"], object],
    height: float = _HEIGHT,
    width: float = _WIDTH,
    margins: tuple[float, float] = PLAIN,
    title: str = "",
    figure: "Figure | None" = None,
) -> "Figure":
    """Make a figure with one panel, a legend above it and, if `title` is not empty, a title at the top.

    `draw` is a function that draws into the axes of the panel. `height` and `width` are in inches. `margins` are the
    left and the right margin in inches, such as `PLAIN`. The panel is added to `figure`, or to a new figure that pyplot
    does not know.
    """
    figure = figure_class()() if figure is None else figure
    figure.set_size_inches(width, height)
    ax = figure.subplots()
    draw(ax)
    entries = ax.get_legend_handles_labels()
    number = len(entries[1])
    columns = 2 if number == 4 else 3
    top = height - 0.12 - _LEGEND_HEIGHT * -(-number // columns) - 0.3 * bool(title)
    edges = {
        "left": margins[0] / width,
        "right": 1 - margins[1] / width,
        "bottom": _AXIS_HEIGHT / height,
        "top": top / height,
    }
    figure.subplots_adjust(**edges)
    if number:
        position: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0.1 / width, top / height)}
        figure.legend(*entries, ncols=columns, columnspacing=1.1, handlelength=1.7, labelspacing=0.25, **position)
    if title:
        figure.suptitle(title, x=0.12 / width, ha="left", y=1 - 0.08 / height)
    return figure


@use_style
def render_svg(figure: "Figure", name: str, title: str, description: str) -> str:
    """Render a figure as an SVG element for an HTML page, with selectable text and the colours of the page.

    The same figure always gives the same SVG. `name` must be unique on the page, because it prefixes all ids of the
    SVG. `title` and `description` are for screen readers.
    """
    import matplotlib

    buffer = StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with matplotlib.rc_context({"svg.hashsalt": name}), warnings.catch_warnings():
        # Glyphs that matplotlib's font lacks are in the fonts of the browser.
        warnings.filterwarnings("ignore", "Glyph", UserWarning)
        figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    body = buffer.getvalue().partition("<svg")[2].partition(">")[2].replace("xlink:href", "href")
    body = re.sub(r'(\bid="|url\(#|href="#)', rf"\1{name}-", body)
    for color, variable in _PAGE_COLORS.items():
        body = body.replace(f": {color}", f": var(--{variable})")
    width, height = 72 * figure.get_size_inches()
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-labelledby="{name}-t {name}-d">'
        f'<title id="{name}-t">{escape(title)}</title><desc id="{name}-d">{escape(description)}</desc>{body}'
    )


def shorten_label(point: object) -> str:
    """Format a value or a column name as a label of limited width. Long labels keep their beginning and their end.

    >>> shorten_label("Aufnahme-Datum weekday"), shorten_label("ward")
    ('Aufnahme… weekday', 'ward')
    """
    text = value_text(point)
    short, kept = text, len(text)
    while _estimate_width(short) > _LABEL_POINTS:
        kept -= 1
        short = f"{text[: kept // 2]}…{text[len(text) - (kept + 1) // 2 :]}"
    return short


def _estimate_width(text: str) -> float:
    """Return an upper estimate of the width of a text in points, set in a wide font such as matplotlib's."""
    wide = sum(character in "mwMW%@…" or east_asian_width(character) in "WF" for character in text)
    narrow = sum(character in "fijlrtI .,:;'|()-" for character in text)
    upper = sum(character.isupper() and character not in "MWI" for character in text)
    return 9.0 * wide + 3.7 * narrow + 7.2 * upper + 5.8 * (len(text) - wide - narrow - upper)


def _log1p(values: np.ndarray) -> np.ndarray:
    """Return log(1 + x), the scale of logarithmic axes of counts. Unlike log(x), it is finite at 0.

    Values below -0.75 are replaced by -0.75, because the bar of count 0 begins at -0.5.
    """
    return np.log1p(np.maximum(values, -0.75))


LOG_SCALE = {"functions": (_log1p, np.expm1)}


def needs_log_axis(values: np.ndarray) -> bool:
    """Return True if a linear axis would crowd most values at one end, because the largest are far above the median."""
    return bool(values.max() > 60 and values.max() > 12 * (np.median(values) + 1))


def compute_bars_height(n_bars: int) -> float:
    """Return the height in inches of a figure with `n_bars` horizontal bars."""
    return 0.35 + _AXIS_HEIGHT + _BAR_HEIGHT * n_bars


def draw_bars(
    ax: "Axes",
    names: Sequence[object],
    lengths: np.ndarray,
    error_bars: np.ndarray,
    texts: Sequence[str] = (),
    label: str = "",
) -> None:
    """Draw horizontal bars with names, the first on top.

    `lengths` has the length of each bar, which begins at 0. `error_bars` has the lower and the upper end of each bar's
    error bar, as values on the axis, shape (2, bars). `texts` are written to the right of the bars, one per bar.
    `label` is the entry of the bars in the legend.
    """
    positions = np.arange(len(names))
    ax.barh(positions, lengths, 0.66, **BAR, label=label)
    ax.hlines(positions, *error_bars, color=INK, linewidth=1.3)
    ax.set_yticks(positions, [shorten_label(name) for name in names])
    for position, text in zip(positions, texts, strict=False):
        ax.annotate(
            text, (1.02, position), xycoords=("axes fraction", "data"), va="center", fontsize=9, annotation_clip=False
        )
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.grid(visible=False, axis="y")
    ax.grid(visible=True, axis="x")
    ax.axvline(0.0, color=MUTED, linewidth=0.8)
