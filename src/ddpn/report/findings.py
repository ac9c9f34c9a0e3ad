"""The verdict in words. Sentences are chosen by the numbers, also where these speak against the model."""

from typing import NamedTuple

import numpy as np

from ddpn.report.evidence import LEVEL, Evidence
from ddpn.report.numbers import (
    effective_rows,
    fmt,
    mean,
    mean_interval,
    percent,
    plural,
    quantile,
    wilson,
)

#: Fewer rows than this can neither praise nor condemn a model.
_FEW = 50
#: A bias that is worth a sentence, as a share of the mean count.
_BIAS = 0.02


class Rival(NamedTuple):
    """A baseline against the model: mean CRPS, and the model's minus its own with a 95% interval over paired rows.

    `nearer`: whether its mean absolute error is clearly smaller than the model's.
    """

    name: str
    crps: float
    difference: float
    low: float
    high: float
    mae: float
    nearer: bool

    @property
    def outcome(self) -> str:
        """The model is "better", "worse", or there is "no clear difference"."""
        return "better" if self.high < 0 else "worse" if self.low > 0 else "no clear difference"


class Coverage(NamedTuple):
    """How often the interval held, with Wilson's 95% interval, and how often it is expected to.

    Calibrated intervals are to hold what they promise; the laws' own hold more, as much as the laws themselves expect.
    """

    held: float
    low: float
    high: float
    expected: float

    @property
    def outcome(self) -> str:
        """Compared with the promise, and then with what is expected."""
        if self.high < LEVEL:
            return "too narrow"
        if self.low > self.expected:
            return "cautious"
        return "a little too sure" if self.high < self.expected else "as expected"


class Verdict(NamedTuple):
    """`mood` is "good", "care" or "bad"; `words` are (topic, sentences)."""

    mood: str
    headline: str
    words: list[tuple[str, str]]


def rivals(evidence: Evidence) -> list[Rival]:
    """All baselines, the best first."""
    found = []
    for name, other in evidence.baselines.items():
        gap = evidence.model.crps - other.crps
        errors = [np.abs(judged.median - evidence.y) for judged in (evidence.model, other)]
        nearer = mean_interval(errors[0] - errors[1], evidence.weight)[0] > 0
        crps, difference, mae = (mean(values, evidence.weight) for values in (other.crps, gap, errors[1]))
        found.append(Rival(name, crps, difference, *mean_interval(gap, evidence.weight), mae, nearer))
    return sorted(found, key=lambda rival: rival.crps)


def coverage_of(evidence: Evidence) -> Coverage:
    """Of the model's intervals."""
    held = mean(evidence.model.inside(evidence.y), evidence.weight)
    low, high = wilson(held, effective_rows(evidence.weight))
    expected = LEVEL if evidence.calibrated else mean(evidence.model.expected, evidence.weight)
    return Coverage(held, low, high, expected)


def verdict(evidence: Evidence, target: str, shape: str, unsure: list[tuple[str, str]]) -> Verdict:
    """What to think of the model; `shape` says what its PIT does, `unsure` where it is not sure and why."""
    against, coverage = rivals(evidence), coverage_of(evidence)
    mood, headline = headline_of(against, coverage, len(evidence.y))
    words = [
        ("Typical error", _error_words(evidence, target)),
        (f"{percent(LEVEL, 0)} interval", coverage_words(coverage, evidence)),
        ("Probabilities", shape),
        ("Against baselines", rival_words(against, *_own_scores(evidence))),
        *unsure,
    ]
    return Verdict(mood, headline, words)


def headline_of(against: list[Rival], coverage: Coverage, rows: int) -> tuple[str, str]:
    """One sentence, and its mood."""
    if rows < _FEW:
        return "care", f"Too few rows to judge: with {plural(rows, 'row')} every number below may be chance."
    worst = next((rival for rival in against if rival.outcome == "worse"), None)
    narrow = coverage.outcome == "too narrow"
    if worst is not None:
        also = ", and its intervals are too narrow" if narrow else ""
        return "bad", f"Not worth it here: {worst.name} predicts better{also}."
    if narrow:
        gain = "It predicts better than every baseline, but its" if _beats_all(against) else "Its"
        return "care", f"Use with care. {gain} intervals are too narrow: they hold less often than they promise."
    if not against:
        return "good", "Its intervals hold what they promise. Nothing was given to compare its accuracy with."
    if not _beats_all(against):
        close = next(rival for rival in against if rival.outcome != "better")
        return "care", f"No clear gain: {close.name} predicts about as well. The intervals hold what they promise."
    if nearer := [rival.name for rival in against if rival.nearer]:
        return "good", f"Worth using for its probabilities and intervals; for a single number {nearer[0]} comes nearer."
    return "good", "Worth using: it predicts better than every baseline, and its intervals hold what they promise."


