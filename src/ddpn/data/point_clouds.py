"""Counting products in point clouds: beams packed into one tensor, and the folders they are read from.

Packed beams: x (B, 2 + N, 4) float32. Row 0 is [geometry class, centre x, y, z], row 1 is [0, extent x, y, z], the
others are [1, x, y, z] for a point and zeros for padding. Centre and extent are of the box around all visible points.
"""

import csv
import json
import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ddpn.data.csv_file import read_csv
from ddpn.data.dataset import as_counts
from ddpn.data.point_files import READERS, Points, read_points
from ddpn.data.source import data_folder
from ddpn.data.split import SEED, Split, split
from ddpn.errors import InputError

#: Points a beam keeps, and the shares of the paper's splits of large data.
MAX_POINTS = 256
PARTS = (0.7, 0.1, 0.2)
_TABLE, _CLASSES, _POINTS = "beams.csv", "classes.json", "points"
_COLUMNS = ("beam", "class", "count")


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
    clouds: Sequence[Points], geometry: NDArray[np.int64], *, max_points: int = MAX_POINTS, seed: int = SEED
) -> Tensor:
    """Packed beams of point clouds (n, 3) and the number of each one's geometry class. Shape: (B, 2 + max_points, 4).

    Where there are more points than `max_points`, a random subset is kept, the same for the same seed and place of the
    beam among the others. A cloud without points is all padding.

    >>> x = pack([np.array([[0.0, 1.0, 2.0], [2.0, 1.0, 4.0]])], np.array([3]), max_points=3)
    >>> x[0].tolist()
    [[3.0, 1.0, 1.0, 3.0], [0.0, 2.0, 0.0, 2.0], [1.0, 0.0, 1.0, 2.0], [1.0, 2.0, 1.0, 4.0], [0.0, 0.0, 0.0, 0.0]]
    """
    if max_points < 1:
        raise InputError(f"max_points must be at least 1, got {max_points}. Keep a point a beam or more.")
    x = np.zeros((len(clouds), 2 + max_points, 4), dtype=np.float32)
    x[:, 0, 0] = geometry
    for i, points in enumerate(clouds):
        if len(points):
            low, high = points.min(0), points.max(0)
            x[i, 0, 1:], x[i, 1, 1:] = (low + high) / 2, high - low
        if len(points) > max_points:
            rng = np.random.default_rng([seed, i])
            points = points[np.sort(rng.choice(len(points), max_points, replace=False))]
        x[i, 2 : 2 + len(points), 0] = 1.0
        x[i, 2 : 2 + len(points), 1:] = points
    return torch.from_numpy(x)


def unpack(x: Tensor) -> Beam:
    """One beam (2 + N, 4) in its parts, padding left out."""
    rows = x.numpy()
    return Beam(int(rows[0, 0]), rows[0, 1:], rows[1, 1:], rows[2:][rows[2:, 0] == 1.0, 1:])


def inventory(
    folder: str | os.PathLike[str] | None = None, *, max_points: int = MAX_POINTS, seed: int = SEED
) -> Clouds:
    """Products in the slots of shelves, from a folder of point clouds; split 70/10/20.

    The folder, by default `inventory` below the data folder, holds
    - `beams.csv` with the columns beam, class and count (others are left out),
    - `points/` with a file a beam, which is named as the beam; .npy is added where the name has none of the endings
      that `read_points` knows. Lengths are metres from the camera: x to the right, y up, z away from it,
    - `classes.json`, a list of class names in the order of their numbers; without it they are sorted by name.

    >>> from tempfile import mkdtemp
    >>> cloud = np.random.default_rng(0).random((40, 3), dtype=np.float32)
    >>> folder = write_beams(Path(mkdtemp()) / "shop", [(cloud, "can", count) for count in range(10)])
    >>> x, y = inventory(folder, max_points=32).part("train")
    >>> x.shape, y
    (torch.Size([7, 34, 4]), array([9, 8, 7, 4, 1, 0, 5]))
    """
    folder = data_folder() / "inventory" if folder is None else Path(folder)
    path = folder / _TABLE
    if not path.is_file():
        raise InputError(
            f"{folder} must hold {_TABLE}, got no such file. Name a folder of beams, or make one with write_shelves."
        )
    table = read_csv(path, numbers=("count",), texts=("beam", "class"), ignored=_others(path))
    y = as_counts(table["count"], f"count of {path}")
    classes = _classes(folder, table["class"])
    geometry = _numbers(path, table["class"], classes)
    clouds = [read_points(_file(folder, name)) for name in table["beam"]]
    return as_clouds("inventory", pack(clouds, geometry, max_points=max_points, seed=seed), y, classes, seed)


