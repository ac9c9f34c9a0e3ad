"""Scores of the mixture and of every member on the same rows, and the verdict on the mixture.

`Evaluation` holds the numbers on which the verdict is based, and `verdict` decides, for `ddpn fit`, `evaluate` and
`report`.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import torch
from torch.distributions import Distribution

from ddpn.analysis.gains import Gain, compare_scores, count_independent_rows
from ddpn.analysis.leaderboard_table import tabulate_scores
from ddpn.calibration.calibrate import CalibratedRows
from ddpn.calibration.intervals import make_interval
from ddpn.distributions import CountDistribution, discretize
from ddpn.distributions.components import Interval
from ddpn.distributions.limits import censor_rows
from ddpn.members import format_member_label
from ddpn.members.folds import get_fold_copies
from ddpn.members.member import Member
from ddpn.members.networks import Networks
from ddpn.metrics import absolute_error, crps, nll
from ddpn.metrics.predictive import require_supported
from ddpn.prediction.prediction import Prediction
from ddpn.predictor import MIXTURE, Predictor
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.errors import InputError
from ddpn.runtime.frames import make_frame
from ddpn.runtime.threads import single_thread
from ddpn.statistics import weighted_mean, wilson_interval
from ddpn.storage.contents import JsonObject
from ddpn.tables.row_draw import draw_to_json, format_drawn_rows

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

#: The nominal coverage of the intervals that are scored.
COVERAGE = 0.9
#: The scores of a leaderboard.
SCORES = ("mae", "crps", "nll", "coverage", "expected", "width")
#: The fewest rows for a verdict.
MIN_ROWS = 50
#: Two models are as good as each other if their CRPS differs by less than this share, even if the difference is
#: certain.
MAX_DIFFERENCE = 0.01
#: The same holds if their CRPS differs by less than this share of the mean count (at most of one count), or by less
#: than the second number, which is rounding of float64.
_NEGLIGIBLE_SHARE, _ROUNDING = 1e-3, 1e-6
#: Intervals are too narrow if their coverage is below the nominal one by more than the first number, and too wide if it
#: exceeds their own probability by more than the second; both only if the difference is more than chance.
MAX_SHORTFALL, MAX_EXCESS = 0.02, 0.05
#: A relative difference of absolute errors that is reported even if it may be chance.
_LARGE_ERROR_DIFFERENCE = 0.5


#: A sentence of the verdict that explains out-of-fold scores.
_OUT_OF_FOLD = "There are no test rows: every row was scored by copies of the models that were fitted without it."


class RowScores(NamedTuple):
    """Scores with one value per row: absolute error of the median, CRPS, NLL, coverage and width of the interval.

    `coverage` is 1 if the interval contains the count, else 0. `expected` is the probability of the interval by the
    row's own distribution.
    """

    mae: np.ndarray
    crps: np.ndarray
    nll: np.ndarray
    coverage: np.ndarray
    expected: np.ndarray
    width: np.ndarray

    def means(self, weight: np.ndarray | None) -> dict[str, float | None]:
        """Return means over the rows by name. The infinite NLL of an impossible count becomes None, because of JSON."""
        means = {name: float(np.average(getattr(self, name), weights=weight)) for name in SCORES}
        return {name: value if np.isfinite(value) else None for name, value in means.items()}


def score_rows(predictor: Predictor, sample: CountRows, of: str = MIXTURE) -> RowScores:
    """Score every row by the mixture or by one member, with its calibrated interval. Normals are rounded to counts."""
    return score_predictions(predictor.predict_rows(sample, of))


def score_predictions(predictions: Iterable[tuple[Prediction, CountRows]]) -> RowScores:
    """Score rows that are given as blocks of (prediction, rows)."""
    with single_thread(), torch.no_grad():
        blocks = [score_prediction(prediction, rows) for prediction, rows in predictions]
    return RowScores(*map(np.concatenate, zip(*blocks, strict=True)))


def score_prediction(prediction: Prediction, rows: CountRows) -> RowScores:
    """Score the recorded counts of rows, with the calibrated intervals of their prediction."""
    recorded = censor_rows(prediction.counts, rows.limit)
    interval = replace(prediction, distribution=recorded).interval_with_probability(COVERAGE)
    return score_distribution(recorded, rows.y, interval)


@torch.no_grad()
def score_distribution(dist: CountDistribution, y: np.ndarray, interval: Interval) -> RowScores:
    """Score every row by a count distribution with these intervals."""
    (low, high, expected), counts = interval, torch.from_numpy(y)
    inside = (low <= counts) & (counts <= high)
    scores = absolute_error(dist, counts), crps(dist, counts), nll(dist, counts), inside, expected, high - low
    return RowScores(*(values.double().numpy() for values in scores))


# The verdict ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The numbers that a verdict is made of.

    `crps` has the mean CRPS of every candidate by name, with the model's own under `model`. `gains` are the model's
    gains in CRPS over the other candidates, `errors` the mean absolute errors, and `error_gains` the gain over the
    rival in absolute error. `coverage` is the share of rows inside the model's interval, and `expected` the mean
    probability of these intervals by the model's own distributions, NaN if unknown. `effective_rows` (default: `rows`)
    is smaller than `rows` if weights differ or rows within groups are similar. `labels` are names for use within a
    sentence. `mean_count` is the scale of a difference that matters, `only_count` the count that all rows share, if
    they do. `simpler` are the candidates that are simpler than the model, simplest first (default: all). `leak` is a
    sentence about a target leak, `meaning` a sentence about what the scores mean. `folds` is the number of folds if
    rows were predicted out of fold, and 0 for test rows.
    """

    model: str
    crps: Mapping[str, float]
    gains: Mapping[str, Gain] = field(default_factory=dict)
    errors: Mapping[str, float] = field(default_factory=dict)
    error_gains: Mapping[str, Gain] = field(default_factory=dict)
    rows: int
    effective_rows: float | None = None
    coverage: float
    expected: float = math.nan
    labels: Mapping[str, str] = field(default_factory=dict)
    mean_count: float = 1.0
    only_count: float | None = None
    simpler: Sequence[str] | None = None
    leak: str = ""
    meaning: str = ""
    folds: int = 0

    @classmethod
    def from_rows(
        cls,
        model: str,
        scores: Mapping[str, RowScores],
        y: np.ndarray,
        weight: np.ndarray | None = None,
        group: np.ndarray | None = None,
        folds: int = 0,
        **options: Any,
    ) -> Self:
        """Evaluate candidates from their scores per row.

        `y` has the counts, and `group` the labels of rows that belong together. `options` are the remaining fields.
        """
        weight, model_scores = np.ones(len(y)) if weight is None else weight, scores[model]
        crps, used = {name: weighted_mean(row_scores.crps, weight) for name, row_scores in scores.items()}, weight > 0
        others = [name for name in scores if name != model and is_score(crps[name]) and is_score(crps[model])]
        evaluation = cls(
            model=model,
            crps=crps,
            gains={
                name: compare_scores(model_scores.crps, scores[name].crps, weight, len(others), group, folds)
                for name in others
            },
            errors={name: weighted_mean(row_scores.mae, weight) for name, row_scores in scores.items()},
            rows=int(used.sum()),
            effective_rows=count_independent_rows(model_scores.coverage, weight, group),
            coverage=weighted_mean(model_scores.coverage, weight),
            expected=weighted_mean(model_scores.expected, weight),
            mean_count=weighted_mean(y, weight),
            only_count=None if np.ptp(y[used]) else float(y[used][0]),
            folds=folds,
            **options,
        )
        if evaluation.rival is None:
            return evaluation
        error_gain = compare_scores(model_scores.mae, scores[evaluation.rival].mae, weight, len(others), group, folds)
        return replace(evaluation, error_gains={evaluation.rival: error_gain})

    def margin(self, name: str) -> float:
        """Return the largest difference in CRPS to a candidate that does not matter in practice."""
        return max(MAX_DIFFERENCE * self.crps[name], _ROUNDING, _NEGLIGIBLE_SHARE * min(self.mean_count, 1.0))

    def against(self, name: str) -> str:
        """Compare the model with one candidate: "better", "as good as", "undecided" or "worse".

        "as good as" requires evidence: the 95% interval of the difference lies within the margin (a test of equivalence
        by two one-sided tests of 2.5% each).
        """
        gain, margin = self.gains[name], self.margin(name)
        if -margin <= gain.low and gain.high <= margin:
            return "as good as"
        if not gain.is_clear:
            return "undecided"
        return "better" if gain.mean > 0 else "worse"

    @property
    def others(self) -> list[str]:
        """The other candidates, sorted by CRPS."""
        return sorted(self.gains, key=lambda name: self.crps[name])

    @property
    def rival(self) -> str | None:
        """The candidate that decides the verdict.

        If candidates are clearly better than the model, it is the best of them. Otherwise, if simpler candidates are as
        good, it is the simplest of them. Otherwise it is the best candidate among those that are undecided, else among
        those that are as good, else among those that are clearly worse.
        """
        outcomes = {name: self.against(name) for name in self.others}
        simpler = self.others if self.simpler is None else self.simpler
        as_good = [name for name in simpler if outcomes.get(name) == "as good as"]
        if as_good and "worse" not in outcomes.values():
            return as_good[0]
        order = {"worse": 0, "undecided": 1, "as good as": 2, "better": 3}
        return min(self.others, key=lambda name: order[outcomes[name]], default=None)

    @property
    def gain(self) -> Gain:
        """The gain of the model over its rival; 0 if there is no rival."""
        return Gain(0.0, 0.0, 0.0) if self.rival is None else self.gains[self.rival]

    @property
    def rival_is_simpler(self) -> bool:
        """True if the rival is simpler than the model."""
        return self.simpler is None or self.rival in self.simpler

    @property
    def row_words(self) -> str:
        """The words for the scored rows within a sentence: "test rows" or "out-of-fold rows"."""
        return "out-of-fold rows" if self.folds else "test rows"

    @property
    def is_decidable(self) -> bool:
        """True if there are enough rows with different counts to evaluate predictions."""
        return self.independent_rows >= MIN_ROWS and self.only_count is None

    @property
    def independent_rows(self) -> float:
        """The number of rows on which standard errors are based: `effective_rows` if known, at most `rows`."""
        return min(self.rows, self.effective_rows or self.rows)

    @property
    def too_narrow(self) -> bool:
        """True if the coverage is clearly below the nominal one: Wilson's 95% interval lies below it."""
        return self.coverage < COVERAGE - MAX_SHORTFALL and (
            wilson_interval(self.coverage, self.independent_rows)[1] < COVERAGE
        )

    @property
    def too_wide(self) -> bool:
        """True if the coverage is clearly above the intervals' own probability: Wilson's 95% interval lies above it.

        The coverage is not compared with the nominal one, which intervals of integers rightly exceed.
        """
        return self.coverage > self.expected + MAX_EXCESS and (
            wilson_interval(self.coverage, self.independent_rows)[0] > self.expected
        )

    @property
    def medians_disagree(self) -> bool:
        """True if absolute error and CRPS favour different candidates, clearly or by a large difference."""
        name = self.rival or ""
        if name not in self.error_gains:
            return False
        other, sign = self.error_gains[name], np.sign(self.gain.mean)
        small = MAX_DIFFERENCE * max(self.errors[name], self.errors[self.model])
        is_far = abs(other.mean) > _LARGE_ERROR_DIFFERENCE * min(self.errors[name], self.errors[self.model])
        return bool(sign * other.mean < -small and (other.is_clear or is_far))


