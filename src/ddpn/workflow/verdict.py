"""The verdict on a model against the other candidates: one function for `ddpn fit`, `evaluate` and `report`."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import numpy as np

#: Standard errors from which a difference counts: a two-sided 95% normal interval.
Z = 1.959963984540054
#: Fewer test rows than this support no verdict.
MIN_ROWS = 50
#: Relative differences in CRPS below this do not matter in practice, however certain they are.
MIN_DIFFERENCE = 0.005
#: A coverage this far below its target makes intervals too narrow, if it is also more than chance.
MAX_SHORTFALL = 0.02


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The numbers that a verdict is made of.

    `crps` has the mean CRPS of every candidate by name, the model's own under `model`. `gain` is the CRPS of the best
    other candidate minus the model's, averaged over the same rows, and `gain_error` its standard error. `coverage` is
    the share of rows inside the model's interval, of which `target_coverage` is expected. With unequal weights
    `effective_rows` is below `rows`; the default is `rows`. `labels` are names as they stand within a sentence.
    `leak` is a sentence about a suspected target leak, `warnings` are further sentences to repeat.
    """

    model: str
    crps: Mapping[str, float]
    gain: float = 0.0
    gain_error: float = 0.0
    rows: int
    effective_rows: float | None = None
    coverage: float
    target_coverage: float = 0.9
    labels: Mapping[str, str] = field(default_factory=dict)
    leak: str = ""
    warnings: tuple[str, ...] = ()

    @classmethod
    def from_rows(
        cls,
        model: str,
        crps: Mapping[str, np.ndarray],
        inside: np.ndarray,
        weight: np.ndarray | None = None,
        **options: Any,
    ) -> Self:
        """The evaluation of per-row values: each candidate's CRPS, and whether the model's interval has the count.

        `options` are the remaining fields. The standard error is that of a weighted mean, with Kish's effective number
        of rows.

        >>> import numpy as np
        >>> crps = {"mixture": np.array([1.0, 2.0, 3.0]), "constant": np.array([2.0, 2.0, 5.0])}
        >>> found = Evaluation.from_rows("mixture", crps, np.array([True, True, False]))
        >>> found.best_other, found.gain, round(found.gain_error, 3), round(found.coverage, 3)
        ('constant', 1.0, 0.577, 0.667)
        """
        rows = len(inside)
        weight = np.ones(rows) if weight is None else weight
        means = {name: float(np.average(values, weights=weight)) for name, values in crps.items()}
        coverage, size = float(np.average(inside, weights=weight)), effective_rows(weight)
        found = cls(model=model, crps=means, rows=rows, effective_rows=size, coverage=coverage, **options)
        if found.best_other is None:
            return found
        gain, error = mean_and_error(crps[found.best_other] - crps[model], weight)
        return replace(found, gain=gain, gain_error=error)

    @property
    def best_other(self) -> str | None:
        """The candidate with the smallest finite CRPS besides the model; None without other candidates."""
        others = [name for name in self.crps if name != self.model and math.isfinite(self.crps[name])]
        return min(others, key=lambda name: self.crps[name], default=None)

    @property
    def outcome(self) -> str:
        """The model against the best other candidate: "better", "worse" or "unclear"."""
        other = self.best_other
        if other is None or abs(self.gain) <= Z * self.gain_error:
            return "unclear"
        if abs(self.gain) < MIN_DIFFERENCE * max(self.crps[other], self.crps[self.model]):
            return "unclear"
        return "better" if self.gain > 0 else "worse"

    @property
    def too_narrow(self) -> bool:
        """Whether the coverage is clearly below its target: Wilson's 95% interval lies below it."""
        short = self.target_coverage - self.coverage
        chance = self.target_coverage * (1.0 - self.target_coverage) / (self.effective_rows or self.rows)
        return short > MAX_SHORTFALL and short > Z * math.sqrt(chance)


