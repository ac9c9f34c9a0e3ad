"""What all figures share: matplotlib (optional), one style, and files that do not change when drawn again."""

from contextlib import AbstractContextManager
from importlib.resources import files
from pathlib import Path
from typing import Any

from ddpn.runtime.extras import import_extra

#: One accent colour that prints as a medium grey; everything else is black, grey, dashed or hatched.
ACCENT = "#2166ac"
BAND = "#b3cde3"
GREY = "0.6"


def style() -> AbstractContextManager[None]:
    """A context in which matplotlib has the style of all figures."""
    return import_extra("matplotlib.style", "plot").context(str(files(__package__) / "paper.mplstyle"))


def panels(rows: int, columns: int, size: tuple[float, float], **options: Any) -> tuple[Any, Any]:
    """A figure and its axes (rows, columns); `size` in inches. Without pyplot: no window and no global state."""
    figure = import_extra("matplotlib.figure", "plot").Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def legend_below(figure: Any, axes: Any, columns: int) -> None:
    """One legend for all panels, with each label once, in the order drawn."""
    entries: dict[str, Any] = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    figure.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=columns, frameon=False)


def save(figure: Any, path: Path) -> Path:
    """Write a PNG file without the program's version, so that drawing a figure again gives the same file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with style():
        figure.savefig(path, metadata={"Software": None})
    return path
