"""`Inputs`: what a model predicts from, taken apart so that the value of one column can be exchanged."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import narwhals as nw
import numpy as np
import torch
from scipy import sparse

from ddpn.distributions import CountDistribution, Recalibrated
from ddpn.members.reader import TableReader
from ddpn.predictor import Predictor
from ddpn.runtime.errors import InputError
from ddpn.runtime.threads import single_thread
from ddpn.runtime.validation import check_column
from ddpn.sample import Sample, check_vector, row_count, row_labels, take_rows
from ddpn.tables.encoding.table import Column, as_fitted, read_table

#: Rows predicted at a time.
_BLOCK = 8192
#: Smaller means, and variances relative to the mean, count as this much in logarithms.
_LEAST = 1e-9
#: Columns that are explained where none are named. Of more, those that change predictions most are taken.
MAX_COLUMNS = 40
#: Rows that are shuffled to find them: fewer where there are very many columns.
_SCREENED_ROWS, _LEAST_ROWS, _WORK = 200, 20, 40_000


class PredictedMoments(NamedTuple):
    """Mean and variance of every row, of the mixture (the first column) and of its components.

    Shape: mean and variance (rows, 1 + components), weights of the components (components,).
    """

    mean: np.ndarray
    variance: np.ndarray
    weights: np.ndarray

    @staticmethod
    def joined(parts: Sequence["PredictedMoments"]) -> "PredictedMoments":
        """Several blocks of rows as one."""
        mean, variance = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
        return PredictedMoments(mean, variance, parts[0].weights)

    def quantities(self, log: bool) -> np.ndarray:
        """What effects are about. Shape: (2, rows, 1 + components).

        With `log` the logarithms of the mean and of variance / mean, else the mean and the standard deviation.
        """
        if not log:
            return np.stack([self.mean, np.sqrt(self.variance)])
        mean = np.maximum(self.mean, _LEAST)
        return np.log(np.stack([mean, np.maximum(self.variance / mean, _LEAST)]))


class Inputs:
    """Rows of a table, with exposures and upper bounds where the model has them, as columns that can be exchanged.

    Parameters
    ----------
    model : estimator or Predictor
        A fitted model.
    X : array-like or data frame
        Rows with the columns of `fit`; the test set, or training rows.
    exposure, upper : array-like, optional
        As for predictions. They are inputs like the columns of X, and are explained like these.
    names : mapping of str to str, optional
        What "exposure" and "upper" are called.

    Attributes
    ----------
    columns : list of Column
        Those of the table in the order of fit, then the exposure and the upper bound.
    sample : Sample or None
        The rows with their counts, where these are known.
    """

    predictor: Predictor
    columns: list[Column]
    sample: Sample | None = None

    def __init__(
        self, model: Any, X: Any, exposure: Any = None, upper: Any = None, names: Mapping[str, str] | None = None
    ) -> None:
        self.model = model
        self.predictor = model if isinstance(model, Predictor) else model.predictor_
        n, labels, called = row_count(X), row_labels(X), dict(names or {})
        if n == 0:
            raise InputError("X must have at least one row, got none.")
        table = _columns(model, X)
        self.X = in_fit_order(model, X)
        counts = self.predictor.counts
        scale = None if counts.upper_is_total else check_vector("exposure", exposure, n, zero=False, labels=labels)
        bound = counts.bounds(n, upper, labels)[1] if counts.upper_per_row else upper
        if bound is not None and not counts.upper_per_row:
            counts.bounds(n, upper, labels)  # raises: the model has no such bound
        known = {"exposure": scale, "upper": bound}
        more = {name: values for name, values in known.items() if values is not None}
        self.width, self.extra = len(table), {name: len(table) + i for i, name in enumerate(more)}
        self.columns = table + [Column(called.get(name, name), "number", values) for name, values in more.items()]
        self.log, self.is_dense = True, False

    @classmethod
    def of_sample(cls, model: Any, sample: Sample, names: Mapping[str, str] | None = None) -> Self:
        """The inputs of rows with counts, which are validated already."""
        predictor = model if isinstance(model, Predictor) else model.predictor_
        known = predictor.counts.arguments(sample)
        found = cls(model, sample.X, known["exposure"], known["upper"], names)
        found.sample = sample.replace(X=None)
        return found

    def __len__(self) -> int:
        return len(self.columns[0].values)

    @property
    def names(self) -> list[str]:
        """What the columns are called."""
        return [column.name for column in self.columns]

    @property
    def observed(self) -> Sample:
        """The rows with their counts; an `InputError` where these are not known."""
        if self.sample is None:
            raise InputError(
                argument="inputs", must="have counts", got="none", remedy="Build them by Inputs.of_sample."
            )
        return self.sample

    def rows(self, index: np.ndarray) -> Self:
        """Some of the rows."""
        new = object.__new__(type(self))
        new.__dict__.update(vars(self))
        new.X, new.is_dense = dense_rows(self.X, index), True
        new.columns = [column._replace(values=column.values[index]) for column in self.columns]
        new.sample = None if self.sample is None else self.sample.rows(index)
        return new

    def joined(self, other: Self) -> Self:
        """The rows of both, one below the other."""
        for name in ("exposure", "upper"):
            if (name in self.extra) != (name in other.extra):
                raise InputError(f"{name} and background_{name} must be given together.")
        more = {
            name: np.concatenate([self.columns[j].values, other.columns[j].values]) for name, j in self.extra.items()
        }
        names = {name: self.names[j] for name, j in self.extra.items()}
        both = stacked(self.X, other.X)
        return type(self)(self.model, both, more.get("exposure"), more.get("upper"), names)

    def draw(self, size: int, rng: np.random.Generator, among: np.ndarray | None = None) -> np.ndarray:
        """Positions of a random draw of at most `size` rows, in their order."""
        among = np.arange(len(self)) if among is None else among
        return among if len(among) <= size else np.sort(rng.choice(among, size, replace=False))

    def chosen(self, columns: str | Iterable[str | int] | None, rng: np.random.Generator) -> list[int]:
        """The positions of columns that are named, or given by their positions; an unknown name is an `InputError`.

        Of None, all; of more than 40, those whose shuffling changes mean and spread most.
        """
        if columns is None:
            return list(range(len(self.columns))) if len(self.columns) <= MAX_COLUMNS else self._most_moving(rng)
        given = dict.fromkeys([columns] if isinstance(columns, str) else columns)
        names = self.names
        return [
            one if isinstance(one, int) else names.index(check_column(str(one), names, error=InputError))
            for one in given
        ]

    def _most_moving(self, rng: np.random.Generator) -> list[int]:
        few = self.rows(self.draw(int(np.clip(_WORK // len(self.columns), _LEAST_ROWS, _SCREENED_ROWS)), rng))
        rows = np.arange(len(few))
        now, moved = few.quantities(rows)[..., 0], []
        for position in range(len(self.columns)):
            then = few.quantities(rows, {position: rng.permutation(len(few))})[..., 0]
            moved.append(float(np.abs(then - now).mean(1).sum()))
        return sorted(np.argsort(-np.array(moved), kind="stable")[:MAX_COLUMNS].tolist())

    # Predicting --------------------------------------------------------------------------------------------------

    def distribution(self, rows: np.ndarray, sources: Mapping[int, np.ndarray]) -> Any:
        """What the model predicts for these rows if columns have the values of other rows: see `assembled`."""
        assert self.is_dense, "rows are chosen first"
        X = assembled(self.X, rows, {j: from_ for j, from_ in sources.items() if j < self.width})
        known = {name: self.columns[j].values[sources.get(j, rows)] for name, j in self.extra.items()}
        with torch.no_grad():
            return self.predictor.distribution(X, known.get("exposure"), upper=known.get("upper"))

    def moments(
        self,
        rows: np.ndarray,
        sources: Mapping[int, np.ndarray] | None = None,
        variance: bool = True,
        recalibrated: bool = False,
    ) -> PredictedMoments:
        """Means and variances of `distribution`, as far as asked; `recalibrated` changes those of the mixture only."""
        sources, parts = sources or {}, []
        for start in range(0, len(rows), _BLOCK):
            part = slice(start, start + _BLOCK)
            dist = self.distribution(rows[part], {j: from_[part] for j, from_ in sources.items()})
            with torch.no_grad(), single_thread():
                parts.append(_moments(dist, variance, recalibrated))
        mixture = dist.base if isinstance(dist, Recalibrated) else dist
        self.log = isinstance(mixture, CountDistribution)
        return PredictedMoments.joined(parts)

    def quantities(self, rows: np.ndarray, sources: Mapping[int, np.ndarray] | None = None) -> np.ndarray:
        """What effects are about, see `Moments.quantities`."""
        found = self.moments(rows, sources)
        return found.quantities(self.log)


def _columns(model: Any, X: Any) -> list[Column]:
    """Every column as the model reads it; a bare predictor knows no names and kinds, and takes them as they are."""
    if isinstance(model, Predictor):
        return [column._replace(name=str(column.name)) for column in TableReader().fit(X)]
    table, kinds = read_table(model, X, reset=False), getattr(model, "feature_kinds_", None)
    read = table if kinds is None else [as_fitted(column, kind) for column, kind in zip(table, kinds, strict=True)]
    return [column._replace(name=str(column.name)) for column in read]


def _moments(dist: Any, variance: bool, recalibrated: bool) -> PredictedMoments:
    mixture = dist.base if isinstance(dist, Recalibrated) else dist
    stacks = mixture.components if isinstance(mixture.components, tuple) else (mixture.components,)
    means = torch.cat([stack.mean.double() for stack in stacks], -1)
    weights = mixture.weights.double()
    mean = (weights * means).sum(-1, keepdim=True)
    both = [mean, torch.zeros_like(mean)]
    each = torch.zeros_like(means)
    if variance:
        each = torch.cat([stack.variance.double() for stack in stacks], -1)
        both[1] = (weights * (each + (means - mean) ** 2)).sum(-1, keepdim=True)
    if recalibrated and mixture is not dist:
        both = [dist.mean.double()[:, None], dist.variance.double()[:, None] if variance else both[1]]
    first, second = (torch.cat([own, of], -1).numpy() for own, of in zip(both, (means, each), strict=True))
    return PredictedMoments(first, second, weights.numpy())


# Tables made of the cells of another one: every value that is tried out is one that occurs ------------------------


def in_fit_order(model: Any, X: Any) -> Any:
    """X with its columns in the order of fit."""
    frame, names = nw.from_native(X, pass_through=True), getattr(model, "feature_names_in_", None)
    return frame.select(list(names)).to_native() if isinstance(frame, nw.DataFrame) and names is not None else X


def dense_rows(X: Any, rows: np.ndarray) -> Any:
    """Some rows of a table, as a data frame or an array."""
    part = take_rows(X, rows)
    frame = nw.from_native(part, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        return nw.maybe_reset_index(frame).to_native()
    return part.toarray() if sparse.issparse(part) else np.asarray(part)


def assembled(X: Any, rows: np.ndarray, sources: Mapping[int, np.ndarray]) -> Any:
    """The given rows of a table, with the cells of some columns taken from other rows of it.

    Parameters
    ----------
    X : data frame or array
        What `dense_rows` returns.
    rows : array of int, shape (n,)
        Rows of X, in any order and with repetitions.
    sources : mapping of int to array, shape (n,)
        For a column, by its position, the row of X that each cell is taken from.

    >>> assembled(np.array([[1, 2], [3, 4]]), np.array([0, 0, 1]), {1: np.array([0, 1, 0])}).tolist()
    [[1, 2], [1, 4], [3, 2]]
    """
    frame = nw.from_native(X, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        names = frame.columns
        changed = [nw.maybe_reset_index(frame[names[j]][from_]) for j, from_ in sources.items()]
        return nw.maybe_reset_index(frame[rows]).with_columns(*changed).to_native()
    found = X[rows]
    for j, from_ in sources.items():
        found[:, j] = X[from_, j]
    return found


def stacked(X: Any, background: Any) -> Any:
    """The rows of two tables of the same sort, one below the other."""
    first, second = (nw.from_native(table, pass_through=True) for table in (X, background))
    frames = [isinstance(table, nw.DataFrame) for table in (first, second)]
    if all(frames):
        wanted = {
            name: nw.Float64 if dtype != second.schema[name] and dtype.is_numeric() else dtype
            for name, dtype in first.schema.items()
            if name in second.schema
        }
        parts = [
            table.with_columns(nw.col(name).cast(dtype) for name, dtype in wanted.items()) for table in (first, second)
        ]
        return nw.concat([nw.maybe_reset_index(part) for part in parts], how="vertical").to_native()
    if any(frames):
        raise InputError("background must be a data frame if X is one, and an array if X is an array.")
    both = (take_rows(table, slice(None)) for table in (X, background))
    return np.concatenate([part.toarray() if hasattr(part, "toarray") else np.asarray(part) for part in both])
