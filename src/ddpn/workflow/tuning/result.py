"""What a search found: the best settings against the defaults, the gain and its uncertainty, what mattered."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from ddpn.analysis.gains import Gain, gain_of
from ddpn.runtime.durations import format_duration
from ddpn.workflow.tuning.space import SETTINGS, Settings

#: Standard errors that one other trial must be better by than the defaults, which are kept otherwise: as for the
#: weights of a mixture, what is not clearly worse and simpler is preferred.
_TOLERANCE = 0.5
#: Best trials that are listed.
LISTED = 10


@dataclass(frozen=True)
class TrialSummary:
    """A trial in a few numbers, for tables and JSON.

    Attributes
    ----------
    number : int
        Its number; 0 are the defaults.
    settings : dict
        Values by name.
    crps : float or None
        Mean CRPS of the rows that it was scored on, None where it was dropped before.
    gain : float or None
        CRPS of the defaults on the same rows minus that.
    error : float or None
        The standard error of that difference.
    seconds, elapsed : float
        How long it took, and seconds of the search until its end.
    dropped : str
        Why it ended early, else "".
    """

    number: int
    settings: Settings
    crps: float | None
    gain: float | None
    error: float | None
    seconds: float
    elapsed: float
    dropped: str


@dataclass(frozen=True)
class TuningResult:
    """The outcome of a search.

    Attributes
    ----------
    defaults, best : dict
        Settings of the first trial, and those that the model was refitted with: the same where no trial was better.
    best_number : int
        The number of that trial.
    gain : Gain
        CRPS of the defaults minus that of the best other trial, on rows that neither was fitted to; its interval
        allows for the number of trials that this one was chosen from. Positive is better.
    crps : float or None
        Mean CRPS of the defaults on these rows; None if there was no time for a trial.
    importances : dict
        The share of the variance of scores that each setting explains, largest first; {} for few trials.
    trials : tuple of TrialSummary
        All trials in their order.
    space : dict
        What was searched, in words.
    rows : int
        Rows that trials were scored on.
    scored_on : str
        Which rows these are.
    seconds : float
        Time of the search without the refit.
    stopped : bool
        Whether a trial was stopped at the deadline.
    """

    defaults: Settings
    best: Settings
    best_number: int
    gain: Gain
    crps: float | None
    importances: dict[str, float]
    trials: tuple[TrialSummary, ...]
    space: dict[str, str]
    rows: int
    scored_on: str
    seconds: float
    stopped: bool

    @property
    def is_tuned(self) -> bool:
        """Whether other settings than the defaults are used."""
        return self.best_number != 0

    @property
    def level(self) -> str:
        """As in a verdict: "better" for a clear gain, else "unclear"."""
        return "better" if self.is_tuned and self.gain.low > 0 else "unclear"

    @property
    def headline(self) -> str:
        """The outcome in one sentence."""
        number = len(self.trials)
        tried = f"{number} {'trials' if number != 1 else 'trial'}"
        if number <= 1:
            return "There was time for the default settings only: they are used. Give a larger budget to search."
        if not self.is_tuned:
            return f"None of {tried} was better than the default settings by more than chance: the defaults are used."
        share = f"{self.gain.mean / (self.crps or 1.0):.1%}"
        if self.gain.low > 0:
            return f"Trial {self.best_number} of {tried} is better than the default settings: CRPS lower by {share}."
        return (
            f"Trial {self.best_number} of {tried} is used, with a CRPS lower by {share} than that of the default "
            "settings, but this gain is within noise: on other rows the defaults may be as good."
        )

    @property
    def details(self) -> list[tuple[str, str]]:
        """Topics and sentences."""
        if len(self.trials) <= 1:
            return []
        dropped = sum(bool(trial.dropped) for trial in self.trials)
        found = []
        if dropped < len(self.trials) - 1:
            change = (
                f"{'lower' if self.gain.mean > 0 else 'higher'} by {abs(self.gain.mean):.2g} than with the defaults"
            )
            interval = f"95% interval of the gain {self.gain.low:.2g} to {self.gain.high:.2g}"
            where = f"{self.rows:,} rows, {self.scored_on}. No test row was used."
            found.append(
                ("Best trial", f"CRPS {change} ({interval}, which allows for the number of trials) on {where}")
            )
        last = "; the last one was stopped at the deadline" if self.stopped else ""
        time = format_duration(self.seconds)
        found.append(("Search", f"{len(self.trials)} trials in {time}, {dropped} of them dropped early{last}."))
        return found

    @property
    def changes(self) -> list[tuple[str, str, str, str]]:
        """Name, meaning, default and best value of every setting that was searched."""
        return [(n, SETTINGS[n], value_text(self.defaults[n]), value_text(self.best[n])) for n in self.space]

    @property
    def leaders(self) -> list[TrialSummary]:
        """The best trials, those first that were scored on all rows."""
        scored = [trial for trial in self.trials if trial.crps is not None]
        return sorted(scored, key=lambda t: (bool(t.dropped), -(t.gain or 0.0), t.number))[:LISTED]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        found = asdict(self) | {"gain": [self.gain.mean, self.gain.low, self.gain.high], "headline": self.headline}
        return found | {"trials": [asdict(trial) for trial in self.trials]}


def by_chance(trials: int) -> float:
    """Standard errors that the best of so many trials seems better by than the defaults if all are equally good.

    The more trials, the better the best of them looks on the rows that it was chosen by; at least 0.5.

    >>> [round(by_chance(n), 2) for n in (1, 5, 20, 100)]
    [0.5, 0.97, 1.67, 2.33]
    """
    return max(_TOLERANCE, NormalDist().inv_cdf(1.0 - 1.0 / (max(1, trials) + 1)))


def value_text(value: Any) -> str:
    """A value of a setting for people.

    >>> value_text(0.0039999), value_text("64-64"), value_text(120)
    ('0.004', '64-64', '120')
    """
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def summarize(
    trials: Sequence[Any],
    defaults: Settings,
    weight: np.ndarray,
    space: Mapping[str, object],
    scored_on: str,
    stopped: bool,
) -> TuningResult:
    """The outcome of trials, of which the first has the defaults; importances are left to the caller."""
    words = {name: str(values) for name, values in space.items()}
    if not trials:
        none = Gain(0.0, 0.0, 0.0)
        return TuningResult(defaults, defaults, 0, none, None, {}, (), words, len(weight), scored_on, 0.0, stopped)
    first = trials[0]
    summaries = tuple(_summary(trial, first.scores, weight) for trial in trials)
    whole = [t for t in trials if not t.dropped]
    others = sorted(whole[1:], key=lambda trial: float(np.average(trial.scores, weights=weight)))
    best = other = others[0] if others else first
    if not (summaries[other.number].gain or 0.0) > by_chance(len(trials) - 1) * (summaries[other.number].error or 0.0):
        best = first
    # The trial was chosen on the same rows, among all: the end that allows for it is the one towards no gain.
    gain = -gain_of(other.scores - first.scores, weight, max(1, len(trials) - 1))
    return TuningResult(
        first.settings, best.settings, best.number, gain, float(np.average(first.scores, weights=weight)), {},
        summaries, words, len(weight), scored_on, trials[-1].elapsed, stopped,
    )  # fmt: skip


def _summary(trial: Any, defaults: np.ndarray, weight: np.ndarray) -> TrialSummary:
    rows = len(trial.scores)
    crps = gain = error = None
    if rows and np.isfinite(trial.scores).all():
        crps = float(np.average(trial.scores, weights=weight[:rows]))
        found = gain_of(defaults[:rows] - trial.scores, weight[:rows])
        gain, error = found.mean, found.error
    return TrialSummary(
        trial.number, trial.settings, crps, gain, error, sum(trial.fold_seconds), trial.elapsed, trial.dropped
    )
