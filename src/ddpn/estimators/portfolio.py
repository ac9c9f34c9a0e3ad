"""Fit several kinds of models in the order of what they are worth per second, and mix them as far as that pays."""

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from ddpn.count_range import CountRange
from ddpn.deadlines import Clock, TimeLimitError
from ddpn.distributions.recording import bounded
from ddpn.distributions.stacking import rows_of
from ddpn.estimators.elsewhere import Elsewhere
from ddpn.members.blending import MixtureScores, shrunk_weights
from ddpn.members.cross_fitting import cross_fit
from ddpn.members.fit_jobs import MemberFits
from ddpn.members.member import Member, NotApplicableError
from ddpn.predictor import Predictor
from ddpn.sample import Sample
from ddpn.threads import single_thread

#: Rows that weights are chosen by at most.
_SCORED_ROWS = 5000
#: Rows that weights are chosen by at least, where time is limited.
_FEWEST_SCORED = 500
#: The share of the mixture's CRPS that a member must save for the next, dearer one to be fitted.
_PAYS = 0.002
#: The share of the time left that one member may take, where others are to come, and the last one.
_SHARE, _LAST_SHARE = 0.6, 0.75
#: The share of its time after which a member should end by itself, before it is ended.
_OWN_SHARE = 0.7
#: Where time is limited, for every second: rows of 20 columns to fit to, and rows to choose weights by.
_FITTED_PER_SECOND, _COLUMNS, _SCORED_PER_SECOND = 1000.0, 20, 100.0
#: Seconds below which no further member is begun.
_LEAST = 0.5


@dataclass(frozen=True)
class Candidate:
    """A member to fit; `make` returns it unfitted.

    One that is a `baseline` has no weight where there are others. One that is `dear` is fitted only if the one before
    it improved the mixture, and was still improving when it ended.
    """

    name: str
    make: Callable[[], Member]
    baseline: bool = False
    dear: bool = False


