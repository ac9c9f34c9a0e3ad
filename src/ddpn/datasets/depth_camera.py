"""A depth camera by ray casting: upright solids behind an opening, seen in perspective, the nearest hides the rest."""

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ddpn.datasets.checks import whole
from ddpn.errors import ConfigError

#: float32 in all that is drawn and seen, for speed.
Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Camera:
    """Pixels over an opening, what is wrong with them, and where the camera is; lengths in metres.

    The standard deviation of a depth is `noise` times the square of the distance, as triangulating cameras have it.
    Drawn for every beam between two numbers: the share of pixels that is lost (`dropout`), and where the eye is from
    the middle of the opening: to the right (`aside`), over the products' height (`above`) and in front (`away`).
    """

    rows: int = 48
    columns: int = 20
    noise: float = 0.002
    dropout: tuple[float, float] = (0.05, 0.4)
    aside: tuple[float, float] = (-0.12, 0.12)
    above: tuple[float, float] = (0.05, 0.35)
    away: tuple[float, float] = (0.8, 1.4)

    def __post_init__(self) -> None:
        for name in ("rows", "columns"):
            whole(name, getattr(self, name), 1, "Give the camera pixels.", ConfigError)
        if not (isinstance(self.noise, Real) and 0 <= self.noise < np.inf):
            raise ConfigError(f"noise must be at least 0, got {self.noise}. Use 0 for a camera without any.")
        if not _ascends(self.dropout) or self.dropout[0] < 0 or self.dropout[1] > 1:
            raise ConfigError(f"dropout must be two ascending shares, got {self.dropout}. Use (0, 0) for none.")
        if not _ascends(self.away) or self.away[0] <= 0:
            raise ConfigError(f"away must be two ascending positive lengths, got {self.away}. Step back.")
        for name in ("aside", "above"):
            if not _ascends(ends := getattr(self, name)):
                raise ConfigError(f"{name} must be two ascending lengths, got {ends}. Use the same twice for one.")


def _ascends(ends: Any) -> bool:
    """Whether these are two finite numbers, the smaller first."""
    if not isinstance(ends, Sequence) or len(ends) != 2 or not all(isinstance(end, Real) for end in ends):
        return False
    return bool(-np.inf < ends[0] <= ends[1] < np.inf)


class Rays(NamedTuple):
    """Lines `origin + t direction`, of which t = 1 is where they pass the opening. Shape: (B, 1, 3) and (B, R, 3)."""

    origin: Floats
    direction: Floats

    def rows(self, index: NDArray[np.bool_]) -> "Rays":
        """The rays of some of the beams."""
        return Rays(self.origin[index], self.direction[index])


class Solids(NamedTuple):
    """One upright solid a beam, a cylinder where `is_round` and a box elsewhere. Shape: all (B,).

    `x` and `z` are its axis, `width` (a cylinder's diameter) lies along x, `depth` along z, `low` and `high` along y.
    """

    is_round: NDArray[np.bool_]
    x: Floats
    z: Floats
    width: Floats
    depth: Floats
    low: Floats
    high: Floats

    def rows(self, index: NDArray[np.bool_]) -> "Solids":
        """The solids of some of the beams."""
        return Solids._make(column[index] for column in self)


def through(eye: Floats, width: Floats, height: Floats, camera: Camera) -> Rays:
    """Rays from `eye` (B, 3) through the middles of pixels that share an opening out evenly.

    The opening lies at z = 0, x from -width / 2 to width / 2, y from 0 to height: a pinhole camera that faces it.
    """
    across = (np.arange(camera.columns, dtype=np.float32) + 0.5) / camera.columns - 0.5
    up = (np.arange(camera.rows, dtype=np.float32) + 0.5) / camera.rows
    x = np.tile(across, camera.rows) * width[:, None]
    y = np.repeat(up, camera.columns) * height[:, None]
    at = np.stack([x, y, np.zeros_like(x)], axis=-1)
    return Rays(eye[:, None, :], at - eye[:, None, :])


def entrance(rays: Rays, solids: Solids) -> Floats:
    """Where each ray enters its beam's solid, infinity where it passes by. Shape: (B, R)."""
    t = np.empty(rays.direction.shape[:2], dtype=np.float32)
    for chosen, footprint in ((solids.is_round, _disc), (~solids.is_round, _rectangle)):
        if chosen.any():
            some, these = rays.rows(chosen), solids.rows(chosen)
            inside, outside = footprint(some, these)
            low, high = _slab(some, 1, these.low, these.high)
            first, last = np.maximum(inside, low), np.minimum(outside, high)
            t[chosen] = np.where((first <= last) & (first > 0), first, np.float32(np.inf))
    return t


def _slab(rays: Rays, axis: int, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Where rays are between two planes."""
    origin, direction = rays.origin[..., axis], rays.direction[..., axis]
    with np.errstate(divide="ignore", invalid="ignore"):
        a, b = (low[:, None] - origin) / direction, (high[:, None] - origin) / direction
    # A ray in one of the planes gives 0 / 0; fmin and fmax take the other plane, infinitely far: it passes by.
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
