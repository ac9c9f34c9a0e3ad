"""Figures of finished runs, as SVG and PNG, readable in black and white. Nothing is trained here."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ddpn.errors import DDPNError, InputError
from ddpn.experiments.experiment import Experiment
from ddpn.experiments.figures.canvas import save, style
from ddpn.experiments.figures.clouds import beams
from ddpn.experiments.figures.images import picture_pmfs
from ddpn.experiments.figures.isolated import beta, gamma
from ddpn.experiments.figures.moments import epsilon
from ddpn.experiments.figures.ood import outside_pmfs, roc
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
    "picture_pmfs": picture_pmfs,
    "beams": beams,
    "roc": roc,
    "outside_pmfs": outside_pmfs,
}


def write_figures(experiment: Experiment, out: Path) -> list[Path]:
    """All figures of an experiment, each as SVG and PNG, beside its runs.

    Those that cannot be drawn are told at the end, and do not keep the others from being written.
    """
    known("figures", experiment.figures, FIGURES, f"{experiment.name}.toml")
    written: list[Path] = []
    reasons: dict[str, str] = {}
    with style():
        for name in experiment.figures:
            try:
                written += save(FIGURES[name](experiment, out), out / experiment.name / name)
            except DDPNError as error:
                reasons[name] = str(error)
    if reasons:
        told = " ".join(f"{name}: {why}" for name, why in reasons.items())
        drawn = len(experiment.figures) - len(reasons)
        raise InputError(f"figures must all have what they show, got {drawn} of {len(experiment.figures)}. {told}")
    return written


def epsilon_grids(out: Path) -> list[Path]:
    """epsilon_1 and epsilon_2 (Figure 7), which need no run."""
    return write_figures(experiment("moments"), out)


__all__ = ["FIGURES", "epsilon_grids", "write_figures"]
