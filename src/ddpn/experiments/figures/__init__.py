"""Figures of finished runs as SVG and PNG, readable in black and white. Trains nothing."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from ddpn.errors import DDPNError, InputError
from ddpn.experiments.experiment import Experiment
from ddpn.experiments.figures.canvas import save, style
from ddpn.experiments.figures.moments import epsilon
from ddpn.experiments.figures.ood import ood_pmfs, roc
from ddpn.experiments.figures.point_clouds import beams
from ddpn.experiments.figures.predictions import image_pmfs, pathologies, pmfs
from ddpn.experiments.figures.simulations import beta, gamma, recovery, wave
from ddpn.validation import check_choice

#: The functions that draw the figures from an experiment and the folder of all results.
FIGURES: dict[str, Callable[[Experiment, Path], Any]] = {
    "wave": wave,
    "recovery": recovery,
    "pathologies": pathologies,
    "beta": beta,
    "gamma": gamma,
    "epsilon": epsilon,
    "pmfs": pmfs,
    "image_pmfs": image_pmfs,
    "beams": beams,
    "roc": roc,
    "ood_pmfs": ood_pmfs,
}


def write_figures(experiment: Experiment, out: Path) -> list[Path]:
    """Write all figures of an experiment as SVG and PNG, beside its runs.

    Figures that cannot be drawn are reported in one error at the end, after the others have been written.
    """
    written: list[Path] = []
    reasons: dict[str, str] = {}
    for name in experiment.figures:
        check_choice(f"figure of {experiment.name}", name, FIGURES)
    with style() if experiment.figures else nullcontext():
        for name in experiment.figures:
            try:
                written += save(FIGURES[name](experiment, out), out / experiment.name / name)
            except DDPNError as error:
                reasons[name] = str(error)
    if reasons:
        raise InputError(" ".join(f"{name}: {why}" for name, why in reasons.items()))
    return written


__all__ = ["FIGURES", "write_figures"]