def as_clouds(
    name: str, x: Tensor, y: NDArray[np.int64], classes: tuple[str, ...], seed: int = SEED, licence: str = "private"
) -> Clouds:
    """Beams with a split 70/10/20 and a note that tells how many have no point."""
    empty = int((x[:, 2:, 0].sum(1) == 0).sum())
    note = f"{empty:,} of {len(y):,} beams have no point" if empty else ""
    return Clouds(name, x, y, classes, split(len(y), seed, PARTS), licence, note)


def _file(folder: Path, name: str) -> Path:
    return folder / _POINTS / (name if Path(name).suffix in READERS else f"{name}.npy")


def _others(path: Path) -> list[str]:
    """Columns beside those that are needed."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        header = next(csv.reader(file), [])
    if missing := [name for name in _COLUMNS if name not in header]:
        raise InputError(
            f"the header of {path} must name {', '.join(_COLUMNS)}, got no {', '.join(missing)}. Name the columns so."
        )
    return [name for name in header if name not in _COLUMNS]


def _classes(folder: Path, names: Iterable[str]) -> tuple[str, ...]:
    path = folder / _CLASSES
    if not path.exists():
        return tuple(sorted(set(names)))
    try:
        listed = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        listed = None
    if not isinstance(listed, list) or not all(isinstance(n, str) for n in listed) or len(set(listed)) < len(listed):
        raise InputError(f'{path} must hold a list of different names, got something else. Write ["can", "box"].')
    return tuple(listed)


def _numbers(path: Path, names: Iterable[str], classes: tuple[str, ...]) -> NDArray[np.int64]:
    number = {name: i for i, name in enumerate(classes)}
    for row, name in enumerate(names):
        if name not in number:
            raise InputError(
                f"class of {path} must be one of {', '.join(classes)}, got {name!r} in row {row + 1}. "
                f"Mend that row, or add the class to {_CLASSES} and train anew."
            )
    return np.array([number[name] for name in names])


def write_beams(
    folder: str | os.PathLike[str], beams: Iterable[tuple[Points, str, int]], classes: Sequence[str] | None = None
) -> Path:
    """Write a folder that `inventory` reads, whole or not at all: points (n, 3), class name and count of every beam.

    `classes` fixes the order of the classes, those without a beam among them; without it they are sorted by name.
    """
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"folder must be new or empty, got {folder}, which holds files. Name another one.")
    part = folder.with_name(f".{folder.name}.{uuid4().hex}")
    (part / _POINTS).mkdir(parents=True)
    try:
        with (part / _TABLE).open("w", newline="", encoding="utf-8") as file:
            table = csv.writer(file)
            table.writerow(_COLUMNS)
            for i, (points, name, count) in enumerate(beams):
                np.save(part / _POINTS / f"{i:06d}.npy", points.astype(np.float32))
                table.writerow([f"{i:06d}", name, count])
        if classes is not None:
            (part / _CLASSES).write_text(json.dumps(list(classes)), encoding="utf-8")
        if folder.exists():
            folder.rmdir()
        os.replace(part, folder)
    except BaseException:
        shutil.rmtree(part)
        raise
    return folder
