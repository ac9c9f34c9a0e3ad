"""Figures of finished runs, as SVG and PNG, readable in black and white. Nothing is trained here."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ddpn.experiments.experiment import Experiment
from ddpn.experiments.figures.canvas import save, style
from ddpn.experiments.figures.isolated import beta, gamma
from ddpn.experiments.figures.moments import epsilon
from ddpn.experiments.figures.patients import pathologies, pmfs
from ddpn.experiments.figures.simulations import recovery, wave
from ddpn.experiments.naming import known
from ddpn.experiments.settings import experiment

#: What draws a figure, from an experiment and the folder its runs were written to.
FIGURES: dict[str, Callable[[Experiment, Path], Any]] = {
    "wave": wave,
    "recovery": recovery,
    "pathologies": pathologies,
    "beta": beta,
    "gamma": gamma,
    "epsilon": epsilon,
    "pmfs": pmfs,
}


def write_figures(experiment: Experiment, out: Path) -> list[Path]:
    """All figures of an experiment, each as SVG and PNG, beside its runs."""
    known("figures", experiment.figures, FIGURES, f"{experiment.name}.toml")
    written = []
    with style():
        for name in experiment.figures:
            written += save(FIGURES[name](experiment, out), out / experiment.name / name)
    return written


def epsilon_grids(out: Path) -> list[Path]:
    """epsilon_1 and epsilon_2 (Figure 7), which need no run."""
    return write_figures(experiment("moments"), out)


__all__ = ["FIGURES", "epsilon_grids", "write_figures"]
