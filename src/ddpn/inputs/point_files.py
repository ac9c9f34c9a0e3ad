"""Points from a file: .npy, text (.csv, .xyz, .txt) or ascii .ply."""

from collections.abc import Callable
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
    """The points of one file, told by its ending; none at all is an answer too. Shape: (n, 3).

    .npy holds an array (n, 3). Text holds a point a line, apart by commas, semicolons or blanks, with decimal points.
    Its columns are x, y and z, whatever follows them, or those that a heading calls so; lines that begin with # are
    passed over. Of .ply the ascii kind is read.
    """
    if path.suffix not in READERS:
        raise InputError(f"{path} must end in one of {', '.join(READERS)}, got {path.suffix!r}. Save it as .npy.")
    if not path.is_file():
        raise InputError(f"{path} must be there, got no such file. Restore it, or drop the rows that name it.")
    with np.errstate(over="ignore"):
        points = READERS[path.suffix](path)
    if len(bad := np.flatnonzero(~np.isfinite(points).all(1))):
        raise InputError(
            f"{path} must hold finite coordinates, got {points[bad[0]].tolist()} as point {bad[0] + 1}. "
            f"Drop the points that are none."
        )
    return points


def _array(path: Path) -> Points:
    try:
        with path.open("rb") as file:
            points = np.load(file, allow_pickle=False)
    except _DAMAGED as error:
        raise _strange(path, type(error).__name__) from None
    if not isinstance(points, np.ndarray) or points.dtype.kind not in "fiu" or points.shape[1:] != (3,):
        raise _strange(path, f"{getattr(points, 'dtype', 'an archive')} of shape {getattr(points, 'shape', '?')}")
    return points.astype(np.float32)


def _text(path: Path) -> Points:
    # A mark of utf-8, read as latin-1, would make a heading of the first point.
    lines = [line.removeprefix("\xef\xbb\xbf") for line in _lines(path)]
    fields = [_fields(path, line) for line in lines if line and not line.startswith("#")]
    if not fields or _is_number(fields[0][0]):
        return _points(path, fields, (0, 1, 2))
    return _points(path, fields[1:], _axes(path, fields[0]))


def _fields(path: Path, line: str) -> list[str]:
    """What lies between the separators, of which a line has one kind: a comma beside another is a decimal one."""
    separator = next((mark for mark in ";," if mark in line), None)
    fields = [field.strip() for field in line.split(separator)]
    if separator and any("," in field or len(field.split()) > 1 for field in fields if _has_digits(field)):
        raise InputError(
            f"{path} must have numbers with decimal points and one separator, got {line[:40]!r}. Save it as .npy."
        )
    return fields


def _axes(path: Path, heading: list[str]) -> tuple[int, ...]:
    """Where a heading has x, y and z, in capitals, quotes or behind slashes too."""
    names = [name.strip("\"' /").lower() for name in heading]
    if any(names.count(axis) != 1 for axis in "xyz"):
        raise InputError(
            f"the heading of {path} must name x, y and z once each, got {' '.join(heading)[:60]!r}. "
            f"Name the columns so, or leave the heading out."
        )
    return tuple(names.index(axis) for axis in "xyz")


def _polygons(path: Path) -> Points:
    """The vertices of an ascii .ply file; faces and other properties are left out."""
    lines = _lines(path)
    if "end_header" not in lines or lines[0] != "ply":
        raise _strange(path, "no header of a .ply file")
    end = lines.index("end_header")
    words = [line.split() for line in lines[1:end]]
    if ["format", "ascii", "1.0"] not in words:
        raise InputError(f"{path} must be an ascii .ply file, got another kind. Save it as ascii or as .npy.")
    elements = [i for i, word in enumerate(words) if word[:1] == ["element"]]
    if not elements or words[elements[0]][1:-1] != ["vertex"]:
        raise _strange(path, "a .ply file whose first element is not vertex")
    owned = words[elements[0] + 1 : elements[1] if len(elements) > 1 else None]
    names = [word[-1] for word in owned if word[:1] == ["property"]]
    if not {"x", "y", "z"} <= set(names):
        raise _strange(path, f"the properties {' '.join(names) or 'none'} and not x, y, z")
    told, body = words[elements[0]][2], [line.split() for line in lines[end + 1 :] if line]
    if not told.isdecimal() or len(body) < int(told):
        raise _strange(path, f"{len(body)} lines where the header tells of {told} vertices")
    return _points(path, body[: int(told)], tuple(names.index(axis) for axis in "xyz"))


def _lines(path: Path) -> list[str]:
    # Binary kinds of .ply have an ascii header, and what comes after it need not be text.
    return [line.strip() for line in path.read_text(encoding="latin-1").splitlines()]


def _points(path: Path, fields: list[list[str]], columns: tuple[int, ...]) -> Points:
    try:
        values = [[float(row[i]) for i in columns] for row in fields]
    except (ValueError, IndexError):
        raise _strange(path, "a line without three numbers") from None
    return np.array(values, dtype=np.float32).reshape(-1, 3)


def _has_digits(field: str) -> bool:
    return any(letter.isdigit() for letter in field)


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _strange(path: Path, what: str) -> InputError:
    return InputError(f"{path} must hold points (n, 3), got {what}. Save it as .npy of float32 (n, 3).")


READERS: dict[str, Callable[[Path], Points]] = {
    ".npy": _array,
    ".csv": _text,
    ".xyz": _text,
    ".txt": _text,
    ".ply": _polygons,
}
