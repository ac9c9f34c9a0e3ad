"""Simulate point clouds that a depth camera sees of products on retail shelves.

A beam is the point cloud of one slot, a column of equal products that stand behind one another on a shelf. Coordinates
are in metres from the camera: `x` to the right, `y` up, `z` into the shelf. The camera looks through the front opening
of the slot, a little from above and from one side; the shelf above closes the opening at the top.

Products in front hide those behind, so the camera sees only tops, edges in gaps, or nothing of the latter. Sizes vary
within a class, and there are gaps where products were taken. So the number of products cannot be read off and must be
inferred. The points of the shelf and of neighbouring slots are left out, as if a product detector had removed them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from ddpn.paper.datasets.dataset import LARGE_SHARES, SEED, Dataset, split
from ddpn.paper.inputs import MAX_POINTS, pack
from ddpn.runtime.errors import InputError
from ddpn.runtime.progress import progress_bar
from ddpn.runtime.validation import check_integer

#: Arrays are float32 in all simulations, for speed.
Floats = NDArray[np.floating]
Range = tuple[float, float]
#: The numbers of pixels that cover an opening.
ROWS, COLUMNS = 48, 20
#: The standard deviation of a depth is NOISE times the square of the distance, as in triangulating cameras.
NOISE = 0.002
#: The range of the share of lost pixels, which is drawn per beam.
DROPOUT = (0.05, 0.4)
#: Ranges of the camera's position in metres: to the right of the middle of the opening, above the height of the
#: products, and in front of the opening.
ASIDE, ABOVE, AWAY = (-0.12, 0.12), (0.05, 0.35), (0.8, 1.4)
#: The most products behind one another.
MAX_PRODUCTS = 12
#: The number of beams whose noise is drawn together.
_BEAMS_PER_DRAW = 128
#: Ranges in metres for each slot: the depth of its shelf, its width minus the width of the product, and the free height
#: above the product.
SHELF, PLAY, CLEARANCE = (0.55, 0.75), (0.005, 0.02), (0.06, 0.2)
#: Gaps between products are CLOSE metres on average. A share HOLES of them is wider by a length in the range HOLE.
CLOSE, HOLES, HOLE = 0.004, 0.25, (0.03, 0.15)


@dataclass(frozen=True)
class Geometry:
    """A class of products, such as bottles: its shape, and the ranges from which product sizes are drawn.

    Products are cylinders if `is_round` is True, otherwise boxes. `width` and `height` are ranges in metres; `depth` is
    a range of multiples of the width. `top` describes a narrower upper part, such as the neck of a bottle: its height,
    width and depth, as shares of those of the product. A height of 0 means that there is no such part.
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


class Scene(NamedTuple):
    """One simulated slot: its products, its front opening, and the position of the camera.

    - `geometry` is the number of the geometry class of the products.
    - `products` is the number of products, which have equal sizes: `width`, `depth` and `height`.
    - `x` and `z` are the coordinates of the products' vertical axes, from front to back. Only the first `products`
      elements are used.
    - `slot_width` and `opening_height` are the size of the opening.
    - `eye` is the camera's position (x, y, z).

    Lengths and coordinates are in metres. The origin is the middle of the lower edge of the opening.
    """

    geometry: int
    products: int
    width: Floats
    depth: Floats
    height: Floats
    slot_width: Floats
    opening_height: Floats
    x: Floats
    z: Floats
    eye: Floats


