"""Fit several kinds of members, the cheapest first, and choose their weights in a mixture."""

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import torch

from ddpn.members import MEMBERS
from ddpn.members.blending import MixtureScores, parts_for, shrunk_weights
from ddpn.members.folds import Folds, MemberFits, copies_of
from ddpn.members.member import Member, NotApplicableError, Task
from ddpn.members.networks import Networks
from ddpn.runtime.deadlines import Clock, TimeLimitError
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.runtime.threads import single_thread
from ddpn.sample import Sample
from ddpn.tables.encoding.table import PreparedTable
from ddpn.tables.splits import held_out_rows

#: Rows that weights are chosen by at most.
_SCORED_ROWS = 5000
#: Rows that weights are chosen by at least, where time is limited.
_FEWEST_SCORED = 500
#: The share of the mixture's CRPS that a member must save for the next, more expensive one to be fitted.
_WORTH_MORE = 0.002
#: The share of the time left that one member may take, where others are to come, and the last one.
_SHARE, _LAST_SHARE = 0.6, 0.75
#: The share of its time after which a member should end by itself, before it is ended.
_OWN_SHARE = 0.7
#: Where time is limited, for every second: rows of 20 columns to fit to, and rows to choose weights by.
_FITTED_PER_SECOND, _COLUMNS, _SCORED_PER_SECOND = 1000.0, 20, 100.0
#: Seconds below which no further member is begun.
_LEAST = 0.5
#: A member that ran out of time is fitted again to this share of its rows, if there are so many rows and if this share
#: of the time is left.
_RETRY_ROWS_SHARE, _MIN_RETRY_ROWS, _RETRY_SHARE = 0.25, 4000, 0.2

#: Why a candidate is left out where there is no time for it.
_TIME_IS_UP = "the time budget is too short"

#: Makes the fits of members that are not fitted in this process.
Elsewhere = Callable[[Folds, int], MemberFits]


@dataclass(frozen=True)
class Candidate:
    """A member to fit; `make` returns it unfitted, given its time.

    One that is a `baseline` has no weight where there are others. One that is `larger_than` another is fitted only if
    that one improved the mixture, and was still improving when it ended.
    """

    name: str
    make: Callable[[Clock], Member]
    baseline: bool = False
    larger_than: str | None = None

    @classmethod
    def of(cls, name: str, task: Task) -> Self:
        """The candidate of a name in `MEMBERS`, made for a task but for its time."""
        kind = MEMBERS[name]
        return cls(name, lambda clock: kind.like(replace(task, clock=clock)), kind.is_baseline, kind.larger_than)

    @property
    def applies(self) -> bool:
        """Whether there is such a member for the task."""
        try:
            self.make(Clock())
        except NotApplicableError:
            return False
        return True


def default_candidates(task: Task, others: Sequence[str] = ()) -> list[Candidate]:
    """What `members="auto"` fits, in the order of `MEMBERS`; with a likelihood of no counts, networks alone.

    `others` are names of further members, which are fitted before the networks.
    """
    kinds = {name: MEMBERS[name] for name in MEMBERS}
    names = [
        name
        for name, kind in kinds.items()
        if kind.is_default and (task.head.is_count or kind.is_baseline or issubclass(kind, Networks))
    ]
    further = [name for name in others if name not in names]
    first = next(place for place, name in enumerate([*names, ""]) if not name or issubclass(kinds[name], Networks))
    found = [Candidate.of(name, task) for name in [*names[:first], *further, *names[first:]]]
    return [candidate for candidate in found if candidate.applies]


def chosen_candidates(task: Task, names: Sequence[str]) -> list[Candidate]:
    """The candidates of these names, in this order, all with a weight; an error for one that cannot be fitted."""
    found = [replace(Candidate.of(name, task), baseline=False, larger_than=None) for name in names]
    for candidate in found:
        if not candidate.applies:
            raise ConfigError(
                f"The member {candidate.name!r} cannot be fitted with this likelihood and these options of networks."
            )
    return found


