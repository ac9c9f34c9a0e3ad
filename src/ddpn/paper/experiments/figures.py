"""Figures of finished runs as PNG, readable in black and white: of simulations and of predictions for single rows.

Trains nothing. Every figure is a function of an experiment and the folder of all results.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from ddpn.distributions import DoublePoisson, Mixture
from ddpn.paper.datasets import SIMULATIONS, Simulation, load, simulate
from ddpn.paper.experiments.catalogue import Experiment
from ddpn.paper.experiments.isolated_points import fit_of_isolated_point
from ddpn.paper.experiments.rows import load_data
from ddpn.paper.experiments.runs import FinishedRun, finished_runs, predictions_of, runs_of
from ddpn.paper.experiments.tables import ScoredRun, scored
from ddpn.paper.inputs import read_image
from ddpn.runtime.errors import DDPNError, InputError
from ddpn.runtime.validation import check_choice

#: One accent colour that prints as a medium grey; everything else is black, grey, dashed or hatched.
ACCENT = "#2166ac"
BAND = "#b3cde3"
GREY = "0.6"


def style() -> AbstractContextManager[None]:
    """A context in which matplotlib has the style of all figures."""
    import matplotlib.style

    return matplotlib.style.context(str(files(__package__) / "paper.mplstyle"))


def panels(rows: int, columns: int, size: tuple[float, float], **options: Any) -> tuple[Any, Any]:
    """A figure and its axes (rows, columns); `size` in inches. Without pyplot: no window and no global state."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def legend_below(figure: Any, axes: Any, columns: int) -> None:
    """One legend for all panels, with each label once, in the order drawn."""
    entries: dict[str, Any] = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    figure.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=columns, frameon=False)


# Simulations: predictions over x, against the true distribution; and exact moments ------------------------------------


_COVERAGE = 0.95
_MEAN = {"color": "black", "lw": 1.5}
#: The isolated points lie at 1 and 10, the counts at 10 to 23.
_ISOLATED_X = np.linspace(0.5, 10.5, 401)
#: Decades from 0.1; deviations below the first level are drawn in white.
_DECADES = (-1.0, 1.7)
_NODES = 200
_LEVELS = (1e-3, 1e-2, 1e-1, 1.0, 10.0)


def _drawn(experiment: Experiment) -> tuple[Simulation, np.ndarray]:
    """The training rows, and an even grid over their range."""
    name = (experiment.simulation or {})["name"]
    return simulate(name), np.linspace(SIMULATIONS[name].low, SIMULATIONS[name].high, 500)


def _band_and_rows(ax: Any, drawn: Simulation, x: np.ndarray, ensemble: Any, of: str = "", **look: Any) -> None:
    """The 95% band and the training rows; `of` ends the label and `look` changes the points."""
    low, high = (end.numpy() for end in ensemble.interval(_COVERAGE))
    train, look = drawn.split.train, {"color": GREY, "ms": 2} | look
    ax.fill_between(x, low, high, step="mid", color=BAND, lw=0, label=f"95% band{of}")
    ax.plot(drawn.x[train], drawn.y[train], ".", **look, label="training rows", rasterized=True)


def wave(experiment: Experiment, out: Path) -> Any:
    """Figure 1: mean and 95% band of every ensemble, and its variance in two parts, aleatoric and epistemic."""
    runs = finished_runs(experiment, out, glms=False)
    drawn, x = _drawn(experiment)
    figure, axes = panels(3, len(runs), (1.0 + 1.9 * len(runs), 6.0), sharex=True, sharey="row")
    for column, run in zip(axes.T, runs, strict=True):
        ensemble, scores = Mixture(run.at(x)), run.result["scores"]["ours"]["ensemble"]
        column[0].set_title(run.label)
        text = f"MAE {scores['mae'][0]:.2f}\nCRPS {scores['crps'][0]:.2f}"
        column[0].text(0.04, 0.97, text, transform=column[0].transAxes, va="top", fontsize=8)
        _band_and_rows(column[0], drawn, x, ensemble)
        column[0].plot(x, ensemble.mean.numpy(), **_MEAN, label="mean")
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


