"""Folders of beams: a table, a file of points for each of its rows, and the classes in the order of their numbers."""

import csv
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from ddpn.datasets.checks import is_count
from ddpn.datasets.csv_file import other_columns, read_csv
from ddpn.datasets.dataset import as_counts
from ddpn.datasets.source import data_folder
from ddpn.datasets.split import SEED
from ddpn.errors import InputError
from ddpn.inputs.point_clouds import MAX_POINTS, Clouds, as_clouds, as_points, pack
from ddpn.inputs.point_files import READERS, read_points

_TABLE, _CLASSES, _POINTS = "beams.csv", "classes.json", "points"
_COLUMNS = ("beam", "class", "count")


def inventory(
    folder: str | os.PathLike[str] | None = None,
    *,
    classes: Sequence[str] | None = None,
    max_points: int = MAX_POINTS,
    seed: int = SEED,
) -> Clouds:
    """Products in the slots of shelves, from a folder of point clouds; split 70/10/20.

    The folder, by default `inventory` below the data folder, holds
    - `beams.csv` with the columns beam, class and count (others are left out),
    - `points/` with a file a beam, which is named as the beam; .npy is added where the name has none of the endings
      that `read_points` knows. Lengths are metres from the camera: x to the right, y up, z away from it,
    - `classes.json`, a list of class names in the order of their numbers; without it they are sorted by name.

    `classes` takes the place of that file: a model knows classes by their numbers, so what it was trained with is what
    other folders are read with.

    >>> from tempfile import mkdtemp
    >>> cloud = np.random.default_rng(0).random((40, 3), dtype=np.float32)
    >>> folder = write_beams(Path(mkdtemp()) / "shop", [(cloud, "can", count) for count in range(10)])
    >>> x, y = inventory(folder, max_points=32).part("train")
    >>> x.shape, y
    (torch.Size([7, 34, 4]), array([9, 8, 7, 4, 1, 0, 5]))
    >>> inventory(folder, classes=["box", "can"]).x[0, 0, 0]
    tensor(1.)
    """
    folder = data_folder() / "inventory" if folder is None else Path(folder)
    path = folder / _TABLE
    if not path.is_file():
        raise InputError(
            f"{folder} must hold {_TABLE}, got no such file. Name a folder of beams, or make one with write_shelves."
        )
    table = read_csv(path, numbers=("count",), texts=("beam", "class"), ignored=other_columns(path, _COLUMNS))
    y = as_counts(table["count"], f"count of {path}")
    names = _listed(folder, table["class"]) if classes is None else _different(classes)
    geometry = _numbers(path, table["class"], names)
    files = [_file(folder, name) for name in table["beam"]]
    _check_once(path, files)
    clouds = [read_points(file) for file in files]
    return as_clouds("inventory", pack(clouds, geometry, max_points=max_points, seed=seed), y, names, seed)


def _file(folder: Path, name: str) -> Path:
    return folder / _POINTS / (name if Path(name).suffix in READERS else f"{name}.npy")


def _check_once(path: Path, files: list[Path]) -> None:
    file, times = Counter(files).most_common(1)[0]
    if times > 1:
        raise InputError(
            f"every beam of {path} must be counted once, got {file.name} {times} times. Drop the rows that repeat it."
        )


def _listed(folder: Path, names: Iterable[str]) -> tuple[str, ...]:
    """The classes of the folder's own file."""
    path = folder / _CLASSES
    if not path.exists():
        return tuple(sorted(set(names)))
    try:
        listed = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        listed = None
    if not isinstance(listed, list) or not _are_different(listed):
        raise InputError(f'{path} must hold a list of different names, got something else. Write ["can", "box"].')
    return tuple(listed)


def _different(classes: Any) -> tuple[str, ...]:
    """Classes that a caller gave."""
    listed = tuple(classes) if isinstance(classes, Iterable) and not isinstance(classes, str) else ()
    if not listed or not _are_different(listed):
        raise InputError(f'classes must be different names, got {classes!r:.60}. Use ["can", "box"].')
    return tuple(str(name) for name in listed)


def _are_different(listed: Sequence[Any]) -> bool:
    return all(isinstance(name, str) and name for name in listed) and len(set(listed)) == len(listed)


def _numbers(path: Path, names: Iterable[str], classes: tuple[str, ...]) -> NDArray[np.int64]:
    number = {name: i for i, name in enumerate(classes)}
    for row, name in enumerate(names):
        if name not in number:
            raise InputError(
                f"class of {path} must be one of {', '.join(classes)}, got {name!r} in row {row + 1}. "
                f"Mend that row, or add the class to {_CLASSES} or classes= and train anew."
            )
    return np.array([number[name] for name in names])


def write_beams(
    folder: str | os.PathLike[str], beams: Iterable[tuple[Any, str, int]], classes: Sequence[str] | None = None
) -> Path:
    """Write a folder that `inventory` reads, whole or not at all: points (n, 3), class name and count of every beam.

    `classes` fixes the order of the classes, those without a beam among them; without it they are sorted by name. Of
    several folders for one model all need the same: give them here, or to `inventory`.
    """
    folder = Path(folder)
    known = None if classes is None else _different(classes)
    if not isinstance(beams, Iterable):
        raise InputError(f"beams must be a list of triples, got {type(beams).__name__}. Put them in a list.")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"folder must be new or empty, got {folder}, which holds files. Name another one.")
    is_new = not folder.exists()
    part = folder.with_name(f".{folder.name}.{uuid4().hex}") if is_new else folder / f".{uuid4().hex}"
    (part / _POINTS).mkdir(parents=True)
    try:
        found = _write(part, beams, known)
        listed = sorted(found) if known is None else known
        (part / _CLASSES).write_text(json.dumps(list(listed)), encoding="utf-8")
        if is_new:
            os.replace(part, folder)
        else:
            # The table last: without it a folder holds no beams. A folder that is there may be the one we are in.
            for name in (_POINTS, _CLASSES, _TABLE):
                os.replace(part / name, folder / name)
            part.rmdir()
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    return folder


def _write(part: Path, beams: Iterable[Any], classes: tuple[str, ...] | None) -> set[str]:
    """The table and the points; the classes that are in it."""
    found: set[str] = set()
    with (part / _TABLE).open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(_COLUMNS)
        for i, beam in enumerate(beams):
            points, name, count = _checked(i, beam, classes)
            np.save(part / _POINTS / f"{i:06d}.npy", points.astype(np.float32))
            table.writerow([f"{i:06d}", name, count])
            found.add(name)
    if not found:
        raise InputError("beams must be one or more, got none. Write a folder when there is something to put into it.")
    return found


def _checked(i: int, beam: Any, classes: tuple[str, ...] | None) -> tuple[NDArray[Any], str, int]:
    """Points, class and count of a beam, such as `inventory` reads."""
    try:
        points, name, count = beam
    except (TypeError, ValueError):
        raise InputError(
            f"beams must be triples of points, class and count, got {type(beam).__name__} as beam {i}. Use three."
        ) from None
    if not isinstance(name, str) or not name:
        raise InputError(f"the class of beam {i} must be a name, got {name!r:.40}. Name it.")
    if classes is not None and name not in classes:
        raise InputError(f"the class of beam {i} must be one of {', '.join(classes)}, got {name!r}. Add it to classes.")
    if not is_count(count):
        raise InputError(f"the count of beam {i} must be a non-negative integer, got {count!r:.40}. Mend it.")
    return as_points(points, f"the points of beam {i}"), name, int(count)
