"""Divide rows into training and held-out rows, and fit members so that they can predict the held-out rows.

Rows are used as follows when a mixture is fitted:

- **Without validation rows**, and with up to 5,000 training rows, members are cross-fitted. The training rows are
  divided into five folds, and groups of rows stay together. For each fold, a copy of the whole member, including its
  encoder, column selection and settings, is fitted to the rows of the other folds. Each copy predicts the fold that it
  left out. New rows are predicted by the mixture of all copies.
- **With validation rows**, a member is fitted once, to the training rows, and predicts the validation rows. These are
  rows that the user has set aside or, with more than 5,000 training rows, a random tenth of the training rows.

These held-out predictions are computed once (`ddpn.members.held_out`). They are used to choose mixture weights, to fit
a recalibration map and decide whether it is used, and to fit the interval levels, which calibrate intervals (see
`ddpn.calibration`). Without test rows, they also yield the out-of-fold scores. A fold is then scored by the copies that
left it out, and the mixture weights, the recalibration map and the interval levels are fitted to the held-out
predictions of the other folds.

Cross-fitting has only one level here. The weights, map and levels of a fold use no count of that fold, but the copies
that predicted the other folds were fitted to it. Only nested cross-validation, with copies that leave out two folds
each, would avoid this. The effect is small: weights, map and levels are a handful of numbers, which are shrunk towards
equal weights, the identity and the nominal coverage. Out-of-fold scores are therefore about the same as scores of new
rows (tests/soundness/test_verdict.py).

Held-out rows determine two more things: the epoch whose weights networks keep (one number, chosen by the mean score of
all rows), and whether a recalibration map is used. Everything with many parameters, such as the encoding of columns,
splits of trees and weights of networks, is learned from the other rows alone. No member is fitted again after
calibration. Test rows are used for scores only.
"""

import json
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from torch.distributions import Distribution

from ddpn.distributions.batch_shapes import reshape_batch
from ddpn.distributions.kernels.compiling import read_clock_without_compiling
from ddpn.members.blending import mix_members
from ddpn.members.head_member import can_share_head, predict_by_one_head
from ddpn.members.member import Member, MemberSpec, NotApplicableError, check_is_member, collect_state
from ddpn.rows.count_rows import CountRows
from ddpn.rows.splits import FOLDS, HELD_OUT_SHARE, SMALL_TABLE_ROWS, assign_folds, draw_held_out_rows
from ddpn.runtime.deadlines import NO_LIMIT, Clock
from ddpn.runtime.errors import DDPNError, InputError
from ddpn.runtime.jobs import Job, Result, Workers, run
from ddpn.storage.contents import JsonObject, json_to_bytes
from ddpn.storage.results import ResultStore
from ddpn.tables.columns import ColumnTable
from ddpn.tables.schema import Schema

_PREFIX = "copy-"
#: Files of a job: the file with facts about the fit, and the prefix of the files of the member.
_FACTS, _MEMBER = "facts.json", "member/"


