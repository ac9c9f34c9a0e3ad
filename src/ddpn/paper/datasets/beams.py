"""Folders of beams: a table, one file of points per row, and the classes in the order of their numbers."""

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ddpn.paper.datasets.dataset import LARGE_SHARES, SEED, Dataset, as_counts, read_columns, split
from ddpn.paper.datasets.sources import data_folder
from ddpn.paper.inputs.point_clouds import MAX_POINTS, READERS, as_points, pack, read_points
from ddpn.runtime.errors import InputError
from ddpn.runtime.validation import is_count, listed
from ddpn.storage.files import atomic_folder, write_text

_TABLE, _CLASSES, _POINTS = "beams.csv", "classes.json", "points"


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
    - `points/` with one file per beam, named as the beam; .npy is added to a name without one of the endings that
      `read_points` knows. Lengths are meters from the camera: x to the right, y up, z away from it,
    - `classes.json`, a list of class names in the order of their numbers; without it they are sorted by name.

    Parameters
    ----------
    folder : path, optional
        The folder. Default: `inventory` below the data folder.
    classes : sequence of str, optional
        Replaces `classes.json`: a model knows classes by their numbers, so read other folders with the classes that it
        was trained with.
    max_points : int
        Points of a beam at most; of more, a random subset is kept.
    seed : int
        Seed of the points that are kept and of the split.

    Examples
    --------
    >>> from tempfile import mkdtemp
    >>> cloud = np.random.default_rng(0).random((40, 3), dtype=np.float32)
    >>> folder = write_beams(Path(mkdtemp()) / "shop", [(cloud, "can", count) for count in range(10)])
    >>> X, y = inventory(folder, max_points=32).part("train")
    >>> X.shape, y
    (torch.Size([7, 34, 4]), array([9, 8, 7, 4, 1, 0, 5]))
    >>> inventory(folder, classes=["box", "can"]).X[0, 0, 0]
    tensor(1.)
    """
    folder = data_folder() / "inventory" if folder is None else Path(folder)
    path = folder / _TABLE
    if not path.is_file():
        raise InputError(f"File not found: {path}. Pass a folder of beams, or make one with write_shelves.")
    table = read_columns(path, numbers=["count"], texts=["beam", "class"])
    y = as_counts(table["count"], f"count of {path}")
    names = _read_classes(folder, table["class"]) if classes is None else _check_classes("classes", classes)
    geometry = _numbers(path, table["class"].to_list(), names)
    files = [folder / _POINTS / (name if Path(name).suffix in READERS else f"{name}.npy") for name in table["beam"]]
    file, times = Counter(files).most_common(1)[0]
    if times > 1:
        raise InputError(f"Every beam of {path} must be counted once, got {file.name} {times} times.")
    X = pack([read_points(file) for file in files], geometry, max_points=max_points, seed=seed)
    return packed_dataset("inventory", X, y, names, seed, "private")


def _read_classes(folder: Path, names: Iterable[str]) -> tuple[str, ...]:
    """The classes of the folder's own file, or those in its table."""
    path = folder / _CLASSES
    if not path.exists():
        return tuple(sorted(set(names)))
    try:
        return _check_classes(str(path), json.loads(path.read_text(encoding="utf-8")))
    except ValueError as error:
        raise InputError(f'{path} must hold a list of different names such as ["can", "box"].') from error


def _check_classes(name: str, classes: Any) -> tuple[str, ...]:
    names = list(classes) if isinstance(classes, Iterable) and not isinstance(classes, str | dict) else []
    if not names or not all(isinstance(each, str) and each for each in names) or len(set(names)) < len(names):
        raise InputError(f'{name} must be different names such as ["can", "box"], got {classes!r:.60}.')
    return tuple(map(str, names))


def _numbers(path: Path, names: list[str], classes: tuple[str, ...]) -> NDArray[np.int64]:
    number = {name: i for i, name in enumerate(classes)}
    if row := next((row for row, name in enumerate(names, start=1) if name not in number), None):
        raise InputError(
            f"class of {path} must be one of {listed(classes, 40)}, got {names[row - 1]!r} at row {row}. "
            f"Add a new class to {_CLASSES} or classes= and train again."
        )
    return np.array([number[name] for name in names])


def write_beams(
    folder: str | os.PathLike[str], beams: Iterable[tuple[Any, str, int]], classes: Sequence[str] | None = None
) -> Path:
    """Write a folder that `inventory` reads, and return its path. On an error nothing remains.

    Parameters
    ----------
    folder : path
        A new or empty folder.
    beams : iterable of tuples
        Points (n, 3), class name and count of every beam.
    classes : sequence of str, optional
        The order of the classes, including those without a beam. Default: sorted by name. Several folders for one model
        need the same classes: pass them here, or to `inventory`.
    """
    folder = Path(folder)
    known = None if classes is None else _check_classes("classes", classes)
    if not isinstance(beams, Iterable):
        raise InputError(f"beams must be a list of (points, class, count), got {type(beams).__name__}.")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"folder must be new or empty, got {folder}, which holds files.")
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with atomic_folder(folder / _POINTS) as points:
            rows = [_write(points, i, beam, known) for i, beam in enumerate(beams)]
            if not rows:
                raise InputError("beams must be one or more, got none.")
        names = known or sorted({name for _, name, _ in rows})
        write_text(folder / _CLASSES, json.dumps(names))
        # The table last: without it a folder has no beams.
        import polars  # slow to import

        table = polars.DataFrame(rows, schema=["beam", "class", "count"], orient="row")
        write_text(folder / _TABLE, table.write_csv())
    except BaseException:
        if is_new:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder


def _write(folder: Path, i: int, beam: Any, classes: tuple[str, ...] | None) -> tuple[str, str, int]:
    """Write the points of one beam, and return its row of the table."""
    try:
        points, name, count = beam
    except (TypeError, ValueError):
        raise InputError(f"beams must be (points, class, count), got {type(beam).__name__} as beam {i}.") from None
    if not isinstance(name, str) or not name:
        raise InputError(f"The class of beam {i} must be a name, got {name!r:.40}.")
    if classes is not None and name not in classes:
        raise InputError(f"The class of beam {i} must be one of {listed(classes, 40)}, got {name!r}.")
    if not is_count(count):
        raise InputError(f"The count of beam {i} must be a non-negative integer, got {count!r:.40}.")
    np.save(folder / f"{i:06d}.npy", as_points(points, f"The points of beam {i}").astype(np.float32))
    return f"{i:06d}", str(name), int(count)
