"""Figures that show predictions for individual test rows: images, patients, shelf beams and texts.

Each figure is drawn by a function of two arguments, the experiment and the folder `out` of all results. The function
reads the finished runs of the experiment from this folder, and returns the figure without writing it. It trains
nothing: without the runs that a figure needs, it raises an `InputError`.
"""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution, Normal

from ddpn.distributions import Mixture
from ddpn.paper.datasets import bible, load
from ddpn.paper.experiments.drawing import ACCENT, BAND, GREY, draw_legend_below, make_axes, new_figure
from ddpn.paper.experiments.experiment import Experiment
from ddpn.paper.experiments.rows import load_data
from ddpn.paper.experiments.runs import FinishedRun, find_finished_runs, find_runs, read_predictions
from ddpn.paper.experiments.tables import score_ood_rows
from ddpn.paper.inputs import join_texts, read_image
from ddpn.runtime.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Quantiles of the counts of the rows that are shown: a low, a medium and a high one.
QUANTILES = (0.1, 0.5, 0.95)
#: If the paper shows a single method, the first of these that is finished is shown.
PREFERRED = ("beta_ddpn_1.0", "beta_ddpn_0.5", "ddpn")
#: The methods in the order of the paper's Figures 10 to 19 and 20 to 29.
_IN_PAPER = (
    "ddpn", "beta_ddpn_0.5", "beta_ddpn_1.0", "poisson", "negative_binomial", "gaussian", "natural_gaussian",
    "faithful_gaussian", "beta_gaussian_0.5", "beta_gaussian_1.0",
)  # fmt: skip
#: The numbers of the first figures of single networks and of ensembles.
_FIRST_SINGLE, _FIRST_ENSEMBLE = 10, 20
#: The methods of the paper's Figure 5.
_CDFS = ("beta_gaussian_0.5", "beta_ddpn_0.5")
_AXES = ("to the right (m)", "up (m)", "away from the camera (m)")


def find_quantile_rows(counts: Tensor) -> list[int]:
    """Return three row numbers: the first rows whose counts are the 10%, 50% and 95% quantile of `counts`.

    `counts` has one count per row. The quantiles are counts that occur, without interpolation.
    """
    quantiles = counts.double().quantile(torch.tensor(QUANTILES, dtype=torch.float64), interpolation="nearest")
    return [int((counts == y).nonzero()[0]) for y in quantiles]


def check_rows(run: FinishedRun, counts: Tensor, test_counts: np.ndarray) -> None:
    """Raise an `InputError` unless `counts` equal the first counts of `test_counts`.

    `counts` are those on which the run was tested, and `test_counts` are those of the data set's test rows today.
    """
    if len(counts) > len(test_counts) or not np.array_equal(counts.numpy(), test_counts[: len(counts)]):
        raise InputError(f"The data has changed since {run.folder} was tested on it. Run it again.")


def draw_prediction(
    ax: "Axes", networks: Distribution, observed: float | None = None, *, color: str = ACCENT, single: bool = False
) -> None:
    """Draw the predicted distributions of a row in the paper's style: the networks in grey, the ensemble in `color`.

    `networks` is a batch of distributions, one per network. If `single` is True, only the first network is drawn, in
    `color`. Count distributions are drawn as pmfs with markers, and Gaussians as densities. An ensemble of Gaussians is
    drawn as one Normal with the mixture's mean and variance. A star marks the `observed` count, if it is given, and the
    x axis extends at least to it.
    """
    is_normal = isinstance(networks, Normal)
    whole: Mixture | Normal = Mixture(networks)
    whole = Normal(whole.mean, whole.stddev) if is_normal else whole
    top = max(float(whole.icdf(torch.tensor(0.999, dtype=torch.float64))) + 3.0, (observed or 0.0) + 0.5)
    y = torch.linspace(0.0, top, 400, dtype=torch.float64) if is_normal else torch.arange(top, dtype=torch.float64)
    look: dict[str, Any] = {"lw": 1.2} if is_normal else {"lw": 1.0, "marker": "o", "ms": 2.5}
    heights = networks.log_prob(y[:, None]).exp().numpy()
    if single:
        ax.plot(y.numpy(), heights[:, 0], color=color, **look)
    else:
        ax.plot(y.numpy(), heights, color="0.8", **look | {"lw": 0.8})
        ax.plot(y.numpy(), whole.log_prob(y).exp().numpy(), color=color, **look)
    if observed is not None:
        ax.plot(observed, 0.0, "*", color="black", ms=8, zorder=4, clip_on=False)
    ax.set(xlim=(-0.5, top), ylim=(-0.05, max(1.1, ax.get_ylim()[1])))
    ax.locator_params(axis="x", integer=True, nbins=5)


