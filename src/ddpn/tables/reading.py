"""Convert tables of any library to a `ColumnTable` of numbers, booleans and categories.

Frames of pandas, polars and pyarrow are read by narwhals, which requires none of them. Arrays of numbers are checked by
scikit-learn, so that messages and `n_features_in_` are the same as in any scikit-learn estimator.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import date, time, timedelta
from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np
from narwhals.typing import IntoDataFrame, IntoSeries

from ddpn.rows.checks import RowError, TableLike, get_row_labels, label_row_errors, reject_dicts
from ddpn.runtime.errors import InputError
from ddpn.runtime.validation import find_similar_name, join_words
from ddpn.tables.columns import MAX_ROWS_CELL_BY_CELL, Column, ColumnTable, Kind, Levels
from ddpn.tables.levels import canonical_level, have_numbers

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

#: Cells of a sparse matrix that may become dense: 2 GiB in float64.
MAX_DENSE_CELLS = 2**28
#: Types of polars whose cells are read one by one.
_KINDS_BY_TYPE = {f"{sign}{bits}": Kind.NUMBER for sign in ("Int", "UInt") for bits in (8, 16, 32, 64)}
_KINDS_BY_TYPE |= {"Float32": Kind.NUMBER, "Float64": Kind.NUMBER, "Boolean": Kind.BOOLEAN, "String": Kind.CATEGORY}
# pandas calls its own types otherwise; columns of objects, which may hold anything, are none of these.
_KINDS_BY_TYPE |= {name.lower(): kind for name, kind in _KINDS_BY_TYPE.items() if kind == Kind.NUMBER}
_KINDS_BY_TYPE |= {"bool": Kind.BOOLEAN, "str": Kind.CATEGORY, "string": Kind.CATEGORY}
_TEXT = (nw.String, nw.Categorical, nw.Enum)
_DATES = (date, time, timedelta, np.datetime64, np.timedelta64)
_DERIVE_NUMBERS = "Derive numbers from it, such as the month or the days since a start."


def read_table(X: TableLike, estimator: "type[BaseEstimator] | None" = None) -> ColumnTable:
    """Convert a table that is passed to `fit`, and detect the kinds of its columns from their types or cells.

    Parameters
    ----------
    X : table
        An array, a data frame, a sparse matrix or lists; a `ColumnTable` is returned unchanged.
    estimator : type of estimator, optional
        The class whose name appears in scikit-learn's messages. Default: "Model".
    """
    if isinstance(X, ColumnTable):
        return X
    return _read(_make_model() if estimator is None else estimator(), X, is_first=True)


def _make_model() -> "BaseEstimator":
    """Make a placeholder estimator, with which scikit-learn's `validate_data` checks tables.

    The name of its class appears in scikit-learn's messages.
    """
    from sklearn.base import BaseEstimator  # slow to import, and rows of a file are parsed without it

    class Model(BaseEstimator):
        pass

    return Model()


def read_later_table(X: TableLike, names: Sequence[str], is_named: bool) -> ColumnTable:
    """Convert a table that is passed after fit, for example to `predict`, and put its columns in the order of `names`.

    The kinds of the columns are detected from the cells of this table. `is_named` is False if the table of the fit had
    no column names, so that `names` are x0, x1, ...
    """
    labels = get_row_labels(X)
    with label_row_errors(labels):
        columns = _read_few_rows(list(names), X) if is_named else None
    if columns is not None:
        return ColumnTable(columns, is_named, labels)
    reader = _make_model()  # checks the table as if it had been fitted to the first one
    set_names(reader, names, is_named)
    return _read(reader, X, is_first=False)


def set_names(estimator: "BaseEstimator", names: Sequence[str], is_named: bool) -> None:
    """Set `n_features_in_` of an estimator and, if columns are named, `feature_names_in_`, as scikit-learn does."""
    estimator.n_features_in_ = len(names)
    if is_named:
        estimator.feature_names_in_ = np.array(names, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


def _read(reader: "BaseEstimator", X: TableLike, is_first: bool) -> ColumnTable:
    """Convert a table to a `ColumnTable`.

    If `is_first` is True, this is the table of the fit, whose column names are set on the estimator `reader`. Otherwise
    they are compared with those of the reader.
    """
    labels = get_row_labels(X)
    with label_row_errors(labels):
        columns = _read_columns(reader, X, is_first)
    if is_first:
        columns = [
            column._replace(kind=Kind.NUMBER_CATEGORY) if column.is_category and have_numbers(column.levels) else column
            for column in columns
        ]
    return ColumnTable(columns, hasattr(reader, "feature_names_in_"), labels)


def _read_columns(reader: "BaseEstimator", X: TableLike, is_first: bool) -> list[Column]:
    """Convert a table of any type to columns. `reader` and `is_first` are as for `_read`."""
    frame = _to_frame(X)
    if frame is not None:
        return _read_frame(reader, frame, is_first)
    from scipy import sparse
    from sklearn.utils.validation import validate_data

    if sparse.issparse(X):
        return _read_numbers(reader, X, is_first)
    plain = np.asarray(X)
    if isinstance(X, Sequence) and plain.dtype.kind in "US":
        plain = np.asarray(X, dtype=object)  # a list of mixed rows keeps its numbers as numbers
    if plain.dtype.kind in "bOUS":
        cells = validate_data(reader, plain, dtype=None, ensure_all_finite=False, reset=is_first)
        return [_read_cells(name, cells[:, j]) for j, name in enumerate(_get_names(reader))]
    if plain.dtype.kind in "mMV":
        raise InputError(f"X must hold numbers, booleans or text, got dtype {plain.dtype}. {_DERIVE_NUMBERS}")
    return _read_numbers(reader, X, is_first)


def _read_few_rows(names: Sequence[str], X: TableLike) -> list[Column] | None:
    """Convert a data frame of a few rows cell by cell; return None if it is longer or its columns are not `names`.

    For one row, a conversion by the data frame library takes longer than all other steps of a prediction.
    """
    frame = _extract_few_cells(X)
    if frame is None or frame[0] != names:
        return None
    columns = []
    for name, kind, cells in zip(*frame, strict=True):
        index: dict[str, int] = {}
        if kind == Kind.CATEGORY:
            codes = [-1 if cell is None else index.setdefault(canonical_level(cell), len(index)) for cell in cells]
            columns.append(Column(name, kind, np.array(codes), Levels(index)))
        else:
            values = np.array(cells, dtype=np.float64)  # None becomes NaN
            columns.append(Column(name, kind, values) if kind == Kind.BOOLEAN else _make_number_column(name, values))
    return columns


def _extract_few_cells(X: Any) -> tuple[list[str], list[Kind], list[list[object]]] | None:
    """Return the names, kinds and cells of the columns of a data frame of a few rows.

    Return None for other tables, and if a column has an unsupported type.
    """
    library = type(X).__module__.partition(".")[0]
    if (
        library not in ("polars", "pandas")
        or type(X).__name__ != "DataFrame"
        or not 0 < len(X) <= MAX_ROWS_CELL_BY_CELL
    ):
        return None
    dtypes, rows = (X.dtypes, X.rows()) if library == "polars" else (X.dtypes.tolist(), X.to_numpy(object).tolist())
    kinds = [_KINDS_BY_TYPE.get(type(dtype).__name__ if library == "polars" else dtype.name) for dtype in dtypes]
    supported = [kind for kind in kinds if kind is not None]
    if len(supported) < len(kinds):
        return None
    cells = [[None if _is_absent(cell) else cell for cell in column] for column in zip(*rows, strict=True)]
    return list(X.columns), supported, cells


def _is_absent(cell: object) -> bool:
    """Return True if a cell is None, NaN or pandas' NA. The latter cannot be compared with a value."""
    return cell is None or type(cell).__name__ == "NAType" or bool(cell != cell)


