"""CSV files read strictly by polars: every column known, every row complete, every number finite."""

import csv
import gzip
from collections.abc import Collection
from itertools import dropwhile
from pathlib import Path
from typing import IO, Any

from ddpn.runtime.errors import InputError
from ddpn.runtime.validation import listed


def read_csv(
    path: Path, *, numbers: Collection[str] = (), texts: Collection[str] = (), ignored: Collection[str] | None = ()
) -> Any:
    """Return the columns `numbers` (Float64) and `texts` (String) of a CSV file as a polars frame, in the file's order.

    Columns in `ignored` may exist and are left out; None leaves out all others. A column that is missing, unknown or
    repeated, a row with more fields than the header, an empty text and a value that is not a finite number raise an
    error. Rows are numbered from 1 below the header.
    """
    frame, wanted = read_strings(path), {*numbers, *texts}
    # polars adds this to the second of two equal names.
    repeated = {name for name in wanted if f"{name}_duplicated_0" in frame.columns}
    others = {name for name in frame.columns if name.partition("_duplicated_")[0] not in wanted}
    unknown = set() if ignored is None else others - set(ignored)
    problems = {"missing": wanted - set(frame.columns), "unknown": unknown, "repeated": repeated}
    if found := "; ".join(f"{problem} {listed(sorted(names))}" for problem, names in problems.items() if names):
        raise InputError(f"The columns of {path} must be {listed(sorted(wanted), 40)}, got {found}.")
    if frame.height == 0:
        raise InputError(f"{path} must have rows below its header, got none.")
    kept = [column for column in frame if column.name in wanted]
    return frame.select([_numbers(path, column) if column.name in numbers else _texts(path, column) for column in kept])


def read_strings(path: Path) -> Any:
    """All fields of a CSV file, plain or with gzip, as strings in a polars frame; null if empty.

    A row with fewer fields than the header is filled with nulls.
    """
    import polars as pl  # slow to import

    try:
        return pl.read_csv(path, infer_schema=False)
    except pl.exceptions.NoDataError:
        return pl.DataFrame()
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).split("\n")[0]
        if "more fields" in reason:
            raise _longer_row(path) from None
        raise InputError(f"{path} must be a CSV file in UTF-8, got: {reason}.") from error


def open_text(path: Path) -> IO[str]:
    """Open a text file in UTF-8, plain or with gzip; as in polars its first bytes decide, not its name."""
    with path.open("rb") as file:
        is_packed = file.read(2) == b"\x1f\x8b"
    return (gzip.open if is_packed else open)(path, "rt", newline="", encoding="utf-8-sig")


def _longer_row(path: Path) -> InputError:
    """The error for the first row with more fields than the header: polars does not name it."""
    with open_text(path) as file:
        # As polars does it: blank lines above the header are skipped.
        rows = dropwhile(lambda fields: not fields, csv.reader(file))
        width = len(next(rows))
        row, fields = next((row, len(fields)) for row, fields in enumerate(rows, start=1) if len(fields) > width)
    return InputError(f"{path} must have {width} fields per row, got {fields} at row {row}.")


def _numbers(path: Path, column: Any) -> Any:
    import polars as pl  # slow to import

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
