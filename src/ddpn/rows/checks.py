"""Validate the counts, weights, exposures and groups that users pass. Errors name the rows that are wrong."""

from collections.abc import Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from typing import Protocol, Self, TypeAlias

import narwhals as nw
import numpy as np
from narwhals.typing import IntoDataFrame
from numpy.typing import ArrayLike

from ddpn.runtime.errors import Argument, InputError, format_rows
from ddpn.runtime.validation import check_choice

#: A selection of rows: a mask, positions or a slice.
RowIndex: TypeAlias = np.ndarray | slice | list[int]


class SparseMatrix(Protocol):
    """Protocol of a SciPy sparse matrix or array."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def tocsr(self) -> "SparseMatrix": ...


class RowTable(Protocol):
    """Protocol of a table that can select its own rows, such as `ddpn.tables.columns.ColumnTable`."""

    def __len__(self) -> int: ...

    def rows(self, index: RowIndex) -> Self: ...


#: Everything that users can pass as a table: a data frame of any library, an array, a sparse matrix or lists of rows.
TableLike: TypeAlias = IntoDataFrame | ArrayLike | SparseMatrix | RowTable
#: The labels of rows in messages. None stands for positions.
Labels: TypeAlias = Sequence[object] | np.ndarray | None
#: The largest count. Float64 represents every integer up to this one.
LARGEST_COUNT = 2.0**53


def get_row_count(X: object) -> int:
    """Return the number of rows of an array, data frame, sparse matrix or list.

    Other objects raise an `InputError`.
    """
    reject_dicts(X)
    if hasattr(X, "shape"):
        return X.shape[0] if len(X.shape) else 0
    try:
        return len(X) if hasattr(X, "__len__") else len(np.asarray(X))
    except TypeError:
        raise InputError(f"X must be an array or a data frame, got {type(X).__name__}.") from None


def reject_dicts(X: object) -> None:
    """Raise an `InputError` if X is a dict or a list of dicts, with the data frame to make of it."""
    if hasattr(X, "shape"):  # such as SciPy's dok_matrix, which is a dict as well
        return
    is_list = isinstance(X, list | tuple) and len(X) > 0 and isinstance(X[0], Mapping)
    if is_list or isinstance(X, Mapping):
        is_row = isinstance(X, Mapping) and all(np.ndim(cell) == 0 for cell in X.values())
        what = "a list of dicts" if is_list else "a dict"
        frame = "pandas.DataFrame([X])" if is_row else "pandas.DataFrame(X)"
        raise InputError(f"X must be a data frame or an array, got {what}. Pass {frame} instead.")


def get_row_labels(*sources: object) -> np.ndarray | None:
    """Return the index of the first pandas object among `sources` as an array, or None if there is none."""
    for source in sources:
        index = getattr(source, "index", None)
        if isinstance(source, Sized) and isinstance(index, Sized) and len(index) == len(source):
            return np.asarray(index)
    return None


class RowError(InputError):
    """An `InputError` about some rows of a table, with a message that lists these rows.

    Parameters
    ----------
    before, after : str
        The parts of the message before and after the list of rows.
    bad : array of bool, shape (rows,)
        True for the rows that the message lists.
    labels : sequence, optional
        How the message names all rows of the table. Default: by position.
    """

    def __init__(self, before: str, bad: np.ndarray, after: str = ".", labels: Labels = None) -> None:
        super().__init__(f"{before} {format_rows(select_labels(bad, labels))}{after}")
        self.args = before, bad, after, labels
        self.before, self.bad, self.after, self.is_named = before, bad, after, labels is not None


@contextmanager
def label_row_errors(labels: Labels) -> Iterator[None]:
    """Within this context, name rows by `labels` in each `RowError` that would name them by position.

    With `labels=None`, errors stay unchanged, so that an outer context can label them.
    """
    try:
        yield
    except RowError as error:
        if labels is None or error.is_named:
            raise
        named = np.asarray(labels)[: len(error.bad)]
        raise RowError(error.before, error.bad, error.after, named) from None


def select_labels(bad: np.ndarray, labels: Labels) -> Sequence[object]:
    """Return the labels of the rows where the mask `bad` is True, or their positions if there are no labels."""
    rows = np.flatnonzero(bad)
    return list((rows if labels is None else np.asarray(labels)[rows]).tolist())


def check_counts(
    y: object,
    n_rows: int,
    fractional: str = "error",
    name: str | Argument = "y",
    labels: Labels = None,
    remedy: str = 'Use `fractional="round"` to round them.',
) -> np.ndarray:
    """Validate the counts of `n_rows` rows and return them as a float64 vector.

    Parameters
    ----------
    y : object
        The counts, as the user passed them.
    n_rows : int
        The number of rows of X.
    fractional : {"error", "round"}
        Whether counts that are not integers raise an error or are rounded.
    name : str or Argument
        What errors call the counts.
    labels : sequence, optional
        How errors name the rows. Default: by position.
    remedy : str
        The last sentence of the error about fractional counts.
    """
    check_choice("fractional", fractional, ("error", "round"))
    if y is None:
        # scikit-learn's checks look for the words between the colon and the comma.
        problem = "is missing: this estimator requires y to be passed, but the target y is None"
        raise InputError(problem, argument=name)
    values = _to_float_vector(y, name, labels)
    if len(values) != n_rows:
        raise InputError(argument=name, must="have one count per row of X", got=f"{len(values)} for {n_rows} rows")
    if n_rows == 0:
        raise InputError(argument=name, must="hold at least one count", got="0 sample(s)")
    bad = ~np.isfinite(values)
    if bad.any():
        # The last sentence is what scikit-learn's checks look for.
        kind = "NaN" if np.isnan(values[bad][0]) else "infinity or a value too large for dtype('float64')"
        rows, last = select_labels(bad, labels), f"Input {name} contains {kind}."
        raise InputError(argument=name, must="be finite", got=str(values[bad][0]), rows=rows, remedy=last)
    unknown = "If negative numbers stand for unknown counts, leave out these rows."
    check_all(values >= 0, name, "hold non-negative integers", values, labels, unknown)
    too_large = "Larger integers are not exact in floating point: count in thousands or millions."
    check_all(values <= LARGEST_COUNT, name, "be at most 2^53", values, labels, too_large)
    is_whole = values == np.floor(values)
    if fractional == "error":
        remedy = f"{_explain_fractional_counts(values[~is_whole])}{remedy}"
        check_all(is_whole, name, "hold non-negative integers", values, labels, remedy)
    return values if is_whole.all() else np.rint(values)


def _explain_fractional_counts(fractions: np.ndarray) -> str:
    """Explain in a sentence why counts may be fractional, for example because they are means.

    `fractions` has the counts that are not integers. If there are none, return "". Otherwise the sentence ends with a
    space, because a remedy follows it.
    """
    if not len(fractions):
        return ""
    if (4.0 * fractions == np.floor(4.0 * fractions)).all():
        return "Halves and quarters look like means of several counts. Use the counts themselves if you have them. "
    return (
        "Values with many decimals look like weights or rates. If counts were divided by a known scale, pass the "
        "counts, and the scale as the exposure. "
    )


def check_vector(
    name: str | Argument,
    values: object,
    n_rows: int,
    allow_zero: bool,
    labels: Labels = None,
    allow_all_zero: bool = False,
) -> np.ndarray | None:
    """Validate one number per row and return a float64 vector, or None if `values` is None.

    Numbers must be finite and positive.

    Parameters
    ----------
    name : str or Argument
        What errors call the numbers.
    values : object
        The numbers, as the user passed them. A single number is repeated for all rows.
    n_rows : int
        The number of rows of X.
    allow_zero : bool
        Whether numbers may also be 0, but not in every row.
    labels : sequence, optional
        How errors name the rows. Default: by position.
    allow_all_zero : bool
        Whether all numbers may be 0. This is False for weights of a fit, because nothing can be fitted then.
    """
    if values is None:
        return None
    plain = np.asarray(to_array(values))
    try:
        numbers = plain.astype(np.float64)
    except (TypeError, ValueError):
        raise InputError(argument=name, must="hold numbers", got=f"dtype {plain.dtype}") from None
    numbers = np.full(n_rows, numbers) if numbers.ndim == 0 else numbers
    if numbers.shape != (n_rows,):
        got = f"shape {numbers.shape} for {n_rows} rows"
        raise InputError(argument=name, must="have one value per row of X", got=got)
    condition = "be finite and not negative" if allow_zero else "be finite and positive"
    check_all((numbers >= 0 if allow_zero else numbers > 0) & np.isfinite(numbers), name, condition, numbers, labels)
    if allow_zero and not allow_all_zero and n_rows and not numbers.any():
        raise InputError(argument=name, must="be positive in some row", got="zero weights only")
    return numbers


def check_flags(name: str, values: object, n_rows: int, labels: Labels) -> np.ndarray:
    """Validate booleans, or numbers that are 0 or 1, for `n_rows` rows and return them as a boolean vector.

    Errors call the flags `name` and name rows by `labels`.
    """
    plain = to_array(values)
    if plain.shape != (n_rows,):
        got = f"shape {plain.shape} for {n_rows} rows"
        raise InputError(argument=name, must="have one value per row of X", got=got)
    is_flag = np.array([value in (0, 1) for value in plain.tolist()])
    if not is_flag.all():
        got, rows = repr(plain[~is_flag].tolist()[0]), select_labels(~is_flag, labels)
        raise InputError(argument=name, must="hold True or False", got=got, rows=rows)
    return plain.astype(bool)


def check_all(
    is_valid: np.ndarray, name: str | Argument, condition: str, values: np.ndarray, labels: Labels, remedy: str = ""
) -> None:
    """Raise an `InputError` if the mask `is_valid` is False in some row.

    Parameters
    ----------
    is_valid : array of bool, shape (rows,)
        Whether each row is valid.
    name : str or Argument
        What the error calls the values.
    condition : str
        What the values must do, such as "be positive".
    values : array, shape (rows,)
        The values. The error shows the first invalid one.
    labels : sequence or None
        How the error names the rows. None means by position.
    remedy : str
        The last sentence of the error.
    """
    if not is_valid.all():
        rows = select_labels(~is_valid, labels)
        raise InputError(argument=name, must=condition, got=f"{values[~is_valid][0]:g}", rows=rows, remedy=remedy)


def to_array(values: object) -> np.ndarray:
    """Convert a series, list or array to a NumPy array."""
    series = nw.from_native(values, series_only=True, pass_through=True)
    return series.to_numpy() if isinstance(series, nw.Series) else np.asarray(values)


def _to_float_vector(y: object, name: str | Argument, labels: Labels) -> np.ndarray:
    """Convert `y` to a float64 vector; raise an `InputError` for text, complex numbers and several columns.

    Errors call the values `name` and name rows by `labels`.
    """
    plain = to_array(y)
    if plain.dtype.kind not in "buifOUS":
        # scikit-learn's checks look for the words in brackets.
        words = " (Complex data not supported)" if plain.dtype.kind == "c" else ""
        raise InputError(argument=name, must="hold numbers", got=f"dtype {plain.dtype}{words}")
    if plain.ndim == 2 and plain.shape[1] == 1:
        from sklearn.utils.validation import column_or_1d

        plain = column_or_1d(plain, warn=True)
    if plain.ndim != 1:
        # The words after the colon are scikit-learn's.
        got = f"shape {plain.shape}: {name} should be a 1d array"
        raise InputError(argument=name, must="have one dimension", got=got)
    if plain.dtype.kind in "OUS":
        is_text = [isinstance(v, str | bytes | complex) or not np.isscalar(v) for v in plain.tolist()]
        if any(is_text):
            rows = select_labels(
                np.array(is_text), labels if labels is not None and len(labels) == len(plain) else None
            )
            got = repr(plain.tolist()[is_text.index(True)])
            raise InputError(argument=name, must="hold numbers", got=got, rows=rows)
    return plain.astype(np.float64)
