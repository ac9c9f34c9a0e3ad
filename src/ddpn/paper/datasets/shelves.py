"""Beams of retail shelves as point clouds: simulated ones, and folders of your own.

A beam is one slot of a shelf: `x` to the right, `y` up, `z` into the shelf, all in meters from the camera. The camera
looks through the slot's opening, which the shelf above closes at the top, from the front, a little above and to a side.
Front products hide those behind: of these it sees tops, edges in gaps, or nothing at all. Products of a class differ in
size, there are gaps where some were taken, and the hidden part is unknown: the count has to be inferred. The shelf and
the neighbors are cut away, as a detector of products would do.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor

from ddpn.paper.datasets.dataset import LARGE_SHARES, SEED, Dataset, as_counts, data_folder, read_columns, split
from ddpn.paper.inputs import MAX_POINTS, pack, read_points
from ddpn.runtime.errors import InputError
from ddpn.runtime.progress import progress_bar
from ddpn.runtime.validation import check_integer, listed

# Folders of beams: a table, and one file of points per row ------------------------------------------------------------


def packed_dataset(
    name: str, X: Tensor, y: NDArray[np.int64], classes: tuple[str, ...], seed: int, license: str
) -> Dataset:
    """Packed beams as a data set, split 70/10/20, with a note on beams without a point."""
    empty = int((X[:, 2:, 0].sum(1) == 0).sum())
    note = f"{empty:,} of {len(y):,} beams have no point" if empty else ""
    parts = split(len(y), seed, LARGE_SHARES)
    return Dataset(name, X, y, parts, license, citation="none", note=note, classes=classes)


def inventory(
    folder: str | os.PathLike[str] | None = None,
    *,
    classes: Sequence[str] | None = None,
    max_points: int = MAX_POINTS,
    seed: int = SEED,
) -> Dataset:
    """Products in the slots of shelves, from a folder of point clouds; split 70/10/20.

    The folder holds
    - `beams.csv` with the columns beam, class and count (others are left out),
    - `points/` with an array (points, 3) per beam, BEAM.npy. Lengths are meters from the camera: x to the right, y up,
      z away from it.

    Parameters
    ----------
    folder : path, optional
        The folder. Default: `inventory` below the data folder.
    classes : sequence of str, optional
        The classes in the order of their numbers. Default: those of the table, sorted by name. A model knows classes by
        their numbers, so read other folders with the classes that it was trained with.
    max_points : int
        Points of a beam at most; of more, a random subset is kept.
    seed : int
        Seed of the points that are kept and of the split.

    Examples
    --------
    >>> from tempfile import mkdtemp
    >>> import polars as pl
    >>> folder = Path(mkdtemp())
    >>> (folder / "points").mkdir()
    >>> for count in range(10):
    ...     np.save(folder / "points" / f"slot{count}.npy", np.random.default_rng(count).random((40, 3)))
    >>> table = pl.DataFrame({"beam": [f"slot{i}" for i in range(10)], "class": ["can"] * 10, "count": range(10)})
    >>> table.write_csv(folder / "beams.csv")
    >>> X, y = inventory(folder, max_points=32).part("train")
    >>> X.shape, y
    (torch.Size([7, 34, 4]), array([9, 8, 7, 4, 1, 0, 5]))
    >>> inventory(folder, classes=["box", "can"]).X[0, 0, 0]
    tensor(1.)
    """
    folder = data_folder() / "inventory" if folder is None else Path(folder)
    path = folder / "beams.csv"
    if not path.is_file():
        raise InputError(f"File not found: {path}. Pass a folder of beams.")
    table = read_columns(path, numbers=["count"], texts=["beam", "class"])
    y = as_counts(table["count"], f"count of {path}")
    names = tuple(sorted(set(table["class"]))) if classes is None else _check_classes(classes)
    geometry = _numbers(path, table["class"].to_list(), names)
    beam, times = Counter(table["beam"]).most_common(1)[0]
    if times > 1:
        raise InputError(f"Every beam of {path} must be counted once, got {beam} {times} times.")
    X = pack(
        [read_points(folder / "points" / f"{beam}.npy") for beam in table["beam"]],
        geometry,
        max_points=max_points,
        seed=seed,
    )
    return packed_dataset("inventory", X, y, names, seed, "private")


def _check_classes(classes: Any) -> tuple[str, ...]:
    names = list(classes) if isinstance(classes, Iterable) and not isinstance(classes, str | dict) else []
    if not names or not all(isinstance(each, str) and each for each in names) or len(set(names)) < len(names):
        raise InputError(argument="classes", must='be different names such as ["can", "box"]', got=f"{classes!r:.60}")
    return tuple(map(str, names))


def _numbers(path: Path, names: list[str], classes: tuple[str, ...]) -> NDArray[np.int64]:
    number = {name: i for i, name in enumerate(classes)}
    if row := next((row for row, name in enumerate(names, start=1) if name not in number), None):
        raise InputError(
            f"class of {path} must be one of {listed(classes, 40)}, got {names[row - 1]!r} at row {row}. "
            f"Add a new class to `classes` and train again."
        )
    return np.array([number[name] for name in names])


# A depth camera by ray casting: upright solids behind an opening, the nearest hides the rest --------------------------


#: float32 in all simulations, for speed.
Floats = NDArray[np.floating[Any]]
Range = tuple[float, float]
T = TypeVar("T", "Rays", "Solids")


@dataclass(frozen=True)
class Camera:
    """A depth camera: pixels over an opening, their errors, and its position; lengths in meters.

    The standard deviation of a depth is `noise` times the square of the distance, as in triangulating cameras. Drawn
    per beam from ranges: the share of pixels that is lost (`dropout`), and the distances of the camera from the middle
    of the opening, to the right (`aside`), above the products' height and in front (`away`).
    """

    rows: int = 48
    columns: int = 20
    noise: float = 0.002
    dropout: Range = (0.05, 0.4)
    aside: Range = (-0.12, 0.12)
    above: Range = (0.05, 0.35)
    away: Range = (0.8, 1.4)


class Rays(NamedTuple):
    """Lines `origin + t direction`, which pass the opening at t = 1. Shape: (B, 1, 3) and (B, R, 3)."""

    origin: Floats
    direction: Floats


class Solids(NamedTuple):
    """One upright solid per beam, a cylinder where `is_round` and a box elsewhere. Shape: all (B,).

    `x` and `z` are its axis, `width` (a cylinder's diameter) lies along x, `depth` along z, `low` and `high` along y.
    """

    is_round: NDArray[np.bool_]
    x: Floats
    z: Floats
    width: Floats
    depth: Floats
    low: Floats
    high: Floats


def of_beams(parts: T, mask: NDArray[np.bool_]) -> T:
    """The rays or solids of some of the beams."""
    return type(parts)._make(column[mask] for column in parts)


def through(eye: Floats, width: Floats, height: Floats, camera: Camera) -> Rays:
    """Rays from `eye` (B, 3) through the middles of pixels that divide an opening evenly.

    The opening is at z = 0, x from -width / 2 to width / 2, y from 0 to height: a pinhole camera that faces it.
    """
    across = (np.arange(camera.columns, dtype=np.float32) + 0.5) / camera.columns - 0.5
    up = (np.arange(camera.rows, dtype=np.float32) + 0.5) / camera.rows
    x = np.tile(across, camera.rows) * width[:, None]
    y = np.repeat(up, camera.columns) * height[:, None]
    at = np.stack([x, y, np.zeros_like(x)], axis=-1)
    return Rays(eye[:, None, :], at - eye[:, None, :])


def entrance(rays: Rays, solids: Solids) -> Floats:
    """Where each ray enters its beam's solid; infinity if it misses. Shape: (B, R)."""
    t = np.empty(rays.direction.shape[:2], dtype=np.float32)
    for chosen, footprint in ((solids.is_round, _disc), (~solids.is_round, _rectangle)):
        if chosen.any():
            some, these = of_beams(rays, chosen), of_beams(solids, chosen)
            inside, outside = footprint(some, these)
            low, high = _slab(some, 1, these.low, these.high)
            first, last = np.maximum(inside, low), np.minimum(outside, high)
            t[chosen] = np.where((first <= last) & (first > 0), first, np.float32(np.inf))
    return t


def _slab(rays: Rays, axis: int, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Where rays enter and leave the space between two planes."""
    origin, direction = rays.origin[..., axis], rays.direction[..., axis]
    with np.errstate(divide="ignore", invalid="ignore"):
        a, b = (low[:, None] - origin) / direction, (high[:, None] - origin) / direction
    # A ray in one of the planes gives 0 / 0; fmin and fmax take the other plane, infinitely far: the ray misses.
    return np.fmin(a, b), np.fmax(a, b)


def _rectangle(rays: Rays, solids: Solids) -> tuple[Floats, Floats]:
    x = _slab(rays, 0, solids.x - solids.width / 2, solids.x + solids.width / 2)
    z = _slab(rays, 2, solids.z - solids.depth / 2, solids.z + solids.depth / 2)
    return np.maximum(x[0], z[0]), np.minimum(x[1], z[1])


def _disc(rays: Rays, solids: Solids) -> tuple[Floats, Floats]:
    """|origin + t direction - axis|^2 <= radius^2 in x and z: between the roots of a quadratic, or nowhere (NaN)."""
    ox, oz = rays.origin[..., 0] - solids.x[:, None], rays.origin[..., 2] - solids.z[:, None]
    dx, dz = rays.direction[..., 0], rays.direction[..., 2]
    a, b = dx * dx + dz * dz, ox * dx + oz * dz
    # The ray's distance from the axis, not b^2 - a c: far from the eye the difference of large squares loses digits.
    radius = solids.width[:, None] / 2
    square = a * radius * radius - (ox * dz - oz * dx) ** 2
    with np.errstate(invalid="ignore"):
        root = np.sqrt(square)
    return (-b - root) / a, (-b + root) / a


# Simulated shelves ----------------------------------------------------------------------------------------------------


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


def simulate_shelves(n: int, seed: int = SEED, *, max_points: int = MAX_POINTS) -> Dataset:
    """Simulate slots of shelves; return their packed beams and counts, split 70/10/20.

    Parameters
    ----------
    n : int
        The number of slots.
    seed : int
        Seed of the scenes, of the points that are kept and of the split.
    max_points : int
        Points of a beam at most.

    Examples
    --------
    >>> data = simulate_shelves(20, seed=0, max_points=64)
    >>> data.X.shape, data.classes
    (torch.Size([20, 66, 4]), ('bottle', 'box', 'can', 'carton'))
    """
    check_integer("n", n, 1, InputError)
    check_integer("seed", seed, 0, InputError)
    scenes, clouds = [], []
    with progress_bar("Shelves", n) as bar:
        for number, first in enumerate(range(0, n, _CHUNK)):
            rng = np.random.default_rng([seed, number])
            scenes.append(draw_scenes(min(_CHUNK, n - first), CAMERA, rng))
            clouds += measure(scenes[-1], CAMERA, rng)
            bar.advance(len(scenes[-1].count))
    X = pack(clouds, np.concatenate([some.geometry for some in scenes]), max_points=max_points, seed=seed)
    y = np.concatenate([some.count for some in scenes])
    return packed_dataset("simulated_shelves", X, y, tuple(GEOMETRIES), seed, "none: simulated")
