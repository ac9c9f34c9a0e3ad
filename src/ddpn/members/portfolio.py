"""Fit the members of a mixture, the cheapest first, and choose their mixture weights.

A block is a set of held-out rows that are predicted together, represented by an array of their positions in
`MemberPredictions.rows` (see `MemberPredictions.divide`).
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import torch

from ddpn.members import MEMBERS, format_member_label
from ddpn.members.blending import MixtureScores, choose_mixture_weights
from ddpn.members.fitting import TIME_IS_UP, MemberFitter, describe_member_error, is_member_error
from ddpn.members.folds import Folds, JobOptions
from ddpn.members.held_out import MemberPredictions
from ddpn.members.member import Member, MemberSpec, NotApplicableError, Task
from ddpn.members.networks import Networks
from ddpn.runtime.deadlines import NO_LIMIT, Clock, TimeLimitError
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.runtime.threads import single_thread
from ddpn.runtime.validation import join_words

#: The most rows that are scored to choose weights.
_MAX_SCORED_ROWS = 5000
#: The fewest rows that are scored to choose weights under a time limit.
_MIN_SCORED_ROWS = 500
#: The smallest relative gain in the mixture's CRPS by a member after which a larger version of it is fitted.
_MIN_CRPS_GAIN = 0.002
#: Under a time limit: rows that are scored to choose weights per second left.
_SCORED_ROWS_PER_SECOND = 100.0
#: The fewest seconds left with which another member is begun.
_MIN_SECONDS_TO_BEGIN = 0.5


def make_default_specs(task: Task, extra_members: Sequence[str] = ()) -> list[MemberSpec]:
    """Make the specifications of the default members (`members="auto"`), in the order of `MEMBERS`.

    Members that cannot be fitted to the task are left out. If the likelihood is continuous, there are only baselines
    and networks. `extra_members` are names of additional members, which are fitted before the networks.
    """
    kinds = {name: MEMBERS[name] for name in MEMBERS}
    names = [
        name
        for name, kind in kinds.items()
        if kind.is_default and (task.head.is_count or kind.is_baseline or issubclass(kind, Networks))
    ]
    extra_names = [name for name in extra_members if name not in names]
    first_network = next(
        position for position, name in enumerate([*names, ""]) if not name or issubclass(kinds[name], Networks)
    )
    specs = []
    for name in [*names[:first_network], *extra_names, *names[first_network:]]:
        with suppress(NotApplicableError):
            specs.append(MemberSpec.from_task(name, task))
    return specs


def make_chosen_specs(task: Task, names: Sequence[str]) -> list[MemberSpec]:
    """Make the specifications of the members that the user has named. All of them take part in the mixture.

    Raise a `ConfigError` if one of them cannot be fitted to the task.
    """
    specs = []
    for name in names:
        try:
            spec = MemberSpec.from_task(name, task)
        except NotApplicableError:
            raise ConfigError(
                f"The member {name!r} cannot be fitted with this likelihood and these network options. Leave it out."
            ) from None
        specs.append(replace(spec, is_baseline=False, larger_than=None))
    return specs


@dataclass
class Portfolio:
    """Fits the members of a mixture one after the other, and chooses their weights by the CRPS of held-out rows.

    The constructor takes:

    - `specs`: the members to fit;
    - `clock`: the time limit of all fits together;
    - `on_step`: called with a progress message before each step;
    - `jobs`: if given, members are fitted as jobs, which may run in parallel.

    `fit` sets these attributes, where mappings are keyed by the names of members:

    - `members`: the fitted members;
    - `weights`: the mixture weights;
    - `fold_weights`: for each fold, the weights that were chosen on the held-out rows of the other folds; empty without
      folds;
    - `seconds`: the fitting times in seconds;
    - `rows`: the number of training rows to which each member was fitted under a time limit (`MemberFit.n_rows`).
      Members that are always fitted to all rows have no entry;
    - `left_out`: for each member that could not be fitted or scored, the reason, such as too little time;
    - `not_tried`: for each member that was skipped, because it was not expected to help or the fit was stopped, the
      reason;
    - `crps`: the mean CRPS of the mixture on held-out rows;
    - `interrupted`: True if Ctrl-C ended the fit. Members that were fitted before are kept;
    - `folds`, `seed`: the arguments of `fit`;
    - `predictions`: the members' predictions of the held-out rows.
    """

    specs: Sequence[MemberSpec]
    clock: Clock = NO_LIMIT
    on_step: Callable[[str], object] = lambda text: None
    jobs: JobOptions | None = None
    members: dict[str, Member] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)
    fold_weights: list[dict[str, float]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    not_tried: dict[str, str] = field(default_factory=dict)
    crps: float = float("inf")
    interrupted: bool = False
    folds: Folds = field(init=False)
    seed: int = field(init=False)
    predictions: MemberPredictions = field(init=False)
    rows: dict[str, int] = field(default_factory=dict)
    #: The names of members that were still improving when their fits ended.
    _could_learn_more: list[str] = field(default_factory=list)
    #: The last error of a member.
    _error: Exception | None = None

    def fit(self, folds: Folds, seed: int, calibration_seed: int | None = None) -> Self:
        """Fit the members until the time is up or no further member is expected to improve the mixture.

        If there are held-out rows, mixture weights are chosen on them. Validation rows are also divided into random
        parts, between which calibration is cross-fitted (`MemberPredictions`). `calibration_seed` (default: `seed`) is
        the seed of this division.
        """
        self.folds, self.seed = folds, seed
        fitter = MemberFitter(self.specs, folds, seed, self.clock, self.on_step, self.jobs)
        calibration_seed = seed if calibration_seed is None else calibration_seed
        self.predictions = MemberPredictions.from_folds(self.folds, calibration_seed)
        is_weighed = sum(not spec.is_baseline for spec in self.specs) > 1
        blocks = self._choose_scored_blocks() if is_weighed else []
        scores = MixtureScores([self.predictions.take_counts(block) for block in blocks])
        for position, spec in enumerate(self.specs):
            # No time is reserved for larger members: they are fitted only if time is left.
            members_left = 1 + sum(not later.larger_than for later in self.specs[position + 1 :])
            if self.interrupted or (self.members and self.clock.left < _MIN_SECONDS_TO_BEGIN):
                break
            if self.members and spec.larger_than not in (None, *self._could_learn_more):
                self._record_skip_reason(spec)
                continue
            so_far = f", CRPS so far {self.crps:.4g}" if self.crps < float("inf") else ""
            self.on_step(f"Fitting {spec.label}{so_far}")
            fit = fitter.fit(spec, members_left)
            self.interrupted |= fit.is_interrupted
            if fit.member is None:
                self._record_failure(spec, fit.reason, fit.error)
                continue
            self.members[spec.name], self.seconds[spec.name] = fit.member, fit.seconds
            if fit.n_rows is not None:
                self.rows[spec.name] = fit.n_rows
            self.predictions.add(spec.name, fit.member)
            if spec.is_baseline or not is_weighed:
                continue
            before = self.crps
            if not self._update_weights(spec, scores, blocks):
                break
            if fit.member.is_underfitted and self.crps < (1.0 - _MIN_CRPS_GAIN) * before:
                self._could_learn_more.append(spec.name)
        self._record_remaining()
        if self.interrupted and not self.members:
            raise KeyboardInterrupt
        if not self.members:
            reasons = "; ".join(f"{name}: {why}" for name, why in self.left_out.items())
            if self.clock.has_limit:
                raise TimeLimitError(f"no model could be fitted within the time budget ({reasons})")
            if self._error is not None and len(self.left_out) == 1:
                raise self._error
            raise InputError(f"No model could be fitted ({reasons}).") from self._error
        baselines = [spec.name for spec in self.specs if spec.is_baseline]
        mixed = [name for name in self.members if name not in baselines] or list(self.members)
        self.weights = dict.fromkeys(self.members, 0.0) | (self.weights or dict.fromkeys(mixed, 1.0 / len(mixed)))
        return self

    @property
    def notes(self) -> list[str]:
        """Sentences for the user about members that were fitted to only some rows or could not be fitted."""
        notes, total = [], len(self.folds.train)
        numbers = {name: rows for name, rows in self.rows.items() if rows < total and name in self.members}
        if numbers:
            parts = [f"{format_member_label(name, self.members[name])} to {rows:,}" for name, rows in numbers.items()]
            notes.append(f"Fitted {join_words(parts)} of {total:,} training rows, because the time budget is short.")
        labels: dict[str, list[str]] = {}
        for name, why in self.left_out.items():
            labels.setdefault(why, []).append(format_member_label(name, MEMBERS[name]))
        if labels:
            sentence = "; ".join(f"without {join_words(names)}, because {why}" for why, names in labels.items())
            weighted_members = [name for name, weight in self.weights.items() if weight > 0.0]
            sole_member_note = (
                f" It has only one member: {format_member_label(weighted_members[0], MEMBERS[weighted_members[0]])}."
                if len(weighted_members) == 1
                else ""
            )
            remedy = " Raise the time budget." if TIME_IS_UP in labels else ""
            notes.append(f"The mixture is fitted {sentence}.{remedy}{sole_member_note}")
        return notes

    def _record_skip_reason(self, spec: MemberSpec) -> None:
        """Record why the member `spec`, a larger version of another member, is not fitted.

        If the smaller member could not be fitted, the same reason is recorded in `left_out`. Otherwise, `not_tried`
        says that a larger one is not expected to help.
        """
        smaller = str(spec.larger_than)
        if smaller in self.left_out:
            self.left_out[spec.name] = self.left_out[smaller]
        else:
            self.not_tried[spec.name] = f"a larger model than {smaller} was not expected to help"

    def _record_remaining(self) -> None:
        """Record why the remaining members were not fitted: the fit was stopped, or the time was up."""
        for spec in self.specs:
            if spec.name in (*self.members, *self.left_out, *self.not_tried):
                continue
            if self.interrupted:
                self.not_tried[spec.name] = "the fit was stopped"
            else:
                self.left_out[spec.name] = TIME_IS_UP

    def _record_failure(self, spec: MemberSpec, reason: str, error: Exception | None) -> None:
        """Record in `left_out` why the member `spec` could not be fitted or scored.

        `reason` is a phrase, and `error` the exception that ended its fit, if any. The fit of the mixture continues
        without this member.
        """
        if reason:
            self.left_out[spec.name] = reason
        self._error = error or self._error

    def _remove(self, spec: MemberSpec) -> None:
        """Remove the fitted member `spec` and its predictions."""
        self.members.pop(spec.name)
        self.seconds.pop(spec.name)
        self.predictions.discard(spec.name)

    def _update_weights(self, spec: MemberSpec, scores: MixtureScores, blocks: Sequence[np.ndarray]) -> bool:
        """Score the new member `spec` on held-out rows, and choose the weights of all members again.

        `scores` has the scores of the members that were fitted before, to which those of the new member are added.
        `blocks` has the positions of the held-out rows, in several arrays. The rows of an array are predicted together.
        Return False if the time was up or the user pressed Ctrl-C, so that no further member should be fitted.
        """
        try:
            with single_thread(), torch.no_grad(), self.clock.limit():
                parts = [self.predictions.predict(spec.name, block) for block in blocks]
                scores.add(parts, self.predictions.count_components(spec.name, blocks))
        except (TimeLimitError, KeyboardInterrupt) as error:
            self.interrupted |= isinstance(error, KeyboardInterrupt)
            if not self.weights:
                self.weights = {spec.name: 1.0}  # alone, it needs no score
            elif self.interrupted:
                self.not_tried[spec.name] = "the fit was stopped before its weight was chosen"
                self._remove(spec)
            else:
                self.left_out[spec.name] = TIME_IS_UP
                self._remove(spec)
            return False
        except Exception as error:
            # The rows are valid, so an `InputError` is about the distributions that the member predicts.
            if not (is_member_error(error) or isinstance(error, InputError | NotApplicableError)):
                raise
            self._record_failure(spec, describe_member_error(error, spec.kind), error)
            self._remove(spec)
            return True
        mixed = [spec.name for spec in self.specs if spec.name in self.members and not spec.is_baseline]
        chosen = choose_mixture_weights(scores, scores.row_weights)
        self.weights = dict(zip(mixed, chosen.tolist(), strict=True))
        self.crps = float(np.average(scores.compute_crps(chosen), weights=scores.row_weights))
        if self.folds.are_crossed:
            self.fold_weights = self._choose_fold_weights(mixed, scores, self.predictions.part[np.concatenate(blocks)])
        return True

    def _choose_fold_weights(
        self, names: Sequence[str], scores: MixtureScores, fold: np.ndarray
    ) -> list[dict[str, float]]:
        """Choose mixture weights for each fold, by the scores of the rows in the other folds.

        `names` are the members of the mixture, in the order in which `scores` has them. `fold` has the number of the
        fold of each scored row, in the order of `scores.row_weights`. Return one mapping per fold from names of members
        to weights.
        """
        chosen = [
            choose_mixture_weights(scores, scores.row_weights * (fold != number))
            for number in range(int(fold.max()) + 1)
        ]
        return [dict(zip(names, weights.tolist(), strict=True)) for weights in chosen]

    def _choose_scored_blocks(self) -> list[np.ndarray]:
        """Choose the held-out rows that are scored to determine mixture weights, as many as time allows.

        Return their positions in `self.predictions.rows`, in several arrays. The rows of an array are predicted
        together.
        """
        held_out = self.predictions
        max_rows = int(min(_MAX_SCORED_ROWS, max(_MIN_SCORED_ROWS, _SCORED_ROWS_PER_SECOND * self.clock.left)))
        if len(held_out) <= max_rows:
            return held_out.divide(np.arange(len(held_out)))
        # Each fold contributes in proportion to its rows.
        parts = [np.argsort(held_out.source)]
        if held_out.is_crossed:
            parts = [np.flatnonzero(held_out.part == number) for number in range(held_out.n_parts)]
        sizes, rng = [max(1, len(part) * max_rows // len(held_out)) for part in parts], np.random.default_rng(self.seed)
        drawn = [part[rng.choice(len(part), size, replace=False)] for part, size in zip(parts, sizes, strict=True)]
        return held_out.divide(np.concatenate(drawn))
