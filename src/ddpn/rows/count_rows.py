"""`CountRows`: rows that models are fitted to and scored on, validated once and used down to the training loop."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import narwhals as nw
import numpy as np

from ddpn.rows.checks import check_counts, check_vector, row_count, row_labels

#: The parts of a sample that are vectors of numbers.
_VECTORS = ("y", "weight", "exposure", "lower", "upper", "limit")
#: The parts of a sample that hold a name per row.
_NAMES = ("labels", "interval_groups", "group")
#: Rows that are predicted at a time: as fast as more, and their parameters and inputs take a few megabytes.
BLOCK = 4096


@dataclass(frozen=True, eq=False)
class CountRows:
    """Inputs, counts and, where given, a weight and an exposure per row, and what is known about possible counts.

    Build one from user input with `checked_sample`, which validates it; inner code trusts it.

    Shape: X (N, ...), the others (N,). In a training batch where each member has its own rows, (B, M, ...) and (B, M).

    Parameters
    ----------
    X : table or Tensor
        Inputs: a data frame, an array, a sparse matrix or a tensor.
    y : array or Tensor
        The counts, as float64, like all vectors below.
    weight : array or Tensor, optional
        How many times each row counts.
    exposure : array or Tensor, optional
        The known scale of each row.
    labels : array, optional
        What messages call the rows: row numbers of a file, or the index of a data frame. Default: positions from 0.
    interval_groups : array, optional
        The names of the groups within which intervals are calibrated.
    lower, upper : array or Tensor, optional
        The smallest and the largest possible count of each row.
    limit : array or Tensor, optional
        The largest count that can be recorded: a count equal to it is right-censored, and stands for that many or more.
        Infinite where a count is known exactly.
    group : array, optional
        What each row belongs to, such as a person: rows with equal labels are never divided between folds, nor between
        training, validation and test rows.
    """

    X: Any
    y: Any
    weight: Any = None
    exposure: Any = None
    labels: Any = None
    interval_groups: Any = None
    lower: Any = None
    upper: Any = None
    limit: Any = None
    group: Any = None

    def __len__(self) -> int:
        return len(self.y)

    def rows(self, index: Any) -> Self:
        """Some of the rows, as a sample.

        Parameters
        ----------
        index : array or slice
            A mask, or positions.
        """
        vectors = {name: None if v is None else v[index] for name, v in self._vectors((*_NAMES, *_VECTORS))}
        return type(self)(None if self.X is None else take_rows(self.X, index), **vectors)

    def _vectors(self, names: Sequence[str]) -> Iterator[tuple[str, Any]]:
        return ((name, getattr(self, name)) for name in names)

    def blocks(self, size: int = BLOCK) -> Iterator[Self]:
        """The same rows, some at a time.

        Parameters
        ----------
        size : int
            Rows per block.
        """
        for start in range(0, len(self), size):
            yield self.rows(slice(start, start + size))

    def map(self, change: Callable[[Any], Any]) -> Self:
        """Apply `change` to every part that is there, such as a move to another device."""
        parts = {name: None if part is None else change(part) for name, part in self._vectors(("X", *_VECTORS))}
        return type(self)(**parts, **dict(self._vectors(_NAMES)))

    def replace(self, **parts: Any) -> Self:
        """A copy with some parts replaced."""
        return replace(self, **parts)

    @property
    def parts(self) -> dict[str, Any]:
        """The parts that are there, by name, without the labels."""
        return {name: part for name, part in self._vectors(("X", *_VECTORS)) if part is not None}

    @property
    def is_plain(self) -> bool:
        """Whether every count is possible and known exactly."""
        return self.lower is None and self.upper is None and self.limit is None

    @property
    def is_used(self) -> np.ndarray:
        """Mask of the rows with a weight above 0."""
        return np.ones(len(self), dtype=bool) if self.weight is None else self.weight > 0

    @property
    def weight_or_ones(self) -> np.ndarray:
        """The weights; 1 per row where there are none."""
        return np.ones(len(self)) if self.weight is None else self.weight

    def digest(self) -> str:
        """A digest of all values, by which the same rows are known again in another process."""
        found = hashlib.sha256()
        for name, part in self.parts.items():
            frame = nw.from_native(part, eager_only=True, pass_through=True)
            columns = {name: part.tocsr().toarray() if hasattr(part, "tocsr") else part}
            if isinstance(frame, nw.DataFrame):
                columns = {column: frame[column].to_numpy() for column in frame.columns}
            elif hasattr(part, "arrays"):
                columns = part.arrays()
            for column, values in columns.items():
                array = np.asarray(values)
                # Objects have no bytes of their own, and text has none that are the same in every process.
                content = repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes()
                found.update(f"{column} {array.dtype} {array.shape} ".encode() + content)
        return found.hexdigest()


def take_rows(X: Any, index: Any) -> Any:
    """Rows of a data frame, array, sparse matrix, tensor or list."""
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        positions = index if isinstance(index, slice) else np.asarray(index)
        if not isinstance(positions, slice) and positions.dtype == bool:
            positions = np.flatnonzero(positions)
        return frame[positions].to_native()
    from scipy import sparse  # slow to import, and tables need it only here

    if sparse.issparse(X):
        return X.tocsr()[index]
    if hasattr(X, "rows"):
        return X.rows(index)
    if hasattr(X, "shape"):
        return X[index]
    # Mixed lists keep their numbers as numbers instead of becoming text.
    return np.asarray(X, dtype=object if np.asarray(X).dtype.kind in "US" else None)[index]


def checked_sample(
    X: Any,
    y: Any,
    weight: Any = None,
    exposure: Any = None,
    fractional: str = "error",
    suffix: str = "",
    labels: Any = None,
) -> CountRows:
    """Validate what a user passes to `fit` or to a score.

    Parameters
    ----------
    X : array-like or data frame
        Inputs, one row per count.
    y : array-like
        The counts.
    weight, exposure : array-like, optional
        How many times each row counts, and its known scale.
    fractional : {"error", "round"}
        What to do where y is not an integer.
    suffix : str
        Goes after the names of arguments in messages, such as "_val".
    labels : array, optional
        What messages call the rows. Default: the index of a pandas object, or positions from 0.

    Returns
    -------
    CountRows

    Raises
    ------
    InputError
        For values that are missing, negative or of another length than X.
    """
    n = row_count(X)
    labels = row_labels(y, X) if labels is None else labels
    return CountRows(
        X,
        check_counts(y, n, fractional, f"y{suffix}", labels),
        check_vector(f"sample_weight{suffix}", weight, n, zero=True, labels=labels),
        check_vector(f"exposure{suffix}", exposure, n, zero=False, labels=labels),
        labels,
    )
