"""Find the date columns of data frames, and replace them by numbers such as the month."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date

import narwhals as nw
import polars as pl
from narwhals.typing import IntoDataFrame, IntoSeries

from ddpn.rows.checks import TableLike
from ddpn.tables.cells import MISSING
from ddpn.tables.conversion import TableColumn
from ddpn.tables.dates import DAY, HOUR, MONTH, WEEKDAY, extract_date_parts
from ddpn.tables.kinds import detect_dates

_TEXT = (nw.String, nw.Categorical, nw.Enum)


@dataclass(frozen=True)
class DateColumns:
    """The date columns of a data frame, each of which is replaced by several columns of numbers.

    These are days since 1970, the month, the weekday and, unless all times have the same hour, the hour.

    Parameters
    ----------
    columns : tuple of TableColumn
        The format of each date column, and the numbers that replace it.
    """

    columns: tuple[TableColumn, ...] = ()

    @classmethod
    def find(cls, X: TableLike) -> "DateColumns":
        """Find the columns of a data frame that hold dates or text that spells dates.

        If X is not a data frame, the result has no columns.
        """
        frame = _to_named_frame(X)
        if frame is None:
            return cls()
        columns = (_describe_dates(series) for series in frame.iter_columns())
        return cls(tuple(column for column in columns if column is not None))

    @property
    def inputs(self) -> dict[str, str]:
        """A dict from the name of each derived column to its date column, such as "start month" to "start"."""
        return {name: column.name for column in self.columns for name in column.inputs}

    @property
    def days(self) -> frozenset[str]:
        """The names of the derived columns with days since 1970."""
        return frozenset(f"{column.name} {DAY}" for column in self.columns if DAY in column.parts)

    def read(self, X: TableLike, report: Callable[[str], object]) -> TableLike:
        """Replace the date columns of a data frame by columns of numbers, such as the month.

        A table without these date columns is returned unchanged. Unreadable cells become missing. `report` is called
        with a sentence about each column that has unreadable cells.
        """
        frame = _to_named_frame(X) if self.columns else None
        if frame is None or not {column.name for column in self.columns} <= set(frame.columns):
            return X  # a frame may have the parts already
        columns = {column.name: column for column in self.columns}
        parts = [part for column in self.columns for part in _read_parts(column, frame[column.name], report)]
        numbers = [nw.new_series(part.name, part.to_numpy(), backend=frame.implementation) for part in parts]
        names = [part for name in frame.columns for part in (columns[name].inputs if name in columns else [name])]
        return frame.with_columns(*numbers).select(names).to_native()


def _to_named_frame(X: TableLike) -> nw.DataFrame[IntoDataFrame] | None:
    """Wrap a data frame by narwhals; return None for other tables, and for names that are not text or not unique."""
    try:
        frame: object = nw.from_native(X, eager_only=True, pass_through=True)
    except nw.exceptions.DuplicateError:
        return None  # the reader of tables raises the error
    if isinstance(frame, nw.DataFrame) and all(isinstance(name, str) for name in frame.columns):
        return frame
    return None


def _describe_dates(series: nw.Series[IntoSeries]) -> TableColumn | None:
    """Describe a date column and the numbers that replace it; return None if the column does not hold dates."""
    if series.dtype not in (nw.Date, nw.Datetime, nw.Object, *_TEXT):
        return None
    if series.dtype == nw.Object:
        first = next((value for value in series.to_list() if value is not None), None)
        if not isinstance(first, date | str):
            return None
    column = detect_dates(_to_polars(series))
    if column is None:
        return None
    times = column.convert(_to_polars(series), MISSING).values.drop_nulls()
    has_hours = times.dt.hour().n_unique() > 1
    return replace(column, parts=(DAY, MONTH, WEEKDAY, *([HOUR] if has_hours else [])))


def _to_polars(series: nw.Series[IntoSeries]) -> pl.Series:
    """Convert a column to a polars series. A column of Python objects, such as dates mixed with None, becomes text."""
    return (series.cast(nw.String) if series.dtype == nw.Object else series).to_polars()


def _read_parts(column: TableColumn, series: nw.Series[IntoSeries], report: Callable[[str], object]) -> list[pl.Series]:
    """Compute the numbers that replace a date column: one series for each of `column.parts`, such as the month.

    `series` has the cells of the column. Cells that cannot be read as dates become missing, and `report` is then called
    with a sentence about them. The names of the results are `column.inputs`, such as "start month".
    """
    converted = column.convert(_to_polars(series), MISSING)
    if len(converted.unreadable):
        report(
            f"Column {column.name}: {len(converted.unreadable):,} of {len(series):,} values are not dates and are "
            "treated as missing."
        )
    return extract_date_parts(converted.values, column.parts, column.inputs)
