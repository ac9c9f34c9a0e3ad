"""The trees member: a boosted mean, and a dispersion that is learned from out-of-fold means."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from torch.distributions import Distribution

from ddpn.members.member import Member, NotApplicableError, exposure_unit, in_units, json_to_bytes, row_scale
from ddpn.members.trees.boosting import UNLIMITED, Booster, Settings, boosters_from_files, boosters_to_files
from ddpn.members.trees.choice import Known, crossed
from ddpn.members.trees.dispersion import FAMILIES, dispersion_of, fit_dispersion
from ddpn.members.trees.index import Index, index_of
from ddpn.members.trees.mean import FoldMean, Mean, average, fit_mean, leaves_for, rate_for, seeds_for
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
from ddpn.networks.training import RowStream
from ddpn.runtime.deadlines import Clock
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.runtime.threads import single_thread, tree_threads_for
from ddpn.sample import Sample

_FACTS = "trees.json"
#: Folds inside each copy, by which its settings are chosen.
_COPY_FOLDS = 3


class Trees(Member):
    """Boosted trees for the mean, read as a Negative Binomial or a Double Poisson.

    Poisson boosting in five folds, whose boosters are averaged. The out-of-fold means choose the number of leaves,
    whether crosses of columns and an additive index of them are inputs, the likelihood, and its dispersion: a constant,
    or boosted where that is clearly better. Of a `stream` these are found in a sample, and the mean is boosted over all
    rows, as far as memory allows. Categories and missing values are split as such; exposures and weights enter the
    likelihood.

    Parameters
    ----------
    leaves : sequence of int, optional
        Numbers of leaves to choose from. Default: by the number of rows.
    rate : float, optional
        Learning rate of the mean. Default: 0.05 below 5,000 rows, else 0.1.
    rounds : int
        Rounds of boosting at most.
    monotone : mapping of str to int, optional
        Columns of numbers in which the mean must not fall (1) or must not rise (-1), at equal exposures.
    seeds : int, optional
        Repetitions with other folds, which are averaged; the first one chooses for all. Default: 3 up to 2,000 rows,
        where it matters much which ones are left out, else 1.
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
    table: TreeTable
    folds: list[FoldMean]
    dispersion: list[Booster]
    likelihood: str
    constant: float
    unit: float

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
        seeds: int | None = None,
        index: bool | None = None,
        crosses: bool | None = None,
    ) -> None:
        self.leaves, self.rate, self.rounds = leaves, rate, rounds
        self.monotone, self.seeds, self.index, self.crosses = dict(monotone or {}), seeds, index, crosses

    def fit(self, train: Sample, validation: Sample | None, seed: int) -> Self:
        check_recorded(train)
        used = used_rows(train, least=2)
        self.unit = exposure_unit(used, make_head("poisson"))
        used = in_units(used, self.unit)
        self.table = TreeTable()
        matrix, (rate, weight) = self.table.fit(used.X), rates(used)
        rows = TreeRows(
            matrix, self.table.is_category, self.table.directions(self.monotone), rate, weight / weight.mean(), []
        )
        means: list[Mean] = []
        self.used_rate = rate_for(len(used), self.rate)
        clock = self.clock or UNLIMITED
        with tree_threads_for(matrix.size):
            seeds = seeds_for(len(used), self.seeds)
            for number in range(seeds):
                inner = folds_of(used.y, seed + number, used.group, _COPY_FOLDS if self._is_copy else FOLDS)
                folds = with_columns(inner, rows.matrix, rate, weight)
                settings = Settings(rate=self.used_rate, rounds=self.rounds, seed=seed + number * 1000)
                rows = rows._replace(folds=folds)
                time = clock.part(clock.left / (seeds - number))
                leaves = leaves_for(len(used), self.leaves)
                known = Known(means[0].leaves, means[0].has_index) if number else None
                tried = (len(used) >= MANY_ROWS if each is None else each for each in (self.index, self.crosses))
                whole = _whole(used.y, rows.matrix, rate, weight) if self._is_copy else None
                means.append(fit_mean(rows, settings, leaves, next(tried), time, known, next(tried), whole))
                if means[-1].crosses:
                    self.table.crosses, rows = means[-1].crosses, crossed(rows, means[-1].crosses)
            log_rate = np.log(np.mean([np.exp(mean.out_of_fold) for mean in means], axis=0))
            found = fit_dispersion(rows, log_rate, used, seed, clock)
        self.folds = [fold for mean in means for fold in mean.folds]
        self.used_leaves, self.has_index = [mean.leaves for mean in means], [mean.has_index for mean in means]
        self.likelihood, self.constant, self.dispersion = found.likelihood, found.constant, found.boosters
        if self.stream is not None and validation is not None:
            settings = Settings(min(self.used_leaves), rate_for(len(self.stream), self.rate), self.rounds, seed=seed)
            self._fit_stream(self.stream, rows, validation, settings, clock)
        return self

    def copied(self, left: int = 1) -> Self:
        """A copy whose mean is one booster, unless repetitions are asked for: all copies together are many already."""
        copy = super().copied(left)
        copy._is_copy, copy.seeds = True, 1 if self.seeds is None else self.seeds
        return copy

    def _fit_stream(
        self, stream: RowStream, sample: TreeRows, validation: Sample, settings: Settings, clock: Clock
    ) -> None:
        """Replace the mean by one of all rows, where that predicts validation rows better."""
        from ddpn.members.trees.streamed import Known, fit_streamed

        known = Known(self.table, self.unit, self.folds, self.likelihood, self.dispersion)
        found = fit_streamed(stream, sample, known, validation, settings, clock)
        if found is not None:
            self.folds, self.constant, self.n_rows = [FoldMean(found.booster)], found.constant, found.rows
            self.used_leaves, self.has_index = [found.leaves], [False]

    def raw(self, X: Any, exposure: np.ndarray | None = None) -> np.ndarray:
        """Log rate per unit of exposure, and the logarithm of alpha or gamma. Shape: (rows, 2)."""
        matrix = self.table.read(X)
        with tree_threads_for(matrix.size):
            log_rate = average(self.folds, matrix)
            scale = row_scale(exposure, self.unit, len(log_rate))
            log_mean = log_rate if scale is None else log_rate + scale.log().numpy()
            return np.stack([log_rate, dispersion_of(self.constant, self.dispersion, matrix, log_mean)], 1)

    @property
    def head(self) -> Head:
        """The likelihood that was chosen."""
        return make_head(self.likelihood)

    def distribution(self, X: Any, exposure: np.ndarray | None = None) -> Distribution:
        raw = torch.from_numpy(self.raw(X, exposure))
        scale = row_scale(exposure, self.unit, len(raw))
        with single_thread():
            return self.head(raw.unsqueeze(1), None if scale is None else scale.unsqueeze(1))

    def contributions(self, X: Any, exposure: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray] | None:
        """SHAP values of the log rate, averaged over the boosters; None with an index, which belongs to all columns.

        The base has what is left: the expected log rate, the exposure, and that the mean of rates is averaged.
        """
        if any(fold.additive is not None for fold in self.folds):
            return None
        matrix = self.table.read(X)
        with tree_threads_for(matrix.size):
            each = [values for fold in self.folds if (values := fold.main.contributions(matrix)) is not None]
        if len(each) < len(self.folds):
            return None
        values = self.table.by_column(np.mean(each, axis=0))
        return values, np.log(self.distribution(X, exposure).mean[:, 0].numpy()) - values.sum(axis=1)

    # Saving ------------------------------------------------------------------------------------------------------

    @property
    def _boosters(self) -> list[Booster]:
        return [booster for fold in self.folds for booster in fold.boosters] + self.dispersion

    def state(self) -> dict[str, bytes]:
        chosen = [None if each.chosen is None else each.chosen.tolist() for each in self._boosters]
        facts = {
            **self.table.as_dict(),
            **self.facts(),
            "constant": self.constant,
            "unit": self.unit,
            "chosen": chosen,
            "index": [len(fold.boosters) - 1 for fold in self.folds],
        }
        return {**boosters_to_files(self._boosters), _FACTS: json_to_bytes(facts)}

    @classmethod
    def from_state(cls, files: Mapping[str, bytes]) -> Self:
        known, member = json.loads(files[_FACTS]), cls()
        member.table = TreeTable.from_dict(known)
        member.likelihood, member.constant, member.unit = known["likelihood"], known["constant"], known["unit"]
        if member.likelihood not in FAMILIES:
            raise InputError(f"{_FACTS} must name one of {', '.join(FAMILIES)}, got {member.likelihood!r}.")
        member.used_leaves, member.has_index = known["leaves"], known["additive index"]
        member.n_rows = known.get("streamed rows")
        extra = [more for groups in known["index"] for more in (Index.width(groups), *[0] * groups)]
        extra += [1] * (len(known["chosen"]) - len(extra))  # the log mean
        boosters = iter(restored(files, known, member.table.width, extra))
        member.folds = [FoldMean(next(boosters), index_of(boosters, groups)) for groups in known["index"]]
        member.dispersion = list(boosters)
        return member

    def facts(self) -> dict[str, Any]:
        return {
            "likelihood": self.likelihood,
            "leaves": self.used_leaves,
            "trees": sum(booster.rounds for booster in self._boosters),
            "additive index": self.has_index,
            "crossed columns": self.table.crossed_names,
            "dispersion": "boosted" if self.dispersion else "constant",
            **({} if self.n_rows is None else {"streamed rows": self.n_rows}),
        }


def _whole(y: np.ndarray, matrix: np.ndarray, rate: np.ndarray, weight: np.ndarray) -> Fold:
    """All rows as one fold, which leaves out none."""
    return with_columns([Fold(np.arange(len(y)), np.arange(0))], matrix, rate, weight)[0]


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


def restored(files: Mapping[str, bytes], known: Mapping[str, Any], columns: int, extra: Sequence[int]) -> list[Booster]:
    """The boosters of a file; each reads so many `extra` columns besides those of the table."""
    chosen = [None if part is None else np.array(part, dtype=np.int64) for part in known["chosen"]]
    if len(chosen) != len(extra):
        raise InputError(f"{_FACTS} must name the columns of {len(extra)} boosters, got {len(chosen)}.")
    for part, more in zip(chosen, extra, strict=True):
        if part is not None and (part.ndim != 1 or (part < 0).any() or (part >= columns + more).any()):
            raise InputError(f"{_FACTS} must choose columns of the table, got others.")
    sizes = [columns + more if part is None else len(part) for part, more in zip(chosen, extra, strict=True)]
    return boosters_from_files(files, chosen, sizes)
