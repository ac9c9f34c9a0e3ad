"""CSV files read strictly by polars: every column known, every row complete, every number finite."""

import csv
import gzip
import zlib
from collections.abc import Collection, Iterator
from itertools import dropwhile
from pathlib import Path
from typing import IO, Any

from ddpn.errors import InputError
from ddpn.extras import import_extra
from ddpn.validation import listed


def read_csv(
    path: Path, *, numbers: Collection[str] = (), texts: Collection[str] = (), ignored: Collection[str] | None = ()
) -> Any:
    """Return the columns `numbers` (Float64) and `texts` (String) of a CSV file as a polars frame, in the file's order.

    Columns in `ignored` may exist and are left out; None leaves out all others. A column that is missing, unknown or
    repeated, a row with more fields than the header, an empty text and a value that is not a finite number raise an
    error. Rows are numbered from 1 below the header.
    """
    header, frame = read_strings(path)
    wanted = {*numbers, *texts}
    problems = {
        "missing": wanted - set(header),
        "unknown": set() if ignored is None else set(header) - wanted - set(ignored),
        "repeated": {name for name in wanted if header.count(name) > 1},
    }
    if found := "; ".join(f"{problem} {listed(sorted(names))}" for problem, names in problems.items() if names):
        raise InputError(f"The columns of {path} must be {listed(sorted(wanted), 40)}, got {found}.")
    if frame.height == 0:
        raise InputError(f"{path} must have rows below its header, got none.")
    kept = [frame[str(i)].alias(name) for i, name in enumerate(header) if name in wanted]
    return frame.select([_numbers(path, column) if column.name in numbers else _texts(path, column) for column in kept])


def read_strings(path: Path) -> tuple[list[str], Any]:
    """The header of a CSV file, plain or with gzip, and all fields as strings in columns "0", "1", ...; null if empty.

    A row with fewer fields than the header is filled with nulls.
    """
    pl = import_extra("polars", "data")
    try:
        with open_text(path) as file:
            header = next(_rows(file), [])
        frame = pl.read_csv(path, infer_schema=False, new_columns=[str(i) for i in range(len(header))])
    except pl.exceptions.NoDataError:
        return [], pl.DataFrame()
    except (pl.exceptions.PolarsError, OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        reason = str(error).split("\n")[0]
        if "more fields" in reason:
            row, fields = _longer_row(path, len(header))
            raise InputError(f"{path} must have {len(header)} fields per row, got {fields} at row {row}.") from None
        raise InputError(f"{path} must be a CSV file in UTF-8, got: {reason}.") from error
    return header, frame


def open_text(path: Path) -> IO[str]:
    """Open a text file in UTF-8, plain or with gzip."""
    return (gzip.open if path.suffix == ".gz" else open)(path, "rt", newline="", encoding="utf-8-sig")


def _rows(file: IO[str]) -> Iterator[list[str]]:
    # As polars does it: blank lines above the header are skipped.
    return dropwhile(lambda row: not row, csv.reader(file))


def _longer_row(path: Path, width: int) -> tuple[int, int]:
    """The number of the first row with more than `width` fields, and its fields: polars does not name it."""
    with open_text(path) as file:
        return next((row, len(fields)) for row, fields in enumerate(_rows(file)) if len(fields) > width)


def _numbers(path: Path, column: Any) -> Any:
    pl = import_extra("polars", "data")
    values = column.str.strip_chars().cast(pl.Float64, strict=False).fill_null(float("nan"))
    if len(bad := (~values.is_finite()).arg_true()):
        value = column[bad[0]] or ""
        raise InputError(
            f"Column {column.name} of {path} must hold finite numbers, got {value!r:.40} at row {bad[0] + 1}."
        )
    return values


def _texts(path: Path, column: Any) -> Any:
    if len(bad := column.is_null().arg_true()):
        raise InputError(f"Column {column.name} of {path} must hold text, got none at row {bad[0] + 1}.")
    return column
