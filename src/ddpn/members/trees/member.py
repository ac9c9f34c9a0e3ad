"""The trees member: boosted trees for the raw outputs of a likelihood, which may be chosen out of fold."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from torch.distributions import Distribution

from ddpn.members.member import Member, NotApplicableError, exposure_unit, in_units, json_to_bytes, row_scale
from ddpn.members.trees.booster import Booster, boosters_from_files, boosters_to_files
from ddpn.members.trees.boosting import UNLIMITED, Settings
from ddpn.members.trees.choice import Known, choose, crossed
from ddpn.members.trees.index import Index, index_of
from ddpn.members.trees.mean import Indexed, Mean, fit_mean, leaves_for, rate_for, seeds_for
from ddpn.members.trees.outputs import FAMILIES, OutputsFit, fit_around
from ddpn.members.trees.table import (
    FOLDS,
    MANY_ROWS,
    Fold,
    TreeRows,
    TreeTable,
    folds_of,
    rates,
    used_rows,
    with_columns,
)
from ddpn.networks.heads import Head, make_head
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
    means choose the number of leaves, whether crosses of columns and an additive index of them are inputs, the
    likelihood, a Negative Binomial or a Double Poisson, and its dispersion: a constant, or boosted where that is
    clearly better. Of a `stream` these are found in a sample, and the mean is boosted over all rows, as far as memory
    allows.

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
    seeds : int, optional
        Repetitions with other folds, which are averaged; the first one chooses for all. Default: 3 for a mean up to
        2,000 rows, where it matters much which ones are left out, else 1.
    index : bool, optional
        Whether to try the additive index. Default: from 5,000 rows on; with fewer, what it gains is not worth its time.
    crosses : bool, optional
        Whether to try pairs of columns with few values, such as an hour and whether it is a working day, as one.
        Default: from 5,000 rows on.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2))
    >>> sample = Sample(X, rng.poisson(np.exp(1.0 + X[:, 0])).astype(float))
    >>> Trees().fit(sample, None, seed=0).distribution(X).batch_shape
    torch.Size([300, 1])
    """

    label = "boosted trees"
    #: The likelihood: that which was given, or after the fit that which was chosen.
    head: Head
    table: TreeTable
    unit: float
    #: A constant for every raw output, and the boosters whose average is added to it.
    start: np.ndarray
    outputs: list[list[Indexed]]
    used_leaves: list[int]

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
        seeds: int | None = None,
        index: bool | None = None,
        crosses: bool | None = None,
    ) -> None:
        self.is_mean_first = head is None
        if head is not None:
            self.head = head
        self.leaves, self.rate, self.rounds = leaves, rate, rounds
        self.monotone, self.seeds, self.index, self.crosses = dict(monotone or {}), seeds, index, crosses

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
        with tree_threads_for(matrix.size):
            if self.is_mean_first:
                self._fit_mean_first(rows, used, validation, seed)
            else:
                self._fit_in_step(rows, used, seed)
        return self

    def _fit_mean_first(self, rows: TreeRows, used: Sample, validation: Sample | None, seed: int) -> None:
        """Boost a mean, choose the likelihood around it, and learn its dispersion."""
        clock, means = self.clock or UNLIMITED, list[Mean]()
        seeds = seeds_for(len(used), self.seeds)
        folds = _COPY_FOLDS if self._is_copy else FOLDS
        for number in range(seeds):
            rows = _in_folds(rows, used, seed + number, folds)
            time = clock.part(clock.left / (seeds - number))
            known = Known(means[0].leaves, means[0].has_index) if number else None
            whole = _whole(rows) if self._is_copy else None
            settings = self._settings(len(used), seed + number * 1000)
            leaves = leaves_for(len(used), self.leaves)
            index, crosses = self._tried(len(used))
            means.append(fit_mean(rows, settings, leaves, index, time, known, crosses, whole))
            rows = self._crossed(rows, means[-1].crosses)
        log_rate = np.log(np.mean([np.exp(mean.out_of_fold) for mean in means], axis=0))
        self._keep(fit_around(rows, log_rate, used, seed, clock))
        self.outputs[0] = [fold for mean in means for fold in mean.folds]
        self.used_leaves = [mean.leaves for mean in means]
        if self.stream is not None and validation is not None:
            self._fit_stream(rows, validation, seed, clock)

    def _fit_in_step(self, rows: TreeRows, used: Sample, seed: int) -> None:
        """Boost all raw outputs of the head."""
        clock, seeds, found = self.clock or UNLIMITED, self.seeds or 1, list[OutputsFit]()
        outputs: list[list[Indexed]] = [[] for _ in range(self.head.n_raw)]
        self.used_leaves = []
        for number in range(seeds):
            rows, settings = _in_folds(rows, used, seed + number), self._settings(len(used), seed + number * 1000)
            time = clock.part(clock.left / (seeds - number))
            index, crosses = self._tried(len(used))
            chosen = choose(rows, settings, leaves_for(len(used), self.leaves), index, time, crosses and not number)
            rows = self._crossed(rows, chosen.crosses)
            found.append(OutputsFit(self.head, used, seed))
            found[-1].boost_all(chosen.fit.rows, settings._replace(leaves=chosen.leaves), time)
            for output, boosters in zip(outputs, found[-1].boosters(), strict=True):
                output += [Indexed(*pair) for pair in zip(boosters, chosen.fold_indices(), strict=False)]
            self.used_leaves.append(chosen.leaves)
        self.start, self.outputs = np.mean([each.start for each in found], axis=0), outputs

    def _settings(self, rows: int, seed: int) -> Settings:
        return Settings(rate=rate_for(rows, self.rate), rounds=self.rounds, seed=seed)

    def _tried(self, rows: int) -> tuple[bool, bool]:
        """Whether to try the index and crosses."""
        index, crosses = (rows >= MANY_ROWS if each is None else each for each in (self.index, self.crosses))
        return index, crosses

    def _crossed(self, rows: TreeRows, crosses: Any) -> TreeRows:
        """The rows with crosses that were found, if any; the table has them from then on."""
        if not crosses:
            return rows
        self.table.crosses = crosses
        return crossed(rows, crosses)

    def _keep(self, found: OutputsFit) -> None:
        self.head, self.start = found.head, found.start
        self.outputs = [[Indexed(booster) for booster in boosters] for boosters in found.boosters()]

    def copied(self, left: int = 1) -> Self:
        """A copy whose mean is one booster, unless repetitions are asked for: all copies together are many already."""
        copy = super().copied(left)
        copy._is_copy, copy.seeds = True, 1 if self.seeds is None else self.seeds
        return copy

    def _fit_stream(self, sample: TreeRows, validation: Sample, seed: int, clock: Clock) -> None:
        """Replace the mean by one of all rows, where that predicts validation rows better."""
        from ddpn.members.trees.streamed import fit_streamed

        assert self.stream is not None
        settings = self._settings(len(self.stream), seed)._replace(leaves=min(self.used_leaves))
        used = in_units(validation.rows(validation.is_used), self.unit)
        found = fit_streamed(self.stream, sample, self.table, self.unit, used, settings, clock)
        if found is None:
            return
        inputs, (rate, weight) = self.table.read(used.X), rates(used)
        before, after = self.log_rate(inputs), found.booster.raw(inputs)
        if weight @ (np.exp(after) - rate * after) < weight @ (np.exp(before) - rate * before):
            self.outputs[0], self.used_leaves, self.n_rows = [Indexed(found.booster)], [found.leaves], found.rows
            # Counts spread less around a better mean.
            around = self.raw(used.X, used.exposure)[:, 1] - self.start[1]
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

        None with an index, too, which belongs to all columns. The base has what is left: the expected log rate, the
        exposure, and that the mean of rates is averaged.
        """
        if not self.is_mean_first or any(booster.additive is not None for booster in self.outputs[0]):
            return None
        matrix = self.table.read(X)
        with tree_threads_for(matrix.size):
            values = np.mean([booster.main.contributions(matrix) for booster in self.outputs[0]], axis=0)
        values = self.table.by_column(values)
        return values, np.log(self.distribution(X, exposure).mean[:, 0].numpy()) - values.sum(axis=1)

    # Saving ------------------------------------------------------------------------------------------------------

    @property
    def _boosters(self) -> list[Booster]:
        return [booster for output in self.outputs for each in output for booster in each.boosters]

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
            "outputs": [[len(each.boosters) - 1 for each in output] for output in self.outputs],
        }
        return {**boosters_to_files(self._boosters), _FACTS: json_to_bytes(facts)}

    @classmethod
    def from_state(cls, files: Mapping[str, bytes]) -> Self:
        known, member = json.loads(files[_FACTS]), cls()
        member.head = make_head(known["head"]["name"], **known["head"]["options"])
        member.is_mean_first, member.table = bool(known["mean first"]), TreeTable.from_dict(known)
        member.start, member.unit, outputs = np.array(known["start"]), known["unit"], known["outputs"]
        if member.is_mean_first and member.head.name not in FAMILIES:
            raise InputError(f"{_FACTS} must name one of {', '.join(FAMILIES)}, got {member.head.name!r}.")
        if not len(outputs) == len(member.start) == member.head.n_raw:
            raise InputError(f"{_FACTS} must have one entry per raw output of {member.head.name}.")
        member.used_leaves, member.n_rows = known["leaves"], known["streamed rows"]
        columns = []
        for output, folds in enumerate(outputs):
            width = member.table.width + (member.is_mean_first and output > 0)  # the log mean is an input of the others
            for groups in folds:
                columns += [width + Index.width(groups), *[width] * groups]
        boosters = iter(boosters_from_files(files, known["chosen"], columns))
        member.outputs = [[Indexed(next(boosters), index_of(boosters, groups)) for groups in own] for own in outputs]
        return member

    def facts(self) -> dict[str, Any]:
        return {
            "likelihood": self.head.name,
            **({} if self.is_mean_first else {"head_options": self.head.options}),
            "leaves": self.used_leaves,
            "trees": sum(booster.rounds for booster in self._boosters),
            "additive index": any(each.additive is not None for each in self.outputs[0]),
            "crossed columns": self.table.crossed_names,
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

    def __init__(self, head: Head | None = None, **options: Any) -> None:
        super().__init__(make_head("double_poisson") if head is None else head, **options)

    @classmethod
    def like(cls, head: Head) -> Self:
        return cls(head) if head.exposure_is_total else cls()


def _in_folds(rows: TreeRows, used: Sample, seed: int, number: int = FOLDS) -> TreeRows:
    """The rows in other folds, each with the columns that it takes."""
    folds = folds_of(used.y, seed, used.group, number)
    return rows._replace(folds=with_columns(folds, rows.matrix, rows.rate, rows.weight))


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
