"""Checks of the columns that have a role, batch by batch; an error names the file and the row in it, from 1."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ddpn.runtime.errors import Argument, InputError
from ddpn.runtime.validation import check_column
from ddpn.sample import Sample, check_counts, check_vector, labels_of
from ddpn.tables.count_range import CountRange
from ddpn.tables.streaming.libraries import polars
from ddpn.tables.streaming.parts import Batch

#: What users call the column of a role, where that is not the name of the role.
_ARGUMENTS = {"upper": "upper_column", "split": "split_column"}


@dataclass(frozen=True, kw_only=True)
class RoleColumns:
    """Which column is what.

    Parameters
    ----------
    target : str
        The counts.
    exposure, weight, upper, censored, split, time : str, optional
        Columns of the other roles.
    split_words : sequence of str
        Words that the column of the split may hold, in lower case.
    counts : CountRange
        The range of possible counts.
    fractional : {"error", "round"}
        What to do with counts that are not integers.
    """

    target: str
    exposure: str | None = None
    weight: str | None = None
    upper: str | None = None
    censored: str | None = None
    split: str | None = None
    time: str | None = None
    split_words: Sequence[str] = ()
    counts: CountRange = CountRange()  # noqa: RUF009
    fractional: str = "error"

    def _named(self) -> Iterator[tuple[str, str]]:
        for role in ("target", "exposure", "weight", "upper", "censored", "split", "time"):
            name = getattr(self, role)
            if name is not None:
                yield role, name

    def check_columns(self, columns: Sequence[str]) -> None:
        """Raise an `InputError` for a role whose column is missing."""
        for role, name in self._named():
            check_column(name, columns, _ARGUMENTS.get(role, role), InputError)

    def used_rows(self, batch: Batch) -> int:
        """Validate the rows of a batch; returns how many of them have a weight above 0."""
        frame = batch.frame
        labels = np.arange(batch.first + 1, batch.first + frame.height + 1)
        try:
            weight = self._check(frame, labels)
        except InputError as error:
            begin = batch.first_of_all - batch.first
            where = f" The file begins with row {begin + 1:,} of the table." if begin else ""
            raise InputError(f"{batch.path}: {error}{where}") from None
        return frame.height if weight is None else int((weight > 0).sum())

    def _check(self, frame: Any, labels: np.ndarray) -> np.ndarray | None:
        rows, target = frame.height, Argument("target", self.target)
        y = check_counts(self._numbers(frame, "target", labels), rows, self.fractional, target, labels)
        exposure, upper = self._numbers(frame, "exposure", labels), self._numbers(frame, "upper", labels)
        weight = self._numbers(frame, "weight", labels)
        if weight is not None:
            weight = _checked(Argument("weight", str(self.weight)), weight, labels, zero=True)
        if exposure is not None:
            exposure = _checked(Argument("exposure", str(self.exposure)), exposure, labels, zero=False)
        censored = self._numbers(frame, "censored", labels)
        self.counts.of(Sample(None, y, weight, exposure, labels), upper, censored, name=target)
        self._check_split(frame, labels)
        if self.time is not None and (missing := _missing(frame[self.time])).any():
            raise _missing_error(Argument("time", self.time), labels_of(missing, labels))
        return weight

    def _numbers(self, frame: Any, role: str, labels: np.ndarray) -> np.ndarray | None:
        """The column of a role as float64; it must have numbers or booleans, all of them known."""
        name = getattr(self, role)
        if name is None:
            return None
        argument, series, library = Argument(_ARGUMENTS.get(role, role), name), frame[name], polars()
        if not (series.dtype.is_numeric() or series.dtype in (library.Boolean, library.Null)):
            raise InputError(argument=argument, must="be a column of numbers", got=f"type {series.dtype}")
        missing = _missing(series)
        if missing.any():
            raise _missing_error(argument, labels_of(missing, labels))
        return series.cast(library.Float64).to_numpy()

    def _check_split(self, frame: Any, labels: np.ndarray) -> None:
        if self.split is None:
            return
        library = polars()
        words = frame[self.split].cast(library.String).str.strip_chars().str.to_lowercase()
        bad = ~words.is_in(list(self.split_words)).fill_null(False).to_numpy()
        if bad.any():
            got, rows = repr(frame[self.split].filter(library.Series(bad))[0]), labels_of(bad, labels)
            must = "hold train, validation or test in every row"
            raise InputError(argument=Argument("split_column", self.split), must=must, got=got, rows=rows)


def _missing_error(argument: Argument, rows: list[Any]) -> InputError:
    return InputError("is missing", argument=argument, rows=rows, remedy="Fill or drop these rows.")


def _missing(series: Any) -> np.ndarray:
    found = series.is_null().to_numpy()
    return found | series.is_nan().fill_null(False).to_numpy() if series.dtype.is_float() else found


def _checked(argument: Argument, values: np.ndarray, labels: np.ndarray, zero: bool) -> np.ndarray:
    # Whether all weights are 0 is a question to the whole table.
    found = check_vector(argument, values, len(values), zero, labels, all_zero=True)
    assert found is not None
    return found
