"""Simulated retail shelves: rows of products that stand behind one another, and the part of them a depth camera sees.

A beam is one slot of a shelf: `x` to the right, `y` up, `z` into the shelf, all in meters from the camera. The camera
looks through the slot's opening, which the shelf above closes at the top, from the front, a little above and to a side.
Front products hide those behind: of these it sees tops, edges in gaps, or nothing at all. Products of a class differ in
size, there are gaps where some were taken, and the hidden part is unknown: the count has to be inferred. The shelf and
the neighbors are cut away, as a detector of products would do.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from ddpn.paper.datasets.beams import packed_dataset
from ddpn.paper.datasets.dataset import SEED, Dataset
from ddpn.paper.datasets.depth_camera import Camera, Floats, Range, Rays, Solids, entrance, of_beams, through
from ddpn.paper.inputs.point_clouds import MAX_POINTS, pack
from ddpn.runtime.errors import InputError
from ddpn.runtime.progress import progress_bar
from ddpn.runtime.validation import check_integer

#: The largest number of products behind one another: thinner ones stand on shallower shelves.
MOST = 12
#: Beams that are rendered at once: their rays fit into a processor's cache.
_CHUNK = 128
#: Ranges in meters from which each slot is drawn: depth of its shelf, excess of its width over that of its product, and
#: free height above the product.
SHELF, PLAY, CLEARANCE = (0.55, 0.75), (0.005, 0.02), (0.06, 0.2)
#: Gaps between products are CLOSE on average; a share HOLES of them is wider by a HOLE.
CLOSE, HOLES, HOLE = 0.004, 0.25, (0.03, 0.15)
#: The camera of the experiments.
CAMERA = Camera()


@dataclass(frozen=True)
class Geometry:
    """A class of products: the ranges of their sizes in meters; depth is relative to width.

    `top` is the narrower part on a body, a neck or a gable: its share of the height, the width and the depth.
    """

    is_round: bool
    width: Range
    depth: Range
    height: Range
    top: tuple[float, float, float] = (0.0, 1.0, 1.0)


GEOMETRIES = {
    "bottle": Geometry(True, (0.06, 0.09), (1.0, 1.0), (0.18, 0.30), top=(0.35, 0.4, 0.4)),
    "box": Geometry(False, (0.08, 0.20), (0.4, 0.7), (0.10, 0.28)),
    "can": Geometry(True, (0.053, 0.085), (1.0, 1.0), (0.09, 0.17)),
    "carton": Geometry(False, (0.06, 0.10), (0.8, 1.1), (0.16, 0.26), top=(0.15, 1.0, 0.2)),
}


@dataclass(frozen=True, eq=False)
class Scenes:
    """The products in the slots, and the position of the camera. Shape: (B,), `x` and `z` (B, MOST), `eye` (B, 3).

    `x` and `z` are the axes of the products from the front; only the first `count` exist. `slot` is the width and
    `opening` the height that the camera looks through, from the middle of the slot's front edge.
    """

    geometry: NDArray[np.int64]
    count: NDArray[np.int64]
    width: Floats
    depth: Floats
    height: Floats
    slot: Floats
    opening: Floats
    x: Floats
    z: Floats
    eye: Floats

    def solids(self, item: int) -> Iterator[tuple[NDArray[np.bool_], Solids]]:
        """The body and then the top of one product per beam, with a mask of the beams that have it."""
        kinds = list(GEOMETRIES.values())
        is_round = np.array([kind.is_round for kind in kinds])[self.geometry]
        up, wide, deep = np.array([kind.top for kind in kinds], dtype=np.float32)[self.geometry].T
        shoulder = self.height * (1 - up)
        there = self.count > item
        floor, at = np.zeros_like(shoulder), (self.x[:, item], self.z[:, item])
        yield there, Solids(is_round, *at, self.width, self.depth, floor, shoulder)
        yield there & (up > 0), Solids(is_round, *at, self.width * wide, self.depth * deep, shoulder, self.height)


def draw_scenes(n: int, camera: Camera, rng: Generator) -> Scenes:
    """Draw products, their number and places, and the position of the camera, for n slots."""
    geometry = rng.integers(len(GEOMETRIES), size=n)
    ends = np.array([(kind.width, kind.depth, kind.height) for kind in GEOMETRIES.values()])[geometry]
    width, share, height = rng.uniform(ends[..., 0], ends[..., 1]).T
    depth, shelf = share * width, rng.uniform(*SHELF, n)
    capacity = np.clip(shelf // depth, 1, MOST)
    # Shelves are filled up before they are empty: on average 5/8 of their capacity.
    count = np.ceil(capacity * rng.beta(2.5, 1.5, n)).astype(np.int64)
    slot, opening = width + rng.uniform(*PLAY, n), height + rng.uniform(*CLEARANCE, n)
    x = rng.uniform(-0.5, 0.5, (n, MOST)) * (slot - width)[:, None]
    z = _depths(count, depth, shelf, rng)
    aside, above, away = (rng.uniform(*ends, n) for ends in (camera.aside, camera.above, camera.away))
    eye = np.stack([aside, height + above, -away], axis=1)
    lengths = (width, depth, height, slot, opening, x, z, eye)
    return Scenes(geometry, count, *(length.astype(np.float32) for length in lengths))


def _depths(
    count: NDArray[np.int64], depth: NDArray[np.float64], shelf: NDArray[np.float64], rng: Generator
) -> NDArray[np.float64]:
    """The axes of products behind one another: mostly close together, some with a gap where others were taken."""
    shape = (len(count), MOST)
    gaps = rng.exponential(CLOSE, shape) + (rng.random(shape) < HOLES) * rng.uniform(*HOLE, shape)
    # The first gap is the distance of the row from the edge: customers take products from the front.
    gaps[:, 0] += HOLE[0] * rng.random(len(count))
    gaps[np.arange(MOST) >= count[:, None]] = 0.0
    gaps *= np.minimum(1.0, (shelf - count * depth) / gaps.sum(1))[:, None]
    return gaps.cumsum(1) + (np.arange(MOST) + 0.5) * depth[:, None]


def render(scenes: Scenes, camera: Camera) -> tuple[Rays, Floats, NDArray[np.int64]]:
    """Without noise: the rays, where each meets the first product (infinity: none), and which. Shape: (B, R)."""
    rays = through(scenes.eye, scenes.slot, scenes.opening, camera)
    nearest = np.full(rays.direction.shape[:2], np.inf, dtype=np.float32)
    which = np.full(nearest.shape, -1)
    for item in range(scenes.count.max()):
        for there, solids in scenes.solids(item):
            t = np.full_like(nearest, np.inf)
            t[there] = entrance(of_beams(rays, there), of_beams(solids, there))
            is_nearer = t < nearest
            nearest[is_nearer], which[is_nearer] = t[is_nearer], item
    return rays, nearest, which


def measure(scenes: Scenes, camera: Camera, rng: Generator) -> list[Floats]:
    """The points that the camera measures per beam, with noise and without lost pixels. Shape: (n, 3) each."""
    rays, t, _ = render(scenes, camera)
    lost = rng.uniform(*camera.dropout, (len(t), 1))
    kept = np.isfinite(t) & (rng.random(t.shape) >= lost)
    noise = rng.standard_normal(t.shape, dtype=np.float32)
    clouds = []
    for directions, at, pixels, error in zip(rays.direction, t, kept, noise, strict=True):
        points = at[pixels, None] * directions[pixels]
        distance = np.linalg.norm(points, axis=1, keepdims=True)
        clouds.append(points * (1 + camera.noise * distance * error[pixels, None]))
    return clouds


def simulate_shelves(n: int, seed: int = SEED, *, max_points: int = MAX_POINTS, progress: bool = True) -> Dataset:
    """Simulate slots of shelves; return their packed beams and counts, split 70/10/20.

    Parameters
    ----------
    n : int
        The number of slots.
    seed : int
        Seed of the scenes, of the points that are kept and of the split.
    max_points : int
        Points of a beam at most.
    progress : bool
        Show progress.

    Examples
    --------
    >>> data = simulate_shelves(20, seed=0, max_points=64)
    >>> data.X.shape, data.classes
    (torch.Size([20, 66, 4]), ('bottle', 'box', 'can', 'carton'))
    """
    scenes, clouds = zip(*simulate_chunks(n, seed, progress), strict=True)
    geometry = np.concatenate([some.geometry for some in scenes])
    X = pack([points for some in clouds for points in some], geometry, max_points=max_points, seed=seed)
    y = np.concatenate([some.count for some in scenes])
    return packed_dataset("simulated_shelves", X, y, tuple(GEOMETRIES), seed, "none: simulated")


def simulate_chunks(n: int, seed: int, progress: bool = False) -> Iterator[tuple[Scenes, list[Floats]]]:
    """Simulate n slots, some at a time; yield the slots and the clouds of their points."""
    check_integer("n", n, 1, InputError)
    check_integer("seed", seed, 0, InputError)
    with progress_bar("Shelves", n, progress) as bar:
        for number, first in enumerate(range(0, n, _CHUNK)):
            rng = np.random.default_rng([seed, number])
            scenes = draw_scenes(min(_CHUNK, n - first), CAMERA, rng)
            yield scenes, measure(scenes, CAMERA, rng)
            bar.advance(len(scenes.count))
