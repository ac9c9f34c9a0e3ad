"""The verdict on a model against the other candidates: one function for `ddpn fit`, `evaluate` and `report`."""

import math
from html import escape
from typing import NamedTuple

from ddpn.analysis.evaluation import MIN_ROWS, Evaluation, is_score
from ddpn.analysis.gains import Gain
from ddpn.runtime.validation import at_rows


class Verdict(NamedTuple):
    """`level` is "better", "unclear", "worse" or "unusable"; the first of the `sentences` is the headline.

    `prefer` is the candidate to use instead of the model, if there is one.
    """

    level: str
    sentences: tuple[str, ...]
    prefer: str | None = None

    def __str__(self) -> str:
        return " ".join(self.sentences)

    @property
    def headline(self) -> str:
        return self.sentences[0]

    def _repr_html_(self) -> str:
        first, *rest = map(escape, self.sentences)
        return f"<p><strong>{first}</strong> {' '.join(rest)}</p>"


def verdict(found: Evaluation) -> Verdict:
    """Decide whether to use the model, in plain sentences.

    Parameters
    ----------
    found : Evaluation
        Scores of the model and of the others.

    Examples
    --------
    >>> crps = {"mixture": 1.0, "boosted": 0.97}
    >>> labels = {"boosted": "gradient boosting"}
    >>> numbers = {"gains": {"boosted": Gain(-0.03, -0.05, -0.01)}, "rows": 900, "coverage": 0.91}
    >>> verdict(Evaluation(model="mixture", crps=crps, labels=labels, **numbers)).headline
    'Gradient boosting is better on these rows (its CRPS is 3% lower, 95% interval 1% to 5%): use it.'
    """
    level, headline = _headline(found)
    further = (found.leak, _coverage(found) if math.isfinite(found.coverage) else "", *found.warnings)
    return Verdict(level, (headline, *filter(None, further)), _preferred(found, level))


def _preferred(found: Evaluation, level: str) -> str | None:
    """The candidate that is clearly better, or as good and simpler."""
    if level == "worse":
        return found.rival
    is_tied = level == "unclear" and found.is_decidable and found.rival is not None
    return found.rival if is_tied and found.against(str(found.rival)) == "unclear" and found.rival_is_simpler else None


def _headline(found: Evaluation) -> tuple[str, str]:
    """The level and the first sentence."""
    if not is_score(found.crps[found.model]):
        return "unusable", "The model could not be scored: its CRPS is not a finite number of at least 0."
    if found.leak:
        return "unusable", "These scores cannot be trusted: a column contains the target (target leak)."
    if found.size < MIN_ROWS:
        return "unclear", _too_few(found)
    if not found.is_decidable:
        same = f"All {found.rows:,} test rows have the count {found.only_count:g}"
        return "unclear", f"{same}: they cannot show how well counts are predicted."
    if found.rival is None:
        why = "No other model could be scored" if len(found.crps) > 1 else "The model was not compared with any other"
        return "unclear", f"{why}, so it is unknown whether a simpler one would do as well."
    name = found.labels.get(found.rival, found.rival)
    outcome = found.against(found.rival)
    if outcome == "unclear":
        return "unclear", _no_difference(found, name)
    if found.gain.hangs_on_few:
        return "unclear", _few_decide(found, name)
    if found.medians_disagree:
        return "unclear", _disagreement(found, name)
    if outcome == "worse":
        ahead = change(-found.gain, found.crps[found.model])
        return "worse", f"{_capital(name)} is better on these rows (its CRPS is {ahead}): use it."
    return _better(found, name)


def _better(found: Evaluation, name: str) -> tuple[str, str]:
    lower = change(found.gain, found.crps[str(found.rival)])
    ahead = f"better than the best alternative, {name} (the model's CRPS is {lower})"
    if found.too_narrow or found.too_wide:
        wrong = "too narrow" if found.too_narrow else "much wider than necessary"
        return "unclear", f"The model predicts {ahead}, but its intervals are {wrong}: use them with care."
    return "better", f"The model is {ahead}: use it."


def _too_few(found: Evaluation) -> str:
    rows = "1 test row" if found.rows == 1 else f"{found.rows:,} test rows"
    if found.rows >= MIN_ROWS:
        rows += f", which by their weights and groups count as {found.size:.0f},"
    return f"Too few rows for a verdict: with {rows} every difference may be chance."


def _no_difference(found: Evaluation, name: str) -> str:
    """The sentence for a difference that is too small, or too uncertain, to decide."""
    gain, rival = found.gain, str(found.rival)
    advice = f"prefer the simpler, {name}" if found.rival_is_simpler else "keep the model, which is the simpler"
    if gain.mean == 0:
        return f"There is no difference from the best alternative, {name} (the same CRPS): {advice}."
    words = f"(the model's CRPS is {change(gain, found.crps[rival])})"
    least = found.least(rival)
    if abs(gain.mean) < least and (gain.is_clear or max(abs(gain.low), abs(gain.high)) < least):
        return f"The difference from the best alternative, {name}, is too small to matter {words}: {advice}."
    return (
        f"There is no clear difference from the best alternative, {name} {words}: "
        f"{found.rows:,} test rows cannot distinguish it from chance. {_capital(advice)}, or test on more rows."
    )


def _few_decide(found: Evaluation, name: str) -> str:
    gain, base = found.gain, found.crps[str(found.rival)]
    few = gain.few if found.row_labels is None else [found.row_labels[row] for row in gain.few]
    without = gain.without_few or 0.0
    return (
        f"A handful of rows decides between the model and {name}: its CRPS is {change(gain, base)}, "
        f"but {_share(without, base)} {_side(without)} without {len(few)} of {found.rows:,} rows. "
        f"Check {at_rows(few).removeprefix('at ')}."
    )


def _disagreement(found: Evaluation, name: str) -> str:
    rival = str(found.rival)
    crps, error = change(found.gain, found.crps[rival]), change(found.error_gains[rival], found.errors[rival])
    return (
        f"CRPS and absolute error disagree on the model and {name}: the model's CRPS is {crps}, its mean absolute "
        f"error {error}. Choose by what you need, distributions or single numbers."
    )


def _coverage(found: Evaluation) -> str:
    target, coverage = f"{100 * found.target_coverage:g}%", f"{100 * found.coverage:.1f}%"
    words = f"The model's {target} intervals cover {coverage} of the test rows"
    found_wrong = ": they are too narrow" if found.too_narrow else ": they are too wide" if found.too_wide else ""
    return f"{words}{found_wrong}."


def change(gain: Gain, base: float) -> str:
    """A gain and its interval as percent of a score: "3% lower, 95% interval 1% to 5%"."""
    low, middle, high = (_share(value, base) for value in (gain.low, gain.mean, gain.high))
    if not gain.is_clear:
        return f"{middle} {_side(gain.mean)}, 95% interval {low} {_side(gain.low)} to {high} {_side(gain.high)}"
    ends = (low, high) if gain.mean > 0 else (high, low)
    return f"{middle} {_side(gain.mean)}, 95% interval {ends[0]} to {ends[1]}"


def _side(gain: float) -> str:
    return "lower" if gain > 0 else "higher"


def _share(difference: float, base: float) -> str:
    """A difference as percent of a score, with two digits."""
    share = 100.0 * abs(difference) / base if base > 0 else math.inf if difference else 0.0
    if share > 1e4:
        return f"over {10_000:,}%"
    return f"{share:.0f}%" if share >= 9.95 else f"{share:.2g}%" if share >= 0.1 else "under 0.1%"


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]
