"""`verdict`: decide from an `Evaluation` whether to use a model, for `ddpn fit`, `evaluate` and `report`."""

import math
from html import escape
from typing import NamedTuple

from ddpn.analysis.evaluation import MAX_DIFFERENCE, MIN_ROWS, Evaluation, is_valid_score
from ddpn.analysis.gains import Gain
from ddpn.analysis.row_scores import COVERAGE

#: A sentence of the verdict that explains out-of-fold scores.
_OUT_OF_FOLD = "There are no test rows: every row was scored by copies of the models that were fitted without it."
#: Ends of the names of candidates that take a plural verb.
_PLURALS = ("trees", "networks")
#: Words of labels that take no article in a sentence, such as "gradient boosting".
_WITHOUT_ARTICLE = (*_PLURALS, "boosting")


def format_coverage(coverage: float, expected: float, row_words: str = "rows") -> str:
    """Format the observed coverage of 90% intervals as part of a sentence, with the expected and the nominal coverage.

    `coverage` is the share of the rows whose counts lie inside their intervals. `expected` is the mean probability of
    the intervals by the predicted distributions, or NaN if it is unknown and to be left out. `row_words` is the name of
    the rows in the sentence.

    >>> format_coverage(0.939, 0.935)
    'cover 93.9% of the rows (expected 93.5%; at least 90% asked)'
    """
    expectation = f"expected {expected:.1%}; " if math.isfinite(expected) else ""
    return f"cover {coverage:.1%} of the {row_words} ({expectation}at least {COVERAGE:.0%} asked)"


