"""Fit several kinds of members, the cheapest first, and choose their weights in a mixture."""

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from ddpn.members.blending import MixtureScores, parts_for, shrunk_weights
from ddpn.members.fit_jobs import MemberFits
from ddpn.members.folds import Folds, copies_of
from ddpn.members.member import Member, NotApplicableError
from ddpn.runtime.deadlines import Clock, TimeLimitError
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

#: Makes the fits of members that are not fitted in this process.
Elsewhere = Callable[[Folds, int], MemberFits]


@dataclass(frozen=True)
class Candidate:
    """A member to fit; `make` returns it unfitted.

    One that is a `baseline` has no weight where there are others. One that is `expensive` is fitted only if the one
    before it improved the mixture, and was still improving when it ended.
    """

    name: str
    make: Callable[[], Member]
    baseline: bool = False
    expensive: bool = False


@dataclass
class Portfolio:
    """Fits candidates one after the other, and chooses their weights by the CRPS of held-out rows.

    Parameters
    ----------
    candidates : sequence of Candidate
        In the order in which they are fitted.
    clock : Clock
        The time there is.
    on_step : callable
        Called with a line on what is fitted.
    elsewhere : callable, optional
        Makes the `MemberFits` that fit candidates, if not in this process.

    Attributes
    ----------
    members, weights, seconds : dict
        What was fitted, its weights and how long it took, by name.
    left_out : dict
        Why candidates are not part of the model, by name.
    folds : Folds
        The rows that members were fitted to, and those that were held out.
    crps : float
        That of the mixture so far on held-out rows.
    interrupted : bool
        Whether Ctrl-C ended the fit, with what there was until then.
    """

    candidates: Sequence[Candidate]
    clock: Clock = field(default_factory=Clock)
    on_step: Callable[[str], object] = lambda text: None
    elsewhere: Elsewhere | None = None
    members: dict[str, Member] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    crps: float = float("inf")
    interrupted: bool = False
    folds: Folds = field(init=False)
    _fits: MemberFits | None = None

    def fit(self, train: Sample, validation: Sample | None, seed: int) -> "Portfolio":
        """Fit until there is no time left, or a further member is not expected to improve the mixture.

        Parameters
        ----------
        train : Sample
            Training rows.
        validation : Sample or None
            Rows that choose weights. Without them members are cross-fitted, and the training rows choose.
        seed : int
            Seed of all fits.

        Returns
        -------
        self
        """
        if validation is not None:
            train = self._affordable(train, seed)
        train, validation = _read_once(train, validation)
        self.folds = Folds.of(train, validation, seed)
        self._fits = None if self.elsewhere is None else self.elsewhere(self.folds, seed)
        blocks = self._scored_rows(seed)
        scores, weight = MixtureScores(blocks), np.concatenate([block.weight_or_ones for block in blocks])
        goes_on = True
        for place, candidate in enumerate(self.candidates):
            is_last = place == len(self.candidates) - 1
            is_enough = self.clock.left < _LEAST or (candidate.expensive and not goes_on)
            if self.interrupted or (self.members and is_enough):
                break
            self.on_step(self._line(candidate))
            member = self._fitted(candidate, seed, is_last)
            if member is None:
                goes_on = False
                continue
            self.members[candidate.name] = member
            if candidate.baseline:
                continue
            before = self.crps
            if not self._weigh(candidate, member, scores, weight):
                break
            goes_on = member.is_underfitted and self.crps < (1.0 - _WORTH_MORE) * before
        if not self.members:
            raise KeyboardInterrupt if self.interrupted else TimeLimitError(self._nothing_fitted())
        weights = self.weights or dict.fromkeys(self.members, 1.0 / len(self.members))
        self.weights = dict.fromkeys(self.members, 0.0) | weights
        return self

    def _nothing_fitted(self) -> str:
        reasons = "; ".join(f"{name}: {why}" for name, why in self.left_out.items())
        return f"no model could be fitted in this time ({reasons})" if reasons else "no model could be fitted"

    def _line(self, candidate: Candidate) -> str:
        label = candidate.make().label or candidate.name
        known = f", CRPS so far {self.crps:.4g}" if self.crps < float("inf") else ""
        return f"Fitting {label}{known}"

    def _fitted(self, candidate: Candidate, seed: int, is_last: bool) -> Member | None:
        clock = self.clock.part((_LAST_SHARE if is_last else _SHARE) * self.clock.left)
        if candidate.baseline:
            clock = Clock()  # takes no time, and is what there is when nothing else could be fitted
        started = time.monotonic()

        def make() -> Member:
            member = candidate.make()
            member.clock = clock.part(_OWN_SHARE * clock.left) if clock.has_limit else None
            return member

        try:
            with clock.limit():
                if self._fits is not None and not candidate.baseline:
                    member = self._fitted_elsewhere(self._fits, candidate, clock)
                else:
                    member = self.folds.fit(make, seed)
        except (NotApplicableError, TimeLimitError) as error:
            self.left_out[candidate.name] = str(error)
            return None
        except KeyboardInterrupt:
            self.interrupted = True
            return None
        self.interrupted |= member.interrupted
        self.seconds[candidate.name] = time.monotonic() - started
        if self._fits is not None and not candidate.baseline:
            self.seconds[candidate.name] = self._fits.seconds[candidate.name]
        return member

    def _fitted_elsewhere(self, fits: MemberFits, candidate: Candidate, clock: Clock) -> Member:
        """A member that was fitted as a job, together with all candidates that are fitted in any case."""
        wave = {c.name: c.make() for c in self.candidates if c is candidate or not (c.expensive or c.baseline)}
        return fits.fitted(candidate.name, wave, clock)

    def _weigh(self, candidate: Candidate, member: Member, scores: MixtureScores, weight: np.ndarray) -> bool:
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
                why = "the fit was stopped" if self.interrupted else str(error)
                self.left_out[candidate.name] = f"{why} before its weight was known"
                self.members.pop(candidate.name)
                self.seconds.pop(candidate.name)
            else:
                self.weights = {candidate.name: 1.0}  # alone, it needs no score
            return False
        mixed = [c.name for c in self.candidates if c.name in self.members and not c.baseline]
        chosen = shrunk_weights(scores, weight)
        self.weights = dict(zip(mixed, chosen.tolist(), strict=True))
        self.crps = float(np.average(scores.at(chosen), weights=weight))
        return True

    def _affordable(self, train: Sample, seed: int) -> Sample:
        """As many training rows as there is time to fit to."""
        shape = tuple(getattr(train.X, "shape", ()))
        columns = max(_COLUMNS, *shape[1:2])
        most = max(_SCORED_ROWS, int(min(_FITTED_PER_SECOND * self.clock.left * _COLUMNS / columns, len(train))))
        if len(train) <= most:
            return train
        text = f"Fitted to about {most:,} of {len(train):,} training rows, because the time budget is short."
        warnings.warn(text, UserWarning, stacklevel=5)  # where a user calls `fit` of an estimator
        return train.rows(held_out_rows(len(train), most / len(train), seed, train.group))

    def _scored_rows(self, seed: int) -> list[Any]:
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


def _read_once(train: Sample, validation: Sample | None) -> tuple[Sample, Sample | None]:
    """The same rows with their columns read and checked, which every member and fold would do again."""
    if validation is None:
        return train.replace(X=PreparedTable.of_all(train.X)[0]), None
    tables = PreparedTable.of_all(train.X, validation.X)
    return train.replace(X=tables[0]), validation.replace(X=tables[1])
