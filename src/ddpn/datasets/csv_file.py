"""Reading a csv file strictly: every column known, every row whole, every number finite."""

import csv
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ddpn.datasets.table import Column, Table
from ddpn.errors import InputError

#: Rows turned into arrays at once: text of so many rows is all that is held beside the arrays.
_BLOCK = 8192


def read_csv(
    path: Path, *, numbers: Collection[str], texts: Collection[str] = (), ignored: Collection[str] = ()
) -> Table:
    """The columns `numbers` (float64) and `texts` (str objects) of a csv file with a header, in the file's order.

    `ignored` columns may be there and are left out. Anything else that is missing, strange, ragged, empty or not a
    finite number is an error that names its row, counted from 1 below the header.
    """
    with _rows(path) as reader:
        header = next(reader, [])
        _check_header(path, header, {*numbers, *texts}, ignored)
        kept = [(i, name) for i, name in enumerate(header) if name not in ignored]
        blocks: dict[str, list[Column]] = {name: [] for _, name in kept}
        first = 1
        while block := list(islice(reader, _BLOCK)):
            _check_widths(path, block, first, len(header))
            fields = list(zip(*block, strict=True))
            for i, name in kept:
                turn = _numbers if name in numbers else _texts
                blocks[name].append(turn(path, name, fields[i], first))
            first += len(block)
    if first == 1:
        raise InputError(f"{path} must hold rows, got a header alone. Fetch the file again.")
    return Table({name: np.concatenate(parts) for name, parts in blocks.items()})


def other_columns(path: Path, wanted: Sequence[str]) -> list[str]:
    """The columns beside those that are wanted, all of which the file must have: what a user's file may hold more."""
    with _rows(path) as reader:
        header = next(reader, [])
    if missing := [name for name in wanted if name not in header]:
        raise InputError(
            f"the header of {path} must name {', '.join(wanted)}, got no {', '.join(missing)}. Name the columns so."
        )
    return [name for name in header if name not in wanted]


@contextmanager
def _rows(path: Path) -> Iterator[Iterator[list[str]]]:
    """The file's fields, row by row; an error in one sentence where it is no utf-8 or no csv."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            yield csv.reader(file)
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} must be a csv file of utf-8 text, got another ({error}). Save it as one.") from error


def _check_header(path: Path, header: list[str], wanted: set[str], ignored: Collection[str]) -> None:
    missing, strange = sorted(wanted - set(header)), sorted(set(header) - wanted - set(ignored))
    twice = sorted({name for name in header if header.count(name) > 1 and name not in ignored})
    faults = {"no": missing, "unknown": strange, "repeated": twice}
    if found := "; ".join(f"{fault} {', '.join(names)}" for fault, names in faults.items() if names):
        raise InputError(
            f"the header of {path} must name its columns, got {found}. Name them so or fetch the file again."
        )


def _check_widths(path: Path, block: list[list[str]], first: int, width: int) -> None:
    for i, row in enumerate(block):
        if len(row) != width:
            raise InputError(
                f"{path} must have {width} fields in every row, got {len(row)} in row {first + i}. "
                f"Mend that row or fetch the file again."
            )


def _numbers(path: Path, name: str, fields: tuple[str, ...], first: int) -> NDArray[np.float64]:
    try:
        # A third of the time that numpy takes to turn an array of text into numbers.
        values = np.fromiter(map(float, fields), dtype=np.float64, count=len(fields))
    except ValueError:
        values = np.array([_number(field) for field in fields])
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        raise InputError(
            f"column {name} of {path} must hold finite numbers, got {fields[bad[0]]!r} in row {first + bad[0]}. "
            f"Mend that row or fetch the file again."
        )
    return values


def _number(field: str) -> float:
    try:
        return float(field)
    except ValueError:
        return np.nan


def _texts(path: Path, name: str, fields: tuple[str, ...], first: int) -> Column:
    if "" in fields:
        raise InputError(
            f"column {name} of {path} must hold text, got nothing in row {first + fields.index('')}. "
            f"Mend that row or fetch the file again."
        )
    return np.array(fields, dtype=object)
