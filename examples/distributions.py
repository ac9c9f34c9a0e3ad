"""Compare the Double Poisson with the Poisson distribution of the same mean: print a table and write an image.

Run `python examples/distributions.py`; `--out docs/distributions.png` writes the image of the documentation.
"""

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ddpn.distributions import DoublePoisson, Poisson

MEAN = 10.0
VARIANCES = {"Under-dispersed": MEAN / 4, "Equi-dispersed": MEAN, "Over-dispersed": MEAN * 4}
COVERAGE = 0.9
LAST_COUNT = 30
#: Poisson's markers stop where they would only thicken the axis.
MIN_DRAWN_PROBABILITY = 1e-3
#: Light fill, dark ink: bars against a marked line also read in black and white.
FILL, INK, FAINT = "#9cc5e6", "#1b263b", "#d9d9d9"


def to_float64(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)


def make_double_poisson(variance: float) -> DoublePoisson:
    return DoublePoisson.from_moments(mean=to_float64(MEAN), variance=to_float64(variance))


def format_row(name: str, mu: str, gamma: str, dist: DoublePoisson | Poisson) -> str:
    low, high = dist.interval(COVERAGE)
    none = dist.log_prob(to_float64(0.0)).exp()
    return (
        f"{name:<32}{mu:>8}{gamma:>8}{dist.mean.item():>9.3f}{dist.variance.item():>10.3f}"
        f"{f'{low.item():.0f} to {high.item():.0f}':>14}{none.item():>11.1e}"
    )


def format_table() -> str:
    head = f"{'':<32}{'mu':>8}{'gamma':>8}{'mean':>9}{'variance':>10}{f'{COVERAGE:.0%} interval':>14}{'P(Z = 0)':>11}"
    lines = [head, "-" * len(head)]
    for name, variance in VARIANCES.items():
        dist = make_double_poisson(variance)
        lines.append(
            format_row(f"Double Poisson, {name.lower()}", f"{dist.mu.item():.3f}", f"{dist.gamma.item():.3f}", dist)
        )
    lines.append(format_row("Poisson", f"{MEAN:.3f}", "", Poisson(to_float64(MEAN))))
    return "\n".join(lines)


def draw_panel(axes: Axes, name: str, variance: float) -> None:
    dist, poisson = make_double_poisson(variance), Poisson(to_float64(MEAN))
    counts = torch.arange(LAST_COUNT + 1, dtype=torch.float64)
    axes.bar(
        counts.numpy(),
        dist.log_prob(counts).exp().numpy(),
        width=0.86,
        color=FILL,
        edgecolor=INK,
        linewidth=0.7,
        label="Double Poisson",
    )
    drawn_counts = counts[poisson.log_prob(counts).exp() > MIN_DRAWN_PROBABILITY]
    axes.plot(
        drawn_counts.numpy(),
        poisson.log_prob(drawn_counts).exp().numpy(),
        color=INK,
        linewidth=1.1,
        marker="o",
        markersize=4,
        markerfacecolor="white",
        label="Poisson",
    )
    draw_interval(axes, dist)
    axes.set_title(name, fontsize=12, fontweight="bold", color=INK, pad=22)
    subtitle = rf"mean {MEAN:g}, variance {variance:g}   ($\gamma$ = {dist.gamma.item():.2f})"
    axes.text(0.5, 1.035, subtitle, transform=axes.transAxes, ha="center", color=INK)


def draw_interval(axes: Axes, dist: DoublePoisson, height: float = 0.285) -> None:
    """Draw the interval of a distribution, at the same height in all panels, so that widths are easy to compare."""
    low, high = (x.item() for x in dist.interval(COVERAGE))
    axes.errorbar(
        (low + high) / 2,
        height,
        xerr=(high - low + 1) / 2,
        color=INK,
        linewidth=1.4,
        capsize=4,
        capthick=1.4,
        fmt="none",
    )
    label = f"{COVERAGE:.0%} interval: {low:.0f} to {high:.0f}"
    axes.text((low + high) / 2, height + 0.011, label, ha="center", fontsize=9, color=INK)


def draw_figure() -> Figure:
    figure, panels = plt.subplots(
        1, len(VARIANCES), figsize=(10.0, 3.7), sharex=True, sharey=True, layout="constrained"
    )
    for axes, (name, variance) in zip(panels, VARIANCES.items(), strict=True):
        draw_panel(axes, name, variance)
        axes.set(xlim=(-1, LAST_COUNT + 0.5), ylim=(0, 0.315), yticks=[i * 0.05 for i in range(6)], xlabel="count")
        axes.grid(axis="y", color=FAINT, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(axis="y", length=0)
    panels[0].set_ylabel("probability")
    handles, labels = panels[-1].get_legend_handles_labels()
    legend = {"loc": "upper right", "bbox_to_anchor": (1.02, 0.86), "framealpha": 1.0, "edgecolor": "white"}
    panels[-1].legend(handles[::-1], labels[::-1], **legend)
    return figure


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--out",
        type=Path,
        nargs="+",
        default=[Path("demo/distributions.png"), Path("demo/distributions.svg")],
        metavar="PATH",
        help="images to write, in the format of the suffix (default: demo/distributions.png demo/distributions.svg)",
    )
    return parser.parse_args()


def main() -> None:
    paths = parse_arguments().out
    print(f"Counts with mean {MEAN:g}: a Poisson fixes the variance, a Double Poisson does not.\n")
    print(format_table())
    # A fixed salt and no date: the same image is the same file.
    with plt.rc_context({"svg.hashsalt": "ddpn", "font.size": 10}):
        figure = draw_figure()
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(path, dpi=160, metadata={"Date": None} if path.suffix == ".svg" else None)
        plt.close(figure)
    print("\nImage: " + ", ".join(str(path) for path in paths))


if __name__ == "__main__":
    main()