@dataclass
class Portfolio:
    """Fits candidates one after the other, and chooses their weights by the CRPS of held-out rows.

    `on_step` is called with a line on what is fitted; `elsewhere` makes the fits that are not in this process.
    """

    candidates: Sequence[Candidate]
    clock: Clock = field(default_factory=Clock)
    on_step: Callable[[str], object] = lambda text: None
    elsewhere: Elsewhere | None = None
    #: By name: what was fitted, its weights and how long it took, why candidates could not be fitted, and why others
    #: were not tried.
    members: dict[str, Member] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)
    #: Per fold, weights that were chosen by the held-out rows of the other folds alone; empty without folds.
    fold_weights: list[dict[str, float]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    not_tried: dict[str, str] = field(default_factory=dict)
    #: That of the mixture so far on held-out rows.
    crps: float = float("inf")
    #: Whether Ctrl-C ended the fit, with what there was until then.
    interrupted: bool = False
    #: The rows that members were fitted to, and those that were held out; the seed of the fits.
    folds: Folds = field(init=False)
    seed: int = field(init=False)
    _fits: MemberFits | None = None
    _could_learn_more: list[str] = field(default_factory=list)

    def fit(self, folds: Folds, seed: int) -> Self:
        """Fit until there is no time left, or a further member is not expected to improve the mixture.

        Held-out rows choose weights; without any, one candidate is all there is.
        """
        self.folds, self.seed = self._affordable(folds, seed), seed
        if all(candidate.make(self.clock).takes_prepared_tables for candidate in self.candidates):
            # Columns are read and checked here, which every member and fold would do again.
            known = [part for part in (self.folds.train, self.folds.validation) if part is not None]
            tables = PreparedTable.of_all(*(part.X for part in known))
            read = [part.replace(X=X) for part, X in zip(known, tables, strict=True)]
            self.folds = replace(self.folds, train=read[0], validation=read[1] if len(read) > 1 else None)
        self._fits = None if self.elsewhere is None else self.elsewhere(self.folds, seed)
        is_weighed = sum(not candidate.baseline for candidate in self.candidates) > 1
        scores = MixtureScores(self._scored_rows(seed) if is_weighed else [])
        for place, candidate in enumerate(self.candidates):
            # A larger member is fitted only after one that ended by itself, so that no time is kept for it.
            is_last = all(later.larger_than for later in self.candidates[place + 1 :])
            if self.interrupted or (self.members and self.clock.left < _LEAST):
                break
            if self.members and candidate.larger_than not in (None, *self._could_learn_more):
                self._skip(candidate)
                continue
            label = candidate.make(self.clock).label or candidate.name
            so_far = f", CRPS so far {self.crps:.4g}" if self.crps < float("inf") else ""
            self.on_step(f"Fitting {label}{so_far}")
            member = self._fit_candidate(candidate, seed, is_last)
            if member is None:
                continue
            self.members[candidate.name] = member
            if candidate.baseline or not is_weighed:
                continue
            before = self.crps
            if not self._weigh(candidate, member, scores):
                break
            if member.is_underfitted and self.crps < (1.0 - _WORTH_MORE) * before:
                self._could_learn_more.append(candidate.name)
        self._record_rest()
        if self.interrupted and not self.members:
            raise KeyboardInterrupt
        if not self.members:
            reasons = "; ".join(f"{name}: {why}" for name, why in self.left_out.items())
            if self.clock.has_limit:
                raise TimeLimitError(f"no model could be fitted in this time ({reasons})")
            raise InputError(f"No model could be fitted ({reasons}).")
        baselines = [candidate.name for candidate in self.candidates if candidate.baseline]
        mixed = [name for name in self.members if name not in baselines] or list(self.members)
        self.weights = dict.fromkeys(self.members, 0.0) | (self.weights or dict.fromkeys(mixed, 1.0 / len(mixed)))
        return self

    def _skip(self, candidate: Candidate) -> None:
        """Record why a candidate is not fitted after the smaller one that it depends on."""
        smaller = str(candidate.larger_than)
        if smaller in self.left_out:
            self.left_out[candidate.name] = self.left_out[smaller]
        else:
            self.not_tried[candidate.name] = f"more training than that of {smaller} was not expected to help"

    def _record_rest(self) -> None:
        """Record why the candidates after the last that was tried are not part of the model."""
        for candidate in self.candidates:
            if candidate.name in (*self.members, *self.left_out, *self.not_tried):
                continue
            if self.interrupted:
                self.not_tried[candidate.name] = "the fit was stopped"
            else:
                self.left_out[candidate.name] = _TIME_IS_UP

    def _fit_candidate(self, candidate: Candidate, seed: int, is_last: bool) -> Member | None:
        """Fit a candidate and, if there is not time enough for all rows, once more to a quarter of them."""
        member = self._fitted(candidate, seed, is_last, self.folds)
        has_rest = self.clock.left > _RETRY_SHARE * (self.clock.end - self.clock.started)
        if self.left_out.get(candidate.name) != _TIME_IS_UP or not has_rest or self.folds.validation is None:
            return member
        train = self.folds.train
        if self._fits is not None or len(train) < _MIN_RETRY_ROWS:
            return member
        some = train.rows(held_out_rows(len(train), _RETRY_ROWS_SHARE, seed, train.group))
        self.on_step(f"Fitting {candidate.name} to {len(some):,} rows, because all rows take too long")
        del self.left_out[candidate.name]
        member = self._fitted(candidate, seed, is_last, replace(self.folds, train=some))
        if member is not None:
            label = member.label or candidate.name
            text = f"Fitted {label} to {len(some):,} of {len(train):,} training rows, because the time budget is short."
            warnings.warn(text, UserWarning, stacklevel=5)  # where a user calls `fit` of an estimator
        return member

    def _fitted(self, candidate: Candidate, seed: int, is_last: bool, folds: Folds) -> Member | None:
        clock = self.clock.part((_LAST_SHARE if is_last else _SHARE) * self.clock.left)
        if candidate.baseline:
            clock = Clock()  # takes no time, and is what there is when nothing else could be fitted
        started = time.monotonic()
        try:
            with clock.limit():
                if self._fits is not None and not candidate.baseline:
                    # As a job, together with all candidates that are fitted in any case.
                    others = [c for c in self.candidates if c is candidate or not (c.larger_than or c.baseline)]
                    wave = {each.name: each.make(_own_part(clock)) for each in others}
                    member = self._fits.fitted(candidate.name, wave, clock)
                else:
                    member = folds.fit(candidate.make(_own_part(clock)), seed)
        except NotApplicableError as error:
            self.left_out[candidate.name] = str(error)
            return None
        except TimeLimitError:
            self.left_out[candidate.name] = _TIME_IS_UP
            return None
        except KeyboardInterrupt:
            self.interrupted = True
            return None
        self.interrupted |= member.interrupted
        self.seconds[candidate.name] = time.monotonic() - started
        if self._fits is not None and not candidate.baseline:
            self.seconds[candidate.name] = self._fits.seconds[candidate.name]
        return member

    def _weigh(self, candidate: Candidate, member: Member, scores: MixtureScores) -> bool:
        """Choose the weights of all members so far; False where there is no time to score the new one."""
        try:
            with single_thread(), torch.no_grad(), self.clock.limit():
                copies = copies_of(member)
                known = [parts_for(copy, block) for copy, block in zip(copies, scores.blocks, strict=True)]
                size = sum(part.batch_shape[-1] for part in parts_for(member, scores.blocks[0].rows(slice(0, 1))))
                scores.add(known, size)
        except (TimeLimitError, KeyboardInterrupt) as error:
            self.interrupted |= isinstance(error, KeyboardInterrupt)
            if self.weights:
                if self.interrupted:
                    self.not_tried[candidate.name] = "the fit was stopped before its weight was known"
                else:
                    self.left_out[candidate.name] = _TIME_IS_UP
                self.members.pop(candidate.name)
                self.seconds.pop(candidate.name)
            else:
                self.weights = {candidate.name: 1.0}  # alone, it needs no score
            return False
        mixed = [c.name for c in self.candidates if c.name in self.members and not c.baseline]
        chosen = shrunk_weights(scores, scores.weight)
        self.weights = dict(zip(mixed, chosen.tolist(), strict=True))
        self.crps = float(np.average(scores.at(chosen), weights=scores.weight))
        self.fold_weights = self._choose_fold_weights(mixed, scores) if self.folds.are_crossed else []
        return True

    def _choose_fold_weights(self, names: Sequence[str], scores: MixtureScores) -> list[dict[str, float]]:
        """Choose the weights of each fold by the rows of the other folds."""
        fold = np.repeat(np.arange(len(scores.blocks)), [len(block) for block in scores.blocks])
        chosen = [shrunk_weights(scores, scores.weight * (fold != number)) for number in range(len(scores.blocks))]
        return [dict(zip(names, weights.tolist(), strict=True)) for weights in chosen]

    def _affordable(self, folds: Folds, seed: int) -> Folds:
        """As many training rows as there is time to fit to, where others are held out."""
        if folds.validation is None:
            return folds
        train = folds.train
        shape = tuple(getattr(train.X, "shape", ()))
        columns = max(_COLUMNS, *shape[1:2])
        most = max(_SCORED_ROWS, int(min(_FITTED_PER_SECOND * self.clock.left * _COLUMNS / columns, len(train))))
        if len(train) <= most:
            return folds
        text = f"Fitted to about {most:,} of {len(train):,} training rows, because the time budget is short."
        warnings.warn(text, UserWarning, stacklevel=5)  # where a user calls `fit` of an estimator
        return replace(folds, train=train.rows(held_out_rows(len(train), most / len(train), seed, train.group)))

    def _scored_rows(self, seed: int) -> list[Sample]:
        """The held-out rows that weights are chosen by, a sample per copy of a member."""
        blocks = self.folds.held_out
        rows = sum(map(len, blocks))
        most = int(min(_SCORED_ROWS, max(_FEWEST_SCORED, _SCORED_PER_SECOND * self.clock.left)))
        if rows <= most:
            return blocks
        sizes = [max(1, len(block) * most // rows) for block in blocks]
        rng = np.random.default_rng(seed)
        drawn = [np.sort(rng.choice(len(b), n, replace=False)) for b, n in zip(blocks, sizes, strict=True)]
        return [block.rows(index) for block, index in zip(blocks, drawn, strict=True)]


def _own_part(clock: Clock) -> Clock:
    """The time after which a member should end by itself, before it is ended."""
    return clock.part(_OWN_SHARE * clock.left)