def draw_image_pmfs(experiment: Experiment, out: Path) -> "Figure":
    """Draw Figure 4: three test images, each next to the predicted pmfs of an ensemble and its networks.

    The ensemble is that of the first method in `PREFERRED` with a finished run in `out`, the folder of all results. The
    images have a low, a medium and a high count.
    """
    return _draw_images(experiment, find_runs(experiment, out, PREFERRED)[:1], None, single=False)


def draw_image_pmfs_single(experiment: Experiment, out: Path) -> "Figure":
    """Draw Figures 10 to 19: the images of Figure 4, each next to the prediction of each method's first network.

    All of them are drawn as one figure. It has one row of panels for each finished run in `out`, the folder of all
    results.
    """
    return _draw_images(experiment, _find_runs_in_paper_order(experiment, out), _FIRST_SINGLE, single=True)


def draw_image_pmfs_ensembles(experiment: Experiment, out: Path) -> "Figure":
    """Draw Figures 20 to 29: the images of Figure 4, each next to the predictions of each method's ensemble.

    All of them are drawn as one figure. It has one row of panels for each finished run in `out`, the folder of all
    results.
    """
    return _draw_images(experiment, _find_runs_in_paper_order(experiment, out), _FIRST_ENSEMBLE, single=False)


def _find_runs_in_paper_order(experiment: Experiment, out: Path) -> list[FinishedRun]:
    return sorted(find_finished_runs(experiment, out, glms=False), key=lambda run: _IN_PAPER.index(run.method.name))


def _draw_images(
    experiment: Experiment, runs: Sequence[FinishedRun], first_figure: int | None, *, single: bool
) -> "Figure":
    """Draw three test images with their predictions, one row of panels per run; a star marks the true count.

    If `single` is True, only the first network of each run is shown. `first_figure` is the number, in the paper, of the
    first method's figure. The titles show the number of each method's figure, or no numbers if `first_figure` is None.
    """
    source, data = experiment.data or {}, load((experiment.data or {})["name"])
    counts = read_predictions(runs[0].folder)["y"]
    files = [Path(data.root or "") / name for name in data.part("test")[0]["file"]]
    rows = find_quantile_rows(counts)
    size, ratios = (3.6 * len(rows), 0.4 + 1.75 * len(runs)), [1.5, 1.5] * len(rows)
    figure, axes = make_axes(len(runs), 2 * len(rows), size, width_ratios=ratios)
    for line, run in zip(axes, runs, strict=True):
        tensors = read_predictions(run.folder)
        check_rows(run, tensors["y"], data.part("test")[1])
        for picture, ax, row in zip(line[::2], line[1::2], rows, strict=True):
            picture.imshow(read_image(files[row], source["size"]).permute(1, 2, 0).numpy())
            picture.set_axis_off()
            draw_prediction(ax, run.distribution(tensors["raw"][row]), float(counts[row]), single=single)
        number = f"Figure {first_figure + _IN_PAPER.index(run.method.name)}: " if first_figure is not None else ""
        line[0].set_title(f"{number}{run.label}", loc="left")
    return figure


def draw_pathologies(experiment: Experiment, out: Path) -> "Figure":
    """Draw Figure 5: the predicted cdfs of a Gaussian network and of a Double Poisson network for two patients.

    The patients are those test rows for which the Gaussian predicts the largest and the smallest probability below 0.
    The networks are the first ones of two runs, which must be finished in `out`, the folder of all results.
    """
    runs = find_runs(experiment, out, _CDFS, needed=2)
    raws, y = [read_predictions(run.folder)["raw"][:, 0] for run in runs], read_predictions(runs[0].folder)["y"]
    figure, axes = make_axes(1, 2, (7.6, 3.4), sharey=True)
    # The patients with the largest and the smallest probability below 0.
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
    draw_legend_below(figure, axes[0], columns=5)
    return figure


