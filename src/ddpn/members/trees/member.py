"""The trees member: boosted trees for the raw outputs of a likelihood, which may be chosen out of fold."""

import json
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Self

import numpy as np
import torch
from torch.distributions import Distribution

from ddpn.members.member import Member, NotApplicableError, Task, exposure_unit, in_units, json_to_bytes, row_scale
from ddpn.members.trees.booster import Booster, boosters_from_files, boosters_to_files
from ddpn.members.trees.boosting import UNLIMITED, Settings
from ddpn.members.trees.mean import MeanFit, rate_for
from ddpn.members.trees.outputs import FAMILIES, OutputsFit, fit_around
from ddpn.members.trees.table import (
    FOLDS,
    Fold,
    TreeRows,
    TreeTable,
    folds_of,
    rates,
    used_rows,
    with_columns,
)
from ddpn.networks.heads import Head, make_head
from ddpn.networks.training import RowStream
from ddpn.runtime.deadlines import Clock
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.runtime.threads import single_thread, tree_threads_for
from ddpn.sample import Sample

_FACTS = "trees.json"
#: Folds inside each copy, by which its settings are chosen.
_COPY_FOLDS = 3


class Trees(Member):
    """Boosted trees that predict a whole distribution.

    By default, a mean is boosted first: Poisson boosting in five folds, whose boosters are averaged. The out-of-fold
    means choose the number of leaves, the likelihood, a Negative Binomial or a Double Poisson, and its dispersion: a
    constant, or boosted where that is clearly better. Of a `stream` these are found in a sample, and the mean is
    boosted over all rows, as far as memory allows.

    With a `head` all raw outputs of that likelihood are boosted in step, such as log mu and log gamma of a Double
    Poisson: locations first, then all outputs, with the dispersion learned around out-of-fold locations. Bounded and
    censored counts enter the likelihood.

    Categories and missing values are split as such; exposures and weights enter the likelihood.

    Parameters
    ----------
    head : Head, optional
        The likelihood whose raw outputs are boosted in step. Default: the mean comes first, and chooses.
    leaves : sequence of int, optional
        Numbers of leaves to choose from by Poisson boosting. Default: by the number of rows.
    rate : float, optional
        Learning rate of the locations. Default: 0.05 below 5,000 rows, else 0.1.
    rounds : int
        Rounds of boosting at most.
    monotone : mapping of str to int, optional
        Columns of numbers in which the location must not fall (1) or must not rise (-1), at equal exposures.
    clock : Clock
        Boosting ends with it, with what there is until then.
    stream : RowStream, optional
        Training rows of a table that is larger than memory, of which the rows of `fit` are a sample.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2))
    >>> sample = Sample(X, rng.poisson(np.exp(1.0 + X[:, 0])).astype(float))
    >>> Trees().fit(sample, None, seed=0).distribution(X).batch_shape
    torch.Size([300, 1])
    """

    label = "boosted trees"
    takes_prepared_tables = True
    #: The likelihood: that which was given, or after the fit that which was chosen.
    head: Head
    table: TreeTable
    unit: float
    #: A constant for every raw output, and the boosters whose average is added to it.
    start: np.ndarray
    outputs: list[list[Booster]]
    used_leaves: int

    #: Whether this is one of several copies, each of which leaves out a fold.
    _is_copy: bool = False
    #: Rows of a stream that the mean was fitted to; None without a stream.
    n_rows: int | None = None

    def __init__(
        self,
        head: Head | None = None,
        *,
        leaves: Sequence[int] | None = None,
        rate: float | None = None,
        rounds: int = 1500,
        monotone: Mapping[str, int] | None = None,
        clock: Clock = UNLIMITED,
        stream: RowStream | None = None,
    ) -> None:
        self.is_mean_first = head is None
        if head is not None:
            self.head = head
        self.leaves, self.rate, self.rounds, self.monotone = leaves, rate, rounds, dict(monotone or {})
        self.clock, self.stream = clock, stream

    @classmethod
    def like(cls, task: Task) -> Self:
        return cls(clock=task.clock, stream=task.stream)

    # Fitting -----------------------------------------------------------------------------------------------------

    def fit(self, train: Sample, validation: Sample | None, seed: int) -> Self:
        if self.is_mean_first:
            check_recorded(train)
        used = used_rows(train, least=2)
        self.unit = exposure_unit(used, make_head("poisson") if self.is_mean_first else self.head)
        used = in_units(used, self.unit)
        self.table = TreeTable()
        matrix, (rate, weight) = self.table.fit(used.X), rates(used)
        directions = self.table.directions(self.monotone)
        rows = TreeRows(matrix, self.table.is_category, directions, rate, weight / weight.mean(), [])
        folds = folds_of(used.y, seed, used.group, _COPY_FOLDS if self._is_copy and self.is_mean_first else FOLDS)
        rows = rows._replace(folds=with_columns(folds, rows.matrix, rows.rate, rows.weight))
        clock, settings = self.clock, Settings(rate=rate_for(len(used), self.rate), rounds=self.rounds)
        with tree_threads_for(matrix.size):
            mean = MeanFit.best_of(rows, settings._replace(seed=seed), self.leaves, clock)
            self.used_leaves = mean.settings.leaves
            if self.is_mean_first:
                self._fit_around(mean, used, seed, clock)
                if self.stream is not None and validation is not None:
                    self._fit_stream(rows, validation, seed, clock)
            else:
                found = OutputsFit(self.head, used, seed)
                found.boost_all(rows, mean.settings, clock)
                self.start, self.outputs = found.start, found.boosters()
        return self

    def _fit_around(self, mean: MeanFit, used: Sample, seed: int, clock: Clock) -> None:
        """Boost the mean, choose the likelihood around it, and learn its dispersion."""
        mean.run_all(clock)
        found = fit_around(mean.rows, mean.out_of_fold, used, seed, clock)
        own = [mean.whole(_whole(mean.rows))] if self._is_copy else mean.boosters()
        self.head, self.start, self.outputs = found.head, found.start, [own, *found.boosters()[1:]]

    def copied(self, left: int = 1) -> Self:
        """A copy whose mean is one booster: all copies together are many already."""
        copy = super().copied(left)
        copy._is_copy, copy.clock = True, self.clock.part(self.clock.left / left)
        return copy

    def _fit_stream(self, sample: TreeRows, validation: Sample, seed: int, clock: Clock) -> None:
        """Replace the mean by one of all rows, where that predicts validation rows better."""
        from ddpn.members.trees.streamed import fit_streamed

        assert self.stream is not None
        settings = Settings(self.used_leaves, rate_for(len(self.stream), self.rate), self.rounds, seed=seed)
        known = validation.rows(validation.is_used)
        used = in_units(known, self.unit)
        found = fit_streamed(self.stream, sample, self.table, self.unit, used, settings, clock)
        if found is None:
            return
        inputs, (rate, weight) = self.table.read(used.X), rates(used)
        before, after = self.log_rate(inputs), found.booster.raw(inputs)
        if weight @ (np.exp(after) - rate * after) < weight @ (np.exp(before) - rate * before):
            self.outputs[0], self.used_leaves, self.n_rows = [found.booster], found.leaves, found.rows
            # Counts spread less around a better mean.
            around = self.raw(known.X, known.exposure)[:, 1] - self.start[1]
            self.start = OutputsFit(self.head, used, seed, np.stack([after, around], 1)).start

    # Predicting --------------------------------------------------------------------------------------------------

    def log_rate(self, matrix: np.ndarray) -> np.ndarray:
        """Logarithms of the mean rate of all boosters, where a mean was boosted first."""
        return np.log(np.mean([np.exp(booster.raw(matrix)) for booster in self.outputs[0]], axis=0))

    def raw(self, X: Any, exposure: np.ndarray | None = None) -> np.ndarray:
        """Raw outputs. Shape: (rows, P)."""
        matrix = self.table.read(X)
        raw = np.tile(self.start, (len(matrix), 1))
        with tree_threads_for(matrix.size):
            outputs = list(enumerate(self.outputs))
            if self.is_mean_first:
                outputs, raw[:, 0] = outputs[1:], self.log_rate(matrix)
                scale = row_scale(exposure, self.unit, len(matrix))
                matrix = np.column_stack([matrix, raw[:, 0] if scale is None else raw[:, 0] + scale.log().numpy()])
            for output, boosters in outputs:
                if boosters:
                    raw[:, output] += np.mean([booster.raw(matrix) for booster in boosters], axis=0)
        return raw

    def distribution(self, X: Any, exposure: np.ndarray | None = None) -> Distribution:
        raw = torch.from_numpy(self.raw(X, exposure))
        scale = row_scale(exposure, self.unit, len(raw))
        with single_thread():
            return self.head(raw.unsqueeze(1), None if scale is None else scale.unsqueeze(1))

    def contributions(self, X: Any, exposure: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray] | None:
        """SHAP values of the log rate, averaged over the boosters, where a mean was boosted first; else None.

        The base has what is left: the expected log rate, the exposure, and that the mean of rates is averaged.
        """
        if not self.is_mean_first:
            return None
        matrix = self.table.read(X)
        with tree_threads_for(matrix.size):
            values = np.mean([booster.contributions(matrix) for booster in self.outputs[0]], axis=0)
        return values, np.log(self.distribution(X, exposure).mean[:, 0].numpy()) - values.sum(axis=1)

    # Saving ------------------------------------------------------------------------------------------------------

    @property
    def _boosters(self) -> list[Booster]:
        return [booster for output in self.outputs for booster in output]

    def state(self) -> dict[str, bytes]:
        facts = {
            **self.table.as_dict(),
            "head": {"name": self.head.name, "options": self.head.options},
            "mean first": self.is_mean_first,
            "start": self.start.tolist(),
            "unit": self.unit,
            "leaves": self.used_leaves,
            "streamed rows": self.n_rows,
            "chosen": [None if each.chosen is None else each.chosen.tolist() for each in self._boosters],
            "boosters": list(map(len, self.outputs)),
        }
        return {**boosters_to_files(self._boosters), _FACTS: json_to_bytes(facts)}

    @classmethod
    def from_state(cls, files: Mapping[str, bytes]) -> Self:
        known, member = json.loads(files[_FACTS]), cls()
        member.head = make_head(known["head"]["name"], **known["head"]["options"])
        member.is_mean_first, member.table = bool(known["mean first"]), TreeTable.from_dict(known)
        member.start, member.unit, numbers = np.array(known["start"]), known["unit"], known["boosters"]
        if member.is_mean_first and member.head.name not in FAMILIES:
            raise InputError(f"{_FACTS} must name one of {', '.join(FAMILIES)}, got {member.head.name!r}.")
        if not len(numbers) == len(member.start) == member.head.n_raw:
            raise InputError(f"{_FACTS} must have one entry per raw output of {member.head.name}.")
        member.used_leaves, member.n_rows = known["leaves"], known["streamed rows"]
        # The log mean is an input of the other outputs.
        more = [int(member.is_mean_first and output > 0) for output in range(len(numbers))]
        columns = [member.table.width + own for own, number in zip(more, numbers, strict=True) for _ in range(number)]
        boosters = iter(boosters_from_files(files, known["chosen"], columns))
        member.outputs = [list(islice(boosters, number)) for number in numbers]
        return member

    def facts(self) -> dict[str, Any]:
        return {
            "likelihood": self.head.name,
            **({} if self.is_mean_first else {"head_options": self.head.options}),
            "leaves": self.used_leaves,
            "trees": sum(booster.rounds for booster in self._boosters),
            "dispersion": "boosted" if any(self.outputs[1:]) else "constant",
            **({} if self.n_rows is None else {"streamed rows": self.n_rows}),
        }


