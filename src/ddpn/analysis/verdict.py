"""`verdict` decides from an `Evaluation` whether to use a model, for `ddpn fit`, `evaluate` and `report`."""

import math
from html import escape
from typing import NamedTuple

from ddpn.analysis.evaluation import MAX_DIFFERENCE, MIN_ROWS, Evaluation, is_score
from ddpn.analysis.gains import Gain
from ddpn.analysis.row_scores import COVERAGE

#: A sentence of the verdict that explains out-of-fold scores.
_OUT_OF_FOLD = "There are no test rows: every row was scored by copies of the models that were fitted without it."
#: Ends of the names of candidates that take a plural verb.
_PLURALS = ("trees", "networks")


def coverage_words(coverage: float, expected: float, rows: str = "rows") -> str:
    """Write how many rows the intervals cover, for a sentence, with the expected and the nominal coverage.

    `expected` is the mean probability of the intervals by their own distributions, NaN if unknown. `rows` is what the
    rows are called.

    >>> coverage_words(0.939, 0.935)
    'cover 93.9% of the rows (expected 93.5%; at least 90% asked)'
    """
    expectation = f"expected {expected:.1%}; " if math.isfinite(expected) else ""
    return f"cover {coverage:.1%} of the {rows} ({expectation}at least {COVERAGE:.0%} asked)"


