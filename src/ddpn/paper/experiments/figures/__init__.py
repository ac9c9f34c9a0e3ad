"""Figures of finished runs as PNG, readable in black and white. Trains nothing."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from ddpn.paper.experiments.catalogue import Experiment
from ddpn.paper.experiments.figures.canvas import save, style
from ddpn.paper.experiments.figures.predictions import beams, image_pmfs, ood_pmfs, pathologies
from ddpn.paper.experiments.figures.simulations import beta, epsilon, gamma, recovery, wave
from ddpn.runtime.errors import DDPNError, InputError
from ddpn.runtime.validation import check_choice

_DRAWN = (wave, recovery, pathologies, beta, gamma, epsilon, image_pmfs, beams, ood_pmfs)
#: The functions that draw figures from an experiment and the folder of all results, by name.
FIGURES: dict[str, Callable[[Experiment, Path], Any]] = {draw.__name__: draw for draw in _DRAWN}


def write_figures(experiment: Experiment, out: Path) -> list[Path]:
    """Write all figures of an experiment beside its runs.

    Figures that cannot be drawn are reported in one error at the end, after the others have been written.
    """
    written: list[Path] = []
    reasons: dict[str, str] = {}
    for name in experiment.figures:
        check_choice(f"figure of {experiment.name}", name, FIGURES)
    with style() if experiment.figures else nullcontext():
        for name in experiment.figures:
            try:
                written.append(save(FIGURES[name](experiment, out), out / experiment.name / f"{name}.png"))
            except DDPNError as error:
                reasons[name] = str(error)
    if reasons:
        raise InputError(" ".join(f"{name}: {why}" for name, why in reasons.items()))
    return written
