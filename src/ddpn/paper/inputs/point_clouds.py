"""Point clouds from .npy files, and packed into one tensor.

A beam is one slot of a shelf, seen by a depth camera.

Packed beams: x (B, 2 + N, 4) float32. Row 0 is [geometry class, center x, y, z], row 1 is [0, extent x, y, z], the
others are [1, x, y, z] for a point and zeros for padding. Center and extent are of the box around all visible points.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from tokenize import TokenError
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ddpn.runtime.errors import InputError
from ddpn.runtime.validation import check_integer
from ddpn.sample import check_counts

Points = NDArray[np.float32]
#: Points that are kept per beam.
MAX_POINTS = 256
#: What numpy raises where an array's header or body is damaged, or where the file begins like an archive.
_DAMAGED = (ValueError, TypeError, EOFError, OSError, SyntaxError, TokenError, BadZipFile, MemoryError, OverflowError)


class Beam(NamedTuple):
    """One beam of a packed tensor.

    Attributes
    ----------
    geometry : int
        The number of its class.
    center, extent : array, shape (3,)
        The box around its points.
    points : array, shape (n, 3)
        The points that were kept.
    """

    geometry: int
    center: Points
    extent: Points
    points: Points


def pack(
    clouds: Iterable[Any],
    geometry: Sequence[int] | NDArray[np.int64] | Tensor,
    *,
    max_points: int = MAX_POINTS,
    seed: int = 1998,
) -> Tensor:
    """Pack point clouds into one tensor. Shape: (B, 2 + max_points, 4).

    A cloud without points has only padding.

    Parameters
    ----------
    clouds : iterable of array-like, each (n, 3)
        Points of each beam: arrays, tensors or lists.
    geometry : sequence of int
        The number of each cloud's geometry class.
    max_points : int
        Of more points a random subset is kept, which depends on the seed and on the place of the beam among the others.
    seed : int
        Seed of these subsets.

    Examples
    --------
    >>> x = pack([np.array([[0.0, 1.0, 2.0], [2.0, 1.0, 4.0]])], np.array([3]), max_points=3)
    >>> x[0].tolist()
    [[3.0, 1.0, 1.0, 3.0], [0.0, 2.0, 0.0, 2.0], [1.0, 0.0, 1.0, 2.0], [1.0, 2.0, 1.0, 4.0], [0.0, 0.0, 0.0, 0.0]]
    """
    check_integer("max_points", max_points, 1, InputError)
    check_integer("seed", seed, 0, InputError)
    if not isinstance(clouds, Iterable):
        raise InputError(f"clouds must be a list of points (n, 3), got {type(clouds).__name__}.")
    arrays = [as_points(points, f"cloud {i}") for i, points in enumerate(clouds)]
    x = np.zeros((len(arrays), 2 + max_points, 4), dtype=np.float32)
    if arrays:
        x[:, 0, 0] = check_counts(_array(geometry), len(arrays), name="geometry")
    for i, points in enumerate(arrays):
        if len(points):
            low, high = points.min(0), points.max(0)
            x[i, 0, 1:], x[i, 1, 1:] = (low + high) / 2, high - low
        if len(points) > max_points:
            rng = np.random.default_rng([seed, i])
            points = points[np.sort(rng.choice(len(points), max_points, replace=False))]
        x[i, 2 : 2 + len(points), 0] = 1.0
        x[i, 2 : 2 + len(points), 1:] = points
    return torch.from_numpy(x)


def as_points(points: Any, name: str) -> NDArray[Any]:
    """An array of finite points (n, 3) from an array, a list or a tensor, which may be empty."""
    array = _array(points)
    if array.shape == (0,):
        array = array.reshape(0, 3)
    if array.dtype.kind not in "fiu" or array.shape[1:] != (3,):
        found = f"{array.dtype} of shape {array.shape}" if array.dtype.kind != "O" else type(points).__name__
        raise InputError(f"{name} must be points (n, 3), got {found}.")
    with np.errstate(over="ignore"):
        is_finite = np.isfinite(array.astype(np.float32)).all(1)
    if len(bad := np.flatnonzero(~is_finite)):
        raise InputError(f"{name} must hold finite coordinates, got {array[bad[0]].tolist()} at point {bad[0] + 1}.")
    return array


def _array(values: Any) -> NDArray[Any]:
    """An array; an array of objects if there is no other."""
    if isinstance(values, Tensor):
        return values.detach().cpu().numpy()
    try:
        return np.asarray(values)
    except ValueError:
        return np.asarray(None)


def unpack(x: Tensor) -> Beam:
    """The parts of one packed beam, without padding.

    Parameters
    ----------
    x : Tensor, shape (2 + N, 4)
        The packed beam.
    """
    rows = _array(x)
    if rows.ndim != 2 or rows.shape[1] != 4 or len(rows) < 2:
        raise InputError(f"x must be one packed beam (2 + N, 4), got shape {rows.shape}. Take one: x[0].")
    return Beam(int(rows[0, 0]), rows[0, 1:], rows[1, 1:], rows[2:][rows[2:, 0] == 1.0, 1:])


def read_points(path: Path) -> Points:
    """Read the points of one .npy file, which may have none. Shape: (n, 3)."""
    if not path.is_file():
        raise InputError(f"File not found: {path}")
    try:
        points = np.load(path, allow_pickle=False)
    except _DAMAGED as error:
        raise InputError(f"{path} must hold points (n, 3), got {type(error).__name__}.") from error
    return as_points(points, str(path)).astype(np.float32)