def _beats_all(against: list[Rival]) -> bool:
    return bool(against) and all(rival.outcome == "better" for rival in against)


def _error_words(evidence: Evidence, target: str) -> str:
    y, weight, model = evidence.y, evidence.weight, evidence.model
    error = np.abs(model.median - y)
    half, most, mae = quantile(error, weight, 0.5), quantile(error, weight, 0.9), mean(error, weight)
    middle = "exactly right" if half == 0 else f"off by {fmt(half)} or less"
    words = (
        f"Half of all predictions are {middle}, nine in ten off by {fmt(most)} or less. The mean absolute error is "
        f"{fmt(mae)}, where {target} is {fmt(mean(y, weight))} on average."
    )
    low, high = mean_interval(model.mean - y, weight)
    bias, level = mean(model.mean - y, weight), mean(y, weight)
    if len(y) >= _FEW and level > 0 and abs(bias) > _BIAS * level and (low > 0 or high < 0):
        side = "above" if bias > 0 else "below"
        words += f" Predicted means lie {percent(abs(bias) / level)} {side} the observed ones on average: a bias."
    return words


def coverage_words(coverage: Coverage, evidence: Evidence) -> str:
    """How often the interval held, how surely that is known, and what to think of it."""
    held = f"{percent(coverage.held)} of rows"
    if not evidence.weighted:
        inside = int(evidence.model.inside(evidence.y).sum())
        held = f"{inside:,} of {plural(len(evidence.y), 'row')} ({percent(coverage.held)}"
    sure = f"95% interval {percent(coverage.low)} to {percent(coverage.high)})"
    joint = " (" if evidence.weighted else ", "
    words = f"It held for {held}{joint}{sure}. "
    expected = (
        f"the model itself expects {percent(coverage.expected)}, as intervals of whole counts hold more than asked"
    )
    if evidence.calibrated:
        words += f"Its ends were set by {plural(evidence.calibrated, 'validation row')}. "
        expected = f"its ends were to hold {percent(LEVEL, 0)}"
    judgement = {
        "too narrow": f"That is less than the {percent(LEVEL, 0)} it promises: take the intervals as too narrow.",
        "a little too sure": f"That keeps the promise, but {expected}: it is a little too sure.",
        "as expected": f"That agrees with its claim: {expected}.",
        "cautious": f"That is more than it claims, {expected}: it is rather too cautious.",
    }
    return words + judgement[coverage.outcome]


def _own_scores(evidence: Evidence) -> tuple[float, float]:
    scores = evidence.model.scores(evidence.y, evidence.weight)
    return scores["crps"], scores["mae"]


def rival_words(against: list[Rival], crps: float, mae: float) -> str:
    """Against the best baseline, and those that the model does not clearly beat."""
    if not against:
        return "No baseline was given, so nothing here says whether a simpler model would do as well."
    best = against[0]
    change = abs(best.difference) / best.crps if best.crps > 0 else 0.0
    low, high = (best.low, best.high) if best.outcome != "better" else (-best.high, -best.low)
    scores = f"{fmt(crps)} against {fmt(best.crps)}, a difference of {fmt(low)} to {fmt(high)} with 95% confidence"
    words = {
        "better": f"Its CRPS is {percent(change)} lower than that of the best baseline, {best.name} ({scores}).",
        "worse": f"Its CRPS is {percent(change)} higher than that of {best.name} ({scores}): use {best.name} instead.",
        "no clear difference": f"The rows cannot tell it from the best baseline, {best.name} ({scores}).",
    }[best.outcome]
    others = [rival.name for rival in against[1:] if rival.outcome != "better"]
    if others:
        words += f" Nor does it clearly beat {', '.join(others)}."
    elif len(against) > 1 and best.outcome == "better":
        words += " It beats the other baselines too."
    if nearer := [f"{rival.name} ({fmt(rival.mae)})" for rival in against if rival.nearer]:
        words += f" The mean absolute error of {', '.join(nearer)} is smaller than its {fmt(mae)}."
    return words
