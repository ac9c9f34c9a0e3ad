"""Draw the figures of an experiment from its finished runs, as PNG files that are readable in black and white.

This module draws the figures of simulations and lists all figures. Each figure is drawn by a function of two arguments,
the experiment and the folder `out` of all results. The function reads the finished runs of the experiment from this
folder, and returns the figure without writing it. It trains nothing: without the runs that a figure needs, it raises an
`InputError`.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from ddpn.distributions import DoublePoisson, Mixture
from ddpn.metrics.predictive import interval, require_supported
from ddpn.paper.datasets import SIMULATIONS, Simulation, simulate
from ddpn.paper.experiments.drawing import ACCENT, BAND, GREY, draw_legend_below, make_axes, style
from ddpn.paper.experiments.experiment import Experiment
from ddpn.paper.experiments.isolated_points import measure_isolated_point
from ddpn.paper.experiments.row_figures import (
    draw_beams,
    draw_image_pmfs,
    draw_image_pmfs_ensembles,
    draw_image_pmfs_single,
    draw_ood_densities,
    draw_ood_pmfs,
    draw_ood_variances,
    draw_pathologies,
)
from ddpn.paper.experiments.runs import FinishedRun, find_finished_runs, find_runs
from ddpn.runtime.errors import DDPNError, InputError
from ddpn.runtime.validation import check_choice

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Simulations: predictions over x, against the true distribution; and exact moments ------------------------------------


_COVERAGE = 0.95
_MEAN = {"color": "black", "lw": 1.5}
#: The x axis of figures with isolated points, which lie at x = 1 and x = 10.
_ISOLATED_X = np.linspace(0.5, 10.5, 401)
#: The paper's grid for Figure 7.
_MEANS, _VARIANCES = (0.5, 50.0), (0.1, 10.0)
#: Powers of 10 at the ends of both axes; and levels of the deviation, below the first of which the figure is white.
_DECADES = (-1.0, 1.7)
_NODES = 200
_LEVELS = (1e-3, 1e-2, 1e-1, 1.0, 10.0)


def _simulate(experiment: Experiment) -> tuple[Simulation, np.ndarray]:
    """Return the simulation of an experiment, and 500 evenly spaced values of x."""
    name = (experiment.simulation or {})["name"]
    return simulate(name), np.linspace(SIMULATIONS[name].low, SIMULATIONS[name].high, 500)


def _draw_band_and_rows(ax: "Axes", simulation: Simulation, x: np.ndarray, ensemble: Mixture) -> None:
    """Draw the 95% prediction band of an ensemble over the inputs `x`, and the simulation's training rows as points.

    `ensemble` has the predicted distribution at each of `x`.
    """
    low, high = (end.numpy() for end in interval(require_supported(ensemble), _COVERAGE))
    train = simulation.split.train
    ax.fill_between(x, low, high, step="mid", color=BAND, lw=0, label="95% band")
    ax.plot(simulation.x[train], simulation.y[train], ".", color=GREY, ms=2, label="training rows", rasterized=True)


def draw_wave(experiment: Experiment, out: Path) -> "Figure":
    """Draw Figure 1, ensembles fitted to a noisy sine wave: mean, 95% band, aleatoric and epistemic variance.

    There is one column of panels per finished run of the experiment in `out`, the folder of all results.
    """
    runs = find_finished_runs(experiment, out, glms=False)
    simulation, x = _simulate(experiment)
    figure, axes = make_axes(3, len(runs), (1.0 + 1.9 * len(runs), 6.0), sharex=True, sharey="row")
    for column, run in zip(axes.T, runs, strict=True):
        ensemble = Mixture(run.predict(x))
        column[0].set_title(run.label)
        _write_scores(column[0], run)
        _draw_band_and_rows(column[0], simulation, x, ensemble)
        column[0].plot(x, ensemble.mean.numpy(), **_MEAN, label="mean")
        column[1].plot(x, ensemble.aleatoric.numpy(), color=ACCENT, label="the ensemble's variance")
        column[1].plot(
            x, simulation.distribution(x).variance.numpy(), color="black", ls="--", lw=1.2, label="true variance"
        )
        column[2].plot(x, ensemble.epistemic.numpy(), color=ACCENT)
        column[2].set_xlabel("x")
    for ax, label in zip(axes[:, 0], ("y", "aleatoric variance", "epistemic variance"), strict=True):
        ax.set_ylabel(label)
        ax.set_ylim(bottom=0)
    # Room for the scores above the highest counts.
    axes[0, 0].set_ylim(top=1.3 * simulation.y.max())
    draw_legend_below(figure, axes[:2, 0], columns=5)
    return figure


def _write_scores(ax: "Axes", run: FinishedRun) -> None:
    """Write the MAE and CRPS of the ensemble, computed as in the paper, into the upper left corner of a panel."""
    scores = run.result["scores"]["paper"]["ensemble"]
    text = f"MAE {scores['mae'][0]:.3f}\nCRPS {scores['crps'][0]:.3f}"
    ax.text(0.04, 0.97, text, transform=ax.transAxes, va="top", fontsize=8)


def draw_recovery(experiment: Experiment, out: Path) -> "Figure":
    """Draw Figure 3: predictions with the simulation's likelihood and with the Double Poisson, and the truth.

    A third prediction is by Double Poisson networks that are trained with the exact likelihood. At least two of these
    three runs must be finished in `out`, the folder of all results; a missing one is left out.
    """
    well_specified = (experiment.simulation or {})["name"]
    runs = find_runs(experiment, out, (well_specified, "ddpn", "exact_ddpn"), needed=2)
    simulation, x = _simulate(experiment)
    truth = simulation.distribution(x)
    figure, axes = make_axes(1, len(runs), (0.8 + 2.6 * len(runs), 3.4), sharex=True, sharey=True)
    for ax, run in zip(axes[0], runs, strict=True):
        ax.set_title(run.label)
        _write_scores(ax, run)
        ensemble = Mixture(run.predict(x))
        _draw_band_and_rows(ax, simulation, x, ensemble)
        ax.plot(x, ensemble.mean.numpy(), **_MEAN, label="mean")
        ax.plot(x, truth.mean.numpy(), color=ACCENT, ls=":", lw=2, label="true mean")
        for edge in truth.interval(_COVERAGE):
            ax.step(x, edge.numpy(), where="mid", color=ACCENT, ls="--", lw=1, label="true 95% band")
        ax.set_xlabel("x")
    axes[0, 0].set_ylabel("y")
    axes[0, 0].yaxis.get_major_locator().set_params(integer=True)
    draw_legend_below(figure, axes[0], columns=5)
    return figure


def draw_beta(experiment: Experiment, out: Path) -> "Figure":
    """Draw Figure 6: predicted mu (upper row) and gamma (lower row) during training, with one column per beta.

    Each column shows one network of a finished run in `out`, the folder of all results. It has one line per snapshot of
    the training.
    """
    runs = find_finished_runs(experiment, out, glms=False)
    return _draw_trainings(experiment, [[(f"β = {run.head.options['beta']:g}", run) for run in runs]])


def draw_gamma(experiment: Experiment, out: Path) -> "Figure":
    """Draw Figures 8 and 9: predicted mu and gamma during training, for several values of beta and initial gammas.

    There are two rows of panels per beta, for mu and gamma, and one column per initial value of gamma. Each panel shows
    one network of a finished run in `out`, the folder of all results. It has one line per snapshot of the training.
    """
    blocks: dict[str, list[tuple[str, FinishedRun]]] = {}
    for run in find_finished_runs(experiment, out, glms=False):
        title = f"β = {run.head.options['beta']:g}, γ starts at {run.point['initial_gamma']:g}"
        blocks.setdefault(run.method.name, []).append((title, run))
    return _draw_trainings(experiment, list(blocks.values()))


def _draw_trainings(experiment: Experiment, blocks: Sequence[Sequence[tuple[str, FinishedRun]]]) -> "Figure":
    """Draw how mu and gamma change during training, for several runs.

    The figure shows whether networks fit the isolated points, training rows far from all others, or explain them by a
    small gamma. Each block is a list of pairs (title, run). It has two rows of panels, the upper for mu and the lower
    for gamma, with one column per run.
    """
    columns = max(map(len, blocks))
    size = (1.2 + 2.6 * columns, 0.9 + 4.0 * len(blocks))
    figure, axes = make_axes(2 * len(blocks), columns, size, sharex=True, sharey="row")
    simulation, _ = _simulate(experiment)
    for number, block in enumerate(blocks):
        for column, (title, run) in enumerate(block):
            mu_ax, gamma_ax = axes[2 * number : 2 * number + 2, column]
            mu_ax.set_title(title)
            _draw_training(mu_ax, gamma_ax, run, simulation)
        axes[2 * number, 0].set_ylabel("μ")
        axes[2 * number + 1, 0].set_ylabel("γ")
    for ax in axes[-1]:
        ax.set_xlabel("x")
    draw_legend_below(figure, axes[:1].flat, columns=4)
    return figure


def _draw_training(mu_ax: "Axes", gamma_ax: "Axes", run: FinishedRun, simulation: Simulation) -> None:
    """Draw how mu (into `mu_ax`) and gamma (into `gamma_ax`) of one network of a run change during training.

    There is one line per snapshot and one for the end of the training; later lines are darker. The network shown is the
    one with the median mu at the rightmost isolated point at the end. A text in the panel of mu says how many networks
    of the run fit this point.
    """
    x, truth = _ISOLATED_X, cast(DoublePoisson, simulation.distribution(_ISOLATED_X))
    fit = measure_isolated_point(run)
    n_networks = fit.mu.shape[1]
    shown = int(np.argsort(fit.mu[-1])[(n_networks - 1) // 2])
    share = f"{fit.shares[-1] * n_networks:.0f} of {n_networks} networks\nfit the right point"
    mu_ax.text(0.03, 0.97, share, transform=mu_ax.transAxes, va="top", fontsize=8)
    mu_ax.plot(simulation.x, simulation.y, ".", color=GREY, ms=1.5, label="training rows", rasterized=True)
    for ax, true in ((mu_ax, truth.mu), (gamma_ax, truth.gamma)):
        ax.plot(x, true.numpy(), color="black", ls=":", lw=1.8, label="truth", zorder=4)
        for low, high in _list_training_ranges(simulation):
            ax.axvspan(low, high, color="0.92", lw=0)
    shades = np.linspace(0.3, 1.0, len(fit.epochs))
    for epoch, snapshot, shade in zip(fit.epochs, fit.snapshots, shades, strict=True):
        dist = run.predict(x, snapshot)
        line_options: dict[str, Any] = {"color": ACCENT, "alpha": shade, "lw": 1.3}
        mu_ax.plot(x, dist.mu[:, shown].numpy(), **line_options, label=f"{epoch} epochs")
        gamma_ax.plot(x, dist.gamma[:, shown].numpy(), **line_options)
    points = np.array(SIMULATIONS[simulation.name].added_points)
    mu_ax.plot(*points.T, "D", color="black", mfc="white", ms=5, label="isolated points", zorder=5)
    mu_ax.set(ylim=(0.0, 50.0), xticks=range(0, 11, 2))
    gamma_ax.set(yscale="log", ylim=(0.01, 125.0), yticks=[0.01, 0.1, 1, 10, 100])


def _list_training_ranges(simulation: Simulation) -> list[tuple[float, float]]:
    """List the ranges of x with training rows: the simulation's range, and a narrow strip around each added point."""
    process = SIMULATIONS[simulation.name]
    return [(process.low, process.high), *((x - 0.1, x + 0.1) for x, _ in process.added_points)]


