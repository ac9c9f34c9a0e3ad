"""Counting products in point clouds: beams packed into one tensor.

Packed beams: x (B, 2 + N, 4) float32. Row 0 is [geometry class, centre x, y, z], row 1 is [0, extent x, y, z], the
others are [1, x, y, z] for a point and zeros for padding. Centre and extent are of the box around all visible points.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ddpn.datasets.checks import seeded, whole
from ddpn.datasets.split import SEED, Split, split
from ddpn.errors import InputError
from ddpn.inputs.point_files import Points

#: Points a beam keeps, and the shares of the paper's splits of large data.
MAX_POINTS = 256
PARTS = (0.7, 0.1, 0.2)


class Beam(NamedTuple):
    """One beam, taken out of a packed tensor again: its class, the box around its points, and those that it kept."""

    geometry: int
    centre: Points
    extent: Points
    points: Points


@dataclass(frozen=True, eq=False)
class Clouds:
    """Counts `y` (B,) with the packed beams `x` (B, 2 + N, 4) they are predicted from.

    `classes` names the geometry classes in the order of their numbers; `note` is one sentence for a table's foot.
    """

    name: str
    x: Tensor
    y: NDArray[np.int64]
    classes: tuple[str, ...]
    split: Split
    licence: str
    note: str = ""

    def __post_init__(self) -> None:
        if not len(self.x) == len(self.y) == self.split.n:
            raise InputError(
                f"x, y and split must have the same beams, got {len(self.x)}, {len(self.y)} and {self.split.n}. "
                f"Split the data anew."
            )

    def part(self, part: str) -> tuple[Tensor, NDArray[np.int64]]:
        """Packed beams and counts of "train", "validation" or "test"."""
        if part not in ("train", "validation", "test"):
            raise InputError(f"part must be train, validation or test, got {part!r}. Choose one of the three.")
        rows = getattr(self.split, part)
        return self.x[torch.from_numpy(rows)], self.y[rows]


def pack(
    clouds: Iterable[Any],
    geometry: Sequence[int] | NDArray[np.int64] | Tensor,
    *,
    max_points: int = MAX_POINTS,
    seed: int = SEED,
) -> Tensor:
    """Packed beams of point clouds (n, 3) and the number of each one's geometry class. Shape: (B, 2 + max_points, 4).

    Clouds are arrays, tensors or lists. Where there are more points than `max_points`, a random subset is kept, the
    same for the same seed and place of the beam among the others. A cloud without points is all padding.

    >>> x = pack([np.array([[0.0, 1.0, 2.0], [2.0, 1.0, 4.0]])], np.array([3]), max_points=3)
    >>> x[0].tolist()
    [[3.0, 1.0, 1.0, 3.0], [0.0, 2.0, 0.0, 2.0], [1.0, 0.0, 1.0, 2.0], [1.0, 2.0, 1.0, 4.0], [0.0, 0.0, 0.0, 0.0]]
    """
    max_points = whole("max_points", max_points, 1, "Keep a point a beam or more.")
    seed = seeded(seed)
    if not isinstance(clouds, Iterable):
        raise InputError(f"clouds must be a list of points (n, 3), got {type(clouds).__name__}. Put them in a list.")
    arrays = [as_points(points, f"cloud {i} of clouds") for i, points in enumerate(clouds)]
    x = np.zeros((len(arrays), 2 + max_points, 4), dtype=np.float32)
    x[:, 0, 0] = _numbers(geometry, len(arrays))
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
    """An array of finite points (n, 3), from a list or a tensor too; none at all is one."""
    array = _array(points)
    if array.shape == (0,):
        array = array.reshape(0, 3)
    if array.dtype.kind not in "fiu" or array.shape[1:] != (3,):
        what = f"{array.dtype} of shape {array.shape}" if array.dtype.kind != "O" else type(points).__name__
        raise InputError(f"{name} must be points (n, 3), got {what}. Give x, y and z of each.")
    with np.errstate(over="ignore"):
        is_finite = np.isfinite(array.astype(np.float32)).all(1)
    if len(bad := np.flatnonzero(~is_finite)):
        raise InputError(
            f"{name} must hold finite coordinates, got {array[bad[0]].tolist()} as point {bad[0] + 1}. "
            f"Drop the points that are none."
        )
    return array


def _array(values: Any) -> NDArray[Any]:
    """An array; of objects where there is no other."""
    if isinstance(values, Tensor):
        return values.detach().cpu().numpy()
    try:
        return np.asarray(values)
    except ValueError:
        return np.asarray(None)


def _numbers(geometry: Any, n: int) -> NDArray[Any]:
    """The number of a class for each of n beams."""
    numbers = _array(geometry)
    if numbers.shape != (n,):
        raise InputError(f"geometry must be a class for each of {n} clouds, got shape {numbers.shape}. Pair them.")
    is_number = numbers.dtype.kind in "fiu" or n == 0
    bad = np.flatnonzero(~((numbers >= 0) & (numbers == np.floor(numbers)))) if is_number else np.arange(n)
    if len(bad):
        raise InputError(
            f"geometry must hold numbers of classes, got {numbers[bad[0]]!s} for cloud {bad[0]}. Number them from 0."
        )
    return numbers


def unpack(x: Tensor) -> Beam:
    """One beam (2 + N, 4) in its parts, padding left out."""
    rows = _array(x)
    if rows.ndim != 2 or rows.shape[1] != 4 or len(rows) < 2:
        raise InputError(f"x must be one packed beam (2 + N, 4), got shape {rows.shape}. Take one: x[0].")
    return Beam(int(rows[0, 0]), rows[0, 1:], rows[1, 1:], rows[2:][rows[2:, 0] == 1.0, 1:])


def as_clouds(
    name: str, x: Tensor, y: NDArray[np.int64], classes: tuple[str, ...], seed: int = SEED, licence: str = "private"
) -> Clouds:
    """Beams with a split 70/10/20 and a note that tells how many have no point."""
    empty = int((x[:, 2:, 0].sum(1) == 0).sum())
    note = f"{empty:,} of {len(y):,} beams have no point" if empty else ""
    return Clouds(name, x, y, classes, split(len(y), seed, PARTS), licence, note)
