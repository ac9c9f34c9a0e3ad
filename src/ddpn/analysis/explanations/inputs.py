"""`Inputs`: a fitted model and rows, for which the values of single columns can be exchanged.

All explanations are computed in this way: replace the values of some columns by those of other rows, and predict again.
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
from ddpn.runtime.frames import library_name
from ddpn.runtime.threads import single_thread
from ddpn.runtime.validation import check_column
from ddpn.storage.contents import JsonObject
from ddpn.tables.columns import Column, ColumnTable, Kind, Levels
from ddpn.tables.row_draw import draw_rows, draw_sample

#: The number of rows that are predicted together.
_BLOCK_ROWS = 8192
#: The smallest mean, and the smallest ratio variance / mean, whose logarithm is taken.
_MIN_MOMENT = 1e-9
#: The most columns that are explained by default. If there are more, those that change predictions most are chosen.
MAX_COLUMNS = 40
#: The text for a missing value.
MISSING = "missing"
#: The most and the fewest rows that are shuffled to choose columns, and the most cells (rows x columns).
_MAX_SCREENED_ROWS, _MIN_SCREENED_ROWS, _MAX_SCREENED_CELLS = 200, 20, 40_000


class FittedModel(Protocol):
    """Protocol of a fitted estimator: the attributes and methods that explanations and reports use."""

    predictor_: Predictor

    @property
    def day_columns_(self) -> frozenset[str]:
        """The names of the columns that contain days since 1970."""

    def parse(self, X: TableLike) -> ColumnTable:
        """Convert a table to the columns and types of the training table."""

    def get_params(self, deep: bool = True) -> JsonObject:
        """Return the arguments of the estimator."""


#: The models that can be explained.
Explainable: TypeAlias = FittedModel | Predictor


class PredictedMoments(NamedTuple):
    """Mean and variance of the predicted mixture of each row, and of each of its components.

    Attributes
    ----------
    mean, variance : array, shape (rows, 1 + components)
        The moments of the mixture (first column) and of each component. All variances are 0 if only means were
        computed.
    weights : array, shape (components,)
        The mixture weights of the components.
    log : bool
        True if effects on the logarithms of the moments are explained. This holds for all likelihoods but the Gaussian.
    """

    mean: np.ndarray
    variance: np.ndarray
    weights: np.ndarray
    log: bool

    @property
    def quantities(self) -> np.ndarray:
        """The mean and the spread of each row, as they are explained. Shape: (2, rows, 1 + components).

        If `log` is True, they are the logarithms of the mean and of variance / mean; otherwise, they are the mean and
        the standard deviation. On the last axis, the mixture is first and its components follow.
        """
        if not self.log:
            return np.stack([self.mean, np.sqrt(self.variance)])
        mean = np.maximum(self.mean, _MIN_MOMENT)
        return np.log(np.stack([mean, np.maximum(self.variance / mean, _MIN_MOMENT)]))


class Inputs:
    """A fitted model and the rows for which it is explained.

    Exposures and upper bounds are treated like columns, so that their effects are explained as well.

    Parameters
    ----------
    model : estimator or Predictor
        A fitted model.
    X : array-like, data frame or ColumnTable
        Rows with the columns of `fit`, from the test set or the training set.
    exposure, upper : array-like, optional
        As for predictions. They are explained like the columns of X.
    names : mapping of str to str, optional
        Names under which "exposure" and "upper" are shown, for example those of the user's columns.
    total : int, optional
        The number of rows from which X was drawn (`ddpn.tables.row_draw`). Default: the number of rows of X.

    Attributes
    ----------
    columns : list of Column
        The columns of the table in the order of `fit`. If the model has exposures or upper bounds per row, they follow
        as columns.
    extra : dict of str to int
        The positions of "exposure" and "upper" in `columns`.
    sample : CountRows or None
        The rows with their counts; None if the counts are unknown.
    total : int
        The number of rows from which the rows were drawn.
    day_columns : frozenset of str
        The names of columns that contain days since 1970, which are shown as dates.
    library : {"polars", "pandas"}
        The library of the data frames that results return: that of X, or polars if X is not a data frame.
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
        scale = (
            None if counts.upper_is_total else check_vector("exposure", exposure, n, allow_zero=False, labels=labels)
        )
        # Raises an error if the model has no such bound.
        bound = counts.bounds(n, upper, labels)[1] if counts.upper_per_row or upper is not None else None
        more = {name: values for name, values in (("exposure", scale), ("upper", bound)) if values is not None}
        self.predictor, self.width, self.sample = predictor, len(table.columns), None
        self.total, self.library = n if total is None else total, library_name(X)
        self.day_columns = frozenset[str]() if isinstance(model, Predictor) else model.day_columns_
        self.extra = {name: self.width + index for index, name in enumerate(more)}
        names = names or {}
        scales = [Column(names.get(name, name), Kind.NUMBER, values) for name, values in more.items()]
        self.columns = table.columns + scales

    @classmethod
    def from_sample(
        cls,
        model: Explainable,
        sample: CountRows,
        names: Mapping[str, str] | None = None,
        total: int | None = None,
    ) -> Self:
        """Make inputs from a model and validated rows, whose counts are kept as `sample`.

        `names` has the names under which "exposure" and "upper" are shown, by default these words. `total` is the
        number of rows from which the sample was drawn; the default is the number of rows of the sample.
        """
        predictor = model if isinstance(model, Predictor) else model.predictor_
        arguments = predictor.counts.to_arguments(sample)
        inputs = cls(model, sample.X, arguments["exposure"], arguments["upper"], names, total)
        inputs.sample = sample.replace(X=None)
        return inputs

    @classmethod
    def from_first_fold(cls, model: Explainable, rows: CalibratedRows, names: Mapping[str, str] | None = None) -> Self:
        """Make inputs from the rows of the first fold of a cross-fitted model.

        The rows are predicted by copies of the mixture's models that were fitted without this fold. `names` has the
        names under which "exposure" and "upper" are shown, by default these words.
        """
        held_out, fold = rows.held_out, int(rows.held_out.part[0])
        inputs = cls.from_sample(model, held_out.rows.rows(held_out.part == fold), names)
        inputs.predictor = inputs.predictor.for_fold(fold, rows.parts[fold])
        return inputs

    def __len__(self) -> int:
        return len(self.columns[0].values)

    @property
    def names(self) -> list[str]:
        """The names of the columns, including the exposure and the upper bound."""
        return [column.name for column in self.columns]

    @property
    def observed(self) -> CountRows:
        """The rows with their counts. Accessing them raises an `InputError` if the counts are unknown."""
        if self.sample is None:
            raise InputError(
                argument="inputs", must="have counts", got="none", remedy="Make them with Inputs.from_sample."
            )
        return self.sample

    def rows(self, index: np.ndarray) -> Self:
        """Return the inputs of some of the rows, given by their positions `index`."""
        new = copy(self)
        new.columns = [column.rows(index) for column in self.columns]
        new.sample = None if self.sample is None else self.sample.rows(index)
        return new

    def join(self, other: Self) -> Self:
        """Return new inputs, in which the rows of `other` follow the rows of this object. Counts are dropped.

        Raise an `InputError` if the columns differ.
        """
        if self.names[: self.width] != other.names[: other.width]:
            raise InputError("background must have the same columns as X.")
        for name in ("exposure", "upper"):
            if (name in self.extra) != (name in other.extra):
                raise InputError(f"Pass both {name} and background_{name}, or neither.")
        new = copy(self)
        new.columns, new.sample = [join_columns(*both) for both in zip(self.columns, other.columns, strict=True)], None
        return new

    @property
    def row_weights(self) -> np.ndarray:
        """The sample weight of each row; 1 if the inputs were made without counts and weights."""
        return np.ones(len(self)) if self.sample is None else self.sample.weight_or_ones

    def draw(self, max_rows: int | None, seed: int) -> Self:
        """Return the inputs of at most `max_rows` rows, drawn at random with `seed`; None keeps all rows.

        If the counts are known, the draw is stratified, so that small and large counts are represented in proportion.
        """
        if self.sample is None:
            return self.rows(draw_rows(len(self), max_rows, seed=seed).positions)
        draw = draw_sample(self.sample, max_rows, seed)
        inputs = self.rows(draw.positions)
        inputs.sample = draw.take(self.sample)
        return inputs

    def select_columns(self, columns: str | Iterable[str | int] | None, rng: np.random.Generator) -> list[int]:
        """Return the positions of columns that are given by name or position; None selects all columns.

        With None and more than 40 columns, the 40 columns whose shuffling changes predictions most are selected; `rng`
        draws the rows and the shuffles for this. An unknown name raises an `InputError`.
        """
        if columns is None:
            return list(range(len(self.columns))) if len(self.columns) <= MAX_COLUMNS else self._choose_columns(rng)
        selected = dict.fromkeys([columns] if isinstance(columns, str) else columns)
        names = self.names
        return [
            one if isinstance(one, int) else names.index(check_column(str(one), names, error=InputError))
            for one in selected
        ]

    def _choose_columns(self, rng: np.random.Generator) -> list[int]:
        """Return the 40 columns that change predictions most when they are shuffled, as positions in ascending order.

        The change is that of the predicted mean plus that of the predicted spread, each averaged over rows. At most 200
        rows, drawn by `rng`, are used, because every column requires a new set of predictions. If there are more than
        200 columns, fewer rows are used.
        """
        max_rows = int(np.clip(_MAX_SCREENED_CELLS // len(self.columns), _MIN_SCREENED_ROWS, _MAX_SCREENED_ROWS))
        few = self.rows(draw_rows(len(self), max_rows, seed=int(rng.integers(2**32))).positions)
        rows = np.arange(len(few))
        now, moved = few.moments(rows).quantities[..., 0], []
        for position in range(len(self.columns)):
            then = few.moments(rows, {position: rng.permutation(len(few))}).quantities[..., 0]
            moved.append(float(np.abs(then - now).mean(1).sum()))
        return sorted(np.argsort(-np.array(moved), kind="stable")[:MAX_COLUMNS].tolist())

    # Predicting --------------------------------------------------------------------------------------------------

    def table(self, rows: np.ndarray, sources: Mapping[int, np.ndarray] | None = None) -> ColumnTable:
        """Return the table of the rows at positions `rows`, with the values of some columns taken from other rows.

        `sources` maps the position of a column to the positions of the rows from which its values are taken. It has one
        source row for each of `rows`. Columns without an entry keep their values; None exchanges no values. Positions
        may have any order and may be repeated.
        """
        replaced = sources or {}
        return ColumnTable([column.rows(replaced.get(j, rows)) for j, column in enumerate(self.columns[: self.width])])

    def distribution(self, rows: np.ndarray, sources: Mapping[int, np.ndarray] | None = None) -> Mixture | Recalibrated:
        """Predict the distributions of the rows at positions `rows`, with values of some columns taken from other rows.

        `sources` maps the position of a column in `columns` to the positions of the rows from which its values are
        taken, one for each of `rows`. The column may be that of exposures or upper bounds. None exchanges no values.
        """
        bounds = {name: self.columns[j].values[(sources or {}).get(j, rows)] for name, j in self.extra.items()}
        return self.predictor.distribution(self.table(rows, sources), bounds.get("exposure"), upper=bounds.get("upper"))

    def moments(
        self,
        rows: np.ndarray,
        sources: Mapping[int, np.ndarray] | None = None,
        recalibrated: bool = False,
    ) -> PredictedMoments:
        """Return the means and variances of the distributions that `distribution` predicts for `rows` and `sources`.

        Parameters
        ----------
        rows : array of int
            The positions of the rows.
        sources : mapping of int to array of int, optional
            For each column whose values are taken from other rows, the positions of these rows, as for `table`.
        recalibrated : bool
            Whether the moments of the mixture are those after recalibration. The moments of its components are always
            those before recalibration. If the mixture is not recalibrated, this option has no effect.
        """
        parts = []
        for start in range(0, len(rows), _BLOCK_ROWS):
            part = slice(start, start + _BLOCK_ROWS)
            dist = self.distribution(rows[part], {j: from_[part] for j, from_ in (sources or {}).items()})
            with single_thread():
                parts.append(_compute_moments(dist, recalibrated))
        mean, variances = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
        return parts[0]._replace(mean=mean, variance=variances)


def join_columns(first: Column, second: Column) -> Column:
    """Append the values of `second` to those of `first`. A category gets the levels of both columns.

    Missing values stay missing. Raise an `InputError` if only one of the columns is a category.
    """
    if first.is_category != second.is_category:
        raise InputError(f"background must hold values of the same kind as X in column {first.name!r}.")
    if not first.is_category:
        return first._replace(values=np.concatenate([first.values, second.values.astype(np.float64)]))
    index = {level: code for code, level in enumerate(first.levels)}
    for level in second.levels:
        index.setdefault(level, len(index))
    codes = np.concatenate([first.values, second.map_levels(index, other=-1, missing=-1)])
    return first._replace(values=codes, levels=Levels(index))


def _compute_moments(dist: Mixture | Recalibrated, recalibrated: bool) -> PredictedMoments:
    """Return the mean and the variance of each row's mixture, and of each component of the mixture.

    Parameters
    ----------
    dist : Mixture or Recalibrated
        The mixture of each row. A `Recalibrated` has a mixture as its `base`.
    recalibrated : bool
        If True and `dist` is a `Recalibrated`, the moments of the mixture are those after recalibration, otherwise
        those before. The moments of the components are always those before recalibration.
    """
    mixture = dist.base if isinstance(dist, Recalibrated) else dist
    assert isinstance(mixture, Mixture)
    stacks = mixture.components if isinstance(mixture.components, tuple) else (mixture.components,)
    means = torch.cat([stack.mean.double() for stack in stacks], -1)
    variances = torch.cat([stack.variance.double() for stack in stacks], -1)
    weights = mixture.weights.double()
    mean = (weights * means).sum(-1, keepdim=True)
    variance = (weights * (variances + (means - mean) ** 2)).sum(-1, keepdim=True)
    if recalibrated and mixture is not dist:
        mean, variance = dist.mean.double()[:, None], dist.variance.double()[:, None]
    first, second = torch.cat([mean, means], -1).numpy(), torch.cat([variance, variances], -1).numpy()
    return PredictedMoments(first, second, weights.numpy(), isinstance(mixture, CountDistribution))