def draw_epsilon(experiment: Experiment, out: Path) -> "Figure":
    """Draw Figure 7: errors of Efron's approximate mean and variance, over the paper's grid of both.

    It needs no runs, so both arguments are ignored.
    """
    means, variances = (torch.linspace(*ends, _NODES, dtype=torch.float64) for ends in (_MEANS, _VARIANCES))
    figure, axes = make_axes(1, 2, (9.0, 3.8), sharey=True)
    for ax, (title, deviation) in zip(axes[0], _compute_deviations(means, variances).items(), strict=True):
        image = ax.pcolormesh(means.numpy(), variances.numpy(), deviation.numpy(), cmap="Greys", rasterized=True)
        ax.set(title=title, xlabel="target mean μ₀")
        figure.colorbar(image, ax=ax)
    axes[0, 0].set_ylabel("target variance σ₀²")
    return figure


def draw_epsilon_wide(experiment: Experiment, out: Path) -> "Figure":
    """Draw Figure 7 on a larger grid: means and variances from 0.1 to 50, on logarithmic axes.

    It needs no runs, so both arguments are ignored.
    """
    from matplotlib.colors import BoundaryNorm

    nodes = torch.logspace(*_DECADES, _NODES, dtype=torch.float64)
    figure, axes = make_axes(1, 2, (8.0, 3.6), sharey=True)
    # One shade of grey per interval between levels, white below the lowest level and black above the highest.
    greys = BoundaryNorm(_LEVELS, 256, extend="both")
    at = nodes.numpy()
    for ax, (title, deviation) in zip(axes[0], _compute_deviations(nodes, nodes).items(), strict=True):
        image = ax.pcolormesh(at, at, deviation.numpy(), cmap="Greys", norm=greys, rasterized=True)
        ax.plot(at, at, color="tab:red", ls="--", lw=1.2, label="variance = mean (Poisson)")
        ax.set(xscale="log", yscale="log", title=title, xlabel="target mean")
    axes[0, 0].set_ylabel("target variance")
    axes[0, 0].legend(loc="lower right", framealpha=1.0)
    figure.colorbar(image, ax=list(axes[0]), label="deviation", spacing="uniform", format="%g")
    return figure