@dataclass(frozen=True, eq=False)
class Folds:
    """The training rows and the held-out rows: either validation rows, or each fold of the training rows in turn.

    `train` has the training rows, and `validation` the validation rows, if there are any. If members are cross-fitted,
    `fold_numbers` has the fold of each training row, numbered from 0. Otherwise it is None.
    """

    train: CountRows
    validation: CountRows | None = None
    fold_numbers: np.ndarray | None = None

    @classmethod
    def from_rows(cls, train: CountRows, validation: CountRows | None, seed: int) -> Self:
        """Choose the held-out rows: `validation` if it has rows, else folds of the training rows.

        With more than 5,000 training rows, a random tenth of them is held out as validation rows instead of folds.
        Groups of rows stay together.
        """
        if validation is not None and len(validation):
            return cls(train, validation)
        if len(train) > SMALL_TABLE_ROWS:
            kept = draw_held_out_rows(len(train), HELD_OUT_SHARE, seed, train.group)
            if kept.any() and not kept.all():
                return cls(train.rows(~kept), train.rows(kept))
        # Equal rows were merged, so that one row may stand for many.
        if train.group is None and len(train) < 2:
            raise InputError("X and y must have at least two different rows, because one is held out, got one sample.")
        if train.group is not None and len(np.unique(train.group)) < 2:
            raise InputError("groups must have at least two different values, because one is held out, got one.")
        return cls(train, None, assign_folds(len(train), FOLDS, seed, train.group))

    @property
    def are_crossed(self) -> bool:
        """True if members are cross-fitted, so that each fold of the training rows is held out once."""
        return self.fold_numbers is not None

    @property
    def held_out(self) -> list[CountRows]:
        """The held-out rows: one item per fold, or the validation rows as the only item.

        The list is empty if there are neither folds nor validation rows.
        """
        if self.fold_numbers is None:
            return [] if self.validation is None else [self.validation]
        return [self.train.rows(self.fold_numbers == k) for k in range(int(self.fold_numbers.max()) + 1)]

    def fit(self, spec: MemberSpec, seed: int, clock: Clock = NO_LIMIT) -> Member:
        """Fit the member `spec` to the training rows.

        `seed` is the seed of all random numbers of the fit. If there are folds, one copy of the member is fitted per
        fold, to the rows of the other folds. The copies are returned as a `CrossFitted` member. `clock` is the time
        limit of all copies together. Raise a `NotApplicableError` if there is only one fold.
        """
        if self.fold_numbers is None:
            return spec.fit(self.train, self.validation, seed, clock)
        if self.fold_numbers.max() < 1:
            raise NotApplicableError("it needs two rows, or two groups of rows, to leave one out")
        copies = spec.kind.fit_copies(self.train, self.fold_numbers, seed, clock, **spec.fold_options)
        return CrossFitted([check_is_member(copy, spec.kind, "fit") for copy in copies])

    def fit_copy(self, spec: MemberSpec, fold: int, seed: int, clock: Clock = NO_LIMIT) -> Member:
        """Fit one copy of the member `spec`: the copy that leaves out fold number `fold`, counted from 0.

        If the time of `clock` is up before there is a result, a `TimeLimitError` is raised.
        """
        assert self.fold_numbers is not None
        copy = spec.kind.fit(self.train.rows(self.fold_numbers != fold), None, seed, clock, **spec.fold_options)
        return check_is_member(copy, spec.kind, "fit")


def get_fold_copies(member: Member) -> Sequence[Member]:
    """Return the copies of a cross-fitted member, ordered by the fold that they left out.

    For any other member, return a list of this member alone.
    """
    return member.copies if isinstance(member, CrossFitted) else [member]


def collect_levels(members: Iterable[Member]) -> dict[str, tuple[str, ...]]:
    """Collect the levels of each categorical column that at least one of the members distinguishes.

    The levels of the first member come first, in its order. Then come the levels that only later members distinguish.
    """
    levels_by_name: dict[str, dict[str, None]] = {}
    for fitted in (fitted for member in members for fitted in get_fold_copies(member)):
        for name, levels in fitted.levels.items():
            levels_by_name.setdefault(name, {}).update(dict.fromkeys(levels))
    return {name: tuple(levels) for name, levels in levels_by_name.items()}


