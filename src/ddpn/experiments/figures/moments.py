"""Figure of the error of Efron's approximate moments."""

from pathlib import Path
from typing import Any

import torch

from ddpn.distributions import mean_deviation, variance_deviation
from ddpn.experiments.experiment import Experiment
from ddpn.experiments.figures.canvas import bands, panels

#: Decades from 0.1; deviations below the first level are drawn in white.
_DECADES = (-1.0, 1.7)
_NODES = 200
_LEVELS = (1e-3, 1e-2, 1e-1, 1.0, 10.0)


def epsilon(experiment: Experiment, out: Path) -> Any:
    """Figure 7: epsilon_1 and epsilon_2 over target means and variances, computed exactly, not from 100 terms."""
    nodes = torch.logspace(*_DECADES, _NODES, dtype=torch.float64)
    variance, mean = torch.meshgrid(nodes, nodes, indexing="ij")
    shown = {
        "ε₁: |E[Z] − mean|": mean_deviation(mean, variance),
        "ε₂: |Var[Z] − variance|": variance_deviation(mean, variance),
    }
    figure, axes = panels(1, 2, (8.0, 3.6), sharey=True)
    at = nodes.numpy()
    for ax, (title, deviation) in zip(axes[0], shown.items(), strict=True):
        image = ax.pcolormesh(at, at, deviation.numpy(), **bands(_LEVELS), rasterized=True)
        ax.plot(at, at, color="tab:red", ls="--", lw=1.2, label="variance = mean (Poisson)")
        ax.set(xscale="log", yscale="log", title=title, xlabel="target mean")
    axes[0, 0].set_ylabel("target variance")
    axes[0, 0].legend(loc="lower right", framealpha=1.0)
    bar = figure.colorbar(image, ax=list(axes[0]), label="deviation", extend="both", spacing="uniform")
    bar.ax.set_yticks(_LEVELS, [f"{level:g}" for level in _LEVELS])
    return figure