def recovery(experiment: Experiment, out: Path) -> Any:
    """Figure 3: DDPN beside the well-specified model, both against the true distribution."""
    well_specified = (experiment.simulation or {})["name"]
    runs = runs_of(experiment, out, (well_specified, "ddpn", "exact_ddpn"), needed=2)
    drawn, x = _drawn(experiment)
    truth = drawn.distribution(x)
    figure, axes = panels(1, len(runs), (0.8 + 2.6 * len(runs), 3.4), sharex=True, sharey=True)
    for ax, run in zip(axes[0], runs, strict=True):
        ax.set_title(run.label)
        ensemble = Mixture(run.at(x))
        _band_and_rows(ax, drawn, x, ensemble)
        ax.plot(x, ensemble.mean.numpy(), **_MEAN, label="mean")
        ax.plot(x, truth.mean.numpy(), color=ACCENT, ls=":", lw=2, label="true mean")
        for edge in truth.interval(_COVERAGE):
            ax.step(x, edge.numpy(), where="mid", color=ACCENT, ls="--", lw=1, label="true 95% band")
        ax.set_xlabel("x")
    axes[0, 0].set_ylabel("y")
    axes[0, 0].yaxis.get_major_locator().set_params(integer=True)
    legend_below(figure, axes[0], columns=5)
    return figure


def beta(experiment: Experiment, out: Path) -> Any:
    """Figure 6: one column per beta, mu above gamma, one line per snapshot of the training of one network."""
    runs = finished_runs(experiment, out, glms=False)
    return _isolated(experiment, [[(f"β = {run.head.options['beta']:g}", run) for run in runs]])


def gamma(experiment: Experiment, out: Path) -> Any:
    """Figures 8 and 9: the same with one column per initial value of gamma, and two rows per beta."""
    blocks: dict[str, list[tuple[str, FinishedRun]]] = {}
    for run in finished_runs(experiment, out, glms=False):
        title = f"β = {run.head.options['beta']:g}, γ starts at {run.point['initial_gamma']:g}"
        blocks.setdefault(run.method.name, []).append((title, run))
    return _isolated(experiment, list(blocks.values()))


def _isolated(experiment: Experiment, blocks: Sequence[Sequence[tuple[str, FinishedRun]]]) -> Any:
    """Whether a network fits isolated points or explains them by a low gamma, in the layout of Figure 6."""
    columns = max(map(len, blocks))
    size = (1.2 + 2.6 * columns, 0.9 + 4.0 * len(blocks))
    figure, axes = panels(2 * len(blocks), columns, size, sharex=True, sharey="row")
    drawn, _ = _drawn(experiment)
    for number, block in enumerate(blocks):
        for column, (title, run) in enumerate(block):
            counts, gammas = axes[2 * number : 2 * number + 2, column]
            counts.set_title(title)
            _training_of_one_network(counts, gammas, run, drawn)
        axes[2 * number, 0].set_ylabel("μ")
        axes[2 * number + 1, 0].set_ylabel("γ")
    for ax in axes[-1]:
        ax.set_xlabel("x")
    legend_below(figure, axes[:1].flat, columns=4)
    return figure