@dataclass
class Portfolio:
    """Fits candidates one after the other; `fit` returns the mixture.

    Parameters
    ----------
    candidates : sequence of Candidate
        In the order in which they are fitted.
    counts : CountRange
        The range of possible counts.
    clock : Clock
        The time there is.
    on_step : callable
        Called with a line on what is fitted.
    elsewhere : callable, optional
        Makes the `MemberFits` that fit candidates, if not in this process.

    Attributes
    ----------
    members : dict
        What was fitted, by name.
    crps : float
        That of the mixture so far on rows that its members were not fitted to.
    interrupted : bool
        Whether Ctrl-C ended the fit, with what there was until then.
    """

    candidates: Sequence[Candidate]
    counts: CountRange
    clock: Clock = field(default_factory=Clock)
    on_step: Callable[[str], object] = lambda text: None
    members: dict[str, Member] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    crps: float = float("inf")
    interrupted: bool = False
    elsewhere: Elsewhere | None = None
    _weights: dict[str, float] = field(default_factory=dict)
    _fits: MemberFits | None = None

    def fit(self, train: Sample, validation: Sample | None, seed: int) -> Predictor:
        """Fit until there is no time left or further members would not pay.

        Parameters
        ----------
        train : Sample
            Training rows.
        validation : Sample or None
            Rows that choose weights. Without them members are cross-fitted, and the training rows choose.
        seed : int
            Seed of all fits.
        """
        if validation is not None:
            train = self._affordable(train, seed)
        self._fits = None if self.elsewhere is None else self.elsewhere(train, validation, seed)
        rows = train if validation is None else validation
        some = self._some_rows(rows, seed)
        scores = MixtureScores([], torch.from_numpy(rows.y[some]), None if rows.limit is None else rows.limit[some])
        weight, pays = rows.weight_or_ones[some], True
        for place, candidate in enumerate(self.candidates):
            is_last = place == len(self.candidates) - 1
            is_enough = self.clock.left < _LEAST or (candidate.dear and not pays)
            if self.interrupted or (self.members and is_enough):
                break
            self.on_step(self._line(candidate))
            member = self._fitted(candidate, train, validation, seed, is_last)
            if member is None:
                pays = False
                continue
            self.members[candidate.name] = member
            if candidate.baseline:
                if validation is None:
                    # It hardly depends on single rows, so that these calibrate it.
                    member.out_of_fold = member.distribution(train.X, train.exposure)
                continue
            before = self.crps
            try:
                with single_thread(), torch.no_grad(), self.clock.limit():
                    scores.add(self._known(member, rows, validation, some), _size(member, rows))
            except TimeLimitError as error:
                if self._weights:
                    self._leave_out(candidate, f"{error} before its weight was known")
                else:
                    self._weights = {candidate.name: 1.0}  # alone, it needs no score
                break
            self._choose(scores, weight)
            pays = member.is_underfitted and self.crps < (1.0 - _PAYS) * before
        if not self.members:
            raise KeyboardInterrupt if self.interrupted else TimeLimitError("no model could be fitted in this time")
        weights = self._weights or dict.fromkeys(self.members, 1.0 / len(self.members))
        has_exposure = train.exposure is not None and not self.counts.upper_is_total
        return Predictor(
            self.members, dict.fromkeys(self.members, 0.0) | weights, has_exposure, self.seconds, self.counts
        )

    def _line(self, candidate: Candidate) -> str:
        label = candidate.make().label or candidate.name
        known = f", CRPS so far {self.crps:.4g}" if self.crps < float("inf") else ""
        left = f", {self.clock.left:.0f}s left" if self.clock.has_limit else ""
        return f"Fitting {label}{known}{left}"

    def _fitted(
        self, candidate: Candidate, train: Sample, validation: Sample | None, seed: int, is_last: bool
    ) -> Member | None:
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
                is_crossed = validation is None and not candidate.baseline
                if self._fits is not None and not candidate.baseline:
                    member = self._fitted_elsewhere(self._fits, candidate, clock)
                else:
                    member = cross_fit(make, train, seed) if is_crossed else make().fit(train, validation, seed)
        except (NotApplicableError, TimeLimitError) as error:
            self.left_out[candidate.name] = str(error)
            return None
        except KeyboardInterrupt:
            self.interrupted = True
            return None
        self.interrupted |= member.interrupted
        if validation is None and member.out_of_fold is None and not candidate.baseline and self.members:
            return None  # interrupted before there were predictions to weigh it by
        self.seconds[candidate.name] = time.monotonic() - started
        if self._fits is not None and not candidate.baseline:
            self.seconds[candidate.name] = self._fits.seconds[candidate.name]
        return member

    def _fitted_elsewhere(self, fits: MemberFits, candidate: Candidate, clock: Clock) -> Member:
        """A member that the executor fitted, together with all candidates that are fitted in any case."""
        wave = {c.name: c.make() for c in self.candidates if c is candidate or not (c.dear or c.baseline)}
        return fits.fitted(candidate.name, wave, wave if fits.validation is None else (), clock)

    def _known(self, member: Member, rows: Sample, validation: Sample | None, some: np.ndarray) -> Any:
        """What is predicted for rows that the member was not fitted to."""
        if validation is None:
            found = member.out_of_fold
            if found is None:
                found = member.distribution(rows.X, rows.exposure)  # alone in the mixture
            found = rows_of(found, torch.from_numpy(some))
        else:
            part = rows.rows(some)
            found = member.distribution(part.X, part.exposure)
        bounds = (None if each is None else each[some] for each in (rows.lower, rows.upper))
        return bounded(found, *bounds)

    def _leave_out(self, candidate: Candidate, why: str) -> None:
        self.left_out[candidate.name] = why
        self.members.pop(candidate.name)
        self.seconds.pop(candidate.name)

    def _affordable(self, train: Sample, seed: int) -> Sample:
        """As many training rows as there is time to fit to."""
        shape = tuple(getattr(train.X, "shape", ()))
        columns = max(_COLUMNS, *shape[1:2])
        most = max(_SCORED_ROWS, int(min(_FITTED_PER_SECOND * self.clock.left * _COLUMNS / columns, len(train))))
        if len(train) <= most:
            return train
        told = f"Fitted to {most:,} of {len(train):,} training rows, for want of time."
        warnings.warn(told, UserWarning, stacklevel=4)
        return train.rows(np.sort(np.random.default_rng(seed).choice(len(train), most, replace=False)))

    def _some_rows(self, rows: Sample, seed: int) -> np.ndarray:
        """The rows that weights are chosen by."""
        most = int(min(_SCORED_ROWS, max(_FEWEST_SCORED, _SCORED_PER_SECOND * self.clock.left)))
        if len(rows) <= most:
            return np.arange(len(rows))
        return np.sort(np.random.default_rng(seed).choice(len(rows), most, replace=False))

    def _choose(self, scores: MixtureScores, weight: np.ndarray) -> None:
        """The weights of all members so far, and the CRPS of their mixture."""
        mixed = [c.name for c in self.candidates if c.name in self.members and not c.baseline]
        chosen = shrunk_weights(scores, weight)
        self._weights = dict(zip(mixed, chosen.tolist(), strict=True))
        self.crps = float(np.average(scores.at(chosen), weights=weight))


def _size(member: Member, rows: Sample) -> int:
    """How many distributions per row the member has."""
    first = rows.rows(slice(0, 1))
    return member.distribution(first.X, first.exposure).batch_shape[-1]