class CrossFitted(Member):
    """A cross-fitted member: copies of a member, whose predictions are mixed with equal weights.

    Copy k was fitted to all rows outside fold k.
    """

    def __init__(self, copies: Sequence[Member]) -> None:
        self.copies = list(copies)
        self.label = copies[0].label  # type: ignore[misc]

    @classmethod
    def fit(cls, train: CountRows, validation: CountRows | None, seed: int, clock: Clock = NO_LIMIT) -> Self:
        raise NotApplicableError("it is a mixture of copies that are already fitted")

    @property
    def schema(self) -> Schema | None:
        return self.copies[0].schema

    @property
    def interrupted(self) -> bool:  # type: ignore[override]
        return any(copy.interrupted for copy in self.copies)

    @property
    def is_underfitted(self) -> bool:  # type: ignore[override]
        return sum(copy.is_underfitted for copy in self.copies) > len(self.copies) / 2

    def predict_components(self, X: ColumnTable, exposure: np.ndarray | None = None) -> list[Distribution]:
        if can_share_head(self.copies):
            return [predict_by_one_head(self.copies, X, exposure)]
        return [part for copy in self.copies for part in copy.predict_components(X, exposure)]

    def distribution(self, X: ColumnTable, exposure: np.ndarray | None = None) -> Distribution:
        mixture = mix_members([self.predict_components(X, exposure)], [1.0])
        return reshape_batch(mixture, (*mixture.batch_shape, 1))

    def get_facts(self) -> JsonObject:
        """Return facts about the copies, such as their numbers of trees; see `Member.get_facts`.

        A value that all copies have in common is given once. Otherwise, a list has the value of each copy.
        """
        copy_facts = [copy.get_facts() for copy in self.copies]
        values = {name: [facts.get(name) for facts in copy_facts] for name in copy_facts[0]}
        return {"copies": len(copy_facts)} | {
            k: v[0] if all(facts == v[0] for facts in v) else v for k, v in values.items()
        }

    def state(self) -> dict[str, bytes]:
        states = [collect_state(copy) for copy in self.copies]
        return {f"{_PREFIX}{k}/{name}": content for k, files in enumerate(states) for name, content in files.items()}

    @classmethod
    def from_state(cls, files: Mapping[str, bytes]) -> Self:
        raise NotApplicableError("the kind of its copies is unknown: use `load_member`")


def load_member(kind: type[Member], files: Mapping[str, bytes]) -> Member:
    """Load a member, cross-fitted or not, from the files that its `state` method returned.

    `kind` is the class of the member. For a cross-fitted member, it is the class of the copies.
    """
    copy_files: dict[int, dict[str, bytes]] = {}
    for name, content in files.items():
        folder, _, file = name.partition("/")
        number = folder.removeprefix(_PREFIX)
        if not file or number == folder or not number.isdecimal():
            return check_is_member(kind.from_state(files), kind, "from_state")
        copy_files.setdefault(int(number), {})[file] = content
    copies = [kind.from_state(copy_files[number]) for number in sorted(copy_files)]
    return CrossFitted([check_is_member(copy, kind, "from_state") for copy in copies])


# Fits as jobs: several members, or several copies of a cross-fitted member, at the same time --------------------------


@dataclass(frozen=True)
class JobOptions:
    """Options for fitting members as jobs.

    - `n_jobs`: where the jobs run, such as the number of processes or a cluster (see `ddpn.runtime.jobs.run`).
    - `store`: if given, it saves finished fits, so that they are not repeated after an interruption.
    - `about`: a value that can be written as JSON. A saved fit is identified by its rows, its seed and `about`, which
      must therefore contain everything else that the fit depends on.
    - `on_step`: called with a message after each finished fit.
    """

    n_jobs: Workers
    store: ResultStore | None = None
    about: object = None
    on_step: Callable[[str], object] = lambda text: None


