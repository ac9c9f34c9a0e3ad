"""Boosted trees as a member: a boosted mean, a likelihood chosen out of fold, and its dispersion."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from torch.distributions import Distribution

from ddpn.members.member import Member, NotApplicableError, Task, make_exposure_tensor
from ddpn.members.trees.booster import Booster, boosters_from_files, boosters_to_files
from ddpn.members.trees.boosting import (
    FAMILIES,
    FOLDS_TIME,
    DispersionFit,
    MeanFit,
    Settings,
    TreeRows,
    choose_fold_columns,
    choose_learning_rate,
    compute_rates,
    divide_rows,
    fit_dispersion,
)
from ddpn.networks.heads import Head, make_head
from ddpn.networks.training import RowStream
from ddpn.rows.count_rows import CountRows
from ddpn.rows.exposure import choose_exposure_unit, divide_exposure
from ddpn.rows.splits import FOLDS
from ddpn.runtime.deadlines import NO_LIMIT, Clock
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.runtime.threads import single_thread, tree_threads_for
from ddpn.runtime.validation import check_column
from ddpn.storage.contents import JsonObject, json_to_bytes
from ddpn.tables.columns import Column, ColumnTable
from ddpn.tables.schema import Schema, read_table

_FACTS = "trees.json"
#: Folds inside each copy, by which its settings are chosen.
_COPY_FOLDS = 3
#: The most levels of a category with their own code: trees have 255 bins.
MAX_LEVELS = 254


class TreeTable:
    """Reads tables as the matrix that trees use: numbers unchanged, and a code per frequent level.

    Parameters
    ----------
    schema : Schema
        The columns of the training rows.
    levels : dict of str to tuple of str
        The levels of each category that have a code, most frequent first.
    """

    def __init__(self, schema: Schema, levels: Mapping[str, Sequence[str]]) -> None:
        self.schema, self.levels = schema, {name: tuple(names) for name, names in levels.items()}
        self._codes = {
            name: {level: float(code) for code, level in enumerate(names)} for name, names in self.levels.items()
        }

    @classmethod
    def fit(cls, X: Any) -> tuple[Self, np.ndarray]:
        """Make the reader of tables like this one, and its matrix."""
        columns = read_table(X)
        levels = {column.name: _list_frequent_levels(column) for column in columns if column.is_category}
        table = cls(Schema.from_table(columns), levels)
        return table, table.read(columns)

    def read(self, X: Any) -> np.ndarray:
        """Build the matrix of a table. A level without a code is missing."""
        return np.column_stack(
            [
                column.map_levels(self._codes[column.name], np.nan, np.nan) if column.is_category else column.values
                for column in self.schema.parse(X)
            ]
        )

    @property
    def width(self) -> int:
        """The number of columns of the matrix."""
        return len(self.schema.names)

    @property
    def is_category(self) -> np.ndarray:
        """Mask of the columns of the matrix that hold codes of levels."""
        return np.array([kind.is_category for kind in self.schema.kinds])

    def get_directions(self, monotone: Mapping[str, int] | None) -> np.ndarray | None:
        """Return a direction per column: 1 if the mean must not fall, -1 if it must not rise, 0 without constraint."""
        if monotone is None:
            return None
        if not isinstance(monotone, Mapping) or not all(sign in (1, -1) for sign in monotone.values()):
            must = 'map columns to 1 or -1, such as {"age": 1}'
            raise ConfigError(argument="monotone", must=must, got=repr(monotone))
        numbers = [name for name in self.schema.names if name not in self.levels]
        for name in monotone:
            check_column(name, numbers, "a column of numbers in monotone")
        return np.array([monotone.get(name, 0) for name in self.schema.names])

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as values that JSON can hold."""
        return {"schema": self.schema.as_dict(), "levels": self.levels}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Rebuild a reader from the result of `as_dict`, which may have further entries."""
        return cls(Schema.from_dict(fields["schema"]), fields["levels"])


def _list_frequent_levels(column: Column) -> tuple[str, ...]:
    """List the levels that occur, most frequent first; ties are in alphabetical order."""
    rows = column.count_levels()
    order = sorted(range(len(rows)), key=lambda code: (-rows[code], column.levels[code]))
    return tuple(column.levels[code] for code in order if rows[code])[:MAX_LEVELS]


class Trees(Member):
    """Boosted trees that predict a whole distribution.

    A mean is boosted first: Poisson boosting in five folds, whose boosters are averaged. The out-of-fold means choose
    the number of leaves, the likelihood, a Negative Binomial or a Double Poisson, and its dispersion: a constant, or
    boosted where that is clearly better. Of a `stream` these are found in a sample, and the mean is boosted over all
    rows, as far as memory allows.

    Categories and missing values are split as such; exposures and weights enter the likelihood. Out-of-fold means
    choose among numbers of `leaves`; by default these and the learning `rate` of the mean follow the number of rows.
    `monotone` has columns of numbers in which the mean must not fall (1) or must not rise (-1), at equal exposures.
    Boosting ends with the clock of the fit, with what there is until then.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2))
    >>> sample = CountRows(X, rng.poisson(np.exp(1.0 + X[:, 0])).astype(float))
    >>> Trees().fit(sample, None, seed=0).distribution(X).batch_shape
    torch.Size([300, 1])
    """

    label = "boosted trees"
    #: The likelihood that was chosen.
    head: Head
    table: TreeTable
    unit: float
    #: Boosters whose rates are averaged; a constant log dispersion, and boosters whose average is added to it, if any.
    means: list[Booster]
    constant: float
    dispersions: list[Booster]
    used_leaves: int

    #: Whether this is one of several copies, each of which leaves out a fold.
    _is_copy: bool = False
    #: Rows of a stream that the mean was fitted to; None without a stream.
    n_rows: int | None = None

    def __init__(
        self,
        *,
        leaves: Sequence[int] | None = None,
        rate: float | None = None,
        rounds: int = 1500,
        monotone: Mapping[str, int] | None = None,
        stream: RowStream | None = None,
    ) -> None:
        self.leaves, self.rate, self.rounds, self.monotone = leaves, rate, rounds, monotone
        self.stream = stream

    @classmethod
    def from_task(cls, task: Task) -> Self:
        return cls(monotone=task.monotone, stream=task.stream)

    # Fitting -----------------------------------------------------------------------------------------------------

    def fit(self, train: CountRows, validation: CountRows | None, seed: int, clock: Clock = NO_LIMIT) -> Self:
        used = _select_rows(train)
        self.unit = choose_exposure_unit(used, is_total=False)
        used = divide_exposure(used, self.unit)
        self.table, matrix = TreeTable.fit(used.X)
        rate, weight = compute_rates(used)
        directions = self.table.get_directions(self.monotone)
        rows = TreeRows(matrix, self.table.is_category, rate, weight / weight.mean(), [], directions)
        folds = divide_rows(used.y, seed, used.group, _COPY_FOLDS if self._is_copy else FOLDS)
        rows = rows._replace(folds=choose_fold_columns(folds, rows.matrix, rows.rate, rows.weight))
        settings = Settings(rate=choose_learning_rate(len(used), self.rate), rounds=self.rounds, seed=seed)
        with tree_threads_for(matrix.size):
            mean = MeanFit.choose_best(rows, settings, self.leaves, clock)
            self.used_leaves = mean.settings.leaves
            mean.run(len(folds), clock.part(FOLDS_TIME * clock.left))
            dispersion = fit_dispersion(rows, mean.out_of_fold, used, seed, clock)
            self.means = [mean.fit_all_rows()] if self._is_copy else mean.to_boosters()
            self.head, self.constant, self.dispersions = dispersion.head, dispersion.constant, dispersion.to_boosters()
            if self.stream is not None and validation is not None:
                self._fit_stream(rows, validation, seed, clock)
        return self

    def copy_for_fold(self) -> Self:
        """Return a copy whose mean is one booster: all copies together are many already."""
        copy = super().copy_for_fold()
        copy._is_copy = True
        return copy

    def _fit_stream(self, sample: TreeRows, validation: CountRows, seed: int, clock: Clock) -> None:
        """Replace the mean by one fitted to all rows of the stream, if that predicts validation rows better."""
        from ddpn.members.trees.streamed import fit_stream

        assert self.stream is not None
        settings = Settings(self.used_leaves, choose_learning_rate(len(self.stream), self.rate), self.rounds, seed=seed)
        weighed = validation.rows(validation.has_weight)
        used = divide_exposure(weighed, self.unit)
        streamed = fit_stream(self.stream, sample, self.table, self.unit, used, settings, clock)
        if streamed is None:
            return
        booster, leaves, rows = streamed
        inputs, (rate, weight) = self.table.read(used.X), compute_rates(used)
        before, after = self.log_rate(inputs), booster.raw(inputs)
        if weight @ (np.exp(after) - rate * after) < weight @ (np.exp(before) - rate * before):
            self.means, self.used_leaves, self.n_rows = [booster], leaves, rows
            # Counts spread less around a better mean.
            around = self.raw(weighed.X, weighed.exposure)[:, 1] - self.constant
            self.constant = DispersionFit(self.head, used, seed, after, around).constant

    # Predicting --------------------------------------------------------------------------------------------------

    @property
    def schema(self) -> Schema | None:
        return self.table.schema

    @property
    def levels(self) -> Mapping[str, Sequence[str]]:
        return self.table.levels

    def log_rate(self, matrix: np.ndarray) -> np.ndarray:
        """Compute the logarithm of the mean rate of all boosters."""
        return np.log(np.mean([np.exp(booster.raw(matrix)) for booster in self.means], axis=0))

    def raw(self, X: ColumnTable, exposure: np.ndarray | None = None) -> np.ndarray:
        """Compute raw outputs. Shape: (rows, 2)."""
        matrix = self.table.read(X)
        raw = np.tile([0.0, self.constant], (len(matrix), 1))
        with tree_threads_for(matrix.size):
            raw[:, 0] = self.log_rate(matrix)
            if self.dispersions:
                scale = make_exposure_tensor(exposure, self.unit, len(matrix))
                matrix = np.column_stack([matrix, raw[:, 0] if scale is None else raw[:, 0] + scale.log().numpy()])
                raw[:, 1] += np.mean([booster.raw(matrix) for booster in self.dispersions], axis=0)
        return raw

    def distribution(self, X: ColumnTable, exposure: np.ndarray | None = None) -> Distribution:
        raw = torch.from_numpy(self.raw(X, exposure))
        scale = make_exposure_tensor(exposure, self.unit, len(raw))
        with single_thread():
            return self.head(raw.unsqueeze(1), None if scale is None else scale.unsqueeze(1))

    # Saving ------------------------------------------------------------------------------------------------------

    @property
    def _boosters(self) -> list[Booster]:
        return [*self.means, *self.dispersions]

    def state(self) -> dict[str, bytes]:
        facts = {
            **self.table.as_dict(),
            "likelihood": self.head.name,
            "constant": self.constant,
            "unit": self.unit,
            "leaves": self.used_leaves,
            "streamed rows": self.n_rows,
            "chosen": [None if booster.chosen is None else booster.chosen.tolist() for booster in self._boosters],
            "boosters": [len(self.means), len(self.dispersions)],
        }
        return {**boosters_to_files(self._boosters), _FACTS: json_to_bytes(facts)}

    @classmethod
    def from_state(cls, files: Mapping[str, bytes]) -> Self:
        facts, member = json.loads(files[_FACTS]), cls()
        if facts["likelihood"] not in FAMILIES:
            raise InputError(f"{_FACTS} must name one of {', '.join(FAMILIES)}, got {facts['likelihood']!r}.")
        member.head, member.table = make_head(facts["likelihood"]), TreeTable.from_dict(facts)
        member.constant, member.unit = facts["constant"], facts["unit"]
        member.used_leaves, member.n_rows = facts["leaves"], facts["streamed rows"]
        number, more = facts["boosters"]
        # The log mean is an input of the dispersion.
        columns = [member.table.width] * number + [member.table.width + 1] * more
        boosters = boosters_from_files(files, facts["chosen"], columns)
        member.means, member.dispersions = boosters[:number], boosters[number:]
        return member

    def get_facts(self) -> JsonObject:
        return {
            "likelihood": self.head.name,
            "leaves": self.used_leaves,
            "trees": sum(booster.rounds for booster in self._boosters),
            "dispersion": "boosted" if self.dispersions else "constant",
            **({} if self.n_rows is None else {"streamed rows": self.n_rows}),
        }


def _select_rows(train: CountRows) -> CountRows:
    """Return the rows with a weight; raise a `NotApplicableError` if no mean can be boosted from them.

    Bounds are accepted, and ignored by the boosting, which suits counts that are rarely near their bounds.

    Bounds are accepted: it is where counts near them are rare that a mean is boosted without them.
    """
    used = train.rows(train.has_weight)
    if used.limit is not None and (used.y >= used.limit).any():
        raise NotApplicableError("its mean cannot be boosted from censored counts")
    if not used.y.any():
        raise NotApplicableError("it has no count above 0 to fit")
    if len(used) < 2:
        raise NotApplicableError("it needs 2 rows or more")
    return used
