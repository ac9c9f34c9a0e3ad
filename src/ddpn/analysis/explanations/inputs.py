"""`Inputs`: what a model predicts from, taken apart so that the value of one column can be exchanged.

All explanations are made of this: exchange the values of some columns for those of other rows, and predict again.
"""

from collections.abc import Iterable, Mapping
from copy import copy
from typing import NamedTuple, Protocol, Self, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike

from ddpn.calibration.calibrate import CalibratedRows
from ddpn.distributions import CountDistribution, Mixture, Recalibrated
from ddpn.predictor import Predictor
from ddpn.rows.checks import TableLike, check_vector
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.errors import InputError
from ddpn.runtime.threads import single_thread
from ddpn.runtime.validation import check_column
from ddpn.storage.contents import JsonObject
from ddpn.tables.columns import Column, ColumnTable, Kind, Levels
from ddpn.tables.row_draw import draw_rows, draw_sample

#: Rows predicted at a time.
_BLOCK = 8192
#: Smaller means, and variances relative to the mean, count as this much in logarithms.
_LEAST = 1e-9
#: Columns that are explained where none are named. Of more, those that change predictions most are taken.
MAX_COLUMNS = 40
#: What a missing value is called.
MISSING = "missing"
#: Rows that are shuffled to find them: fewer where there are very many columns.
_SCREENED_ROWS, _LEAST_ROWS, _WORK = 200, 20, 40_000


class FittedModel(Protocol):
    """A fitted estimator, as explanations and reports see it."""

    predictor_: Predictor

    def parse(self, X: TableLike) -> ColumnTable:
        """Return the rows as the members take them."""

    def get_params(self, deep: bool = True) -> JsonObject:
        """Return the arguments of the estimator."""


#: What can be explained.
Explainable: TypeAlias = FittedModel | Predictor


class PredictedMoments(NamedTuple):
    """Mean and variance of every row, of the mixture (the first column) and of its components.

    Shape: mean and variance (rows, 1 + components), weights of the components (components,). `log` is whether the
    logarithms of both are explained, as for all likelihoods but the Gaussian.
    """

    mean: np.ndarray
    variance: np.ndarray
    weights: np.ndarray
    log: bool

    @property
    def quantities(self) -> np.ndarray:
        """What effects are about. Shape: (2, rows, 1 + components).

        With `log` the logarithms of the mean and of variance / mean, else the mean and the standard deviation.
        """
        if not self.log:
            return np.stack([self.mean, np.sqrt(self.variance)])
        mean = np.maximum(self.mean, _LEAST)
        return np.log(np.stack([mean, np.maximum(self.variance / mean, _LEAST)]))


