"""Point clouds from files (.npy, text such as .csv, .xyz and .txt, ASCII .ply) and packed into one tensor.

A beam is one slot of a shelf, seen by a depth camera.

Packed beams: x (B, 2 + N, 4) float32. Row 0 is [geometry class, center x, y, z], row 1 is [0, extent x, y, z], the
others are [1, x, y, z] for a point and zeros for padding. Center and extent are of the box around all visible points.
"""

from collections.abc import Callable, Iterable, Sequence
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
    """Read the points of one file, in the format of its ending; a file may have no points. Shape: (n, 3).

    .npy holds an array (n, 3). Text has one point per line, with commas, semicolons or blanks between the numbers and
    decimal points. Its first three columns are x, y and z, or those with these names in a header; lines that begin with
    # are comments. Of .ply only the ASCII format is read.

    Parameters
    ----------
    path : Path
        The file.
    """
    if path.suffix not in READERS:
        raise InputError(f"{path} must end in {', '.join(READERS)}, got {path.suffix!r}.")
    if not path.is_file():
        raise InputError(f"File not found: {path}")
    return as_points(READERS[path.suffix](path), str(path)).astype(np.float32)


def _read_array(path: Path) -> NDArray[np.number]:
    try:
        with path.open("rb") as file:
            points = np.load(file, allow_pickle=False)
    except _DAMAGED as error:
        raise _invalid(path, type(error).__name__) from error
    if not isinstance(points, np.ndarray) or points.dtype.kind not in "fiu" or points.shape[1:] != (3,):
        raise _invalid(path, f"{getattr(points, 'dtype', 'an archive')} of shape {getattr(points, 'shape', '?')}")
    return points


def _read_text(path: Path) -> NDArray[np.number]:
    # Decoded as Latin-1, a byte order mark of UTF-8 is these three letters.
    lines = [line.removeprefix("\xef\xbb\xbf") for line in _lines(path)]
    lines = [line for line in lines if line and not line.startswith("#")]
    if not lines:
        return np.empty((0, 3))
    separator = next((mark for mark in ";," if mark in lines[0]), None)
    names = [name.strip("\"' /").lower() for name in lines[0].split(separator)]
    if not {"x", "y", "z"} & set(names):
        return _parse(path, lines, (0, 1, 2), separator)
    if any(names.count(axis) != 1 for axis in "xyz"):
        raise InputError(f"The header of {path} must name x, y and z once each, got {lines[0][:60]!r}.")
    return _parse(path, lines[1:], [names.index(axis) for axis in "xyz"], separator)


def _read_ply(path: Path) -> NDArray[np.number]:
    """The vertices of an ASCII .ply file; faces and other properties are left out."""
    lines = _lines(path)
    if "end_header" not in lines or lines[0] != "ply":
        raise _invalid(path, "no header of a .ply file")
    end = lines.index("end_header")
    header = [line.split() for line in lines[1:end]]
    if ["format", "ascii", "1.0"] not in header:
        raise InputError(f"{path} must be an ASCII .ply file, got another format.")
    elements = [i for i, words in enumerate(header) if words[:1] == ["element"]]
    if not elements or header[elements[0]][1:-1] != ["vertex"]:
        raise _invalid(path, "a .ply file whose first element is not vertex")
    owned = header[elements[0] + 1 : elements[1] if len(elements) > 1 else None]
    names = [words[-1] for words in owned if words[:1] == ["property"]]
    if not {"x", "y", "z"} <= set(names):
        raise _invalid(path, f"the properties {' '.join(names) or 'none'} and not x, y, z")
    number, body = header[elements[0]][2], [line for line in lines[end + 1 :] if line]
    if not number.isdecimal() or len(body) < int(number):
        raise _invalid(path, f"{len(body)} lines where the header declares {number} vertices")
    return _parse(path, body[: int(number)], [names.index(axis) for axis in "xyz"], None)


def _lines(path: Path) -> list[str]:
    # Binary .ply files have an ASCII header too, and the bytes below it need not be text.
    return [line.strip() for line in path.read_text(encoding="latin-1").splitlines()]


def _parse(path: Path, lines: list[str], columns: Sequence[int], separator: str | None) -> NDArray[np.number]:
    if not lines:
        return np.empty((0, 3))
    try:
        return np.loadtxt(lines, usecols=columns, delimiter=separator, ndmin=2)
    except ValueError as error:
        raise _invalid(path, str(error).split("\n")[0].rstrip(".")) from error


def _invalid(path: Path, found: str) -> InputError:
    return InputError(f"{path} must hold points (n, 3), got {found}.")


READERS: dict[str, Callable[[Path], NDArray[np.number]]] = {
    ".npy": _read_array,
    ".csv": _read_text,
    ".xyz": _read_text,
    ".txt": _read_text,
    ".ply": _read_ply,
}
