"""What all figures share: colours that are readable in black and white, panels and legends."""

from contextlib import AbstractContextManager
from importlib.resources import files
from typing import Any

#: One accent colour that prints as a medium grey; everything else is black, grey, dashed or hatched.
ACCENT = "#2166ac"
BAND = "#b3cde3"
GREY = "0.6"


def style() -> AbstractContextManager[None]:
    """Return a context in which matplotlib has the style of all figures."""
    import matplotlib.style

    return matplotlib.style.context(str(files(__package__) / "paper.mplstyle"))


def new_figure(size: tuple[float, float]) -> Any:
    """Return an empty figure; `size` in inches. Without pyplot: no window and no global state."""
    from matplotlib.figure import Figure

    return Figure(figsize=size, layout="constrained")


def panels(rows: int, columns: int, size: tuple[float, float], **options: Any) -> tuple[Any, Any]:
    """Return a figure and its axes (rows, columns); `size` in inches."""
    figure = new_figure(size)
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def legend_below(figure: Any, axes: Any, columns: int) -> None:
    """Draw one legend for all panels, with each label once, in the order drawn."""
    entries: dict[str, Any] = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    figure.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=columns, frameon=False)
