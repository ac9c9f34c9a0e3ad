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

    Attributes
    ----------
    target : str or None
        The column of counts. None if the model was saved in Python, where the counts are not a column of X.
    exposure, weight : str or None
        The columns of exposures and of row weights.
    columns : tuple of TableColumn
        The features, and the columns that the model does not use.
    missing : tuple of str
        The words for missing values.
    formats : dict
        The number formats of columns that are not features, by name.
    interval_groups : str or None
        The column of groups within which intervals are calibrated. It may also be a feature.
    upper : str or None
        The column of upper bounds of the counts. It may also be a feature.
    censored : str or None
        The column that marks right-censored counts.
    group : tuple of str
        The columns that say which rows belong together, so that a split does not divide them. Predictions do not need
        them.
    """

    target: str | None
    exposure: str | None
    weight: str | None
    columns: tuple[TableColumn, ...]
    missing: tuple[str, ...] = MISSING
    formats: dict[str, NumberFormat] = field(default_factory=dict)
    interval_groups: str | None = None
    upper: str | None = None
    censored: str | None = None
    group: tuple[str, ...] = ()

    @property
    def features(self) -> list[TableColumn]:
        """The columns that the model uses as features."""
        return [column for column in self.columns if not column.left_out]

    @property
    def dates(self) -> DateColumns:
        """The features that hold dates."""
        return DateColumns(tuple(column for column in self.features if column.kind == Kind.DATE))

    @property
    def as_text(self) -> list[str]:
        """The names of the features that must be read from files as text.

        These are categories, in which 007 is not 7, and columns of integers, in which 1.234 may mean 1234.
        """
        return [column.name for column in self.features if column.kind.is_category or column.number.integers]

    @property
    def identifier(self) -> str | None:
        """The name of the column that identifies rows in reports, or None.

        It is a column named "id" or, if there is none, the first column that was left out because it identifies rows.
        """
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
        """Convert the features of a table, each to the kind it had in fit. All other columns are ignored.

        Unreadable cells become missing. `report` is called with a sentence about each column that has such cells. If it
        is None, each sentence is shown as a warning.
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
        """Return the table with its time column `name` converted to datetimes or numbers.

        The table is returned unchanged if `name` is None, or if the column is not text.
        """
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
        """Read the features, counts, weights and exposures of all rows with a target.

        Rows without a target are left out. The rows are labelled by their row numbers, from 1 on. Weights, censoring
        marks and groups are optional: if the table lacks these columns, the rows have none.

        Parameters
        ----------
        frame : polars.DataFrame
            The table, or a block of it.
        fractional : {"error", "round"}
            Whether counts that are not integers raise an error or are rounded.
        report : callable, optional
            Called with a sentence about each column with unreadable cells, which become missing. Default: show a
            warning.
        counts : CountRange, optional
            The range of possible counts. Default: every count up to the upper bound of its row, if there are such
            bounds.
        rows_before : int, optional
            For a block: the number of rows before it in its file, so that row numbers are those of the file. The
            weights of a block may all be 0.
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
        is_censored = self._read_censoring_marks(frame, labels)
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
        """Label the group of each row; return None if the model has no group columns.

        `ddpn.tables.groups.label_groups` describes the labels and `join_near`. Groups of rows with equal inputs depend
        on the features `X`, which are the result of `parse`. If `X` is None, the table is parsed when they are needed.
        """
        inputs = None
        if is_grouped_by_inputs(self.group, frame.columns):
            inputs = (self.parse(frame, report=lambda sentence: None) if X is None else X).to_polars()
        return label_groups(frame, self.group, self.missing, inputs, join_near)

    def find_rows_with_target(self, frame: pl.DataFrame, rows_before: int = 0) -> np.ndarray:
        """Return a mask of the rows that have a target.

        `rows_before` is the number of rows before this table in its file. It is added to row numbers in errors.
        """
        name = check_column(str(self.target), frame.columns, "target", InputError)
        return ~np.isnan(self._read_numbers(frame, name, "target", rows_before + np.arange(1, frame.height + 1)))

    def describe_rows_without_target(self, rows: int) -> list[str]:
        """Describe in a sentence that `rows` rows were left out because they have no target.

        Return a list of this sentence, or an empty list if `rows` is 0.
        """
        were = "1 row {} was" if rows == 1 else f"{rows:,} rows {{}} were"
        return [f"{were.format(f'without a value of {self.target!r}')} left out."] if rows else []

    def read_interval_groups(self, frame: pl.DataFrame) -> np.ndarray | None:
        """Return the name of each row's group for the calibration of intervals, or None if there are no such groups."""
        if self.interval_groups is None:
            return None
        labels = frame[check_column(self.interval_groups, frame.columns, "interval_groups", InputError)]
        # A file may hold words such as NA, which stand for a missing value.
        return name_interval_groups(clean_text(labels, self.missing) if is_text(labels) else labels)

    def read_weight(self, frame: pl.DataFrame) -> np.ndarray:
        """Return the weight of each row of a table that has the column of weights. They may all be 0."""
        weight = self._read_vector(frame, "weight", np.arange(1, frame.height + 1), True)
        assert weight is not None
        return weight

    def read_exposure(self, frame: pl.DataFrame, rows_before: int = 0) -> np.ndarray | None:
        """Return the exposure of each row, or None if the model has no exposure.

        `rows_before` is the number of rows before this table in its file. It is added to row numbers in errors.
        """
        return self._read_vector(frame, "exposure", rows_before + np.arange(1, frame.height + 1))

    def read_upper(self, frame: pl.DataFrame, rows_before: int = 0) -> np.ndarray | None:
        """Return the upper bound of each row's count, or None if the model has no such bounds.

        `rows_before` is the number of rows before this table in its file. It is added to row numbers in errors.
        """
        return self._read_vector(frame, "upper", rows_before + np.arange(1, frame.height + 1))

    def _read_censoring_marks(self, frame: pl.DataFrame, labels: np.ndarray) -> np.ndarray | None:
        """Return a mask of the right-censored counts, or None if the table has no censoring column.

        `labels` are the labels of the rows in errors.
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
        """Return the column that has a role, such as "weight", as validated numbers; None if no column has the role.

        `labels` are the labels of the rows in errors. If all numbers are 0, an error is raised, unless `allow_all_zero`
        is True or the role is "upper".
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

        Cells that are not numbers raise an `InputError`. It mentions the role of the column, and lists rows by
        `labels`.
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
    """Report sentences about columns one by one. After 20 sentences, only the number of further columns is reported.

    `report` is called with each sentence. If it is None, sentences are shown as warnings.
    """
    unreported = len(sentences) - _MAX_SENTENCES
    if unreported > 0:
        sentences = [*sentences[:_MAX_SENTENCES], f"{unreported:,} more columns have such cells."]
    for sentence in sentences:
        if report is None:
            warnings.warn(sentence, UserWarning, stacklevel=3)
        else:
            report(sentence)
