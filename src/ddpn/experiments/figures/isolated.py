"""Figures of the isolated points: whether a network fits them or explains them away by a low gamma."""

from pathlib import Path
from typing import Any

import numpy as np

from ddpn.datasets import SIMULATIONS, Simulation, simulate
from ddpn.distributions import Mixture
from ddpn.experiments.experiment import Experiment
from ddpn.experiments.figures.canvas import ACCENT, BAND, GREY, legend_below, panels
from ddpn.experiments.figures.predictions import Finished, finished
from ddpn.experiments.figures.simulations import COVERAGE

#: The isolated points lie at 1 and 10; the counts at 10 to 23.
_X = np.linspace(0.0, 11.0, 441)
_COUNTS = (0.0, 36.0)
_GAMMAS = (0.03, 300.0)


def beta(experiment: Experiment, out: Path) -> Any:
    """Figure 6: a row for every beta, a column for every number of epochs."""
    return _grid(experiment, out, "beta", "epochs", "{:g} epochs")


def gamma(experiment: Experiment, out: Path) -> Any:
    """Figures 8 and 9: a row for every beta, a column for every gamma the training starts from."""
    return _grid(experiment, out, "gamma", "initial_gamma", "γ starts at {:g}")


def _grid(experiment: Experiment, out: Path, figure_name: str, key: str, title: str) -> Any:
    """Rows come in pairs: counts above, gamma below."""
    runs = finished(experiment, out, figure_name)
    methods = list(dict.fromkeys(run.run.method.name for run in runs))
    values = list(dict.fromkeys(run.run.point[key] for run in runs))
    figure, axes = panels(
        2 * len(methods),
        len(values),
        (1.4 + 1.9 * len(values), 0.8 + 2.6 * len(methods)),
        sharex=True,
        sharey="row",
        height_ratios=[1.8, 1.0] * len(methods),
    )
    drawn = simulate((experiment.simulation or {})["name"])
    for run in runs:
        row, column = 2 * methods.index(run.run.method.name), values.index(run.run.point[key])
        _draw(axes[row, column], axes[row + 1, column], run, drawn)
        if column == 0:
            axes[row, 0].set_ylabel(f"{run.label}\ny")
            axes[row + 1, 0].set_ylabel("γ")
    for ax, value in zip(axes[0], values, strict=True):
        ax.set_title(title.format(value))
    for ax in axes[-1]:
        ax.set_xlabel("x")
    legend_below(figure, axes.T.flat, columns=min(4, len(values)))
    return figure


def _draw(counts: Any, gammas: Any, run: Finished, drawn: Simulation) -> None:
    law: Any = run.at(_X)
    truth: Any = drawn.distribution(_X)
    ensemble: Any = Mixture(law)
    low, high = (end.numpy() for end in ensemble.interval(COVERAGE))
    counts.fill_between(_X, low, high, step="mid", color=BAND, lw=0, label="95% band of the ensemble")
    counts.plot(drawn.x, drawn.y, ".", color="0.45", ms=1.5, label="training rows", rasterized=True)
    counts.plot(_X, law.mean.numpy(), color=GREY, lw=0.7)
    counts.plot(_X, ensemble.mean.numpy(), color="black", lw=1.5, label="mean of the ensemble")
    counts.plot(_X, truth.mean.numpy(), color=ACCENT, ls=":", lw=1.5, label="truth")
    gammas.plot(_X, law.gamma.numpy(), color=GREY, lw=0.7)
    gammas.plot([], [], color=GREY, lw=0.7, label="each member")
    middle = law.gamma.median(-1).values.numpy()
    gammas.plot(_X, middle, color="black", lw=1.5, ls="-.", label="median γ of the members")
    gammas.plot(_X, truth.gamma.numpy(), color=ACCENT, ls=":", lw=1.5)
    points = np.array(SIMULATIONS[drawn.name].added)
    counts.plot(*points.T, "D", color="black", mfc="white", ms=5, label="isolated points", zorder=3)
    for x in points[:, 0]:
        gammas.axvline(x, color="black", lw=0.6, ls=(0, (1, 3)))
    counts.set(ylim=_COUNTS, xticks=range(0, 11, 2))
    gammas.set(yscale="log", ylim=_GAMMAS, yticks=[0.1, 1, 10, 100])
