"""Point clouds from files: .npy, text (.csv, .xyz, .txt) or ASCII .ply."""

from collections.abc import Callable, Sequence
from pathlib import Path
from tokenize import TokenError
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from ddpn.errors import InputError

Points = NDArray[np.float32]
#: What numpy raises where an array's header or body is damaged, or where the file begins like an archive.
_DAMAGED = (ValueError, TypeError, EOFError, OSError, SyntaxError, TokenError, BadZipFile, MemoryError, OverflowError)


def read_points(path: Path) -> Points:
    """Read the points of one file, in the format of its ending; a file may have no points. Shape: (n, 3).

    .npy holds an array (n, 3). Text has one point per line, with commas, semicolons or blanks between the numbers and
    decimal points. Its first three columns are x, y and z, or those with these names in a header; lines that begin with
    # are comments. Of .ply only the ASCII format is read.
    """
    if path.suffix not in READERS:
        raise InputError(f"{path} must end in {', '.join(READERS)}, got {path.suffix!r}.")
    if not path.is_file():
        raise InputError(f"File not found: {path}")
    with np.errstate(over="ignore"):
        points = READERS[path.suffix](path).astype(np.float32)
    if len(bad := np.flatnonzero(~np.isfinite(points).all(1))):
        raise InputError(f"{path} must hold finite coordinates, got {points[bad[0]].tolist()} at point {bad[0] + 1}.")
    return points


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
