"""Any table, read into columns of three kinds: numbers, flags (booleans) and categories (text).

Frames of pandas, polars and pyarrow are read by narwhals, which requires none of them. Arrays of numbers are checked by
scikit-learn, so that its messages and its `n_features_in_` are those of any of its estimators.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import date, time, timedelta
from typing import Any, NamedTuple, TypeVar

import narwhals as nw
import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from ddpn.rows.checks import RowError, row_labels, rows_named
from ddpn.runtime.errors import InputError
from ddpn.runtime.validation import listed
from ddpn.tables.kinds import canonical_level, canonical_number, flag_of, have_numbers, number_of

#: Cells of a sparse matrix that may become dense: 2 GiB in float64.
MAX_DENSE_CELLS = 2**28
#: Rows of a frame up to which its cells are read one by one.
_FEW_ROWS = 8
#: Types of polars whose cells are read one by one.
_FEW_KINDS = {f"{kind}{bits}": "number" for kind in ("Int", "UInt") for bits in (8, 16, 32, 64)}
_FEW_KINDS |= {"Float32": "number", "Float64": "number", "Boolean": "flag", "String": "category"}
_TEXT = (nw.String, nw.Categorical, nw.Enum)
_DATES = (date, time, timedelta, np.datetime64, np.timedelta64)
_DERIVE = "Derive numbers from it, such as the month or the days since a start."
_Computed = TypeVar("_Computed")
#: Results that levels keep: more than a mixture of cross-fitted members asks for, and bounded in a search of settings.
_MAX_RESULTS = 64


class Levels(tuple[str, ...]):
    """The names of a column's levels, with what fitted models have looked up about them.

    Rows that are taken from a table share its levels. So a model looks up each level once per table, and not once per
    block of rows.
    """

    def compute_once(self, key: object, compute: Callable[["Levels"], _Computed]) -> _Computed:
        """Return `compute(self)`, computed in the first call with this `key`, which is compared by identity."""
        results: dict[int, tuple[object, Any]] = self.__dict__.setdefault("_results", {})
        if (kept := results.get(id(key))) is None:
            kept = results[id(key)] = key, compute(self)  # the key is kept, so that no other object gets its id
            if len(results) > _MAX_RESULTS:
                results.pop(next(iter(results)), None)
        return kept[1]

    def __reduce__(self) -> tuple[Any, ...]:
        return Levels, (tuple(self),)


class Column(NamedTuple):
    """One column: float64 values with NaN where missing; for categories codes into `levels`, -1 where missing.

    Levels are named as `ddpn.tables.kinds` does, so that every sort of table has the same ones.
    """

    name: str
    kind: str  # "number", "flag" or "category"
    values: np.ndarray
    levels: Levels = Levels()


class PreparedTable:
    """Columns that were read and checked, in the order of fit: a table that members need not read again.

    The caller is responsible for the names and order of columns, and for finite numbers. `is_named` if the names are
    those of a data frame, and not x0, x1, ...; `index` is what messages call the rows, as in pandas.
    """

    def __init__(self, columns: list[Column], is_named: bool = True, index: np.ndarray | None = None) -> None:
        self.columns, self.is_named, self.index = columns, is_named, index
        self.shape = len(columns[0].values), len(columns)

    def __len__(self) -> int:
        return self.shape[0]

    @classmethod
    def like(cls, reader: Any, X: Any) -> "PreparedTable":
        """A later table, read once for all that was fitted to the table of a fitted reader."""
        if isinstance(X, PreparedTable):
            return X
        return cls(read_table(reader, X, reset=False), hasattr(reader, "feature_names_in_"), row_labels(X))

    @classmethod
    def of_all(cls, first: Any, *others: Any) -> "list[PreparedTable]":
        """Read a table, and others that must have its columns, once for all that is fitted to them."""
        reader = BaseEstimator()
        tables = [read_table(reader, first, reset=True), *(read_table(reader, X, reset=False) for X in others)]
        return [cls(columns, hasattr(reader, "feature_names_in_")) for columns in tables]

    def rows(self, index: Any) -> "PreparedTable":
        """Some of the rows: `index` is a mask, a slice or positions."""
        columns = [column._replace(values=column.values[index]) for column in self.columns]
        return PreparedTable(columns, self.is_named, None if self.index is None else self.index[index])

    def arrays(self) -> dict[str, np.ndarray]:
        """The values and levels of every column, by which the same table is known again."""
        values = {column.name: column.values for column in self.columns}
        return values | {f"levels of {column.name}": np.array(column.levels, dtype=object) for column in self.columns}

    def for_fit(self, estimator: Any) -> list[Column]:
        """The columns, with the levels that occur only; sets the names and number of columns of the estimator."""
        estimator.n_features_in_ = len(self.columns)
        if self.is_named:
            estimator.feature_names_in_ = np.array([column.name for column in self.columns], dtype=object)
        return [_with_own_levels(column) if column.kind == "category" else column for column in self.columns]


def _with_own_levels(column: Column) -> Column:
    """Without the levels of rows that were left out."""
    codes = np.unique(column.values)
    codes = codes[codes >= 0]
    if len(codes) == len(column.levels):
        return column
    places = np.full(len(column.levels) + 1, -1)  # the last entry serves code -1
    places[codes] = np.arange(len(codes))
    return column._replace(values=places[column.values], levels=Levels(column.levels[code] for code in codes))


def read_table(estimator: Any, X: Any, *, reset: bool) -> list[Column]:
    """The columns of X in the order of fit; sets (`reset`) or checks the estimator's feature names and number."""
    if isinstance(X, PreparedTable):
        return X.for_fit(estimator) if reset else X.columns
    with rows_named(row_labels(X)):
        if not reset and (few := _few_rows(estimator, X)) is not None:
            return few
        frame = _frame_of(X)
        if frame is not None:
            return _read_frame(estimator, frame, reset)
        if sparse.issparse(X):
            return _read_numbers(estimator, X, reset)
        plain = np.asarray(X)
        if isinstance(X, Sequence) and plain.dtype.kind in "US":
            plain = np.asarray(X, dtype=object)  # a list of mixed rows keeps its numbers as numbers
        if plain.dtype.kind in "bOUS":
            cells = validate_data(estimator, plain, dtype=None, ensure_all_finite=False, reset=reset)
            return [_read_column(name, cells[:, j]) for j, name in enumerate(_names(estimator))]
        if plain.dtype.kind in "mMV":
            raise InputError(f"X must hold numbers, booleans or text, got dtype {plain.dtype}. {_DERIVE}")
        return _read_numbers(estimator, X, reset)


