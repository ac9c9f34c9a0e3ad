"""Folders of beams: a table, and one file of points per row."""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ddpn.paper.datasets.dataset import LARGE_SHARES, SEED, Dataset, as_counts, read_columns, split
from ddpn.paper.datasets.sources import data_folder
from ddpn.paper.inputs.point_clouds import MAX_POINTS, pack, read_points
from ddpn.runtime.errors import InputError
from ddpn.runtime.validation import listed


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