def draw_beams(experiment: Experiment, out: Path) -> "Figure":
    """Draw Figure 32: the point clouds of three shelf beams, from the camera and from the side, and the predicted pmfs.

    The pmfs are those of the first method in `PREFERRED` with a finished run in `out`, the folder of all results. The
    beams have a low, a medium and a high count.
    """
    run, *_ = find_runs(experiment, out, PREFERRED)
    raw, counts = (read_predictions(run.folder)[name] for name in ("raw", "y"))
    data = load_data(experiment.data or {})
    x, test_counts = data.part("test")
    check_rows(run, counts, test_counts)
    rows = find_quantile_rows(counts)
    figure, axes = make_axes(len(rows), 3, (9.0, 1.0 + 2.3 * len(rows)), width_ratios=[1.0, 2.4, 1.6])
    for (front, side, pmf), row in zip(axes, rows, strict=True):
        packed, count = x[row].numpy(), int(counts[row])
        points = packed[2:][packed[2:, 0] == 1.0, 1:]
        _draw_points(front, points, (0, 1))
        _draw_points(side, points, (2, 1))
        name = data.classes[int(packed[0, 0])]
        front.set_title(f"test row {row}: {name}, {count} product{'s' * (count != 1)}", loc="left")
        side.set_title("from the side", loc="right")
        draw_prediction(pmf, run.distribution(raw[row]), count)
        pmf.autoscale(axis="y")
        pmf.set_ylabel("probability")
    for ax, label in zip(axes[-1], (_AXES[0], _AXES[2], "products"), strict=True):
        ax.set_xlabel(label)
    colors = "lighter points are farther from the camera; grey: networks, blue: ensemble, star: true count"
    figure.suptitle(f"{run.label}; {colors}", fontsize=10)
    return figure


def _draw_points(ax: "Axes", points: np.ndarray, axes_shown: tuple[int, int]) -> None:
    """Draw points in space, projected to two of the axes x, y and z, with the same scale on both.

    `axes_shown` has the numbers of the horizontal and the vertical axis: 0, 1 or 2 for x, y or z. Points far from the
    camera are lighter.
    """
    x, y = (points[:, side] for side in axes_shown)
    depth = points[:, 2]
    reach = np.ptp(depth) if len(depth) else 0.0
    # The nearest point is black, and the farthest light grey.
    shade = 0.7 * (depth - depth.min()) / reach if reach > 0 else np.zeros_like(depth)
    # Far points first, so that near ones cover them.
    order = np.argsort(-depth)
    ax.scatter(x[order], y[order], s=5, c=[str(grey) for grey in shade[order]], linewidths=0)
    if not len(depth):
        ax.text(0.5, 0.5, "no points", transform=ax.transAxes, ha="center", color=GREY)
    ax.set_aspect("equal", adjustable="datalim")
    ax.set_ylabel(_AXES[axes_shown[1]])
    ax.locator_params(axis="x", nbins=3 if axes_shown[0] == 0 else 6)


#: The test rows and the verses of the paper's Figures 30 and 31.
_SHOWN_REVIEWS, _SHOWN_VERSES = (10, 25, 95, 249), (105, 419, 1654, 4809)
#: The most characters of a text and of a line.
_MAX_TEXT_CHARACTERS, _MAX_LINE_CHARACTERS = 110, 22
_OOD_COLOR = "#d6604d"
_FILLED: dict[str, Any] = {"facecolor": BAND, "edgecolor": ACCENT, "hatch": "//", "lw": 0.8}


def draw_ood_pmfs(experiment: Experiment, out: Path) -> "Figure":
    """Draw Figure 30: the pmfs that ensembles predict for four test reviews and four verses of the Bible.

    The verses are out-of-distribution texts. There is one block of panels for each finished run with a count
    distribution in `out`, the folder of all results.
    """
    return _draw_texts(experiment, out, is_continuous=False)


def draw_ood_densities(experiment: Experiment, out: Path) -> "Figure":
    """Draw Figure 31: the densities that ensembles of Gaussians predict for four test reviews and four Bible verses.

    The texts are those of Figure 30; the verses are out-of-distribution texts. There is one block of panels for each
    finished run with a Gaussian in `out`, the folder of all results.
    """
    return _draw_texts(experiment, out, is_continuous=True)