def _few_rows(estimator: Any, X: Any) -> list[Column] | None:
    """Few rows of a polars frame that has exactly the columns of fit, cell by cell; None for any other table.

    To convert a frame of one row takes its library longer than all the rest of a prediction.
    """
    if not type(X).__module__.startswith("polars.dataframe") or not 0 < X.height <= _FEW_ROWS:
        return None
    named = getattr(estimator, "feature_names_in_", None)
    if named is None or X.columns != named.tolist():
        return None
    kinds = [_FEW_KINDS.get(type(dtype).__name__, "") for dtype in X.dtypes]
    if "" in kinds:
        return None
    found = []
    for name, kind, cells in zip(X.columns, kinds, zip(*X.rows(), strict=True), strict=True):
        index: dict[str, int] = {}
        if kind == "category":
            codes = [-1 if cell is None else index.setdefault(canonical_level(cell), len(index)) for cell in cells]
            found.append(Column(name, kind, np.array(codes), Levels(index)))
        else:
            values = np.array(cells, dtype=np.float64)  # None becomes NaN
            found.append(Column(name, kind, values) if kind == "flag" else _number(name, values))
    return found


def _names(estimator: Any) -> list[str]:
    """The names of fit, or x0, x1, ... as in scikit-learn."""
    named = getattr(estimator, "feature_names_in_", None)
    return [f"x{j}" for j in range(estimator.n_features_in_)] if named is None else list(named)


def _read_numbers(estimator: Any, X: Any, reset: bool) -> list[Column]:
    kinds = [np.float64, np.float32]
    with np.errstate(invalid="ignore"):  # scikit-learn adds up all numbers, whose sum may overflow on both sides
        numbers = validate_data(
            estimator, X, accept_sparse="csc", dtype=kinds, ensure_all_finite="allow-nan", reset=reset
        )
    if sparse.issparse(numbers):
        rows, columns = numbers.shape
        if rows * columns > MAX_DENSE_CELLS:
            raise InputError(
                f"A sparse X must have at most {MAX_DENSE_CELLS} cells, zeros included, got shape {rows} x {columns}. "
                "Reduce its columns first, for example by TruncatedSVD."
            )
        numbers = numbers.toarray(order="F")
    return [Column(name, "number", numbers[:, j]) for j, name in enumerate(_names(estimator))]