class Verdict(NamedTuple):
    """Decision whether to use the model, with reasons.

    Attributes
    ----------
    level : {"better", "as good as", "undecided", "worse", "unusable"}
        How the model compares with other candidates. "as good as" means that the difference in CRPS was shown to be
        negligible (`Evaluation.against`). "undecided" means that there are too few rows, that a few rows decide, that
        CRPS and absolute error disagree, or that the intervals of a better model are poor. "unusable" means that the
        CRPS is not finite or that a column contains the target.
    sentences : tuple of str
        The reasons. The first is the headline.
    prefer : str or None
        The candidate to use instead of the model: one that is clearly better, or a simpler one that is shown to be
        as good.
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
    """Decide whether to use a model, and explain the decision in plain sentences.

    Parameters
    ----------
    evaluation : Evaluation
        Scores of the model and of other candidates.

    Examples
    --------
    >>> crps = {"mixture": 1.0, "boosted": 0.97}
    >>> labels = {"boosted": "gradient boosting"}
    >>> numbers = {"gains": {"boosted": Gain(-0.03, -0.05, -0.01)}, "rows": 900, "coverage": 0.91}
    >>> verdict(Evaluation(model="mixture", crps=crps, labels=labels, **numbers)).headline
    'Gradient boosting is better on these rows (its CRPS is 3% lower, 95% interval 1% to 5%): use it.'
    """
    level, headline = _decide_level(evaluation)
    is_replaced = level == "worse" or (level == "as good as" and evaluation.rival_is_simpler)
    sentences = [headline, evaluation.leak]
    if math.isfinite(evaluation.coverage):
        wrong = (
            ": they are too narrow" if evaluation.too_narrow else ": they are too wide" if evaluation.too_wide else ""
        )
        is_covered = format_coverage(evaluation.coverage, evaluation.expected, evaluation.row_words)
        sentences.append(f"The model's intervals {is_covered}{wrong}.")
    if evaluation.impossible:
        words = "counts have" if evaluation.impossible > 1 else "count has"
        sentences.append(
            f"{evaluation.impossible:,} of these {words} probability 0 by the model, so its negative log-likelihood is "
            "infinite: do not use it for probabilities of rare counts."
        )
    sentences += [_OUT_OF_FOLD if evaluation.folds else "", evaluation.scores_note]
    return Verdict(level, tuple(filter(None, sentences)), evaluation.rival if is_replaced else None)


def _decide_level(evaluation: Evaluation) -> tuple[str, str]:
    """Return the level of the verdict (`Verdict.level`) and its headline, the first sentence."""
    if not is_valid_score(evaluation.crps[evaluation.model]):
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
    outcome, crps = evaluation.against(evaluation.rival), f"the model's CRPS is {format_gain(gain, base)}"
    if outcome in ("as good as", "undecided"):
        return outcome, (_describe_tie if outcome == "as good as" else _describe_doubt)(evaluation, name, crps)
    rival = _add_article(name)
    if gain.depends_on_few:
        without = f"{_format_share(gain.without_few, base)} {_side(gain.without_few)}"
        return "undecided", (
            f"A handful of rows decides between the model and {rival}: {crps}, but {without} without the {gain.few} of "
            f"{evaluation.rows:,} rows that count most. Test on more rows."
        )
    if evaluation.medians_disagree:
        error = format_gain(evaluation.error_gains[evaluation.rival], evaluation.errors[evaluation.rival])
        return "undecided", (
            f"CRPS and absolute error disagree on the model and {rival}: {crps}, its mean absolute error {error}. "
            "Choose by what you need, distributions or single numbers."
        )
    if outcome == "worse":
        ahead = format_gain(-gain, evaluation.crps[evaluation.model])
        verb, its, it = _choose_number(name)
        return "worse", f"{_capital(rival)} {verb} better on these rows ({its} CRPS is {ahead}): use {it}."
    ahead = f"better than the best alternative, {rival} ({crps})"
    if evaluation.too_narrow or evaluation.too_wide:
        wrong = "too narrow" if evaluation.too_narrow else "much wider than necessary"
        return "undecided", f"The model predicts {ahead}, but its intervals are {wrong}: use them with care."
    return "better", f"The model is {ahead}: use it."


def _describe_tie(evaluation: Evaluation, rival_label: str, crps_words: str) -> str:
    """Write the headline of the verdict for the case that the model and its rival are equally good.

    `rival_label` is the rival's name, and `crps_words` is a clause that compares the two by CRPS.
    """
    comparison = "the same CRPS" if evaluation.gain.mean == 0 else crps_words
    if evaluation.rival_is_simpler:
        verb, _, it = _choose_number(rival_label)
        return (
            f"The simpler {rival_label} {verb} as good as the model, within {MAX_DIFFERENCE:.0%} ({comparison}): "
            f"prefer {it}."
        )
    return (
        f"The model is as good as {_add_article(rival_label)}, within {MAX_DIFFERENCE:.0%} ({comparison}), which is no "
        "simpler: keep the model."
    )


def _choose_number(label: str) -> tuple[str, str, str]:
    """Return the verb and the pronouns that fit the label of a model.

    They are ("are", "their", "them") for a plural such as "boosted trees", otherwise ("is", "its", "it").
    """
    return ("are", "their", "them") if label.endswith(_PLURALS) else ("is", "its", "it")


def _add_article(label: str) -> str:
    """Put "the" before the label of a model, unless it has an article or takes none."""
    needs_none = label.startswith(("a ", "an ", "the ")) or any(word in label for word in _WITHOUT_ARTICLE)
    return label if needs_none else f"the {label}"


def _describe_doubt(evaluation: Evaluation, rival_label: str, crps_words: str) -> str:
    """Write the headline of the verdict for the case that too few rows were scored to say which model is better.

    `rival_label` is the rival's name, and `crps_words` is a clause that compares the two by CRPS.
    """
    rival = _add_article(rival_label)
    advice = (
        f"Keep the model unless you need the simpler one, {rival}" if evaluation.rival_is_simpler else "Keep the model"
    )
    return (
        f"Undecided: {evaluation.rows:,} {evaluation.row_words} are too few to tell which predicts better, the model "
        f"or {rival} ({crps_words}). {advice}; more rows would decide."
    )


def format_gain(gain: Gain, base: float) -> str:
    """Format a gain with its interval in percent of a mean score `base`, such as "3% lower, 95% interval 1% to 5%".

    A positive gain is a lower score of the first model. If the interval contains 0, both of its ends are called "lower"
    or "higher".
    """
    low, middle, high = (_format_share(value, base) for value in (gain.low, gain.mean, gain.high))
    if not gain.is_clear:
        return f"{middle} {_side(gain.mean)}, 95% interval {low} {_side(gain.low)} to {high} {_side(gain.high)}"
    ends = (low, high) if gain.mean > 0 else (high, low)
    return f"{middle} {_side(gain.mean)}, 95% interval {ends[0]} to {ends[1]}"


def _side(gain: float) -> str:
    return "lower" if gain > 0 else "higher"


def _format_share(difference: float, base: float) -> str:
    """Format a difference of scores as a percentage of the mean score `base`, with two significant digits."""
    share = 100.0 * abs(difference) / base if base > 0 else math.inf if difference else 0.0
    if share > 1e4:
        return f"over {10_000:,}%"
    return f"{share:.0f}%" if share >= 9.95 else f"{share:.2g}%" if share >= 0.1 else "under 0.1%"


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]
