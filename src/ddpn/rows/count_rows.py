"""`CountRows`: validated rows with inputs, counts, weights and exposures, which all fits and scores use."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any, Generic, overload

import narwhals as nw
import numpy as np
from numpy.typing import ArrayLike
from typing_extensions import TypeVar  # of Python 3.13, with defaults

from ddpn.rows.checks import (
    RowIndex,
    check_all,
    check_counts,
    check_flags,
    check_vector,
    get_row_count,
    get_row_labels,
    to_array,
)
from ddpn.rows.groups import check_groups, check_labels
from ddpn.runtime.errors import InputError

#: The types of the inputs and of vectors such as the counts. Vectors are arrays, or tensors when networks are trained.
Inputs = TypeVar("Inputs", covariant=True)
Vector = TypeVar("Vector", bound=Sized, default=np.ndarray)
_NewInputs = TypeVar("_NewInputs")
_NewVector = TypeVar("_NewVector", bound=Sized)
_Table = TypeVar("_Table")

#: Fields that are vectors of numbers.
_VECTORS = ("y", "weight", "exposure", "lower", "upper", "limit")
#: Fields with a name per row.
_NAMES = ("labels", "interval_groups", "group")
#: Rows per block of predictions. Larger blocks are not faster; this one needs a few megabytes.
BLOCK = 4096


@dataclass(frozen=True, eq=False, init=False)
class CountRows(Generic[Inputs, Vector]):
    """Rows with inputs and counts, and optionally weights, exposures, bounds, recording limits and groups.

    The constructor checks every field. The results of `rows`, `map` and `replace` are not checked again.

    Shape: X is (N, ...) and all other fields are (N,) for N rows. In a training batch in which each of M networks has
    its own B rows, X is (B, M, ...) and all other fields are (B, M).

    Parameters
    ----------
    X : table or Tensor
        Inputs: a data frame, an array, a sparse matrix or a tensor.
    y : array-like or Tensor
        The counts. Tensors are checked later, when networks are trained, because the check needs the likelihood.
    weight : array-like, optional
        The weight of each row. A weight of 2 equals giving the row twice.
    exposure : array-like or float, optional
        The known scale of each row: the expected count is proportional to it.
    labels : array, optional
        The names of the rows in messages: row numbers of a file, or the index of a data frame. Default: the index of a
        pandas object, or positions from 0.
    interval_groups : array, optional
        The names of the groups within which intervals are calibrated.
    lower, upper : array-like, optional
        The smallest and the largest possible count of each row.
    limit : array, optional
        The recording limit of each row. A count equal to the limit is right-censored: it stands for that many or more.
        Infinite if the count is recorded exactly.
    group : array-like, optional
        The group of each row, such as a person. Rows of a group always share a fold, and are never divided between
        training, validation and test rows.
    censored : array-like of bool, optional
        Instead of `limit`: True for each count that stands for that many or more.
    fractional : {"error", "round"}
        Whether counts that are not integers raise an error or are rounded.

    Raises
    ------
    InputError
        If a field has missing or negative values, or not one value per row of X.

    Examples
    --------
    >>> rows = CountRows([[1.0], [2.0]], [3, 5], exposure=2, censored=[False, True])
    >>> rows.exposure.tolist(), rows.limit.tolist()
    ([2.0, 2.0], [inf, 5.0])
    """

    X: Inputs
    y: Vector
    weight: Vector | None = None
    exposure: Vector | None = None
    labels: np.ndarray | None = None
    interval_groups: np.ndarray | None = None
    lower: Vector | None = None
    upper: Vector | None = None
    limit: Vector | None = None
    group: np.ndarray | None = None
    #: False if the counts are a tensor of the user, which is not checked yet.
    is_checked: bool = True

    def __init__(
        self,
        X: Inputs,
        y: ArrayLike,
        weight: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        labels: ArrayLike | None = None,
        interval_groups: ArrayLike | None = None,
        lower: ArrayLike | None = None,
        upper: ArrayLike | None = None,
        limit: ArrayLike | None = None,
        group: ArrayLike | None = None,
        *,
        censored: ArrayLike | None = None,
        fractional: str = "error",
    ) -> None:
        parts = {
            "X": X, "y": y, "weight": weight, "exposure": exposure, "labels": labels,
            "interval_groups": interval_groups, "lower": lower, "upper": upper, "limit": limit, "group": group,
        }  # fmt: skip
        is_tensor = hasattr(y, "detach")
        checked = parts if is_tensor else _check_parts(parts, censored, fractional, {})
        self.__dict__.update(checked, is_checked=not is_tensor)

    @classmethod
    def from_arguments(
        cls,
        X: _NewInputs,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        upper: ArrayLike | None = None,
        censored: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        fractional: str = "error",
    ) -> "CountRows[_NewInputs]":
        """Make rows from the arguments of an estimator's `fit` and validate them.

        Errors use the names of these arguments, such as `sample_weight`.
        """
        parts = {"X": X, "y": y, "weight": sample_weight, "exposure": exposure, "upper": upper}
        checked = _check_parts(parts, censored, fractional, {"weight": "sample_weight"})
        return cls.from_checked(**checked | {"group": check_groups(groups, len(checked["y"]))})

    @classmethod
    def from_checked(
        cls, X: _NewInputs, y: _NewVector, **parts: _NewVector | np.ndarray | bool | None
    ) -> "CountRows[_NewInputs, _NewVector]":
        """Make rows from fields that are already validated: float64 arrays or tensors of equal length."""
        rows: CountRows[_NewInputs, _NewVector] = object.__new__(CountRows)
        rows.__dict__.update(dict.fromkeys((*_NAMES, *_VECTORS)), X=X, y=y, **{"is_checked": True} | parts)
        return rows

    def __len__(self) -> int:
        return len(self.y)

    def rows(self, index: RowIndex) -> "CountRows[Inputs, Vector]":
        """Return only the selected rows.

        Parameters
        ----------
        index : array or slice
            A mask, positions or a slice.
        """
        parts = self._get_parts((*_NAMES, *_VECTORS))
        taken = {name: None if part is None else part[index] for name, part in parts.items()}
        return self.replace(X=None if self.X is None else take_rows(self.X, index), **taken)

    def _get_parts(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the fields with these names as a dict; a field that is not set is None."""
        return {name: getattr(self, name) for name in names}

    def blocks(self, size: int = BLOCK) -> Iterator["CountRows[Inputs, Vector]"]:
        """Yield consecutive blocks of rows.

        Parameters
        ----------
        size : int
            The number of rows per block.
        """
        for start in range(0, len(self), size):
            yield self.rows(slice(start, start + size))

    def map(self, change: Callable[[Vector], _NewVector]) -> "CountRows[_NewVector, _NewVector]":
        """Return a copy in which `change` was applied to X and to every vector that is set, such as counts and weights.

        For example, `change` can move tensors to another device. Labels and groups stay unchanged.
        """
        parts = self._get_parts(("X", *_VECTORS)).items()
        changed = {name: None if part is None else change(part) for name, part in parts}
        return CountRows.from_checked(**changed, **self._get_parts(_NAMES), is_checked=self.is_checked)

    @overload
    def replace(
        self, *, X: _NewInputs, **parts: Vector | np.ndarray | bool | None
    ) -> "CountRows[_NewInputs, Vector]": ...

    @overload
    def replace(self, **parts: Vector | np.ndarray | bool | None) -> "CountRows[Inputs, Vector]": ...

    def replace(self, **parts: object) -> object:
        """Return a copy with some fields replaced. The new values are not checked."""
        return self.from_checked(**self.__dict__ | parts)

    @property
    def parts(self) -> dict[str, Any]:
        """A dict with X and the vectors that are set, such as counts and weights, by name.

        Labels and groups are not part of it.
        """
        return {name: part for name, part in self._get_parts(("X", *_VECTORS)).items() if part is not None}

    @property
    def row_numbers(self) -> np.ndarray:
        """The labels of rows that were read from a file: row numbers, from 1 on."""
        assert self.labels is not None
        return self.labels

    @property
    def is_unrestricted(self) -> bool:
        """True if the rows have neither bounds nor recording limits."""
        return self.lower is None and self.upper is None and self.limit is None

    @property
    def has_weight(self: "CountRows") -> np.ndarray:
        """A mask of the rows with a weight above 0."""
        return np.ones(len(self), dtype=bool) if self.weight is None else np.asarray(self.weight > 0)

    @property
    def weight_or_ones(self: "CountRows") -> np.ndarray:
        """The weights, or a vector of ones if there are no weights."""
        return np.ones(len(self)) if self.weight is None else self.weight

    @property
    def exposure_or_ones(self: "CountRows") -> np.ndarray:
        """The exposures, or a vector of ones if there are no exposures."""
        return np.ones(len(self)) if self.exposure is None else self.exposure

    def merge_equal_rows(self: "CountRows[Inputs, np.ndarray]", values: np.ndarray) -> "CountRows[Inputs, np.ndarray]":
        """Merge rows that are equal apart from their weights, sum their weights, and sort the rows.

        After that, a fit with integer weights is exactly the same computation as a fit with repeated rows. Rows of
        weight 0 are dropped.

        Parameters
        ----------
        values : array, shape (rows, columns)
            X as finite numbers, by which rows are compared and sorted.

        Returns
        -------
        CountRows
            One row for each set of equal rows, with the sum of their weights.
        """
        kept, weight = self.has_weight, self.weight_or_ones
        extra = [part for name, part in self.parts.items() if name not in ("X", "weight")]
        unique, inverse = np.unique(np.column_stack([values, *extra])[kept], axis=0, return_inverse=True)
        first = np.full(len(unique), len(self))
        np.minimum.at(first, inverse.ravel(), np.flatnonzero(kept))
        total = np.bincount(inverse.ravel(), weights=weight[kept], minlength=len(unique))
        return self.rows(first).replace(weight=total)

    def compute_digest(self) -> str:
        """Return a SHA-256 digest of X and all vectors. Equal rows have the same digest in every process."""
        digest = hashlib.sha256()
        for name, part in self.parts.items():
            frame = nw.from_native(part, eager_only=True, pass_through=True)
            columns = {name: part.tocsr().toarray() if hasattr(part, "tocsr") else part}
            if isinstance(frame, nw.DataFrame):
                columns = {column: frame[column].to_numpy() for column in frame.columns}
            elif hasattr(part, "to_arrays"):
                columns = part.to_arrays()
            for column, values in columns.items():
                array = np.asarray(values)
                # The bytes of Python objects are pointers, which differ between processes.
                content = repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes()
                digest.update(f"{column} {array.dtype} {array.shape} ".encode() + content)
        return digest.hexdigest()