class MemberJobs:
    """Fits members as parallel jobs, and stores the fitted members or the errors of their fits.

    `options` says where the jobs run and whether they are saved. `folds` has the rows to which members are fitted, and
    `seed` is the seed of all fits. The attribute `seconds` has the fitting time of each member, by name.
    """

    def __init__(self, options: JobOptions, folds: Folds, seed: int) -> None:
        self.options, self.folds, self.seed = options, folds, seed
        self.seconds: dict[str, float] = {}
        self._outcomes: dict[str, Member | DDPNError] = {}
        digests = [None if part is None else part.compute_digest() for part in (folds.train, folds.validation)]
        self._about = [options.about, seed, digests if options.store else []]

    def fit(self, name: str, specs: Sequence[MemberSpec], clock: Clock) -> Member:
        """Return the fitted member called `name`, or raise the error of its fit.

        On the first request, all members in `specs` that are not fitted yet are fitted in parallel. A fit should stop
        by itself at the soft deadline of `clock`, and is terminated at its hard deadline.
        """
        if name not in self._outcomes:
            self._fit_all([spec for spec in specs if spec.name not in self._outcomes], clock)
        outcome = self._outcomes[name]
        if isinstance(outcome, DDPNError):
            raise outcome
        return outcome

    def _fit_all(self, specs: Sequence[MemberSpec], clock: Clock) -> None:
        jobs: dict[Job, tuple[str, int | None]] = {}
        # The longest first, so that no process waits for them in the end: networks of all folds are one job.
        for spec in sorted(specs, key=lambda spec: -spec.kind.complexity):
            for number in range(len(self.folds.held_out)) if self._has_job_per_copy(spec) else [None]:
                title = (spec.kind.label or spec.name) + ("" if number is None else f", fold {number + 1}")
                identity = [spec.name, spec.kind.__name__, number, *self._about]
                arguments = spec, self.seed, number, clock
                jobs[Job(title, fit_member, arguments, identity)] = (spec.name, number)
        results: dict[tuple[str, int | None], Result] = {}
        for result in run(jobs, self.folds, self.options.n_jobs, self.options.store):
            if result.error is None:
                self.options.on_step(f"Fitted {result.job.name}")
            results[jobs[result.job]] = result
        for spec in specs:
            self._outcomes[spec.name] = self._load(spec, [results[key] for key in jobs.values() if key[0] == spec.name])

    def _has_job_per_copy(self, spec: MemberSpec) -> bool:
        """Return True if each copy of the member is fitted by a separate job, rather than all copies by one job."""
        return self.folds.are_crossed and not spec.kind.fits_copies_together

    def _load(self, spec: MemberSpec, results: list[Result]) -> Member | DDPNError:
        """Load a fitted member from the results of its jobs. If a job failed, return its error.

        There is one job per copy, or a single job (see `_has_job_per_copy`). The fitting time is added to `seconds`,
        and the warnings of the fits are repeated.
        """
        for result in results:
            if result.error is not None:
                return result.error
        contents = [result.get() for result in results]
        facts = [json.loads(files[_FACTS]) for files in contents]
        self.seconds[spec.name] = sum(fact["seconds"] for fact in facts)
        for text in dict.fromkeys(text for fact in facts for text in fact["warnings"]):
            warnings.warn(text, UserWarning, stacklevel=5)
        copies = [
            load_member(spec.kind, {key.removeprefix(_MEMBER): files[key] for key in files if key.startswith(_MEMBER)})
            for files in contents
        ]
        return CrossFitted(copies) if self._has_job_per_copy(spec) else copies[0]


def fit_member(folds: Folds, spec: MemberSpec, seed: int, fold: int | None, clock: Clock) -> dict[str, bytes]:
    """Fit a member, or only its copy that leaves out fold number `fold` if this is given. A job runs this function.

    `folds` has the training rows and the folds, `spec` says what to fit, and `clock` is the time limit. Return contents
    of files by file name: the files of the fitted member, and a JSON file with the fitting time in
    seconds, without the time in which kernels were compiled, and the warnings.
    """
    started = read_clock_without_compiling()
    with warnings.catch_warnings(record=True) as caught, clock.limit():
        warnings.simplefilter("always")
        fitted = folds.fit(spec, seed, clock) if fold is None else folds.fit_copy(spec, fold, seed, clock)
    shown = [warning for warning in caught if not issubclass(warning.category, DeprecationWarning | FutureWarning)]
    files = {f"{_MEMBER}{name}": content for name, content in collect_state(fitted).items()}
    seconds = read_clock_without_compiling() - started
    facts = {"seconds": seconds, "warnings": [str(warning.message) for warning in shown]}
    return files | {_FACTS: json_to_bytes(facts)}