class Inputs:
    """Rows of a table, with exposures and upper bounds where the model has them, as columns that can be exchanged.

    Parameters
    ----------
    model : estimator or Predictor
        A fitted model.
    X : array-like, data frame or ColumnTable
        Rows with the columns of `fit`; the test set, or training rows.
    exposure, upper : array-like, optional
        As for predictions. They are inputs like the columns of X, and are explained like these.
    names : mapping of str to str, optional
        What "exposure" and "upper" are called.
    total : int, optional
        The number of rows that X was drawn from (`ddpn.tables.row_draw`). Default: those of X.

    Attributes
    ----------
    columns : list of Column
        Those of the table in the order of fit, then the exposure and the upper bound.
    extra : dict of str to int
        The positions of "exposure" and "upper" among the columns.
    sample : CountRows or None
        The rows with their counts, where these are known.
    total : int
        The number of rows of the table that the rows were drawn from.
    """

    sample: CountRows | None

    def __init__(
        self,
        model: Explainable,
        X: TableLike,
        exposure: ArrayLike | None = None,
        upper: ArrayLike | None = None,
        names: Mapping[str, str] | None = None,
        total: int | None = None,
    ) -> None:
        table = model.parse(X)
        predictor: Predictor = model if isinstance(model, Predictor) else model.predictor_
        n, labels, counts = len(table), table.index, predictor.counts
        scale = None if counts.upper_is_total else check_vector("exposure", exposure, n, zero=False, labels=labels)
        # Raises an error if the model has no such bound.
        bound = counts.bounds(n, upper, labels)[1] if counts.upper_per_row or upper is not None else None
        more = {name: values for name, values in (("exposure", scale), ("upper", bound)) if values is not None}
        self.predictor, self.width, self.sample = predictor, len(table.columns), None
        self.total = n if total is None else total
        self.extra = {name: self.width + index for index, name in enumerate(more)}
        called = names or {}
        scales = [Column(called.get(name, name), Kind.NUMBER, values) for name, values in more.items()]
        self.columns = table.columns + scales

    @classmethod
    def from_sample(
        cls,
        model: Explainable,
        sample: CountRows,
        names: Mapping[str, str] | None = None,
        total: int | None = None,
    ) -> Self:
        """Take the inputs of rows with counts, which are validated already and drawn from `total` rows."""
        predictor = model if isinstance(model, Predictor) else model.predictor_
        arguments = predictor.counts.arguments(sample)
        inputs = cls(model, sample.X, arguments["exposure"], arguments["upper"], names, total)
        inputs.sample = sample.replace(X=None)
        return inputs

    @classmethod
    def from_first_fold(cls, model: Explainable, rows: CalibratedRows, names: Mapping[str, str] | None = None) -> Self:
        """Take the inputs of the first fold of cross-fitted rows, predicted by the copies fitted without them."""
        held_out, fold = rows.held_out, int(rows.held_out.part[0])
        inputs = cls.from_sample(model, held_out.rows.rows(held_out.part == fold), names)
        inputs.predictor = inputs.predictor.for_fold(fold, rows.parts[fold])
        return inputs

    def __len__(self) -> int:
        return len(self.columns[0].values)

    @property
    def names(self) -> list[str]:
        """What the columns are called."""
        return [column.name for column in self.columns]

    @property
    def observed(self) -> CountRows:
        """The rows with their counts; an `InputError` where these are not known."""
        if self.sample is None:
            raise InputError(
                argument="inputs", must="have counts", got="none", remedy="Build them by Inputs.from_sample."
            )
        return self.sample

    def rows(self, index: np.ndarray) -> Self:
        """Return some of the rows."""
        new = copy(self)
        new.columns = [column.rows(index) for column in self.columns]
        new.sample = None if self.sample is None else self.sample.rows(index)
        return new

    def join(self, other: Self) -> Self:
        """Return the rows of both tables, one below the other."""
        if self.names[: self.width] != other.names[: other.width]:
            raise InputError("background must have the columns of X.")
        for name in ("exposure", "upper"):
            if (name in self.extra) != (name in other.extra):
                raise InputError(f"{name} and background_{name} must be given together.")
        new = copy(self)
        new.columns, new.sample = [join_columns(*both) for both in zip(self.columns, other.columns, strict=True)], None
        return new

    def draw(self, max_rows: int | None, seed: int) -> Self:
        """Return at most so many rows (None: all), spread over their counts where these are known."""
        if self.sample is None:
            return self.rows(draw_rows(len(self), max_rows, seed=seed).positions)
        draw = draw_sample(self.sample, max_rows, seed)
        inputs = self.rows(draw.positions)
        inputs.sample = draw.take(self.sample)
        return inputs

    def select_columns(self, columns: str | Iterable[str | int] | None, rng: np.random.Generator) -> list[int]:
        """Return the positions of columns given by name or position; raise an `InputError` for an unknown name.

        None means all columns, or of more than 40 those whose shuffling changes mean and spread most.
        """
        if columns is None:
            return list(range(len(self.columns))) if len(self.columns) <= MAX_COLUMNS else self._most_moving(rng)
        selected = dict.fromkeys([columns] if isinstance(columns, str) else columns)
        names = self.names
        return [
            one if isinstance(one, int) else names.index(check_column(str(one), names, error=InputError))
            for one in selected
        ]

    def _most_moving(self, rng: np.random.Generator) -> list[int]:
        most = int(np.clip(_WORK // len(self.columns), _LEAST_ROWS, _SCREENED_ROWS))
        few = self.rows(draw_rows(len(self), most, seed=int(rng.integers(2**32))).positions)
        rows = np.arange(len(few))
        now, moved = few.moments(rows).quantities[..., 0], []
        for position in range(len(self.columns)):
            then = few.moments(rows, {position: rng.permutation(len(few))}).quantities[..., 0]
            moved.append(float(np.abs(then - now).mean(1).sum()))
        return sorted(np.argsort(-np.array(moved), kind="stable")[:MAX_COLUMNS].tolist())

    # Predicting --------------------------------------------------------------------------------------------------

    def table(self, rows: np.ndarray, sources: Mapping[int, np.ndarray] | None = None) -> ColumnTable:
        """Return these rows, with the cells of some columns (by position) taken from other rows.

        Shape: rows and each of the sources (n,), in any order and with repetitions.
        """
        replaced = sources or {}
        return ColumnTable([column.rows(replaced.get(j, rows)) for j, column in enumerate(self.columns[: self.width])])

    def distribution(self, rows: np.ndarray, sources: Mapping[int, np.ndarray] | None = None) -> Mixture | Recalibrated:
        """Predict the distributions of a `table`, with exposures and upper bounds exchanged in the same way."""
        bounds = {name: self.columns[j].values[(sources or {}).get(j, rows)] for name, j in self.extra.items()}
        return self.predictor.distribution(self.table(rows, sources), bounds.get("exposure"), upper=bounds.get("upper"))

    def moments(
        self,
        rows: np.ndarray,
        sources: Mapping[int, np.ndarray] | None = None,
        variance: bool = True,
        recalibrated: bool = False,
    ) -> PredictedMoments:
        """Means and variances of `distribution`, as far as asked; `recalibrated` changes those of the mixture only."""
        parts = []
        for start in range(0, len(rows), _BLOCK):
            part = slice(start, start + _BLOCK)
            dist = self.distribution(rows[part], {j: from_[part] for j, from_ in (sources or {}).items()})
            with single_thread():
                parts.append(_moments(dist, variance, recalibrated))
        mean, variances = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
        return parts[0]._replace(mean=mean, variance=variances)


def join_columns(first: Column, second: Column) -> Column:
    """Put one column below another of the same kind."""
    if first.is_category != second.is_category:
        raise InputError(f"background must hold values of the same kind as X in column {first.name!r}.")
    if not first.is_category:
        return first._replace(values=np.concatenate([first.values, second.values.astype(np.float64)]))
    index = {level: code for code, level in enumerate(first.levels)}
    for level in second.levels:
        index.setdefault(level, len(index))
    codes = np.concatenate([first.values, second.map_levels(index, other=-1, missing=-1)])
    return first._replace(values=codes, levels=Levels(index))


def _moments(dist: Mixture | Recalibrated, variance: bool, recalibrated: bool) -> PredictedMoments:
    mixture = dist.base if isinstance(dist, Recalibrated) else dist
    assert isinstance(mixture, Mixture)
    stacks = mixture.components if isinstance(mixture.components, tuple) else (mixture.components,)
    means = torch.cat([stack.mean.double() for stack in stacks], -1)
    weights = mixture.weights.double()
    mean = (weights * means).sum(-1, keepdim=True)
    both = [mean, torch.zeros_like(mean)]
    variances = torch.zeros_like(means)
    if variance:
        variances = torch.cat([stack.variance.double() for stack in stacks], -1)
        both[1] = (weights * (variances + (means - mean) ** 2)).sum(-1, keepdim=True)
    if recalibrated and mixture is not dist:
        both = [dist.mean.double()[:, None], dist.variance.double()[:, None] if variance else both[1]]
    first, second = (torch.cat([mixed, of], -1).numpy() for mixed, of in zip(both, (means, variances), strict=True))
    return PredictedMoments(first, second, weights.numpy(), isinstance(mixture, CountDistribution))