def take_rows(X: _Table, index: RowIndex) -> _Table:
    """Return the selected rows of a data frame, array, sparse matrix, tensor or list.

    `index` is a mask, positions or a slice.
    """
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        positions = index if isinstance(index, slice) else np.asarray(index)
        if not isinstance(positions, slice) and positions.dtype == bool:
            positions = np.flatnonzero(positions)
        return frame[positions].to_native()
    from scipy import sparse  # slow to import, and tables need it only here

    table: Any = X
    if sparse.issparse(X):
        return table.tocsr()[index]
    if hasattr(X, "rows"):
        return table.rows(index)
    if hasattr(X, "shape"):
        return table[index]
    # In a list of numbers and text, numbers must not become text.
    array: Any = np.asarray(X, dtype=object if np.asarray(X).dtype.kind in "US" else None)
    return array[index]


def _check_parts(
    parts: Mapping[str, Any], censored: object, fractional: str, names: Mapping[str, str]
) -> dict[str, Any]:
    """Validate the fields of `CountRows` and return all of them, with numbers as float64 arrays.

    Parameters
    ----------
    parts : mapping
        The fields by name; fields without a value are None or left out. If `labels` is None, the row names are taken
        from X or y.
    censored : array-like of bool or None
        True for each right-censored count. If it is not None, the field `limit` is computed from it: the count where
        it is True, infinity elsewhere.
    fractional : {"error", "round"}
        Whether counts that are not integers raise an error or are rounded.
    names : mapping of str to str
        What errors call a field, if that differs from its name.

    Raises
    ------
    InputError
        If a field has invalid values, or not one value per row.
    """

    def check(part: str, **rule: bool) -> np.ndarray | None:
        return check_vector(names.get(part, part), parts.get(part), n, labels=labels, **rule)

    X, y = parts["X"], parts["y"]
    n = get_row_count(y if X is None else X)
    labels = check_labels(parts.get("labels"), n, "labels")
    labels = get_row_labels(y, X) if labels is None else labels
    counts = check_counts(y, n, fractional, "y", labels)
    limit = _check_limit(parts.get("limit"), n, labels)
    if censored is not None:
        limit = np.where(check_flags("censored", censored, n, labels), counts, np.inf)
    return {
        **parts,
        "y": counts,
        "weight": check("weight", allow_zero=True),
        "exposure": check("exposure", allow_zero=False),
        "upper": check("upper", allow_zero=True, allow_all_zero=True),
        "lower": check("lower", allow_zero=True, allow_all_zero=True),
        "limit": limit,
        "labels": labels,
        "interval_groups": check_labels(parts.get("interval_groups"), n, "interval_groups"),
        "group": _check_group(parts.get("group"), n),
    }


def _check_group(values: object, n: int) -> np.ndarray | None:
    """Validate the groups of `n` rows. If labels may be missing, rows without a label become groups of their own."""
    labels = check_labels(values, n, "group")
    if labels is None or labels.dtype.kind not in ("f", "O"):  # other types have no missing labels
        return labels
    return check_groups(labels, n)


def _check_limit(values: object, n: int, labels: np.ndarray | None) -> np.ndarray | None:
    """Validate the recording limits of `n` rows, which may be infinite; errors name rows by `labels`."""
    if values is None:
        return None
    limit = to_array(values).astype(np.float64)
    if limit.shape != (n,):
        raise InputError(argument="limit", must="have one value per row of X", got=f"shape {limit.shape} for {n} rows")
    check_all(limit >= 0.0, "limit", "be 0 or larger", limit, labels)
    return limit