class Verdict(NamedTuple):
    """`level` is "better", "unclear", "worse" or "unusable"; the first of the `sentences` is the headline."""

    level: str
    sentences: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join(self.sentences)

    @property
    def headline(self) -> str:
        return self.sentences[0]


def verdict(found: Evaluation) -> Verdict:
    """Whether to use the model, in plain sentences.

    >>> crps = {"mixture": 1.0, "boosted": 0.97}
    >>> labels = {"boosted": "gradient boosting with a Negative Binomial"}
    >>> numbers = {"gain": -0.03, "gain_error": 0.01, "rows": 900, "coverage": 0.91}
    >>> verdict(Evaluation(model="mixture", crps=crps, labels=labels, **numbers)).headline
    'Gradient boosting with a Negative Binomial is better on these rows (CRPS 3% lower): use it.'
    """
    level, headline = _headline(found)
    further = (found.leak, _coverage(found) if math.isfinite(found.coverage) else "", *found.warnings)
    return Verdict(level, (headline, *filter(None, further)))


def _headline(found: Evaluation) -> tuple[str, str]:
    """The level and the first sentence."""
    own, other = found.crps[found.model], found.best_other
    if not math.isfinite(own):
        return "unusable", "The model could not be scored: its CRPS is not a finite number."
    if found.leak:
        return "unusable", "These scores cannot be trusted: a column seems to contain the target (target leak)."
    if found.rows < MIN_ROWS:
        rows = "1 test row" if found.rows == 1 else f"{found.rows} test rows"
        return "unclear", f"Too few rows for a verdict: with {rows} every difference may be chance."
    if other is None:
        return "unclear", "The model was not compared with any other model."
    name, best = found.labels.get(other, other), found.crps[other]
    if found.outcome == "worse":
        return "worse", f"{_capital(name)} is better on these rows (CRPS {_share(-found.gain, own)} lower): use it."
    if found.outcome == "unclear":
        return "unclear", _no_difference(found, name, best)
    ahead = f"better than the best alternative, {name} (CRPS {_share(found.gain, best)} lower)"
    if found.too_narrow:
        return "unclear", f"The model predicts {ahead}, but its intervals are too narrow: use them with care."
    return "better", f"The model is {ahead}: use it."


def _no_difference(found: Evaluation, name: str, best: float) -> str:
    """The sentence for a difference that is too small, or too uncertain, to decide."""
    side = "lower" if found.gain > 0 else "higher"
    if found.gain == 0:
        return f"There is no difference from the best alternative, {name} (the same CRPS): prefer the simpler model."
    words = f"(CRPS {_share(found.gain, best)} {side})"
    if abs(found.gain) > Z * found.gain_error:
        return f"The difference from the best alternative, {name}, is too small to matter {words}: prefer the simpler."
    return (
        f"There is no clear difference from the best alternative, {name} {words}: "
        f"{found.rows:,} test rows cannot distinguish it from chance."
    )


def _coverage(found: Evaluation) -> str:
    target, coverage = f"{100 * found.target_coverage:g}%", f"{100 * found.coverage:.1f}%"
    words = f"The model's {target} intervals cover {coverage} of the test rows"
    return f"{words}: they are too narrow." if found.too_narrow else f"{words}."


def _share(difference: float, base: float) -> str:
    """A difference as percent of a score, with two digits."""
    share = 100.0 * abs(difference) / base if base > 0 else 0.0
    return f"{share:.0f}%" if share >= 9.95 else f"{share:.2g}%" if share >= 0.1 else "under 0.1%"


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def effective_rows(weight: np.ndarray) -> float:
    """(sum w)^2 / sum w^2, Kish's size of a weighted sample."""
    return float(weight.sum() ** 2 / np.square(weight).sum())


def mean_and_error(values: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """Weighted mean of per-row values and its standard error."""
    mean = float(np.average(values, weights=weight))
    variance = float(np.average(np.square(values - mean), weights=weight))
    return mean, math.sqrt(variance / max(effective_rows(weight) - 1.0, 1.0))
