"""Figures of single test rows of real data: what a law says of one patient."""

from pathlib import Path
from typing import Any

import torch

from ddpn.experiments.experiment import Experiment
from ddpn.experiments.figures.canvas import ACCENT, GREY, legend_below, panels
from ddpn.experiments.figures.pmf import at_quantiles, draw_pmf
from ddpn.experiments.figures.predictions import of_methods

#: The paper's choice for its Figures 5 and 4.
_CDFS = ("beta_gaussian_0.5", "beta_ddpn_0.5")
_PMFS = ("beta_ddpn_1.0",)


def pathologies(experiment: Experiment, out: Path) -> Any:
    """Figure 5: cdfs of a Gaussian and of DDPN, one network each, for two patients."""
    gaussian, ddpn = of_methods(experiment, out, "pathologies", _CDFS)
    (line, y), (counts, _) = gaussian.tested(), ddpn.tested()
    figure, axes = panels(1, 2, (7.6, 3.4), sharey=True)
    for ax, (row, why) in zip(axes[0], _chosen(line).items(), strict=True):
        normal: Any = type(line)(line.loc[row, 0], line.scale[row, 0])
        one: Any = type(counts)(counts.mu[row, 0], counts.gamma[row, 0])
        last = int(max(one.icdf(torch.tensor(0.9999)), normal.icdf(torch.tensor(0.9999)), y[row])) + 1
        first = min(-1.0, float(normal.icdf(torch.tensor(1e-4))))
        _cdfs(ax, normal, one, (first, float(last)), (gaussian.label, ddpn.label))
        ax.axvline(y[row].item(), color="black", ls=":", lw=1.2, label="observed")
        ax.set(title=f"test row {row}: {why}", xlabel="days", xlim=(first, last))
    axes[0, 0].set_ylabel("P(days ≤ x)")
    legend_below(figure, axes[0], columns=5)
    return figure


def _chosen(line: Any) -> dict[int, str]:
    """The patients with the most and with the least of the Gaussian below 0."""
    mean, deviation = line.loc[:, 0], line.scale[:, 0]
    most, least = int((mean / deviation).argmin()), int((mean / deviation).argmax())
    below = 100 * line.cdf(torch.zeros_like(line.loc))[most, 0]
    return {
        most: f"{below:.1f}% of the Gaussian below 0",
        least: f"the Gaussian has mean {mean[least]:.1f}, sd {deviation[least]:.2f}",
    }


def _cdfs(ax: Any, normal: Any, counts: Any, ends: tuple[float, float], labels: tuple[str, str]) -> None:
    x = torch.linspace(*ends, 600, dtype=torch.float64)
    ax.axvspan(ends[0], 0, facecolor="white", edgecolor=GREY, hatch="///", lw=0, label="below 0")
    ax.plot(x.numpy(), normal.cdf(x).numpy(), color=ACCENT, ls="--", lw=1.6, label=labels[0])
    y = torch.arange(0.0, ends[1] + 1, dtype=torch.float64)
    edges, heights = torch.cat([x[:1], y]), torch.cat([x.new_zeros(1), counts.cdf(y)])
    ax.step(edges.numpy(), heights.numpy(), where="post", color="black", lw=1.6, label=labels[1])


def pmfs(experiment: Experiment, out: Path) -> Any:
    """As Figure 4, of patients: the pmf of every member and of the ensemble, with the count that was observed."""
    (run,) = of_methods(experiment, out, "pmfs", _PMFS)
    raw, counts = (run.predictions()[name] for name in ("raw", "y"))
    chosen = at_quantiles(counts)
    figure, axes = panels(1, len(chosen), (0.8 + 2.6 * len(chosen), 3.2), sharey=True)
    for ax, row in zip(axes[0], chosen, strict=True):
        draw_pmf(ax, run.law(raw[row]), counts[row].item())
        ax.set(title=f"test row {row}", xlabel="days")
    axes[0, 0].set_ylabel("probability")
    figure.suptitle(run.label, fontsize=10)
    legend_below(figure, axes[0], columns=4)
    return figure