def _frame_of(X: Any) -> nw.DataFrame[Any] | None:
    try:
        frame = nw.from_native(X, pass_through=True)
    except nw.exceptions.DuplicateError:
        names = list(X.columns)
        twice = listed(sorted({repr(name) for name in names if names.count(name) > 1}))
        raise InputError(f"X must have each column name once, got {twice} more than once.") from None
    if isinstance(frame, nw.LazyFrame):
        raise InputError("X must be a data frame, got a lazy one. Call collect() on it.")
    return frame if isinstance(frame, nw.DataFrame) else None


def _read_frame(estimator: Any, frame: nw.DataFrame[Any], reset: bool) -> list[Column]:
    if not reset and hasattr(estimator, "feature_names_in_") and all(isinstance(name, str) for name in frame.columns):
        frame = _in_order(frame, list(estimator.feature_names_in_))
    validate_data(estimator, frame.to_native(), reset=reset, skip_check_array=True)
    if 0 in frame.shape:
        raise InputError(f"X must have at least one row and one column, got shape {frame.shape}.")
    return [_read_series(name, series) for name, series in zip(_names(estimator), frame.iter_columns(), strict=True)]


def _in_order(frame: nw.DataFrame[Any], names: list[str]) -> nw.DataFrame[Any]:
    found, known = frame.columns, set(names)
    present = set(found)
    missing = [name for name in names if name not in present]
    extra = [name for name in found if name not in known]
    if missing or extra:
        both = [f"{what} {listed([*map(repr, those)])}" for what, those in (("no", missing), ("also", extra)) if those]
        raise InputError(f"X must have the columns of fit, got {' and '.join(both)}.")
    return frame if found == names else frame.select(names)


def _read_series(name: str, series: nw.Series[Any]) -> Column:
    dtype = series.dtype
    if dtype.is_temporal():
        raise _not_a_feature(name, f"dates or times ({dtype})", _DERIVE)
    if dtype.is_nested() or dtype == nw.Binary:
        raise _not_a_feature(name, str(dtype), "Unnest it into columns of their own.")
    if dtype.is_numeric() or dtype == nw.Boolean:
        series = series if dtype == nw.Float64 else series.cast(nw.Float64)
        values = np.asarray(series.to_numpy(), dtype=np.float64)
        return Column(name, "flag", values) if dtype == nw.Boolean else _number(name, values)
    if dtype in _TEXT:
        return _factorized(name, series)
    try:
        return _read_column(name, np.asarray(series.to_native()))
    except TypeError:
        raise _not_a_feature(name, "objects of other types", "Unnest it into columns of their own.") from None


def _factorized(name: str, series: nw.Series[Any]) -> Column:
    """Text to codes by the frame's own library: a Python loop over a million rows is slow."""
    present = series.drop_nulls()
    levels = present.unique(maintain_order=True).to_list()
    codes = np.full(len(series), -1)
    places, names = _canonical(levels, canonical_level)
    if levels:
        found = present.replace_strict(levels, places.tolist(), return_dtype=nw.Int64)
        codes[~np.asarray(series.is_null().to_numpy(), dtype=bool)] = found.to_numpy()
    return Column(name, "category", codes, names)


def _canonical(levels: Iterable[Any], canonical: Callable[[Any], str]) -> tuple[np.ndarray, Levels]:
    """For each level the position of its canonical name, and the names."""
    index: dict[str, int] = {}
    places = [index.setdefault(canonical(level), len(index)) for level in levels]
    return np.array(places, dtype=np.int64), Levels(index)


