"""Figure of shelf beams as point clouds, with the predicted distribution of the number of products on each."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ddpn.datasets import Camera, inventory, split
from ddpn.datasets.shelves import GEOMETRIES, Scenes, simulate_chunks
from ddpn.datasets.splits import LARGE_SHARES, SEED
from ddpn.experiments.experiment import Experiment
from ddpn.experiments.figures.canvas import ACCENT, BAND, GREY, legend_below, panels
from ddpn.experiments.figures.predictions import PREFERRED, at_quantiles, check_rows, draw_pmf
from ddpn.experiments.results import FinishedRun, predictions_of, runs_of
from ddpn.inputs import Beam, pack, unpack

#: The nearest point of a beam is black and the farthest as light as is still visible on white.
_FARTHEST = 0.7
_PRODUCT = {"facecolor": BAND, "edgecolor": ACCENT, "lw": 0.6, "zorder": 0, "label": "products, visible or not"}
_AXES = ("to the right (m)", "up (m)", "away from the camera (m)")


Solid = tuple[float, float, float, float]


class Example(NamedTuple):
    """A beam, the name of its class, and its products if it is simulated, as z, y, depth and height."""

    name: str
    beam: Beam
    solids: list[Solid]


def beams(experiment: Experiment, out: Path) -> Any:
    """Appendix D.3: the points of three beams, seen by the camera and from the side, beside the pmfs."""
    run, *_ = runs_of(experiment, out, PREFERRED)
    raw, counts = (predictions_of(run.folder)[name] for name in ("raw", "y"))
    source = experiment.data or {}
    found = (_stored if source["name"] == "inventory" else _simulated)(source, run, counts)
    figure, axes = panels(len(found), 3, (9.0, 1.0 + 2.3 * len(found)), width_ratios=[1.0, 2.4, 1.6])
    for (front, side, pmf), (row, example) in zip(axes, found.items(), strict=True):
        _points(front, example.beam, (0, 1))
        for z, y, depth, height in example.solids:
            side.bar(z, height, depth, y, align="edge", **_PRODUCT)
        _points(side, example.beam, (2, 1))
        count = int(counts[row])
        front.set_title(f"test row {row}: {example.name}, {count} product{'s' * (count != 1)}", loc="left")
        side.set_title("from the side", loc="right")
        draw_pmf(pmf, run.distribution(raw[row]), count)
        pmf.set_ylabel("probability")
    for ax, label in zip(axes[-1], (_AXES[0], _AXES[2], "products"), strict=True):
        ax.set_xlabel(label)
    figure.suptitle(f"{run.label}; lighter points are farther from the camera", fontsize=10)
    legend_below(figure, axes[:, 1:].flat, columns=4)
    return figure


def _stored(source: Mapping[str, Any], run: FinishedRun, counts: Tensor) -> dict[int, Example]:
    clouds = inventory(max_points=source["points"])
    x, y = clouds.part("test")
    check_rows(run, counts, y)
    found = {row: unpack(x[row]) for row in at_quantiles(counts)}
    return {row: Example(clouds.classes[beam.geometry], beam, []) for row, beam in found.items()}


def _simulated(source: Mapping[str, Any], run: FinishedRun, counts: Tensor) -> dict[int, Example]:
    """Of the suitable rows those that are simulated first: simulating all beams takes much longer."""
    test = split(source["beams"], SEED, LARGE_SHARES).test[: len(counts)]
    order = np.argsort(test)
    rows = order[at_quantiles(counts[torch.from_numpy(order)])]
    places: list[tuple[Scenes, int]] = []
    clouds: list[Any] = []
    for scenes, points in simulate_chunks(source["beams"], SEED, Camera()):
        places += [(scenes, place) for place in range(len(points))]
        clouds += points
        if len(clouds) > test[rows].max():
            break
    known = np.array([scenes.count[place] for scenes, place in places])
    geometry = np.array([scenes.geometry[place] for scenes, place in places])
    there = test < len(known)
    check_rows(run, counts[torch.from_numpy(there)], known[test[there]])
    # Packed as by `simulate_shelves`.
    packed = pack(clouds, geometry, max_points=source["points"], seed=SEED)
    found = {int(row): (unpack(packed[test[row]]), places[test[row]]) for row in rows}
    return {row: Example(tuple(GEOMETRIES)[beam.geometry], beam, _solids(*at)) for row, (beam, at) in found.items()}


def _solids(scenes: Scenes, place: int) -> list[Solid]:
    """Bodies and tops of the products on one beam from the side, relative to the camera."""
    _, up, away = (float(length) for length in scenes.eye[place])
    found = []
    for item in range(int(scenes.count[place])):
        for there, solid in scenes.solids(item):
            if there[place]:
                z, depth, low, high = (float(side[place]) for side in (solid.z, solid.depth, solid.low, solid.high))
                found.append((z - depth / 2 - away, low - up, depth, high - low))
    return found


def _points(ax: Any, beam: Beam, sides: tuple[int, int]) -> None:
    """The points over two of x, y, z, in true proportions."""
    x, y = (beam.points[:, side] for side in sides)
    depth = beam.points[:, 2]
    reach = np.ptp(depth) if len(depth) else 0.0
    shade = _FARTHEST * (depth - depth.min()) / reach if reach > 0 else np.zeros_like(depth)
    # Far points first, so that near ones cover them.
    order = np.argsort(-depth)
    ax.scatter(x[order], y[order], s=5, c=[str(grey) for grey in shade[order]], linewidths=0)
    if not len(depth):
        ax.text(0.5, 0.5, "no points", transform=ax.transAxes, ha="center", color=GREY)
    ax.set_aspect("equal", adjustable="datalim")
    ax.set_ylabel(_AXES[sides[1]])
    ax.xaxis.get_major_locator().set_params(nbins=3 if sides[0] == 0 else 6)