def _get_names(reader: "BaseEstimator") -> list[str]:
    """Return the column names of fit; x0, x1, ... for tables without names, as in scikit-learn."""
    names = getattr(reader, "feature_names_in_", None)
    return [f"x{j}" for j in range(reader.n_features_in_)] if names is None else list(names)


def _read_numbers(reader: "BaseEstimator", X: TableLike, is_first: bool) -> list[Column]:
    from scipy import sparse
    from sklearn.utils.validation import validate_data

    kinds = [np.float64, np.float32]
    with np.errstate(invalid="ignore"):  # scikit-learn adds up all numbers, whose sum may overflow on both sides
        numbers = validate_data(
            reader, X, accept_sparse="csc", dtype=kinds, ensure_all_finite="allow-nan", reset=is_first
        )
    if sparse.issparse(numbers):
        rows, columns = numbers.shape
        if rows * columns > MAX_DENSE_CELLS:
            raise InputError(
                f"A sparse X must have at most {MAX_DENSE_CELLS} cells, zeros included, got shape {rows} x {columns}. "
                "Reduce its columns first, for example by TruncatedSVD."
            )
        numbers = numbers.toarray(order="F")
    return [Column(name, Kind.NUMBER, numbers[:, j]) for j, name in enumerate(_get_names(reader))]