def coverage_words(coverage: float, expected: float, rows: str = "rows") -> str:
    """Describe the coverage of intervals, next to the coverage that their distributions expect and the nominal one.

    >>> coverage_words(0.939, 0.935)
    'cover 93.9% of the rows (expected 93.5%; at least 90% asked)'
    """
    expectation = f"expected {expected:.1%}; " if math.isfinite(expected) else ""
    return f"cover {coverage:.1%} of the {rows} ({expectation}at least {COVERAGE:.0%} asked)"


def is_score(crps: float) -> bool:
    """Return True if a mean CRPS is finite and not negative; very large counts can overflow."""
    return math.isfinite(crps) and crps >= 0


class Verdict(NamedTuple):
    """The decision whether to use the model.

    Attributes
    ----------
    level : str
        "better" (than all others), "as good as" (another candidate, within 1%), "undecided" (too few rows to tell),
        "worse" or "unusable".
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
    sentences += [_OUT_OF_FOLD if evaluation.folds else "", evaluation.meaning]
    return Verdict(level, tuple(filter(None, sentences)), evaluation.rival if is_replaced else None)


def _write_headline(evaluation: Evaluation) -> tuple[str, str]:
    """Return the level of the verdict and its first sentence."""
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
        return "worse", f"{_capital(name)} is better on these rows (its CRPS is {ahead}): use it."
    ahead = f"better than the best alternative, {name} ({crps})"
    if evaluation.too_narrow or evaluation.too_wide:
        wrong = "too narrow" if evaluation.too_narrow else "much wider than necessary"
        return "undecided", f"The model predicts {ahead}, but its intervals are {wrong}: use them with care."
    return "better", f"The model is {ahead}: use it."


def _describe_tie(evaluation: Evaluation, name: str, crps: str) -> str:
    """Write the headline if the model and a candidate are as good as each other."""
    crps = "the same CRPS" if evaluation.gain.mean == 0 else crps
    if evaluation.rival_is_simpler:
        return f"The simpler {name} is as good as the model, within {MAX_DIFFERENCE:.0%} ({crps}): prefer it."
    return f"The model is as good as {name}, within {MAX_DIFFERENCE:.0%} ({crps}), which is no simpler: keep the model."


def _describe_doubt(evaluation: Evaluation, name: str, crps: str) -> str:
    """Write the headline if the rows are too few to decide."""
    advice = (
        f"Keep the model unless you need the simpler one, {name}" if evaluation.rival_is_simpler else "Keep the model"
    )
    return (
        f"Undecided: {evaluation.rows:,} {evaluation.row_words} are too few to tell whether the model or {name} "
        f"predicts better ({crps}). {advice}; more rows would decide."
    )


def change(gain: Gain, base: float) -> str:
    """Write a gain and its interval in percent of a score, such as "3% lower, 95% interval 1% to 5%"."""
    low, middle, high = (_share(value, base) for value in (gain.low, gain.mean, gain.high))
    if not gain.is_clear:
        return f"{middle} {_side(gain.mean)}, 95% interval {low} {_side(gain.low)} to {high} {_side(gain.high)}"
    ends = (low, high) if gain.mean > 0 else (high, low)
    return f"{middle} {_side(gain.mean)}, 95% interval {ends[0]} to {ends[1]}"


def _side(gain: float) -> str:
    return "lower" if gain > 0 else "higher"


def _share(difference: float, base: float) -> str:
    """Write a difference in percent of a score, with two significant digits."""
    share = 100.0 * abs(difference) / base if base > 0 else math.inf if difference else 0.0
    if share > 1e4:
        return f"over {10_000:,}%"
    return f"{share:.0f}%" if share >= 9.95 else f"{share:.2g}%" if share >= 0.1 else "under 0.1%"


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


# The leaderboard -----------------------------------------------------------------------------------------------------


def _complexity(member: Member) -> int:
    return get_fold_copies(member)[0].complexity


@dataclass(frozen=True, eq=False)
class Leaderboard:
    """Mean scores of the mixture, every member and other candidates on the same rows.

    Attributes
    ----------
    entries : list of dict
        One entry per candidate, sorted by CRPS: "name", "label", "weight" in the mixture, "crps", "nll", "mae",
        "coverage", "expected" coverage (the mean of the intervals' own probabilities) and "width" of the 90% intervals,
        and "seconds" of the fit.
    evaluation : Evaluation
        The numbers on which the verdict on the mixture is based.
    rows, total : int
        The number of rows that were scored, and the number from which they were drawn.
    library : {"polars", "pandas"}
        What `to_frame` returns.
    """

    entries: list[JsonObject]
    evaluation: Evaluation
    rows: int
    total: int
    library: str = "polars"

    @property
    def verdict(self) -> Verdict:
        """The verdict on the mixture, in plain sentences."""
        return verdict(self.evaluation)

    @property
    def title(self) -> str:
        """A title that says which rows were scored, and how many."""
        return f"Scores on {format_drawn_rows(self.rows, self.total, self.evaluation.row_words.removesuffix('s'))}"

    def to_dict(self) -> JsonObject:
        """Return the leaderboard as a dictionary for JSON."""
        gain, decision = self.evaluation.gain, self.verdict
        return {
            "rows": self.rows,
            "draw": draw_to_json(self.rows, self.total),
            "scored_on": self.evaluation.row_words,
            "title": self.title,
            "coverage": COVERAGE,
            "entries": self.entries,
            "crps_gain": gain.mean,
            "crps_gain_error": gain.error,
            "crps_gain_interval": [gain.low, gain.high],
            "verdict": {"level": decision.level, "sentences": list(decision.sentences), "prefer": decision.prefer},
        }

    def to_frame(self) -> "pd.DataFrame | pl.DataFrame":
        """Return the `entries` as a data frame with one row per candidate: of pandas if X was one, else of polars."""
        columns = dict.fromkeys(name for entry in self.entries for name in entry)
        return make_frame({name: [entry.get(name) for entry in self.entries] for name in columns}, self.library)

    def __str__(self) -> str:
        return f"{self.title}\n{tabulate_scores(self.entries, COVERAGE)}\n{self.verdict}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<p>{self.title}</p>{tabulate_scores(self.entries, COVERAGE).to_html()}{self.verdict._repr_html_()}"


def leaderboard(
    predictor: Predictor,
    sample: CountRows,
    leaks: Sequence[str] = (),
    meaning: str = "",
    others: Mapping[str, Distribution] | None = None,
    total: int | None = None,
    mixture: RowScores | None = None,
) -> Leaderboard:
    """Score the mixture and every member, including members of weight 0, on the same rows.

    The mixture is compared with every simpler model: all members except networks that have a weight in it.

    Parameters
    ----------
    predictor : Predictor
        The model.
    sample : CountRows
        The rows to score, such as test rows.
    leaks : sequence of str
        Sentences about suspected target leaks. They rule out a positive verdict.
    meaning : str
        A sentence about what the scores mean, such as that they are for new groups of rows.
    others : mapping of str to Distribution, optional
        Predictions of other models for the same rows, by name. Normals are rounded to counts.
    total : int, optional
        The number of rows from which the sample was drawn (`ddpn.tables.row_draw`), for the title.
    mixture : RowScores, optional
        The scores of the mixture, if they were already computed.
    """
    rows = _score_candidates(predictor, sample, mixture)
    for name, dist in (others or {}).items():
        shape, number = tuple(require_supported(dist).batch_shape), len(sample)
        if shape not in ((), (1,), (number,)):
            raise InputError(
                f"Baseline '{name}' must have one distribution per row of X ({number}), got batch shape {shape}."
            )
        other = censor_rows(discretize(dist if shape == (number,) else dist.expand((number,))), sample.limit)
        rows[name] = score_distribution(other, sample.y, make_interval(other, COVERAGE))
    about = {"leak": " ".join(leaks), "meaning": meaning}
    return _rank_candidates(predictor, rows, sample, list(others or {}), total or len(sample), **about)


def out_of_fold_leaderboard(
    predictor: Predictor, rows: CalibratedRows, leaks: Sequence[str] = (), meaning: str = ""
) -> Leaderboard:
    """Score the mixture and every member out of fold on rows that were cross-fitted.

    Parameters
    ----------
    predictor : Predictor
        The model.
    rows : CalibratedRows
        The calibration rows. Each row was predicted by copies of the members that were not fitted to it, with weights
        and a calibration from the other folds. Every row is scored once.
    leaks, meaning
        As for `leaderboard`.
    """
    held_out = rows.held_out
    scores = {name: score_predictions(predictor.predict_out_of_fold(rows, name)) for name in held_out.names}
    about = {"leak": " ".join(leaks), "meaning": meaning, "folds": held_out.n_parts}
    return _rank_candidates(predictor, scores, held_out.rows, [], len(rows), **about)


def _score_candidates(
    predictor: Predictor, sample: CountRows, mixture: RowScores | None = None
) -> dict[str, RowScores]:
    """Score the mixture (unless its scores are given) and every member, by name."""
    rows = {MIXTURE: score_rows(predictor, sample) if mixture is None else mixture}
    for name in predictor.members:
        # If the mixture has a single member with the same intervals, both have the same scores.
        is_mixture = name == predictor.sole_member and predictor.calibration.groups is None
        calibration = predictor.calibration
        if is_mixture and calibration.interval_level(COVERAGE, name) == calibration.interval_level(COVERAGE):
            rows[name] = rows[MIXTURE]
        else:
            rows[name] = score_rows(predictor, sample, name)
    return rows


def _rank_candidates(
    predictor: Predictor,
    rows: Mapping[str, RowScores],
    sample: CountRows,
    others: Sequence[str],
    total: int,
    **options: Any,
) -> Leaderboard:
    """Make the leaderboard from scores per row; `options` are further fields of the evaluation."""
    labels = {name: format_member_label(name, member) for name, member in predictor.members.items()}
    seconds = sum(predictor.seconds.get(name, 0.0) for name in predictor.active_members)
    entries = [
        {
            "name": name,
            "label": labels.get(name, name),
            "weight": predictor.weights.get(name),
            **scores.means(sample.weight),
            "seconds": seconds if name == MIXTURE else predictor.seconds.get(name),
        }
        for name, scores in rows.items()
    ]
    # A member of weight 1 is the mixture itself. Networks in a mixture are not a simpler alternative.
    networks = [name for name, member in predictor.members.items() if _complexity(member) >= Networks.complexity]
    compared = [name for name, w in predictor.weights.items() if w == 0.0 or (w < 1.0 and name not in networks)]
    # All members are simpler than a mixture of several. If the model is a single member, only simpler kinds are.
    simpler = sorted(predictor.members, key=lambda name: _complexity(predictor.members[name]))
    if len(predictor.active_members) == 1:
        (member,) = predictor.active_members.values()
        simpler = [name for name in simpler if _complexity(predictor.members[name]) < _complexity(member)]
    evaluation = Evaluation.from_rows(
        MIXTURE,
        {name: rows[name] for name in (MIXTURE, *compared, *others)},
        sample.y,
        sample.weight,
        sample.group,
        labels=labels | {name: f"the ensemble of {labels[name]} alone" for name in networks},
        simpler=[*simpler, *others],
        **options,
    )
    entries.sort(key=lambda entry: np.inf if entry["crps"] is None else entry["crps"])
    return Leaderboard(entries, evaluation, len(sample), total)
