"""Figures of predictions for single test rows: of patients, images, shelf beams and out-of-distribution rows."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ddpn.distributions import Mixture
from ddpn.paper.datasets import load
from ddpn.paper.experiments.catalogue import Experiment
from ddpn.paper.experiments.figures.canvas import ACCENT, BAND, GREY, legend_below, panels
from ddpn.paper.experiments.rows import load_data
from ddpn.paper.experiments.runs import FinishedRun, finished_runs, predictions_of, runs_of
from ddpn.paper.experiments.tables import ScoredRun, scored
from ddpn.paper.inputs import Beam, read_image, unpack
from ddpn.runtime.errors import InputError

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
    files = data.files("test")
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
    for ax, (row, title) in zip(axes[0], _chosen(runs[0].distribution(raws[0])).items(), strict=True):
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


def _chosen(gaussians: Any) -> dict[int, str]:
    """The patients with the largest and with the smallest probability below 0."""
    mean, deviation = gaussians.loc, gaussians.scale
    most, least = int((mean / deviation).argmin()), int((mean / deviation).argmax())
    below = 100 * gaussians.cdf(torch.zeros_like(mean))[most]
    return {
        most: f"{below:.1f}% of the Gaussian below 0",
        least: f"the Gaussian has mean {mean[least]:.1f}, sd {deviation[least]:.2f}",
    }


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
        beam, count = unpack(x[row]), int(counts[row])
        _points(front, beam, (0, 1))
        _points(side, beam, (2, 1))
        name = data.classes[beam.geometry]
        front.set_title(f"test row {row}: {name}, {count} product{'s' * (count != 1)}", loc="left")
        side.set_title("from the side", loc="right")
        draw_pmf(pmf, run.distribution(raw[row]), count)
        pmf.set_ylabel("probability")
    for ax, label in zip(axes[-1], (_AXES[0], _AXES[2], "products"), strict=True):
        ax.set_xlabel(label)
    figure.suptitle(f"{run.label}; lighter points are farther from the camera", fontsize=10)
    legend_below(figure, axes[:, 2], columns=3)
    return figure


def _points(ax: Any, beam: Beam, sides: tuple[int, int]) -> None:
    """The points over two of x, y, z, in true proportions."""
    x, y = (beam.points[:, side] for side in sides)
    depth = beam.points[:, 2]
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


# Out-of-distribution rows ---------------------------------------------------------------------------------------------


_FILLED = {"facecolor": BAND, "edgecolor": ACCENT, "hatch": "//", "lw": 0.8}


def ood_pmfs(experiment: Experiment, out: Path) -> Any:
    """Figures 30 and 31: the ensembles' distributions for a test row and an OOD row, and all total variances."""
    runs = scored(finished_runs(experiment, out, glms=False))
    both = ([each for each in runs if each.run.run.method.is_continuous is kind] for kind in (False, True))
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
        above[0].set_ylabel("density" if kind[0].run.run.method.is_continuous else "probability")
        # Only after all are drawn: a limit that is set holds for all panels that share it.
        above[0].set_ylim(bottom=0)
        below[0].set_ylabel("share of rows")
    legend_below(figure, [axes[0, 0], axes[1, 0]], columns=2)
    return figure


def _distributions(ax: Any, one: ScoredRun) -> None:
    """For the rows with the median total variance."""
    is_continuous, tensors = one.run.run.method.is_continuous, predictions_of(one.run.folder)
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
    """Histograms of test rows and OOD rows, with bins of equal width on a logarithmic scale."""
    limits = torch.finfo(both[0].dtype)
    scores = [side.clamp(limits.tiny, limits.max).log10().numpy() for side in both]
    ends = np.quantile(np.concatenate(scores), [0.001, 0.999])
    edges = np.linspace(ends[0] - 1e-6, ends[1] + 1e-6, 41)
    test, ood = (np.histogram(side.clip(*ends), edges)[0] / len(side) for side in scores)
    ax.stairs(test, 10**edges, fill=True, **_FILLED, label="all test rows; 0.1% of either end in the end bins")
    ax.stairs(ood, 10**edges, color="black", lw=1.4, label="all OOD rows")
    ax.set(xscale="log", xlabel="total variance")
    _few_ticks(ax, *ends)


def _few_ticks(ax: Any, low: float, high: float) -> None:
    """At most four ticks at round numbers."""
    decades = range(int(np.floor(low)), int(np.ceil(high)) + 1)
    for steps in ((1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
        ticks = [step * 10.0**decade for decade in decades for step in steps]
        ticks = [tick for tick in ticks if low <= np.log10(tick) <= high]
        if len(ticks) <= 4:
            break
    ticks = ticks[:: -(-len(ticks) // 4)] if ticks else [10**low, 10**high]
    ax.set_xticks(ticks, [f"{tick:.3g}" for tick in ticks])
    ax.minorticks_off()