def _draw_texts(experiment: Experiment, out: Path, *, is_continuous: bool) -> "Figure":
    """Draw the predictions of each run for four test reviews and four Bible verses, with the text above each.

    If `is_continuous` is True, the finished runs of Gaussians in `out` are drawn, otherwise those of count
    distributions. If there are none, an `InputError` is raised.
    """
    runs = [run for run in _find_runs_in_paper_order(experiment, out) if run.method.is_continuous is is_continuous]
    if not runs:
        kind = "Gaussians" if is_continuous else "count distributions"
        raise InputError(f"No finished run of {kind} in {out / experiment.name}.")
    source, data = experiment.data or {}, load((experiment.data or {})["name"])
    table, y = data.part("test")
    groups = [
        ("raw", join_texts(table, source["text"]), _SHOWN_REVIEWS, ACCENT),
        ("ood", bible(), _SHOWN_VERSES, _OOD_COLOR),
    ]
    lines = -(-len(runs) // 2)
    figure = new_figure((14.0, 5.0 * lines))
    blocks = figure.subfigures(lines, 2, squeeze=False).flat
    for block, run in zip(blocks, runs, strict=False):
        tensors = read_predictions(run.folder)
        check_rows(run, tensors["y"], y)
        block.suptitle(run.label, fontsize=10)
        axes = block.subplots(4, len(_SHOWN_REVIEWS), height_ratios=[1.0, 0.8] * 2)
        for (name, texts, shown, color), above, below in zip(groups, axes[::2], axes[1::2], strict=True):
            # A quick run may have fewer predicted rows than the paper.
            n_predicted = min(len(texts), len(tensors[name]))
            for words, ax, row in zip(above, below, (number % n_predicted for number in shown), strict=True):
                words.set_axis_off()
                short = textwrap.shorten(texts[row], _MAX_TEXT_CHARACTERS, placeholder=" …")
                words.text(
                    -0.2,
                    0.5,
                    textwrap.fill(f'"{short}"', _MAX_LINE_CHARACTERS),
                    va="center",
                    fontsize=7,
                    family="serif",
                )
                draw_prediction(ax, run.distribution(tensors[name][row]), color=color)
                ax.set(xlim=(-0.2, 5.2), xticks=range(6))
    return figure


def draw_ood_variances(experiment: Experiment, out: Path) -> "Figure":
    """Draw histograms of the predicted variances of all test rows and all out-of-distribution (OOD) rows.

    The variances are total variances, on a log scale. There is one panel for each finished run in `out`, the folder of
    all results.
    """
    runs = score_ood_rows(find_finished_runs(experiment, out, glms=False))
    columns = min(5, len(runs))
    lines = -(-len(runs) // columns)
    figure, axes = make_axes(lines, columns, (0.8 + 2.2 * columns, 0.8 + 2.0 * lines))
    for ax, one in zip(axes.flat, runs, strict=False):
        _draw_variances(ax, one.test_variances, one.ood_variances)
        ax.set_title(one.run.label)
    for empty in axes.flat[len(runs) :]:
        empty.remove()
    for ax in axes[:, 0]:
        ax.set_ylabel("share of rows")
    draw_legend_below(figure, [axes[0, 0]], columns=2)
    return figure


def _draw_variances(ax: "Axes", test_row_variances: Tensor, ood_row_variances: Tensor) -> None:
    """Draw two histograms of log10 variances into the panel `ax`: of test rows and of out-of-distribution (OOD) rows.

    `test_row_variances` and `ood_row_variances` have one variance per row. Values below the 0.1% and above the 99.9%
    quantile of all rows are counted in the first and the last bin.
    """
    limits = torch.finfo(test_row_variances.dtype)
    scores = [side.clamp(limits.tiny, limits.max).log10().numpy() for side in (test_row_variances, ood_row_variances)]
    ends = np.quantile(np.concatenate(scores), [0.001, 0.999])
    edges = np.linspace(ends[0] - 1e-6, ends[1] + 1e-6, 41)
    test, ood = (np.histogram(side.clip(*ends), edges)[0] / len(side) for side in scores)
    ax.stairs(test, edges, fill=True, **_FILLED, label="all test rows; 0.1% of either end in the end bins")
    ax.stairs(ood, edges, color="black", lw=1.4, label="all OOD rows")
    ax.set_xlabel("log₁₀ of the total variance")