def _to_frame(X: TableLike) -> nw.DataFrame[IntoDataFrame] | None:
    reject_dicts(X)
    try:
        frame = nw.from_native(X, pass_through=True)
    except nw.exceptions.DuplicateError:
        names = list(getattr(X, "columns", ()))
        twice = join_words(sorted({repr(name) for name in names if names.count(name) > 1}))
        raise InputError(f"X must have unique column names, got {twice} more than once. Rename one.") from None
    if isinstance(frame, nw.LazyFrame):
        raise InputError("X must be a data frame, got a lazy one. Call collect() on it.")
    return frame if isinstance(frame, nw.DataFrame) else None


def _read_frame(reader: "BaseEstimator", frame: nw.DataFrame[IntoDataFrame], is_first: bool) -> list[Column]:
    from sklearn.utils.validation import validate_data

    if not is_first and hasattr(reader, "feature_names_in_") and all(isinstance(name, str) for name in frame.columns):
        names = list(reader.feature_names_in_)
        check_names(frame.columns, names)
        frame = frame if frame.columns == names else frame.select(names)
    validate_data(reader, frame.to_native(), reset=is_first, skip_check_array=True)
    if 0 in frame.shape:
        raise InputError(f"X must have at least one row and one column, got shape {frame.shape}.")
    return [_read_series(name, series) for name, series in zip(_get_names(reader), frame.iter_columns(), strict=True)]


def check_names(names: Sequence[str], fitted: Sequence[str]) -> None:
    """Raise an `InputError` unless a table has exactly the columns of the fit, in any order.

    `names` are the columns of the table, and `fitted` are the columns of the fit.
    """
    missing, extra = set(fitted) - set(names), set(names) - set(fitted)
    if missing or extra:
        absent, new = [name for name in fitted if name in missing], [name for name in names if name in extra]
        parts = ((absent, "missing"), (new, "not a column of fit" if len(new) == 1 else "not columns of fit"))
        both = [
            f"{join_words([*map(repr, columns)])} {'is' if len(columns) == 1 else 'are'} {problem}"
            for columns, problem in parts
            if columns
        ]
        similar = {name: find_similar_name(name, new) for name in absent}
        hints = [f"Is {other!r} the column {name!r}?" for name, other in similar.items() if other]
        remedy = hints[0] if hints else "" if absent else f"Leave {'it' if len(new) == 1 else 'them'} out."
        raise InputError(f"X must have the columns of fit: {', and '.join(both)}. {remedy}".rstrip())


def _read_series(name: str, series: nw.Series[IntoSeries]) -> Column:
    dtype = series.dtype
    if dtype.is_temporal():
        raise _make_type_error(name, f"dates or times ({dtype})", _DERIVE_NUMBERS)
    if dtype.is_nested() or dtype == nw.Binary:
        raise _make_type_error(name, str(dtype), "Unnest it into columns of their own.")
    if dtype.is_numeric() or dtype == nw.Boolean:
        series = series if dtype == nw.Float64 else series.cast(nw.Float64)
        values = np.asarray(series.to_numpy(), dtype=np.float64)
        return Column(name, Kind.BOOLEAN, values) if dtype == nw.Boolean else _make_number_column(name, values)
    if dtype in _TEXT:
        return _read_text(name, series)
    try:
        return _read_cells(name, np.asarray(series.to_native()))
    except TypeError:
        raise _make_type_error(name, "objects of other types", "Unnest it into columns of their own.") from None


