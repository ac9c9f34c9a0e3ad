"""Elements that all figures of the paper share: colours (readable in black and white), axes and legends."""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: The accent colour, which prints as a medium grey. Everything else is black, grey, dashed or hatched.
ACCENT = "#2166ac"
BAND = "#b3cde3"
GREY = "0.6"


def style() -> AbstractContextManager[None]:
    """Return a context manager that sets matplotlib's style for the paper's figures."""
    import matplotlib.style

    return matplotlib.style.context(str(files(__package__) / "paper.mplstyle"))


def new_figure(size: tuple[float, float]) -> "Figure":
    """Return an empty figure with this size in inches.

    Pyplot is not used, because it would open windows and keep global state.
    """
    import matplotlib.figure

    return matplotlib.figure.Figure(figsize=size, layout="constrained")


def make_axes(rows: int, columns: int, size: tuple[float, float], **options: Any) -> tuple["Figure", np.ndarray]:
    """Return a figure with this size in inches, and its axes as an array with shape (rows, columns).

    `options` are passed to matplotlib's `Figure.subplots`.
    """
    figure = new_figure(size)
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def draw_legend_below(figure: "Figure", axes: Iterable["Axes"], columns: int) -> None:
    """Draw one legend below all panels of `figure`, in `columns` columns, with every distinct label once.

    The entries are the labelled artists of the panels `axes`.
    """
    entries: dict[str, Artist] = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    figure.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=columns, frameon=False)
