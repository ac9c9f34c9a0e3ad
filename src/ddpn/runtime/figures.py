"""The style of all figures of ddpn: colours, panels and axis ticks in matplotlib."""

import sys
from collections.abc import Callable, Sequence
from functools import cache, wraps
from io import BytesIO
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

Arguments = ParamSpec("Arguments")
DrawResult = TypeVar("DrawResult")

ACCENT, SOFT, CONTRAST, BAND, MUTED, RULE, INK = (
    "#1d5c9e", "#a9c8e8", "#b34a00", "#e6e9ef", "#566070", "#dfe3ea", "#1b212b",
)  # fmt: skip
STYLE: dict[Any, Any] = {
    "axes.spines.top": False, "axes.spines.right": False, "axes.spines.left": False, "axes.edgecolor": MUTED,
    "axes.grid": True, "axes.grid.axis": "y", "axes.axisbelow": True, "grid.color": RULE, "grid.linewidth": 0.8,
    "axes.titlesize": 10.5, "axes.titleweight": "bold", "axes.titlelocation": "left", "axes.labelsize": 9.5,
    "axes.labelcolor": INK, "xtick.labelsize": 9, "ytick.labelsize": 9, "xtick.color": MUTED, "text.color": INK,
    "ytick.color": MUTED, "ytick.major.size": 0, "legend.frameon": False, "legend.fontsize": 9,
    "figure.titlesize": 10.5, "figure.titleweight": "bold", "text.parse_math": False, "svg.fonttype": "none",
}  # fmt: skip
#: Styles that several figures share: of a reference line, a second line, and bars.
REFERENCE: dict[str, Any] = {"color": MUTED, "linestyle": ":", "linewidth": 1.3}
SECOND: dict[str, Any] = {"color": CONTRAST, "linestyle": "--", "linewidth": 1.6}
BAR: dict[str, Any] = {"color": SOFT, "edgecolor": ACCENT, "linewidth": 0.8}


def use_style(draw: Callable[Arguments, DrawResult]) -> Callable[Arguments, DrawResult]:
    """Decorate a function so that it draws in the style of ddpn's figures, and restore matplotlib's settings after it.

    Other settings stay as the function leaves them, unlike with `matplotlib.rc_context`: its first figure may choose a
    backend, which in notebooks switches the interactive mode on.
    """

    @wraps(draw)
    def draw_in_style(*args: Arguments.args, **kwargs: Arguments.kwargs) -> DrawResult:
        import matplotlib  # takes half a second, like its submodules below

        settings = {name: matplotlib.rcParams[name] for name in STYLE}
        matplotlib.rcParams.update(STYLE)
        try:
            return draw(*args, **kwargs)
        finally:
            matplotlib.rcParams.update(settings)

    return draw_in_style


@cache
def figure_class() -> "type[Figure]":
    """Return a subclass of matplotlib's `Figure` that notebooks display once, whether or not pyplot knows it."""
    import matplotlib
    from matplotlib.figure import Figure

    class NotebookFigure(Figure):
        def _repr_png_(self) -> bytes:
            self.savefig(content := BytesIO(), format="png")
            return content.getvalue()

        def _ipython_display_(self) -> None:
            # At the end of a cell, the inline backend shows all figures that pyplot knows. Without this, a figure that
            # is the value of the cell would be shown twice.
            if "inline" in matplotlib.get_backend() and "matplotlib.pyplot" in sys.modules:
                sys.modules["matplotlib.pyplot"].close(self)
            raise NotImplementedError  # so IPython goes on and asks for a PNG

    return NotebookFigure


def make_pyplot_figure() -> "Figure":
    """Make an empty figure with pyplot, so that `plt.show()` shows it and `plt.gcf()` returns it."""
    from matplotlib import pyplot

    return pyplot.figure(FigureClass=figure_class())


def make_panels(
    heights: Sequence[float], columns: int = 1, width: float = 5.6, figure: "Figure | None" = None, **options: Any
) -> "tuple[Figure, np.ndarray]":
    """Make a figure with a grid of axes; return the figure and an array of axes, shape (len(heights), columns).

    `heights` has the height of each row of axes, and `width` is the width of each column of axes, in inches. The axes
    are added to `figure`, which gets this size, or to a new figure of pyplot. `options` are passed to matplotlib's
    `Figure.subplots`.
    """
    figure = make_pyplot_figure() if figure is None else figure
    figure.set_size_inches(width * columns, sum(heights))
    figure.set_layout_engine("constrained")
    return figure, figure.subplots(len(heights), columns, height_ratios=list(heights), squeeze=False, **options)


def format_tick(value: float, position: float = 0) -> str:
    """Format a number as a tick label. matplotlib also passes the `position` of the tick, which is ignored.

    >>> [format_tick(v) for v in (0.25, 1974.0, 20_000.0, 3e6)]
    ['0.25', '1974', '20k', '3M']
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= max(size, 1e4):
            return f"{value / size:.6g}{letter}"
    return f"{value:.6g}"


def set_ticks(
    axis: "Axis", integers: bool = False, percent: bool = False, log: bool = False, max_ticks: int = 7
) -> None:
    """Set at most `max_ticks` ticks of an axis, at round numbers.

    If `integers` is True, ticks are only at whole numbers. If `percent` is True, shares are labelled as percentages.
    `log` must be True for an axis with the scale log(1 + x).
    """
    from matplotlib.ticker import FixedLocator, MaxNLocator

    if log:
        low, high = axis.get_view_interval()
        powers = range(int(np.ceil(np.log10(max(high, 10.0)))) + 1)
        for parts in ((1, 2, 5), (1, 3), (1,)):
            shown = [t for t in (0.0, *(float(part * 10**p) for p in powers for part in parts)) if low <= t <= high]
            if len(shown) <= max_ticks + 1:
                break
        is_short = len(shown) < 2  # the axis lies between two of these numbers
        every = -(-len(shown) // (max_ticks + 1))
        axis.set_major_locator(MaxNLocator(3) if is_short else FixedLocator(shown[::every]))
    else:
        axis.set_major_locator(MaxNLocator(max_ticks, integer=integers, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter((lambda value, position: f"{100 * value:.6g}%") if percent else format_tick)