def _compute_deviations(means: torch.Tensor, variances: torch.Tensor) -> dict[str, torch.Tensor]:
    """Compute the errors of Efron's approximate mean (epsilon_1) and variance (epsilon_2) of a Double Poisson.

    The errors are absolute differences from the exact moments. They are returned as a dict of two tensors, first the
    errors of the mean, then those of the variance. Shape: (len(variances), len(means)). The keys are labels for the
    figure.

    The paper computes the moments by sums of 100 terms. On the paper's grid, this changes the errors by at most 3e-7.
    """
    variance, mean = torch.meshgrid(variances, means, indexing="ij")
    dist = DoublePoisson(mean, mean / variance)  # by Efron's approximations
    return {
        "ε₁: |E[Z] − mean|": (dist.mean - mean).abs(),
        "ε₂: |Var[Z] − variance|": (dist.variance - variance).abs(),
    }


# All figures of an experiment -----------------------------------------------------------------------------------------


_DRAW_FUNCTIONS = (
    draw_wave,
    draw_recovery,
    draw_pathologies,
    draw_beta,
    draw_gamma,
    draw_epsilon,
    draw_epsilon_wide,
    draw_image_pmfs,
    draw_image_pmfs_single,
    draw_image_pmfs_ensembles,
    draw_beams,
    draw_ood_pmfs,
    draw_ood_densities,
    draw_ood_variances,
)
FIGURES: dict[str, Callable[[Experiment, Path], "Figure"]] = {
    draw.__name__.removeprefix("draw_"): draw for draw in _DRAW_FUNCTIONS
}


def write_figures(experiment: Experiment, out: Path) -> list[Path]:
    """Draw all figures of an experiment, write them to its folder inside `out`, and return their paths.

    `out` is the folder of all results. The files are PNG files, named by the entries of `Experiment.figures`; existing
    files are replaced. If some figures cannot be drawn, for example because runs are not finished, all others are still
    written. Then one `InputError` lists all failures.
    """
    written: list[Path] = []
    reasons: dict[str, str] = {}
    for name in experiment.figures:
        check_choice(f"figure of {experiment.name}", name, FIGURES)
        path = out / experiment.name / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with style():
                # The version of matplotlib is omitted, so that drawing a figure again gives the same file.
                FIGURES[name](experiment, out).savefig(path, metadata={"Software": None})
            written.append(path)
        except DDPNError as error:
            reasons[name] = str(error)
    if reasons:
        raise InputError(" ".join(f"{name}: {why}" for name, why in reasons.items()))
    return written