def draw_scenes(n: int, rng: Generator) -> list[Scene]:
    """Draw `n` random slots: the number, sizes and positions of their products, and the position of the camera."""
    geometry = rng.integers(len(GEOMETRIES), size=n)
    ends = np.array([(kind.width, kind.depth, kind.height) for kind in GEOMETRIES.values()])[geometry]
    width, share, height = rng.uniform(ends[..., 0], ends[..., 1]).T
    depth, shelf = share * width, rng.uniform(*SHELF, n)
    capacity = np.clip(shelf // depth, 1, MAX_PRODUCTS)
    # Shelves are refilled before they are empty: on average they are filled to 5/8 of their capacity.
    count = np.ceil(capacity * rng.beta(2.5, 1.5, n)).astype(np.int64)
    slot, opening = width + rng.uniform(*PLAY, n), height + rng.uniform(*CLEARANCE, n)
    x = rng.uniform(-0.5, 0.5, (n, MAX_PRODUCTS)) * (slot - width)[:, None]
    z = _draw_axis_distances(count, depth, shelf, rng)
    aside, above, away = (rng.uniform(*ends, n) for ends in (ASIDE, ABOVE, AWAY))
    eye = np.stack([aside, height + above, -away], axis=1)
    lengths = (length.astype(np.float32) for length in (width, depth, height, slot, opening, x, z, eye))
    return [Scene(*facts) for facts in zip(geometry, count, *lengths, strict=True)]


def _draw_axis_distances(
    count: NDArray[np.int64], depth: NDArray[np.float64], shelf: NDArray[np.float64], rng: Generator
) -> NDArray[np.float64]:
    """Draw the distance in metres of each product's vertical axis from the front of its slot.

    Most products stand close together; some have a gap in front of them. Three arrays with one value per slot describe
    the slots: `count` is the number of products, `depth` the depth of a product, and `shelf` the depth of the shelf.

    The result has shape (slots, MAX_PRODUCTS). Only the first `count` values of a row are used.
    """
    shape = (len(count), MAX_PRODUCTS)
    gaps = rng.exponential(CLOSE, shape) + (rng.random(shape) < HOLES) * rng.uniform(*HOLE, shape)
    # The first gap is the distance to the edge, because customers take products from the front.
    gaps[:, 0] += HOLE[0] * rng.random(len(count))
    gaps[np.arange(MAX_PRODUCTS) >= count[:, None]] = 0.0
    gaps *= np.minimum(1.0, (shelf - count * depth) / gaps.sum(1))[:, None]
    return gaps.cumsum(1) + (np.arange(MAX_PRODUCTS) + 0.5) * depth[:, None]


def cast_rays(scene: Scene) -> Floats:
    """Return the camera's rays: vectors from the camera to the centre of each pixel. Shape: (pixels, 3).

    Pixels form a regular grid over the opening at z = 0, so `scene.eye + ray` is a point of the opening.
    """
    across = (np.arange(COLUMNS, dtype=np.float32) + 0.5) / COLUMNS - 0.5
    up = (np.arange(ROWS, dtype=np.float32) + 0.5) / ROWS
    x, y = np.tile(across, ROWS) * scene.slot_width, np.repeat(up, COLUMNS) * scene.opening_height
    return np.stack([x, y, np.zeros_like(x)], axis=-1) - scene.eye


def render(scene: Scene) -> tuple[Floats, Floats]:
    """Trace the camera's rays. Return the rays, and the distance at which each ray meets each product.

    The rays have the shape (pixels, 3), and the distances have the shape (products, pixels). A distance is a multiple
    of the ray's length; it is infinite if the ray misses the product.
    """
    rays, kind = cast_rays(scene), list(GEOMETRIES.values())[scene.geometry]
    up, wide, deep = np.array(kind.top, dtype=np.float32)
    shoulder, zero = scene.height * (1 - up), np.zeros((), dtype=np.float32)
    x, z = (axis[: scene.products, None] for axis in (scene.x, scene.z))
    met = compute_entrance(scene.eye, rays, kind.is_round, x, z, scene.width, scene.depth, zero, shoulder)
    if up > 0:
        top = (scene.width * wide, scene.depth * deep, shoulder, scene.height)
        met = np.minimum(met, compute_entrance(scene.eye, rays, kind.is_round, x, z, *top))
    return rays, met


def compute_entrance(
    eye: Floats,
    rays: Floats,
    is_round: bool,
    x: Floats,
    z: Floats,
    width: Floats,
    depth: Floats,
    low: Floats,
    high: Floats,
) -> Floats:
    """Compute where each ray enters each upright solid: the smallest t with `eye + t * ray` inside it.

    `eye` is a position (x, y, z), from which all rays start, and `rays` has the direction of each ray. Shape:
    (rays, 3). The solids are cylinders of diameter `width` if `is_round`, otherwise boxes of size `width` along x and
    `depth` along z. Their vertical axes are at the coordinates `x` and `z`, arrays with shape (solids, 1). All solids
    have the same size, and reach from height `low` to height `high`.

    The result has shape (solids, rays) and is infinite where a ray misses a solid.
    """
    if is_round:
        # |eye + t ray - axis|^2 <= radius^2 in x and z holds between the roots of a quadratic, or nowhere (NaN).
        ox, oz, dx, dz = eye[0] - x, eye[2] - z, rays[:, 0], rays[:, 2]
        a, b, radius = dx * dx + dz * dz, ox * dx + oz * dz, width / 2
        # From the distance of the ray from the axis. b^2 - a c would be a difference of large squares and lose digits.
        with np.errstate(invalid="ignore"):
            root = np.sqrt(a * radius * radius - (ox * dz - oz * dx) ** 2)
        first, last = (-b - root) / a, (-b + root) / a
    else:
        sides = (
            _intersect_slab(eye, rays, 0, x - width / 2, x + width / 2),
            _intersect_slab(eye, rays, 2, z - depth / 2, z + depth / 2),
        )
        first, last = np.maximum(sides[0][0], sides[1][0]), np.minimum(sides[0][1], sides[1][1])
    bottom, top = _intersect_slab(eye, rays, 1, low, high)
    first, last = np.maximum(first, bottom), np.minimum(last, top)
    return np.where((first <= last) & (first > 0), first, np.float32(np.inf))


def _intersect_slab(eye: Floats, rays: Floats, axis: int, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Compute the values of t at which `eye + t * ray` enters and leaves the space between two parallel planes.

    The planes are perpendicular to `axis` (0, 1 or 2 for x, y or z), at the coordinates `low` and `high`. These are
    numbers, or arrays with shape (solids, 1) for several pairs of planes. `eye` and `rays` are as in
    `compute_entrance`. The two results have shape (rays,) or (solids, rays).
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        a, b = (low - eye[axis]) / rays[:, axis], (high - eye[axis]) / rays[:, axis]
    # A ray inside one of the planes gives 0 / 0. fmin and fmax then take the other plane, which is infinitely far, so
    # the ray misses.
    return np.fmin(a, b), np.fmax(a, b)


def measure_points(scenes: Sequence[Scene], rng: Generator) -> list[Floats]:
    """Simulate the point cloud that the camera measures of each scene. Shape: (points, 3) per scene.

    Each pixel yields the point where its ray first meets a product. The measured distance has a normal error with the
    standard deviation `NOISE` times the squared distance. In each scene a share of the pixels, drawn uniformly from the
    range `DROPOUT`, yields no point.
    """
    shape = (len(scenes), ROWS * COLUMNS)
    lost = rng.uniform(*DROPOUT, (len(scenes), 1))
    kept, errors = rng.random(shape) >= lost, rng.standard_normal(shape, dtype=np.float32)
    clouds = []
    for scene, pixels, error in zip(scenes, kept, errors, strict=True):
        rays, met = render(scene)
        nearest = met.min(0)
        seen = pixels & np.isfinite(nearest)
        points = nearest[seen, None] * rays[seen]
        distance = np.linalg.norm(points, axis=1, keepdims=True)
        clouds.append(points * (1 + NOISE * distance * error[seen, None]))
    return clouds


def simulate_shelves(n: int, seed: int = SEED, *, max_points: int = MAX_POINTS) -> Dataset:
    """Simulate shelf slots; return a data set of point clouds and numbers of products, split 70/10/20.

    The inputs `X` have the shape (n, 2 + max_points, 4), the format of `ddpn.paper.inputs.pack`.

    Parameters
    ----------
    n : int
        The number of slots, which is the number of rows.
    seed : int
        Seed of the scenes, of the selection of points, and of the split.
    max_points : int
        The largest number of points per slot. If the camera measures more, a random subset is kept.

    Examples
    --------
    >>> data = simulate_shelves(20, seed=0, max_points=64)
    >>> data.X.shape, data.classes
    (torch.Size([20, 66, 4]), ('bottle', 'box', 'can', 'carton'))
    """
    check_integer("n", n, 1, InputError)
    check_integer("seed", seed, 0, InputError)
    scenes: list[Scene] = []
    clouds: list[Floats] = []
    with progress_bar("Shelves", n) as bar:
        for number, first in enumerate(range(0, n, _BEAMS_PER_DRAW)):
            rng = np.random.default_rng([seed, number])
            drawn = draw_scenes(min(_BEAMS_PER_DRAW, n - first), rng)
            scenes += drawn
            clouds += measure_points(drawn, rng)
            bar.advance(len(drawn))
    X = pack(clouds, [scene.geometry for scene in scenes], max_points=max_points, seed=seed)
    y = np.array([scene.products for scene in scenes])
    empty = int((X[:, 2:, 0].sum(1) == 0).sum())
    return Dataset(
        "simulated_shelves",
        X,
        y,
        split(n, seed, LARGE_SHARES),
        license="none: simulated",
        citation="none",
        note=f"{empty:,} of {n:,} beams have no point" if empty else "",
        classes=tuple(GEOMETRIES),
    )
