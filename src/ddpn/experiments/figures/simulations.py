"""Figures of simulations: what ensembles say over x, against the law the counts were drawn from."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ddpn.datasets import SIMULATIONS, Simulation, simulate
from ddpn.distributions import Mixture
from ddpn.experiments.experiment import Experiment
from ddpn.experiments.figures.canvas import ACCENT, BAND, GREY, legend_below, panels
from ddpn.experiments.figures.predictions import Finished, finished, of_methods

COVERAGE = 0.95
_NODES = 500


def _drawn(experiment: Experiment) -> tuple[Simulation, np.ndarray]:
    """The rows that were trained on, and an even grid over their range."""
    name = (experiment.simulation or {})["name"]
    return simulate(name), np.linspace(SIMULATIONS[name].low, SIMULATIONS[name].high, _NODES)


def wave(experiment: Experiment, out: Path) -> Any:
    """Figure 1: of every ensemble its mean and 95% band, and its variance in two parts, aleatoric and epistemic."""
    runs = finished(experiment, out, "wave")
    drawn, x = _drawn(experiment)
    figure, axes = panels(3, len(runs), (1.0 + 1.9 * len(runs), 6.0), sharex=True, sharey="row")
    for column, run in zip(axes.T, runs, strict=True):
        ensemble = Mixture(run.at(x))
        column[0].set_title(run.label)
        column[0].text(0.04, 0.97, _told(run), transform=column[0].transAxes, va="top", fontsize=8)
        _rows_and_band(column[0], drawn, x, ensemble)
        column[1].plot(x, ensemble.aleatoric.numpy(), color=ACCENT, label="the ensemble's variance")
        column[1].plot(x, drawn.distribution(x).variance.numpy(), color="black", ls="--", lw=1.2, label="true variance")
        column[2].plot(x, ensemble.epistemic.numpy(), color=ACCENT)
        column[2].set_xlabel("x")
    for ax, label in zip(axes[:, 0], ("y", "aleatoric variance", "epistemic variance"), strict=True):
        ax.set_ylabel(label)
        ax.set_ylim(bottom=0)
    # Room for the scores above the highest counts.
    axes[0, 0].set_ylim(top=1.3 * drawn.y.max())
    legend_below(figure, axes[:2, 0], columns=5)
    return figure


def _told(run: Finished) -> str:
    scores: Mapping[str, Any] = run.result["scores"]["ours"]["ensemble"]
    return f"MAE {scores['mae'][0]:.2f}\nCRPS {scores['crps'][0]:.2f}"


def _rows_and_band(ax: Any, drawn: Simulation, x: np.ndarray, ensemble: Any) -> None:
    low, high = (end.numpy() for end in ensemble.interval(COVERAGE))
    train = drawn.split.train
    ax.fill_between(x, low, high, step="mid", color=BAND, lw=0, label="95% band")
    ax.plot(drawn.x[train], drawn.y[train], ".", color=GREY, ms=2, label="training rows", rasterized=True)
    ax.plot(x, ensemble.mean.numpy(), color="black", lw=1.5, label="mean")


def recovery(experiment: Experiment, out: Path) -> Any:
    """Figure 3: DDPN beside the model that has the law the counts were drawn from, both against that law."""
    matched = (experiment.simulation or {})["name"]
    done = {run.run.method.name for run in finished(experiment, out, "recovery")}
    methods = (matched, "ddpn", *(["exact_ddpn"] if "exact_ddpn" in done else []))
    runs = of_methods(experiment, out, "recovery", methods)
    drawn, x = _drawn(experiment)
    truth = drawn.distribution(x)
    figure, axes = panels(1, len(runs), (0.8 + 2.6 * len(runs), 3.4), sharex=True, sharey=True)
    for ax, run in zip(axes[0], runs, strict=True):
        ax.set_title(run.label)
        _rows_and_band(ax, drawn, x, Mixture(run.at(x)))
        ax.plot(x, truth.mean.numpy(), color=ACCENT, ls=":", lw=2, label="true mean")
        for edge in truth.interval(COVERAGE):
            ax.step(x, edge.numpy(), where="mid", color=ACCENT, ls="--", lw=1, label="true 95% band")
        ax.set_xlabel("x")
    axes[0, 0].set_ylabel("y")
    axes[0, 0].yaxis.get_major_locator().set_params(integer=True)
    legend_below(figure, axes[0], columns=5)
    return figure
