"""`Trees`: a member that predicts the mean and the dispersion of counts by boosted trees."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from ddpn.members.head_member import HeadMember
from ddpn.members.member import NotApplicableError, Task, make_exposure_tensor
from ddpn.members.trees.booster import Booster, boosters_from_files, boosters_to_files
from ddpn.members.trees.boosting import Settings, TreeRows, choose_fold_columns, compute_rates, divide_rows
from ddpn.members.trees.dispersion import FAMILIES, DispersionFit, fit_dispersion
from ddpn.members.trees.mean import FOLDS_TIME_SHARE, MeanFit, choose_learning_rate
from ddpn.members.trees.table import TreeTable
from ddpn.networks.heads import Head, make_head
from ddpn.networks.training import RowStream
from ddpn.rows.count_rows import CountRows
from ddpn.rows.exposure import choose_exposure_unit, divide_exposure
from ddpn.rows.splits import FOLDS
from ddpn.runtime.deadlines import NO_LIMIT, Clock
from ddpn.runtime.errors import InputError
from ddpn.runtime.threads import limit_tree_threads
from ddpn.storage.contents import JsonObject, json_to_bytes
from ddpn.tables.columns import ColumnTable
from ddpn.tables.schema import Schema

_FACTS = "trees.json"
#: The number of folds inside each copy, which choose its settings.
_COPY_FOLDS = 3


class Trees(HeadMember):
    """Boosted trees that predict a whole distribution.

    First, the mean is fitted by Poisson boosting in five folds. Predictions are averaged over the boosters of all
    folds. The out-of-fold means are used to choose the number of leaves and the likelihood (Negative Binomial or Double
    Poisson), and to fit its dispersion: a constant, plus boosted trees if these are clearly better. For a table that is
    larger than memory (a `stream`), all this is done on a sample. The trees of the mean are then fitted again, to as
    many rows of the stream as memory and time allow.

    Splits handle categories and missing values directly. Exposures and weights enter the likelihood.

    Parameters
    ----------
    head : Head
        The chosen likelihood.
    table : TreeTable
        Converts tables to the matrix of the trees.
    unit : float
        The reference exposure: exposures are divided by this number.
    means : list of Booster
        Boosters of the log rate (log of mean / exposure). The predicted rate is the mean of their rates.
    constant : float
        The constant part of the log dispersion.
    dispersions : list of Booster
        Boosters whose mean output is added to `constant`; empty if the dispersion is the same for all rows.
    leaves : int
        The number of leaves of each tree of the mean.
    n_rows : int, optional
        The number of rows of the stream to which the mean was fitted; None without a stream.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2))
    >>> sample = CountRows(X, rng.poisson(np.exp(1.0 + X[:, 0])).astype(float))
    >>> Trees.fit(sample, None, seed=0).distribution(X).batch_shape
    torch.Size([300, 1])
    """

    label = "boosted trees"
    fold_options: ClassVar[Mapping[str, Any]] = {"is_copy": True}

    def __init__(
        self,
        head: Head,
        table: TreeTable,
        unit: float,
        means: list[Booster],
        constant: float,
        dispersions: list[Booster],
        leaves: int,
        n_rows: int | None = None,
    ) -> None:
        self.head, self.table, self.unit = head, table, unit
        self.means, self.constant, self.dispersions = means, constant, dispersions
        self.leaves, self.n_rows = leaves, n_rows

    @classmethod
    def choose_options(cls, task: Task) -> dict[str, Any]:
        return {"monotone": task.monotone, "stream": task.stream}

    # Fitting -----------------------------------------------------------------------------------------------------

    @classmethod
    def fit(
        cls,
        train: CountRows,
        validation: CountRows | None,
        seed: int,
        clock: Clock = NO_LIMIT,
        *,
        leaves: Sequence[int] | None = None,
        rate: float | None = None,
        rounds: int = 1500,
        monotone: Mapping[str, int] | None = None,
        stream: RowStream | None = None,
        is_copy: bool = False,
    ) -> Self:
        """Fit boosted trees to the mean and to the dispersion until they stop improving or the time is up.

        - `leaves` has the numbers of leaves to try. By default, they depend on the number of rows.
        - `rate` is the learning rate of the mean. By default, it depends on the number of rows.
        - `rounds` is the maximum number of rounds.
        - `monotone` maps names of numeric columns to 1 if the mean (at equal exposure) must not decrease with the
          column, or to -1 if it must not increase.
        - `stream` has all rows of a table that is larger than memory. `train` is then a sample of them.
        - `validation` is needed to fit trees to the rows of a stream. Without a stream, it is ignored.
        - `is_copy` is True for a copy of a cross-fitted member. Its mean then has a single booster, because the
          predictions of the copies are averaged anyway.
        """
        training_rows = _select_rows(train)
        unit = choose_exposure_unit(training_rows, is_total=False)
        training_rows = divide_exposure(training_rows, unit)
        table, matrix = TreeTable.fit(training_rows.X)
        mean_rate, weight = compute_rates(training_rows)
        directions = table.get_directions(monotone)
        rows = TreeRows(matrix, table.is_category, mean_rate, weight / weight.mean(), [], directions)
        folds = divide_rows(training_rows.y, seed, training_rows.group, _COPY_FOLDS if is_copy else FOLDS)
        rows = rows._replace(folds=choose_fold_columns(folds, rows.matrix, rows.rate, rows.weight))
        settings = Settings(learning_rate=choose_learning_rate(len(training_rows), rate), rounds=rounds, seed=seed)
        with limit_tree_threads(matrix.size):
            mean = MeanFit.choose_best(rows, settings, leaves, clock)
            mean.run(len(folds), clock.part(FOLDS_TIME_SHARE * clock.left))
            dispersion = fit_dispersion(rows, mean.out_of_fold, training_rows, seed, clock)
            means = [mean.fit_all_rows()] if is_copy else mean.to_boosters()
            boosters = dispersion.to_boosters()
            member = cls(dispersion.head, table, unit, means, dispersion.constant, boosters, mean.settings.leaves)
            if stream is None or validation is None:
                return member
            settings = Settings(member.leaves, choose_learning_rate(len(stream), rate), rounds, seed=seed)
            return member._fit_stream(stream, rows, validation.rows(validation.has_weight), settings, clock)

    def _fit_stream(
        self, stream: RowStream, sample: TreeRows, validation: CountRows, settings: Settings, clock: Clock
    ) -> Self:
        """Fit new trees of the mean to rows of the stream; return the better of this member and one with the new trees.

        The better one has the lower Poisson loss of the means on the validation rows. `sample` has the rows of the
        stream to which this member was fitted. If the member with the new trees is returned, the constant part of its
        log dispersion is fitted again, to the validation rows.
        """
        from ddpn.members.trees.streamed import fit_stream

        validation_rows = divide_exposure(validation, self.unit)
        streamed = fit_stream(stream, sample, self.table, self.unit, validation_rows, settings, clock)
        if streamed is None:
            return self
        booster, leaves, rows = streamed
        inputs, (rate, weight) = self.table.read(validation_rows.X), compute_rates(validation_rows)
        before, after = self.log_rate(inputs), booster.raw(inputs)
        is_better = weight @ (np.exp(after) - rate * after) < weight @ (np.exp(before) - rate * before)
        if not is_better:
            return self
        shared_arguments = self.head, self.table, self.unit, [booster]
        streamed_member = type(self)(*shared_arguments, self.constant, self.dispersions, leaves, rows)
        offset = streamed_member.raw(validation.X, validation.exposure)[:, 0, 1].numpy() - self.constant
        # The constant is fitted again, because counts vary less around a better mean.
        constant = DispersionFit(self.head, validation_rows, settings.seed, after, offset).constant
        return type(self)(*shared_arguments, constant, self.dispersions, leaves, rows)

    # Predicting --------------------------------------------------------------------------------------------------

    @property
    def schema(self) -> Schema | None:
        return self.table.schema

    @property
    def levels(self) -> Mapping[str, Sequence[str]]:
        return self.table.levels

    def log_rate(self, matrix: np.ndarray) -> np.ndarray:
        """Compute the log rate of each row: the log of the mean rate (mean / exposure) that the boosters predict.

        `matrix` is the matrix of the trees (`TreeTable.read`). Shape: (rows, columns) -> (rows,).
        """
        return np.log(np.mean([np.exp(booster.raw(matrix)) for booster in self.means], axis=0))

    def raw(self, X: ColumnTable, exposure: np.ndarray | None = None) -> Tensor:
        """Compute the raw outputs of each row: the log rate (log of mean / exposure) and the log dispersion.

        The result has shape (rows, 1, 2). The log rate is the log mean of a row with the reference exposure (`unit`).
        `exposure` has the exposure of each row, shape (rows,), on which the log dispersion may depend. Default: 1.
        """
        matrix = self.table.read(X)
        raw = np.tile([0.0, self.constant], (len(matrix), 1))
        raw[:, 0] = self.log_rate(matrix)
        if self.dispersions:
            scale = make_exposure_tensor(exposure, self.unit, len(matrix))
            matrix = np.column_stack([matrix, raw[:, 0] if scale is None else raw[:, 0] + scale.log().numpy()])
            raw[:, 1] += np.mean([booster.raw(matrix) for booster in self.dispersions], axis=0)
        return torch.from_numpy(raw).unsqueeze(1)

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
            "leaves": self.leaves,
            "streamed rows": self.n_rows,
            "chosen": [None if booster.chosen is None else booster.chosen.tolist() for booster in self._boosters],
            "boosters": [len(self.means), len(self.dispersions)],
        }
        return {**boosters_to_files(self._boosters), _FACTS: json_to_bytes(facts)}

    @classmethod
    def from_state(cls, files: Mapping[str, bytes]) -> Self:
        facts = json.loads(files[_FACTS])
        if facts["likelihood"] not in FAMILIES:
            raise InputError(f"{_FACTS} must name one of {', '.join(FAMILIES)}, got {facts['likelihood']!r}.")
        table, (n_means, n_dispersions) = TreeTable.from_dict(facts), facts["boosters"]
        # Boosters of the dispersion have the log mean as an additional input.
        boosters = boosters_from_files(
            files, facts["chosen"], [table.width] * n_means + [table.width + 1] * n_dispersions
        )
        means, dispersions = boosters[:n_means], boosters[n_means:]
        head, options = make_head(facts["likelihood"]), (facts["leaves"], facts["streamed rows"])
        return cls(head, table, facts["unit"], means, facts["constant"], dispersions, *options)

    def get_facts(self) -> JsonObject:
        return {
            "likelihood": self.head.name,
            "leaves": self.leaves,
            "trees": sum(booster.rounds for booster in self._boosters),
            "dispersion": "boosted" if self.dispersions else "constant",
            **({} if self.n_rows is None else {"streamed rows": self.n_rows}),
        }


def _select_rows(train: CountRows) -> CountRows:
    """Select the rows with positive weight.

    Raise a `NotApplicableError` if boosted trees cannot be fitted to them, for example because counts are censored.
    Bounds of counts are ignored, which is appropriate if counts are rarely near them.
    """
    selected = train.rows(train.has_weight)
    if selected.limit is not None and (selected.y >= selected.limit).any():
        raise NotApplicableError("its mean cannot be boosted from censored counts")
    if not selected.y.any():
        raise NotApplicableError("it has no count above 0 to fit")
    if len(selected) < 2:
        raise NotApplicableError("it needs at least two rows")
    return selected
