"""Figure of beams of points with what a law says of each."""

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
from ddpn.experiments.figures.images import PREFERRED
from ddpn.experiments.figures.pmf import at_quantiles, draw_pmf
from ddpn.experiments.figures.predictions import Finished, check_rows, first_of
from ddpn.inputs import Beam, pack, unpack

#: Points near the camera are black and the farthest of a beam as light as can be seen on white.
_FARTHEST = 0.7
_AXES = ("to the right (m)", "up (m)", "away from the camera (m)")


class Example(NamedTuple):
    """A beam and the name of its class; of a simulated one also what stands there, as z, y, depth and height."""

    name: str
    beam: Beam
    solids: list[tuple[float, float, float, float]]


def beams(experiment: Experiment, out: Path) -> Any:
    """Appendix D.3: the points of three beams as the camera sees them and from the side, beside the pmfs."""
    run = first_of(experiment, out, "beams", PREFERRED)
    raw, counts = (run.predictions()[name] for name in ("raw", "y"))
    found = _chosen(experiment.data or {}, run, counts)
    figure, axes = panels(len(found), 3, (9.0, 1.0 + 2.3 * len(found)), width_ratios=[1.0, 2.4, 1.6])
    for (front, side, pmf), (row, example) in zip(axes, found.items(), strict=True):
        _points(front, example.beam, (0, 1))
        _products(side, example.solids)
        _points(side, example.beam, (2, 1))
        count = int(counts[row])
        front.set_title(f"test row {row}: {example.name}, {count} product{'s' * (count != 1)}", loc="left")
        side.set_title("from the side", loc="right")
        draw_pmf(pmf, run.law(raw[row]), count)
        pmf.set_ylabel("probability")
    for ax, label in zip(axes[-1], (_AXES[0], _AXES[2], "products"), strict=True):
        ax.set_xlabel(label)
    figure.suptitle(f"{run.label}; points are the lighter, the farther they are from the camera", fontsize=10)
    legend_below(figure, axes[:, 1:].flat, columns=4)
    return figure


def _chosen(source: Mapping[str, Any], run: Finished, counts: Tensor) -> dict[int, Example]:
    """Test rows with few, middling and many products."""
    return (_stored if source["name"] == "inventory" else _simulated)(source, run, counts)


def _stored(source: Mapping[str, Any], run: Finished, counts: Tensor) -> dict[int, Example]:
    clouds = inventory(max_points=source["points"])
    x, y = clouds.part("test")
    check_rows(run, counts, y)
    found = {row: unpack(x[row]) for row in at_quantiles(counts)}
    return {row: Example(clouds.classes[beam.geometry], beam, []) for row, beam in found.items()}


def _simulated(source: Mapping[str, Any], run: Finished, counts: Tensor) -> dict[int, Example]:
    """Of the rows that would do those which are simulated first: to simulate all beams takes much longer."""
    test = split(source["beams"], SEED, LARGE_SHARES).test[: len(counts)]
    order = np.argsort(test)
    rows = order[at_quantiles(counts[torch.from_numpy(order)])]
    scenes, packed = _first_beams(source, int(test[rows].max()) + 1)
    known = np.concatenate([some.count for some in scenes])
    there = test < len(known)
    check_rows(run, counts[torch.from_numpy(there)], known[test[there]])
    found = {}
    for row in map(int, rows):
        chunk, place = divmod(int(test[row]), len(scenes[0].count))
        beam = unpack(packed[test[row]])
        found[row] = Example(tuple(GEOMETRIES)[beam.geometry], beam, _solids(scenes[chunk], place))
    return found


def _first_beams(source: Mapping[str, Any], wanted: int) -> tuple[list[Scenes], Tensor]:
    """The scenes of at least `wanted` beams, and these packed as `simulate_shelves` does it."""
    scenes: list[Scenes] = []
    clouds: list[Any] = []
    for some, points in simulate_chunks(source["beams"], SEED, Camera()):
        scenes.append(some)
        clouds += points
        if len(clouds) >= wanted:
            break
    geometry = np.concatenate([some.geometry for some in scenes])
    return scenes, pack(clouds, geometry, max_points=source["points"], seed=SEED)


def _solids(scenes: Scenes, place: int) -> list[tuple[float, float, float, float]]:
    """Bodies and tops of the products of one beam, from the side, measured from the camera."""
    _, up, away = (float(length) for length in scenes.eye[place])
    found = []
    for item in range(int(scenes.count[place])):
        for there, solid in scenes.solids(item):
            if there[place]:
                depth, low, high = (float(side[place]) for side in (solid.depth, solid.low, solid.high))
                found.append((float(solid.z[place]) - depth / 2 - away, low - up, depth, high - low))
    return found


def _products(ax: Any, solids: list[tuple[float, float, float, float]]) -> None:
    """Rectangles behind the points."""
    for z, y, depth, height in solids:
        ax.bar(z, height, depth, y, align="edge", facecolor=BAND, edgecolor=ACCENT, lw=0.6, zorder=0)
    if solids:
        ax.patches[0].set_label("what stands there, seen or not")


def _points(ax: Any, beam: Beam, sides: tuple[int, int]) -> None:
    """The points over two of x, y, z, in true proportions."""
    x, y = (beam.points[:, side] for side in sides)
    depth = beam.points[:, 2]
    reach = np.ptp(depth) if len(depth) else 0.0
    shade = _FARTHEST * (depth - depth.min()) / reach if reach > 0 else np.zeros_like(depth)
    # Far points first, so that near ones lie over them.
    order = np.argsort(-depth)
    ax.scatter(x[order], y[order], s=5, c=[str(grey) for grey in shade[order]], linewidths=0)
    if not len(depth):
        ax.text(0.5, 0.5, "no point", transform=ax.transAxes, ha="center", color=GREY)
    ax.set_aspect("equal", adjustable="datalim")
    ax.set_ylabel(_AXES[sides[1]])
    ax.xaxis.get_major_locator().set_params(nbins=3 if sides[0] == 0 else 6)
