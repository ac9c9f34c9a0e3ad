"""Figure of test pictures with what a law says of each."""

from pathlib import Path
from typing import Any

from ddpn.datasets import load
from ddpn.experiments.experiment import Experiment
from ddpn.experiments.figures.canvas import legend_below, panels
from ddpn.experiments.figures.pmf import at_quantiles, draw_pmf
from ddpn.experiments.figures.predictions import check_rows, first_of

#: Whose law is shown: the first of these that is finished, for pictures and for beams.
PREFERRED = ("beta_ddpn_0.5", "ddpn")


def picture_pmfs(experiment: Experiment, out: Path) -> Any:
    """Figure 4 and Appendix D.1: pictures as the network sees them, above the pmfs of all members and the ensemble."""
    run = first_of(experiment, out, "picture_pmfs", PREFERRED)
    source = experiment.data or {}
    raw, counts = (run.predictions()[name] for name in ("raw", "y"))
    pictures = load(source["name"]).images("test", size=source["size"])
    check_rows(run, counts, pictures.y.numpy())
    chosen = at_quantiles(counts)
    size = (0.6 + 2.5 * len(chosen), 5.2)
    figure, axes = panels(2, len(chosen), size, height_ratios=[1.2, 1.0])
    for (above, below), row in zip(axes.T, chosen, strict=True):
        above.imshow(pictures.decode(row).permute(1, 2, 0).numpy())
        above.set_axis_off()
        above.set_title(f"test row {row}: {_people(int(counts[row]))}")
        draw_pmf(below, run.law(raw[row]), counts[row].item())
        below.set_xlabel("people")
    axes[1, 0].set_ylabel("probability")
    figure.suptitle(run.label, fontsize=10)
    legend_below(figure, axes[1], columns=3)
    return figure


def _people(count: int) -> str:
    return "1 person" if count == 1 else f"{count} people"