def _training_of_one_network(counts: Any, gammas: Any, run: FinishedRun, drawn: Simulation) -> None:
    """Draw mu and gamma at every snapshot, of the network whose fit at the rightmost point is the median of all."""
    x, truth = _ISOLATED_X, cast(DoublePoisson, drawn.distribution(_ISOLATED_X))
    fit = fit_of_isolated_point(run)
    n_networks = fit.mu.shape[1]
    shown = int(np.argsort(fit.mu[-1])[(n_networks - 1) // 2])
    share = f"{fit.shares[-1] * n_networks:.0f} of {n_networks} networks\nfit the right point"
    counts.text(0.03, 0.97, share, transform=counts.transAxes, va="top", fontsize=8)
    counts.plot(drawn.x, drawn.y, ".", color=GREY, ms=1.5, label="training rows", rasterized=True)
    for ax, true in ((counts, truth.mu), (gammas, truth.gamma)):
        ax.plot(x, true.numpy(), color="black", ls=":", lw=1.8, label="truth", zorder=4)
        for low, high in _covered(drawn):
            ax.axvspan(low, high, color="0.92", lw=0)
    shades = np.linspace(0.3, 1.0, len(fit.epochs))
    for epoch, snapshot, shade in zip(fit.epochs, fit.snapshots, shades, strict=True):
        dist = run.at(x, snapshot)
        look: dict[str, Any] = {"color": ACCENT, "alpha": shade, "lw": 1.3}
        counts.plot(x, dist.mu[:, shown].numpy(), **look, label=f"{epoch} epochs")
        gammas.plot(x, dist.gamma[:, shown].numpy(), **look)
    points = np.array(SIMULATIONS[drawn.name].added)
    counts.plot(*points.T, "D", color="black", mfc="white", ms=5, label="isolated points", zorder=5)
    counts.set(ylim=(0.0, 50.0), xticks=range(0, 11, 2))
    gammas.set(yscale="log", ylim=(0.01, 125.0), yticks=[0.01, 0.1, 1, 10, 100])


def _covered(drawn: Simulation) -> list[tuple[float, float]]:
    """Where there are training rows: the range of the process, and a strip around each added point."""
    process = SIMULATIONS[drawn.name]
    return [(process.low, process.high), *((x - 0.1, x + 0.1) for x, _ in process.added)]


def epsilon(experiment: Experiment, out: Path) -> Any:
    """Figure 7: epsilon_1 and epsilon_2 over target means and variances, computed exactly, not from 100 terms."""
    from matplotlib.colors import BoundaryNorm

    nodes = torch.logspace(*_DECADES, _NODES, dtype=torch.float64)
    variance, mean = torch.meshgrid(nodes, nodes, indexing="ij")
    dist = DoublePoisson(mean, mean / variance)  # by Efron's approximations
    shown = {
        "ε₁: |E[Z] − mean|": (dist.mean - mean).abs(),
        "ε₂: |Var[Z] − variance|": (dist.variance - variance).abs(),
    }
    figure, axes = panels(1, 2, (8.0, 3.6), sharey=True)
    # One grey per interval between levels, white below and black above them.
    greys = BoundaryNorm(_LEVELS, 256, extend="both")
    at = nodes.numpy()
    for ax, (title, deviation) in zip(axes[0], shown.items(), strict=True):
        image = ax.pcolormesh(at, at, deviation.numpy(), cmap="Greys", norm=greys, rasterized=True)
        ax.plot(at, at, color="tab:red", ls="--", lw=1.2, label="variance = mean (Poisson)")
        ax.set(xscale="log", yscale="log", title=title, xlabel="target mean")
    axes[0, 0].set_ylabel("target variance")
    axes[0, 0].legend(loc="lower right", framealpha=1.0)
    figure.colorbar(image, ax=list(axes[0]), label="deviation", spacing="uniform", format="%g")
    return figure


# Predictions for single test rows: patients, images, beams of shelves, out-of-distribution rows -----------------------


#: A row with a low, one with a medium and one with a high count.
QUANTILES = (0.1, 0.5, 0.95)
#: The first of these that is finished is shown, for images and for beams.
PREFERRED = ("beta_ddpn_0.5", "ddpn")
#: The paper's choice for its Figure 5.
_CDFS = ("beta_gaussian_0.5", "beta_ddpn_0.5")
_AXES = ("to the right (m)", "up (m)", "away from the camera (m)")


def at_quantiles(counts: Tensor) -> list[int]:
    """The first row that has the count at each of the quantiles."""
    wanted = counts.double().quantile(torch.tensor(QUANTILES, dtype=torch.float64), interpolation="nearest")
    return [int((counts == y).nonzero()[0]) for y in wanted]


def check_rows(run: FinishedRun, counts: Tensor, known: np.ndarray) -> None:
    """Raise unless the run was tested on the data's test rows or on the first of them, whose counts are `known`."""
    if len(counts) > len(known) or not np.array_equal(counts.numpy(), known[: len(counts)]):
        raise InputError(f"The data has changed since {run.folder} was tested on it. Run it again.")


def draw_pmf(ax: Any, members: Any, observed: float) -> None:
    """The pmf of every member (M,) and of the ensemble, without the last thousandth of its mass."""
    ensemble: Any = Mixture(members)
    low, high = (float(end) for end in ensemble.interval(0.999))
    y = torch.arange(max(0.0, low - 1), high + 2, dtype=torch.float64)
    heights = ensemble.log_prob(y).exp().numpy()
    ax.bar(y.numpy(), heights, 0.8, color=BAND, edgecolor=ACCENT, hatch="//", label="ensemble")
    each = members.log_prob(y[:, None]).exp()
    ax.plot(y.numpy(), each.numpy(), color="0.35", lw=0.8, marker="o", ms=2.5)
    ax.plot([], [], color="0.35", lw=0.8, marker="o", ms=2.5, label="members")
    ax.axvline(observed, color="black", ls=":", lw=1.2, label="observed")
    ax.xaxis.get_major_locator().set_params(integer=True)


def image_pmfs(experiment: Experiment, out: Path) -> Any:
    """Figures 4 and 10 to 29, of one method: images as the network sees them, above the pmfs of the ensemble."""
    run, *_ = runs_of(experiment, out, PREFERRED)
    source = experiment.data or {}
    raw, counts = (predictions_of(run.folder)[name] for name in ("raw", "y"))
    data = load(source["name"])
    check_rows(run, counts, data.part("test")[1])
    files = [Path(data.root or "") / name for name in data.part("test")[0]["file"]]
    chosen = at_quantiles(counts)
    size = (0.6 + 2.5 * len(chosen), 5.2)
    figure, axes = panels(2, len(chosen), size, height_ratios=[1.2, 1.0])
    for (above, below), row in zip(axes.T, chosen, strict=True):
        above.imshow(read_image(files[row], source["size"]).permute(1, 2, 0).numpy())
        above.set_axis_off()
        count = int(counts[row])
        above.set_title(f"test row {row}: {count} {'person' if count == 1 else 'people'}")
        draw_pmf(below, run.distribution(raw[row]), count)
        below.set_xlabel("people")
    axes[1, 0].set_ylabel("probability")
    figure.suptitle(run.label, fontsize=10)
    legend_below(figure, axes[1], columns=3)
    return figure


def pathologies(experiment: Experiment, out: Path) -> Any:
    """Figure 5: cdfs of a Gaussian and of DDPN, one network each, for two patients."""
    runs = runs_of(experiment, out, _CDFS, needed=2)
    raws, y = [predictions_of(run.folder)["raw"][:, 0] for run in runs], predictions_of(runs[0].folder)["y"]
    figure, axes = panels(1, 2, (7.6, 3.4), sharey=True)
    # The patients with the largest and with the smallest probability below 0.
    gaussians = runs[0].distribution(raws[0])
    mean, deviation = gaussians.loc, gaussians.scale
    most, least = int((mean / deviation).argmin()), int((mean / deviation).argmax())
    titles = {
        most: f"{100 * gaussians.cdf(torch.zeros_like(mean))[most]:.1f}% of the Gaussian below 0",
        least: f"the Gaussian has mean {mean[least]:.1f}, sd {deviation[least]:.2f}",
    }
    for ax, (row, title) in zip(axes[0], titles.items(), strict=True):
        normal, counts = (run.distribution(raw[row]) for run, raw in zip(runs, raws, strict=True))
        last = int(max(counts.icdf(torch.tensor(0.9999)), normal.icdf(torch.tensor(0.9999)), y[row])) + 1
        first = min(-1.0, float(normal.icdf(torch.tensor(1e-4))))
        x, y_at = torch.linspace(first, last, 600, dtype=torch.float64), torch.arange(last + 1.0).double()
        edges, heights = torch.cat([x[:1], y_at]), torch.cat([x.new_zeros(1), counts.cdf(y_at)])
        ax.axvspan(first, 0, facecolor="white", edgecolor=GREY, hatch="///", lw=0, label="below 0")
        ax.plot(x.numpy(), normal.cdf(x).numpy(), color=ACCENT, ls="--", lw=1.6, label=runs[0].label)
        ax.step(edges.numpy(), heights.numpy(), where="post", color="black", lw=1.6, label=runs[1].label)
        ax.axvline(y[row].item(), color="black", ls=":", lw=1.2, label="observed")
        ax.set(title=f"test row {row}: {title}", xlabel="days", xlim=(first, last))
    axes[0, 0].set_ylabel("P(days ≤ x)")
    legend_below(figure, axes[0], columns=5)
    return figure


def beams(experiment: Experiment, out: Path) -> Any:
    """Figure 32: the points of three beams, seen by the camera and from the side, beside the pmfs."""
    run, *_ = runs_of(experiment, out, PREFERRED)
    raw, counts = (predictions_of(run.folder)[name] for name in ("raw", "y"))
    data = load_data(experiment.data or {})
    x, known = data.part("test")
    check_rows(run, counts, known)
    rows = at_quantiles(counts)
    figure, axes = panels(len(rows), 3, (9.0, 1.0 + 2.3 * len(rows)), width_ratios=[1.0, 2.4, 1.6])
    for (front, side, pmf), row in zip(axes, rows, strict=True):
        packed, count = x[row].numpy(), int(counts[row])
        points = packed[2:][packed[2:, 0] == 1.0, 1:]
        _points(front, points, (0, 1))
        _points(side, points, (2, 1))
        name = data.classes[int(packed[0, 0])]
        front.set_title(f"test row {row}: {name}, {count} product{'s' * (count != 1)}", loc="left")
        side.set_title("from the side", loc="right")
        draw_pmf(pmf, run.distribution(raw[row]), count)
        pmf.set_ylabel("probability")
    for ax, label in zip(axes[-1], (_AXES[0], _AXES[2], "products"), strict=True):
        ax.set_xlabel(label)
    figure.suptitle(f"{run.label}; lighter points are farther from the camera", fontsize=10)
    legend_below(figure, axes[:, 2], columns=3)
    return figure


def _points(ax: Any, points: np.ndarray, sides: tuple[int, int]) -> None:
    """The points over two of x, y, z, in true proportions."""
    x, y = (points[:, side] for side in sides)
    depth = points[:, 2]
    reach = np.ptp(depth) if len(depth) else 0.0
    # The nearest point is black, and the farthest as light as is still visible on white.
    shade = 0.7 * (depth - depth.min()) / reach if reach > 0 else np.zeros_like(depth)
    # Far points first, so that near ones cover them.
    order = np.argsort(-depth)
    ax.scatter(x[order], y[order], s=5, c=[str(grey) for grey in shade[order]], linewidths=0)
    if not len(depth):
        ax.text(0.5, 0.5, "no points", transform=ax.transAxes, ha="center", color=GREY)
    ax.set_aspect("equal", adjustable="datalim")
    ax.set_ylabel(_AXES[sides[1]])
    ax.xaxis.get_major_locator().set_params(nbins=3 if sides[0] == 0 else 6)


_FILLED = {"facecolor": BAND, "edgecolor": ACCENT, "hatch": "//", "lw": 0.8}


def ood_pmfs(experiment: Experiment, out: Path) -> Any:
    """Figures 30 and 31: the ensembles' distributions for a test row and an OOD row, and all total variances."""
    runs = scored(finished_runs(experiment, out, glms=False))
    both = ([each for each in runs if each.run.method.is_continuous is kind] for kind in (False, True))
    kinds = [kind for kind in both if kind]
    widest = max(map(len, kinds))
    size = (0.8 + 2.2 * max(widest, 2), 0.8 + 4.0 * len(kinds))
    figure, axes = panels(2 * len(kinds), widest, size, height_ratios=[1.2, 1.0] * len(kinds))
    for number, kind in enumerate(kinds):
        above, below = axes[2 * number : 2 * number + 2]
        for ax in above[1:]:
            ax.sharex(above[0])
            ax.sharey(above[0])
            ax.tick_params(labelleft=False)
        for dist, variance, one in zip(above, below, kind, strict=False):
            _distributions(dist, one)
            _variances(variance, *one.variances)
            dist.set_title(one.run.label)
        for empty in [*above[len(kind) :], *below[len(kind) :]]:
            empty.remove()
        above[0].set_ylabel("density" if kind[0].run.method.is_continuous else "probability")
        # Only after all are drawn: a limit that is set holds for all panels that share it.
        above[0].set_ylim(bottom=0)
        below[0].set_ylabel("share of rows")
    legend_below(figure, [axes[0, 0], axes[1, 0]], columns=2)
    return figure


def _distributions(ax: Any, one: ScoredRun) -> None:
    """For the rows with the median total variance."""
    is_continuous, tensors = one.run.method.is_continuous, predictions_of(one.run.folder)
    rows = [int(scores.argsort(stable=True)[(len(scores) - 1) // 2]) for scores in one.variances]
    raws = (tensors["raw"][rows[0]], tensors["ood"][rows[1]])
    mixtures: list[Any] = [Mixture(one.run.distribution(raw)) for raw in raws]
    ends = torch.cat([torch.stack(dist.interval(0.99)) for dist in mixtures])
    low, high = float(ends.min()), float(ends.max())
    x = np.linspace(low, high, 400) if is_continuous else np.arange(0.0, high + 2)
    test, ood = (dist.log_prob(torch.from_numpy(x)).exp().numpy() for dist in mixtures)
    fill = ax.fill_between if is_continuous else partial(ax.bar, width=0.8)
    fill(x, test, **_FILLED, label="a test row with the median variance")
    marker = {} if is_continuous else {"marker": "o", "ms": 3}
    ax.plot(x, ood, color="black", lw=1.4, **marker, label="an OOD row with the median variance")
    ax.set_xlabel("count")
    ax.xaxis.get_major_locator().set_params(integer=True)


def _variances(ax: Any, *both: Tensor) -> None:
    """Histograms of the logarithms for test rows and OOD rows."""
    limits = torch.finfo(both[0].dtype)
    scores = [side.clamp(limits.tiny, limits.max).log10().numpy() for side in both]
    ends = np.quantile(np.concatenate(scores), [0.001, 0.999])
    edges = np.linspace(ends[0] - 1e-6, ends[1] + 1e-6, 41)
    test, ood = (np.histogram(side.clip(*ends), edges)[0] / len(side) for side in scores)
    ax.stairs(test, edges, fill=True, **_FILLED, label="all test rows; 0.1% of either end in the end bins")
    ax.stairs(ood, edges, color="black", lw=1.4, label="all OOD rows")
    ax.set_xlabel("log₁₀ of the total variance")


# All figures of an experiment -----------------------------------------------------------------------------------------


_DRAWN = (wave, recovery, pathologies, beta, gamma, epsilon, image_pmfs, beams, ood_pmfs)
FIGURES: dict[str, Callable[[Experiment, Path], Any]] = {draw.__name__: draw for draw in _DRAWN}


def write_figures(experiment: Experiment, out: Path) -> list[Path]:
    """Write all figures of an experiment beside its runs.

    Figures that cannot be drawn are reported in one error at the end, after the others have been written.
    """
    written: list[Path] = []
    reasons: dict[str, str] = {}
    for name in experiment.figures:
        check_choice(f"figure of {experiment.name}", name, FIGURES)
        path = out / experiment.name / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with style():
                # Without the version of matplotlib, so that drawing a figure again gives the same file.
                FIGURES[name](experiment, out).savefig(path, metadata={"Software": None})
            written.append(path)
        except DDPNError as error:
            reasons[name] = str(error)
    if reasons:
        raise InputError(" ".join(f"{name}: {why}" for name, why in reasons.items()))
    return written