class Verdict(NamedTuple):
    """The decision whether to use the model.

    Attributes
    ----------
    level : str
        "better" (than all others), "as good as" (another candidate, within 1%), "undecided" (too few rows to
        tell, scores that disagree, or poor intervals), "worse" or "unusable".
    sentences : tuple of str
        The reasons; the first is the headline.
    prefer : str or None
        The candidate to use instead of the model: one that is clearly better, or that is simpler and shown to be as
        good.
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
        first, *others = map(escape, self.sentences)
        return f"<p><strong>{first}</strong> {' '.join(others)}</p>"


def verdict(evaluation: Evaluation) -> Verdict:
    """Decide whether to use the model, and explain the decision in plain sentences.

    Parameters
    ----------
    evaluation : Evaluation
        Scores of the model and of the others.

    Examples
    --------
    >>> crps = {"mixture": 1.0, "boosted": 0.97}
    >>> labels = {"boosted": "gradient boosting"}
    >>> numbers = {"gains": {"boosted": Gain(-0.03, -0.05, -0.01)}, "rows": 900, "coverage": 0.91}
    >>> verdict(Evaluation(model="mixture", crps=crps, labels=labels, **numbers)).headline
    'Gradient boosting is better on these rows (its CRPS is 3% lower, 95% interval 1% to 5%): use it.'
    """
    level, headline = _write_headline(evaluation)
    is_replaced = level == "worse" or (level == "as good as" and evaluation.rival_is_simpler)
    sentences = [headline, evaluation.leak]
    if math.isfinite(evaluation.coverage):
        wrong = (
            ": they are too narrow" if evaluation.too_narrow else ": they are too wide" if evaluation.too_wide else ""
        )
        is_covered = coverage_words(evaluation.coverage, evaluation.expected, evaluation.row_words)
        sentences.append(f"The model's intervals {is_covered}{wrong}.")
    if evaluation.impossible:
        words = "counts have" if evaluation.impossible > 1 else "count has"
        sentences.append(
            f"{evaluation.impossible:,} of these {words} probability 0 by the model, so its negative log-likelihood is "
            "infinite: do not use it for probabilities of rare counts."
        )
    sentences += [_OUT_OF_FOLD if evaluation.folds else "", evaluation.scores_note]
    return Verdict(level, tuple(filter(None, sentences)), evaluation.rival if is_replaced else None)


def _write_headline(evaluation: Evaluation) -> tuple[str, str]:
    """Return the level of the verdict, as in `Verdict`, and its first sentence."""
    if not is_score(evaluation.crps[evaluation.model]):
        return "unusable", "The model could not be scored: its CRPS is not a finite number of at least 0."
    if evaluation.leak:
        return "unusable", "These scores cannot be trusted: a column contains the target (target leak)."
    if evaluation.independent_rows < MIN_ROWS:
        words = evaluation.row_words if evaluation.rows != 1 else evaluation.row_words.removesuffix("s")
        rows = f"{evaluation.rows:,} {words}"
        if evaluation.rows >= MIN_ROWS:
            rows += f", which by their weights and groups count as {evaluation.independent_rows:.0f},"
        return "undecided", f"Too few rows for a verdict: with {rows} any difference may be chance."
    if not evaluation.is_decidable:
        same = f"All {evaluation.rows:,} {evaluation.row_words} have the count {evaluation.only_count:g}"
        return "undecided", f"{same}: they cannot show how well counts are predicted."
    if evaluation.rival is None:
        why = (
            "No other model could be scored"
            if len(evaluation.crps) > 1
            else "The model was not compared with any other"
        )
        return "undecided", f"{why}, so it is unknown whether a simpler one would do as well."
    name, gain, base = (
        evaluation.labels.get(evaluation.rival, evaluation.rival),
        evaluation.gain,
        evaluation.crps[evaluation.rival],
    )
    outcome, crps = evaluation.against(evaluation.rival), f"the model's CRPS is {change(gain, base)}"
    if outcome in ("as good as", "undecided"):
        return outcome, (_describe_tie if outcome == "as good as" else _describe_doubt)(evaluation, name, crps)
    if gain.depends_on_few:
        without = f"{_share(gain.without_few, base)} {_side(gain.without_few)}"
        return "undecided", (
            f"A handful of rows decides between the model and {name}: {crps}, but {without} without the {gain.few} of "
            f"{evaluation.rows:,} rows that count most. Test on more rows."
        )
    if evaluation.medians_disagree:
        error = change(evaluation.error_gains[evaluation.rival], evaluation.errors[evaluation.rival])
        return "undecided", (
            f"CRPS and absolute error disagree on the model and {name}: {crps}, its mean absolute error {error}. "
            "Choose by what you need, distributions or single numbers."
        )
    if outcome == "worse":
        ahead = change(-gain, evaluation.crps[evaluation.model])
        verb, its, it = ("are", "their", "them") if name.endswith(_PLURALS) else ("is", "its", "it")
        return "worse", f"{_capital(name)} {verb} better on these rows ({its} CRPS is {ahead}): use {it}."
    ahead = f"better than the best alternative, {name} ({crps})"
    if evaluation.too_narrow or evaluation.too_wide:
        wrong = "too narrow" if evaluation.too_narrow else "much wider than necessary"
        return "undecided", f"The model predicts {ahead}, but its intervals are {wrong}: use them with care."
    return "better", f"The model is {ahead}: use it."


def _describe_tie(evaluation: Evaluation, name: str, crps: str) -> str:
    """Write the headline if the model and its rival are as good as each other.

    `name` is that of the rival, and `crps` words that compare both in CRPS.
    """
    crps = "the same CRPS" if evaluation.gain.mean == 0 else crps
    if evaluation.rival_is_simpler:
        return f"The simpler {name} is as good as the model, within {MAX_DIFFERENCE:.0%} ({crps}): prefer it."
    return f"The model is as good as {name}, within {MAX_DIFFERENCE:.0%} ({crps}), which is no simpler: keep the model."


def _describe_doubt(evaluation: Evaluation, name: str, crps: str) -> str:
    """Write the headline if there are too few rows to decide between the model and its rival.

    `name` is that of the rival, and `crps` words that compare both in CRPS.
    """
    advice = (
        f"Keep the model unless you need the simpler one, {name}" if evaluation.rival_is_simpler else "Keep the model"
    )
    return (
        f"Undecided: {evaluation.rows:,} {evaluation.row_words} are too few to tell whether the model or {name} "
        f"predicts better ({crps}). {advice}; more rows would decide."
    )


def change(gain: Gain, base: float) -> str:
    """Write a gain and its interval in percent of the mean score `base`, such as "3% lower, 95% interval 1% to 5%"."""
    low, middle, high = (_share(value, base) for value in (gain.low, gain.mean, gain.high))
    if not gain.is_clear:
        return f"{middle} {_side(gain.mean)}, 95% interval {low} {_side(gain.low)} to {high} {_side(gain.high)}"
    ends = (low, high) if gain.mean > 0 else (high, low)
    return f"{middle} {_side(gain.mean)}, 95% interval {ends[0]} to {ends[1]}"


def _side(gain: float) -> str:
    return "lower" if gain > 0 else "higher"


def _share(difference: float, base: float) -> str:
    """Write a difference of scores in percent of the mean score `base`, with two significant digits."""
    share = 100.0 * abs(difference) / base if base > 0 else math.inf if difference else 0.0
    if share > 1e4:
        return f"over {10_000:,}%"
    return f"{share:.0f}%" if share >= 9.95 else f"{share:.2g}%" if share >= 0.1 else "under 0.1%"


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]
