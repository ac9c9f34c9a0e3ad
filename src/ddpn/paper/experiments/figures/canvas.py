"""What all figures share: matplotlib (optional), one style, and files that do not change when drawn again."""

from contextlib import AbstractContextManager
from importlib.resources import files
from pathlib import Path
from typing import Any

from ddpn.runtime.errors import ConfigError

#: One accent colour that prints as a medium grey; everything else is black, grey, dashed or hatched.
ACCENT = "#2166ac"
BAND = "#b3cde3"
GREY = "0.6"


def _matplotlib() -> Any:
    try:
        import matplotlib.colors
        import matplotlib.figure
        import matplotlib.style
    except ImportError:
        raise ConfigError("ddpn[plot] is not installed: pip install 'ddpn[plot]'") from None
    return matplotlib


def style() -> AbstractContextManager[None]:
    """A context in which matplotlib has the style of all figures."""
    return _matplotlib().style.context(str(files(__package__) / "paper.mplstyle"))


def panels(rows: int, columns: int, size: tuple[float, float], **options: Any) -> tuple[Any, Any]:
    """A figure and its axes (rows, columns); `size` in inches. Without pyplot: no window and no global state."""
    figure = _matplotlib().figure.Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def bands(levels: tuple[float, ...]) -> dict[str, Any]:
    """Options of `pcolormesh`: one grey per interval between levels, white below and black above them."""
    return {"cmap": "Greys", "norm": _matplotlib().colors.BoundaryNorm(levels, 256, extend="both")}


def legend_below(figure: Any, axes: Any, columns: int) -> None:
    """One legend for all panels, with each label once, in the order drawn."""
    entries: dict[str, Any] = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    figure.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=columns, frameon=False)


def save(figure: Any, path: Path) -> list[Path]:
    """Write `path`.svg and `path`.png, without the date, so that drawing a figure again gives the same files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = []
    for ending, metadata in (("svg", {"Date": None}), ("png", {"Software": None})):
        written.append(path.with_name(f"{path.name}.{ending}"))
        with style():
            figure.savefig(written[-1], metadata=metadata)
    return written