def _read_column(name: str, cells: np.ndarray) -> Column:
    """A column of a numpy array by its dtype, or by its values if the dtype is object."""
    if cells.dtype.kind == "b":
        return Column(name, "flag", cells.astype(np.float64))
    if cells.dtype.kind == "S":
        cells = np.char.decode(cells, errors="replace")
    if cells.dtype.kind == "U":
        levels, codes = np.unique(cells, return_inverse=True)
        places, names = _canonical(levels.tolist(), canonical_level)
        return Column(name, "category", places[codes], names)
    if cells.dtype.kind != "O":
        return _number(name, cells.astype(np.float64))
    # None, NaN, pandas' NA and NaT: the last two by name, as pandas may not be installed.
    is_absent = {kind: kind.__name__ in ("NoneType", "NAType", "NaTType") for kind in set(map(type, cells.tolist()))}
    missing = np.array(
        [is_absent[type(cell)] or (isinstance(cell, float) and cell != cell) for cell in cells.tolist()], dtype=bool
    )
    present = cells[~missing]
    kinds = set(map(type, present.tolist()))
    if any(issubclass(kind, str) for kind in kinds):
        codes = np.full(len(cells), -1)
        codes[~missing], names = _canonical(present.tolist(), canonical_level)
        return Column(name, "category", codes, names)
    if any(issubclass(kind, _DATES) for kind in kinds):
        raise _not_a_feature(name, "dates or times", _DERIVE)
    if any(issubclass(kind, list | tuple | np.ndarray | bytes) for kind in kinds):
        raise _not_a_feature(name, "lists or bytes", "Unnest it into columns of their own.")
    values = np.full(len(cells), np.nan)
    values[~missing] = present.astype(np.float64)
    is_flag = kinds and kinds <= {bool, np.bool_}
    return Column(name, "flag", values) if is_flag else _number(name, values)


def _number(name: str, values: np.ndarray) -> Column:
    bad = np.isinf(values)
    if bad.any():
        got = f"{values[bad][0]} in column {name!r}"
        raise RowError(f"X must hold finite numbers or missing values, got {got}", bad)
    return Column(name, "number", values)


def _not_a_feature(name: str, found: str, remedy: str) -> InputError:
    return InputError(f"X must hold numbers, booleans or text, got {found} in column {name!r}. {remedy}")


# The kind that each column had in fit, and later columns as that kind where this can be done without guessing ---------

#: The kind of a category with levels such as 1 or 2.5: there 1, 1.0 and "01" are the same level.
WITH_NUMBERS = "category with numbers"
_WORDS = {"number": "numbers", "flag": "booleans", "category": "text", WITH_NUMBERS: "text"}


def kind_of(column: Column) -> str:
    """The kind to hold later columns to."""
    is_numeric = column.kind == "category" and have_numbers(column.levels)
    return WITH_NUMBERS if is_numeric else column.kind


def read_as_fitted(estimator: Any, X: Any) -> list[Column]:
    """The columns of X, in the order and of the kinds (`kinds_`) of fit."""
    table = read_table(estimator, X, reset=False)
    with rows_named(row_labels(X)):
        return [as_fitted(column, kind) for column, kind in zip(table, estimator.kinds_, strict=True)]


def as_fitted(column: Column, kind: str) -> Column:
    """The column as the kind it had in fit; raises an `InputError` if that would be a guess."""
    name, found, values, levels = column
    if (found == kind and kind != "flag") or (found, kind) == ("flag", "number"):
        return column
    missing = values == -1 if found == "category" else np.isnan(values)
    is_category = kind in ("category", WITH_NUMBERS)
    if missing.all():  # a column with no value has no kind
        return Column(name, "category" if is_category else kind, np.full(len(values), -1 if is_category else np.nan))
    if kind == WITH_NUMBERS:
        if found == "category":
            codes = values
            places, names = levels.compute_once(canonical_number, lambda names: _canonical(names, canonical_number))
        else:
            codes = np.full(len(values), -1)
            unique, codes[~missing] = np.unique(values[~missing], return_inverse=True)
            places, names = _canonical(unique.tolist(), canonical_number)
        return Column(name, "category", np.append(places, -1)[codes], names)  # the last entry serves code -1
    if kind == "category":
        raise InputError(f"column {name!r} must hold {_WORDS[kind]} as in fit, got {_WORDS[found]}.")
    if found == "category":
        # Text as the values that it spells.
        spelled = [number_of(level) if kind == "number" else flag_of(level) for level in levels]
        odd = np.array([*(value is None for value in spelled), False])[values]
        got = repr(levels[values[odd][0]]) if odd.any() else ""
        values = np.array([*(np.nan if value is None else value for value in spelled), np.nan])[values]
    else:
        odd = ~missing & (values != 0) & (values != 1)
        got = f"{values[odd][0]:g}" if odd.any() else ""
    if odd.any():
        raise RowError(f"column {name!r} must hold {_WORDS[kind]} as in fit, got {got}", odd)
    return Column(name, kind, values)