def _read_text(name: str, series: nw.Series[IntoSeries]) -> Column:
    """Convert a text series to a categorical column.

    Only methods of the data frame library are used, because a loop in Python over a million rows is slow.
    """
    present = series.drop_nulls()
    levels = present.unique(maintain_order=True).to_list()
    codes = np.full(len(series), -1)
    positions, names = name_levels(levels, canonical_level)
    if levels:
        present_codes = present.replace_strict(levels, positions.tolist(), return_dtype=nw.Int64)
        codes[~np.asarray(series.is_null().to_numpy(), dtype=bool)] = present_codes.to_numpy()
    return Column(name, Kind.CATEGORY, codes, names)


def name_levels(levels: Iterable[object], name_level: Callable[[object], str]) -> tuple[np.ndarray, Levels]:
    """Name each value by `name_level`, such as `canonical_level`. Several values may have the same name.

    Return two things: the position of each value's name among the distinct names, and the distinct names.
    """
    index: dict[str, int] = {}
    positions = [index.setdefault(name_level(level), len(index)) for level in levels]
    return np.array(positions, dtype=np.int64), Levels(index)


def _read_cells(name: str, cells: np.ndarray) -> Column:
    """Convert a column of a NumPy array by its dtype or, if it holds Python objects, by the types of its values."""
    if cells.dtype.kind == "b":
        return Column(name, Kind.BOOLEAN, cells.astype(np.float64))
    if cells.dtype.kind == "S":
        cells = np.char.decode(cells, errors="replace")
    if cells.dtype.kind == "U":
        levels, codes = np.unique(cells, return_inverse=True)
        positions, names = name_levels(levels.tolist(), canonical_level)
        return Column(name, Kind.CATEGORY, positions[codes], names)
    if cells.dtype.kind != "O":
        return _make_number_column(name, cells.astype(np.float64))
    # None, NaN, and pandas' NA and NaT. The last two are recognised by name, as pandas may not be installed.
    is_absent = {kind: kind.__name__ in ("NoneType", "NAType", "NaTType") for kind in set(map(type, cells.tolist()))}
    missing = np.array(
        [is_absent[type(cell)] or (isinstance(cell, float) and cell != cell) for cell in cells.tolist()], dtype=bool
    )
    present = cells[~missing]
    kinds = set(map(type, present.tolist()))
    if any(issubclass(kind, str) for kind in kinds):
        codes = np.full(len(cells), -1)
        codes[~missing], names = name_levels(present.tolist(), canonical_level)
        return Column(name, Kind.CATEGORY, codes, names)
    if any(issubclass(kind, _DATES) for kind in kinds):
        raise _make_type_error(name, "dates or times", _DERIVE_NUMBERS)
    if any(issubclass(kind, list | tuple | np.ndarray | bytes) for kind in kinds):
        raise _make_type_error(name, "lists or bytes", "Unnest it into columns of their own.")
    values = np.full(len(cells), np.nan)
    values[~missing] = present.astype(np.float64)
    is_boolean = kinds and kinds <= {bool, np.bool_}
    return Column(name, Kind.BOOLEAN, values) if is_boolean else _make_number_column(name, values)


def _make_number_column(name: str, values: np.ndarray) -> Column:
    """Make a column of numbers; raise a `RowError` if some numbers are infinite."""
    bad = np.isinf(values)
    if bad.any():
        got = f"{values[bad][0]} in column {name!r}"
        raise RowError(f"X must hold finite numbers or missing values, got {got}", bad)
    return Column(name, Kind.NUMBER, values)


def _make_type_error(name: str, content: str, remedy: str) -> InputError:
    """Make the error about a column `name` with unsupported values.

    `content` is what the column holds, such as "lists". `remedy` is a sentence that says what to do.
    """
    return InputError(f"X must hold numbers, booleans or text, got {content} in column {name!r}. {remedy}")
