"""`Inputs`: what a model predicts from, taken apart so that the value of one column can be exchanged."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import torch

from ddpn.analysis.explanations.tables import assembled, dense_rows, in_fit_order
from ddpn.distributions import CountDistribution, Recalibrated
from ddpn.members.reader import TableReader
from ddpn.predictor import Predictor
from ddpn.runtime.errors import InputError
from ddpn.runtime.threads import single_thread
from ddpn.runtime.validation import check_column
from ddpn.sample import check_vector, row_count, row_labels
from ddpn.tables.encoding.kinds import as_fitted
from ddpn.tables.encoding.table import Column, read_table

#: Rows predicted at a time.
_BLOCK = 8192
#: Smaller means, and variances relative to the mean, count as this much in logarithms.
_LEAST = 1e-9
#: Columns that are explained where none are named. Of more, those that change predictions most are taken.
MAX_COLUMNS = 40
#: Rows that are shuffled to find them: fewer where there are very many columns.
_SCREENED_ROWS, _LEAST_ROWS, _WORK = 200, 20, 40_000


class Moments(NamedTuple):
    """Mean and variance of every row, of the mixture (the first column) and of its components.

    Shape: mean and variance (rows, 1 + components), weights of the components (components,).
    """

    mean: np.ndarray
    variance: np.ndarray
    weights: np.ndarray

    @staticmethod
    def joined(parts: Sequence["Moments"]) -> "Moments":
        """Several blocks of rows as one."""
        mean, variance = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
        return Moments(mean, variance, parts[0].weights)

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

    `columns` are those of the table in the order of fit, then the exposure and the upper bound; all of them are inputs
    of the prediction.
    """

    predictor: Predictor
    columns: list[Column]

    def __init__(
        self, model: Any, X: Any, exposure: Any = None, upper: Any = None, names: Mapping[str, str] | None = None
    ) -> None:
        self.model = model
        self.predictor = model if isinstance(model, Predictor) else model.predictor_
        n, labels, called = row_count(X), row_labels(X), dict(names or {})
        if n == 0:
            raise InputError("X must have at least one row, got none.")
        self.X, table = in_fit_order(model, X), _columns(model, X)
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

    def __len__(self) -> int:
        return len(self.columns[0].values)

    @property
    def names(self) -> list[str]:
        """What the columns are called."""
        return [column.name for column in self.columns]

    def rows(self, index: np.ndarray) -> Self:
        """Some of the rows."""
        new = object.__new__(type(self))
        new.__dict__.update(vars(self))
        new.X, new.is_dense = dense_rows(self.X, index), True
        new.columns = [column._replace(values=column.values[index]) for column in self.columns]
        return new

    def draw(self, size: int, rng: np.random.Generator, among: np.ndarray | None = None) -> np.ndarray:
        """Positions of a random draw of at most `size` rows, in their order."""
        among = np.arange(len(self)) if among is None else among
        return among if len(among) <= size else np.sort(rng.choice(among, size, replace=False))

    def position(self, name: str) -> int:
        """The position of a column; an unknown name is an `InputError`."""
        return self.names.index(check_column(str(name), self.names, error=InputError))

    def positions(self, names: str | Iterable[str] | None) -> list[int]:
        """The positions of some columns, of all for None."""
        if names is None:
            return list(range(len(self.columns)))
        return [self.position(name) for name in ([names] if isinstance(names, str) else dict.fromkeys(names))]

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
    ) -> Moments:
        """Means and variances of `distribution`, as far as asked; `recalibrated` changes those of the mixture only."""
        sources, parts = sources or {}, []
        for start in range(0, len(rows), _BLOCK):
            part = slice(start, start + _BLOCK)
            dist = self.distribution(rows[part], {j: from_[part] for j, from_ in sources.items()})
            with torch.no_grad(), single_thread():
                parts.append(_moments(dist, variance, recalibrated))
        mixture = dist.base if isinstance(dist, Recalibrated) else dist
        self.log = isinstance(mixture, CountDistribution)
        return Moments.joined(parts)

    def quantities(self, rows: np.ndarray, sources: Mapping[int, np.ndarray] | None = None) -> np.ndarray:
        """What effects are about, see `Moments.quantities`."""
        found = self.moments(rows, sources)
        return found.quantities(self.log)


def screened(inputs: Inputs, positions: list[int], most: int, rng: np.random.Generator, of: str = "both") -> list[int]:
    """The positions of the columns whose shuffling changes mean and spread (or the "mean") most, in their order."""
    if len(positions) <= most:
        return positions
    size = int(np.clip(_WORK // len(positions), _LEAST_ROWS, _SCREENED_ROWS))
    few = inputs.rows(inputs.draw(size, rng))
    rows, both = np.arange(len(few)), of == "both"
    now = few.moments(rows, variance=both).quantities(few.log)[: 1 + both, :, 0]
    moved = {}
    for position in positions:
        then = few.moments(rows, {position: rng.permutation(len(few))}, variance=both)
        moved[position] = float(np.abs(then.quantities(few.log)[: 1 + both, :, 0] - now).mean(1).sum())
    return sorted(sorted(moved, key=lambda position: -moved[position])[:most])


def _columns(model: Any, X: Any) -> list[Column]:
    """Every column as the model reads it; a bare predictor knows no names and kinds, and takes them as they are."""
    if isinstance(model, Predictor):
        return [column._replace(name=str(column.name)) for column in TableReader().fit(X)]
    table, kinds = read_table(model, X, reset=False), getattr(model, "feature_kinds_", None)
    read = table if kinds is None else [as_fitted(column, kind) for column, kind in zip(table, kinds, strict=True)]
    return [column._replace(name=str(column.name)) for column in read]


def _moments(dist: Any, variance: bool, recalibrated: bool) -> Moments:
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
    return Moments(first, second, weights.numpy())
