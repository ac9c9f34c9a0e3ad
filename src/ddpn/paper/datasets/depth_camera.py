"""A depth camera by ray casting: upright solids behind an opening, seen in perspective, the nearest hides the rest."""

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

#: float32 in all simulations, for speed.
Floats = NDArray[np.floating[Any]]
Range = tuple[float, float]
T = TypeVar("T", "Rays", "Solids")


@dataclass(frozen=True)
class Camera:
    """A depth camera: pixels over an opening, their errors, and its position; lengths in meters.

    Parameters
    ----------
    rows, columns : int
        Pixels over the opening.
    noise : float
        The standard deviation of a depth is this times the square of the distance, as in triangulating cameras.
    dropout : pair of float
        Range of the share of pixels that is lost, drawn per beam, as are the following.
    aside, above, away : pair of float
        Ranges of the distances of the camera from the middle of the opening: to the right, above the products' height
        and in front.
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
