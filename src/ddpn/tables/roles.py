"""The roles of a table's columns (feature, target, weight, ...), decided in fit and saved with the model."""

import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

import numpy as np
import polars as pl

from ddpn.rows.checks import check_counts, check_vector, select_labels
from ddpn.rows.count_range import CountRange
from ddpn.rows.count_rows import CountRows
from ddpn.rows.groups import is_grouped_by_inputs
from ddpn.runtime.errors import Argument, InputError
from ddpn.runtime.validation import check_column
from ddpn.storage.contents import JsonObject
from ddpn.tables.cells import MISSING, clean_text, format_examples, is_text, looks_missing
from ddpn.tables.columns import Column, ColumnTable, Kind
from ddpn.tables.conversion import TableColumn, to_booleans, to_numbers
from ddpn.tables.date_columns import DateColumns
from ddpn.tables.groups import label_groups, name_interval_groups
from ddpn.tables.numbers import NumberFormat

#: The argument that names the column of a role, if it differs from the role's name.
_ARGUMENTS = {"upper": "upper_column"}
#: The most columns that are reported in sentences of their own.
_MAX_SENTENCES = 20


@dataclass(frozen=True)
class Roles:
    """The role of each column of a table, decided in fit and saved with the model.

    `target`, `exposure` and `weight` name columns. `columns` describes the features and the columns that are left out.
    `missing` are the words for missing values, and `formats` the number formats of columns that are not features.
    `groups` is the column of groups within which intervals are calibrated, and `upper` the column of upper bounds; both
    may also be features. `censored` is the column that marks right-censored counts. `group` are the columns that say
    which rows belong together; predictions do not need them. `target` is None if the model was saved in Python.
    """

    target: str | None
    exposure: str | None
    weight: str | None
    columns: tuple[TableColumn, ...]
    missing: tuple[str, ...] = MISSING
    formats: dict[str, NumberFormat] = field(default_factory=dict)
    groups: str | None = None
    upper: str | None = None
    censored: str | None = None
    group: tuple[str, ...] = ()

    @property
    def features(self) -> list[TableColumn]:
        return [column for column in self.columns if not column.left_out]

    @property
    def dates(self) -> DateColumns:
        """The features that are dates."""
        return DateColumns(tuple(column for column in self.features if column.kind == Kind.DATE))

    @property
    def as_text(self) -> list[str]:
        """The features to read as text, because 007 is not 7 in a category, and 1.234 may be 1234 among integers."""
        return [column.name for column in self.features if column.kind.is_category or column.number.integers]

    @property
    def identifier(self) -> str | None:
        """The column that identifies rows in reports: one named "id", or one that was dropped as an identifier."""
        identifiers = [column.name for column in self.columns if column.left_out.endswith(("ids", "row numbers"))]
        named = [column.name for column in self.columns if column.name.lower() == "id"]
        return next(iter([*named, *identifiers]), None)

    def as_dict(self) -> JsonObject:
        return asdict(self)

    @classmethod
    def from_dict(cls, document: JsonObject) -> "Roles":
        fields = dict(document)
        fields["columns"] = tuple(TableColumn.from_dict(column) for column in document["columns"])
        fields["formats"] = {
            name: NumberFormat(**number_format) for name, number_format in document.get("formats", {}).items()
        }
        return cls(**fields | {name: tuple(document[name]) for name in ("missing", "group") if name in document})

    # Reading a table by its roles -------------------------------------------------------------------------------------

    def parse(self, frame: pl.DataFrame, report: Callable[[str], None] | None = None) -> ColumnTable:
        """Convert the features of a table, each to the kind it had in fit, and ignore all other columns.

        Unreadable cells become missing. `report` is called with a sentence about each column that has such cells; by
        default, the sentence is shown as a warning.
        """
        present = set(frame.columns)
        columns, sentences = list[Column](), list[str]()
        for column in self.features:
            if column.name not in present:
                check_column(column.name, frame.columns, "needed by the model", InputError)
            parsed, unreadable, notes = column.parse(frame[column.name], self.missing)
            columns += parsed
            sentences += notes
            if len(unreadable):
                count = f"{len(unreadable):,} of {frame.height:,} values"
                sentences.append(
                    f"Column {column.name}: {count} are not {column.kind.words} as in fit "
                    f"({format_examples(unreadable)}) and are treated as missing."
                )
        report_all(sentences, report)
        return ColumnTable(columns)

    def parse_times(self, frame: pl.DataFrame, name: str | None) -> pl.DataFrame:
        """Return the table with its time column `name` converted to datetimes or numbers, if that column is text."""
        if name is None:
            return frame
        column = next(
            (item for item in self.columns if item.name == name and item.kind in (Kind.DATE, Kind.NUMBER)), None
        )
        if column is None or not is_text(frame[name]):
            return frame
        return frame.with_columns(column.convert(frame[name], self.missing).values.alias(name))

    def read_rows(
        self,
        frame: pl.DataFrame,
        fractional: str = "error",
        report: Callable[[str], None] | None = None,
        counts: CountRange | None = None,
        rows_before: int | None = None,
    ) -> CountRows:
        """Read the features, counts, weights and exposures of all rows with a target. Row numbers become their labels.

        If the table has no weight column, every row has weight 1. Without a censoring column, no count is censored, and
        without group columns there are no groups. `fractional` ("error" or "round") applies to counts that are not
        integers. `counts` is the range of possible counts. For a block of a file, `rows_before` is the number of rows
        before the block, so that row numbers are those of the file.

        Unreadable cells become missing. `report` is called with a sentence about each column that has such cells; by
        default, the sentence is shown as a warning.
        """
        if self.target is None:
            raise InputError("The model was saved in Python and does not know its target. Name it with `target`.")
        check_column(self.target, frame.columns, "target", InputError)
        labels = (rows_before or 0) + np.arange(1, frame.height + 1)
        y = self._read_numbers(frame, self.target, "target", labels)
        has_target = ~np.isnan(y)
        if not has_target.any():
            argument = Argument("target", self.target)
            raise InputError(argument=argument, must="have values", got="missing values only")
        if not has_target.all():
            frame, y, labels = frame.filter(has_target), y[has_target], labels[has_target]
        X = self.parse(frame, report)
        y = check_counts(y, frame.height, fractional, Argument("target", self.target), labels)
        is_censored = self._read_censored(frame, labels)
        rows = CountRows.from_checked(
            X,
            y,
            weight=self._read_vector(frame, "weight", labels, rows_before is not None)
            if self.weight in frame.columns
            else None,
            exposure=self._read_vector(frame, "exposure", labels),
            labels=labels,
            interval_groups=self.read_interval_groups(frame),
            upper=self._read_vector(frame, "upper", labels),
            limit=None if is_censored is None else np.where(is_censored, y, np.inf),
            group=self.label_groups(frame, X),
        )
        counts = counts or CountRange(upper_per_row=self.upper is not None)
        return counts.apply(rows, Argument("target", self.target))

    def label_groups(
        self, frame: pl.DataFrame, X: ColumnTable | None = None, join_near: bool = True
    ) -> np.ndarray | None:
        """Label each row's group, as `ddpn.tables.groups.label_groups` does; None if there are no groups.

        `X` is the result of `parse`. Without it, the table is parsed if labels depend on the features.
        """
        inputs = None
        if is_grouped_by_inputs(self.group, frame.columns):
            inputs = (self.parse(frame, report=lambda sentence: None) if X is None else X).to_polars()
        return label_groups(frame, self.group, self.missing, inputs, join_near)

    def find_rows_with_target(self, frame: pl.DataFrame, rows_before: int = 0) -> np.ndarray:
        """Return a mask of the rows that have a target.

        `rows_before` is the number of rows before this table in its file, for row numbers in errors.
        """
        name = check_column(str(self.target), frame.columns, "target", InputError)
        return ~np.isnan(self._read_numbers(frame, name, "target", rows_before + np.arange(1, frame.height + 1)))

    def describe_rows_without_target(self, rows: int) -> list[str]:
        """Return a list with a sentence that `rows` rows without a target were left out; empty if `rows` is 0."""
        were = "1 row {} was" if rows == 1 else f"{rows:,} rows {{}} were"
        return [f"{were.format(f'without a value of {self.target!r}')} left out."] if rows else []

    def read_interval_groups(self, frame: pl.DataFrame) -> np.ndarray | None:
        """Return the name of each row's interval group, or None if intervals are not calibrated by group."""
        if self.groups is None:
            return None
        return name_interval_groups(frame[check_column(self.groups, frame.columns, "interval_groups", InputError)])

    def read_exposure(self, frame: pl.DataFrame, rows_before: int = 0) -> np.ndarray | None:
        """Return the exposure of each row, or None if the model has no exposure.

        `rows_before` is the number of rows before this table in its file, for row numbers in errors.
        """
        return self._read_vector(frame, "exposure", rows_before + np.arange(1, frame.height + 1))

    def read_upper(self, frame: pl.DataFrame, rows_before: int = 0) -> np.ndarray | None:
        """Return the upper bound of each row, or None if the model has none.

        `rows_before` is the number of rows before this table in its file, for row numbers in errors.
        """
        return self._read_vector(frame, "upper", rows_before + np.arange(1, frame.height + 1))

    def _read_censored(self, frame: pl.DataFrame, labels: np.ndarray) -> np.ndarray | None:
        """Return a mask of the right-censored counts, or None if the table has no censoring column.

        Errors list rows by `labels`.
        """
        if self.censored is None or self.censored not in frame.columns:
            return None
        argument = Argument("censored", self.censored)
        values, unreadable, _ = to_booleans(frame[self.censored], self.missing, argument)
        if len(unreadable) or values.null_count():
            rows = select_labels(values.is_null().to_numpy(), labels)
            raise InputError(argument=argument, must="say true or false in every row", got="neither", rows=rows)
        return values.to_numpy().astype(bool)

    def _read_vector(
        self, frame: pl.DataFrame, role: str, labels: np.ndarray, allow_all_zero: bool = False
    ) -> np.ndarray | None:
        """Return the column of a role, such as "weight", as validated numbers; None if no column has the role.

        All numbers may be 0 only if `allow_all_zero` is True or the role is "upper". Errors list rows by `labels`.
        """
        column, argument = getattr(self, role), _ARGUMENTS.get(role, role)
        if column is None:
            return None
        name = check_column(column, frame.columns, argument, InputError)
        values, allow_zero = self._read_numbers(frame, name, argument, labels), role != "exposure"
        return check_vector(
            Argument(argument, name),
            values,
            frame.height,
            allow_zero,
            labels,
            allow_all_zero=allow_all_zero or role == "upper",
        )

    def _read_numbers(self, frame: pl.DataFrame, name: str, role: str, labels: np.ndarray) -> np.ndarray:
        """Return the column `name` as float64, with NaN for missing values.

        Cells that are not numbers raise an `InputError`, which mentions the column's `role` and lists rows by `labels`.
        """
        series, argument = frame[name], Argument(role, name)
        if series.dtype.is_float():
            # The check of the role reports infinite values, with their rows.
            series = series.fill_nan(None)
            if series.is_infinite().any():
                return series.cast(pl.Float64).to_numpy().astype(np.float64)
        numbers, unreadable, _ = to_numbers(series, self.formats.get(name, NumberFormat()), self.missing, argument)
        if len(unreadable):
            text = clean_text(series, self.missing)
            bad = numbers.is_null() & ~looks_missing(text)
            if bad.any():
                got, rows = repr(text.filter(bad)[0]), select_labels(bad.to_numpy(), labels)
                raise InputError(argument=argument, must="hold numbers", got=got, rows=rows)
        return numbers.to_numpy().astype(np.float64)


def report_all(sentences: list[str], report: Callable[[str], None] | None) -> None:
    """Report sentences about columns one by one; after the first 20, only report how many more there are.

    Without `report`, sentences are shown as warnings.
    """
    unreported = len(sentences) - _MAX_SENTENCES
    if unreported > 0:
        sentences = [*sentences[:_MAX_SENTENCES], f"{unreported:,} more columns have such cells."]
    for sentence in sentences:
        if report is None:
            warnings.warn(sentence, UserWarning, stacklevel=3)
        else:
            report(sentence)