class JointTrees(Trees):
    """Boosted trees for all raw outputs of a likelihood, by default of a Double Poisson.

    Parameters
    ----------
    head : Head, optional
        The likelihood. Default: "double_poisson".
    **options
        As for `Trees`.
    """

    label = "jointly boosted trees"
    complexity = 4
    is_default = False

    def __init__(self, head: Head | None = None, **options: Any) -> None:
        super().__init__(make_head("double_poisson") if head is None else head, **options)

    @classmethod
    def like(cls, task: Task) -> Self:
        return cls(task.head if task.head.exposure_is_total else None, clock=task.clock)


def _whole(rows: TreeRows) -> Fold:
    """All rows as one fold, which leaves out none."""
    every = Fold(np.arange(len(rows.rate)), np.arange(0))
    return with_columns([every], rows.matrix, rows.rate, rows.weight)[0]


def check_recorded(sample: Sample) -> None:
    """Raise a `NotApplicableError` for counts that are bounded below or censored, which a boosted mean cannot have.

    An upper bound is accepted: it is where counts near it are rare that a mean is boosted without it.
    """
    if sample.limit is not None and (sample.y >= sample.limit)[sample.is_used].any():
        raise NotApplicableError("its mean cannot be boosted from censored counts")


def check_monotone(monotone: Mapping[str, int] | None) -> None:
    """Raise a `ConfigError` for anything but a direction per column."""
    good = monotone is None or (isinstance(monotone, Mapping) and all(v in (1, -1) for v in monotone.values()))
    if not good:
        raise ConfigError(f'monotone must map columns to 1 or -1, such as {{"age": 1}}, got {monotone!r}.')
