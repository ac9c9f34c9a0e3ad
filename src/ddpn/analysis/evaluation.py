"""`Evaluation`: scores of a model and of other candidates on the same rows, from which a verdict is derived."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from ddpn.analysis.gains import Gain, compare_scores, count_independent_rows
from ddpn.analysis.row_scores import COVERAGE, RowScores
from ddpn.statistics import weighted_mean, wilson_interval

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


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Scores of a model and of other candidates on the same rows, used by `verdict`.

    Attributes
    ----------
    model : str
        The name of the model among the candidates.
    crps : mapping of str to float
        The mean CRPS of every candidate by name.
    gains : mapping of str to Gain
        By how much the CRPS of the model is lower than that of each other candidate.
    errors : mapping of str to float
        The mean absolute error of every candidate by name.
    error_gains : mapping of str to Gain
        By how much the mean absolute error of the model is lower than that of the `rival`. The only key is the rival.
    rows : int
        The number of scored rows.
    effective_rows : float or None
        The number of independent rows of equal weight that would give the same precision. It is smaller than `rows` if
        weights differ or rows within groups are similar. Default: `rows`.
    coverage : float
        The share of counts inside the model's intervals.
    expected : float
        The expected coverage: the mean probability of these intervals by the distributions that the model predicts. NaN
        if unknown.
    labels : mapping of str to str
        Names of candidates for use within a sentence.
    mean_count : float
        The mean of the counts. It determines, with the CRPS, which differences are negligible (`margin`).
    only_count : float or None
        The value of all counts if they are equal, else None.
    impossible : int
        The number of counts to which the model gives probability 0.
    simpler : sequence of str or None
        The candidates that are simpler than the model, simplest first. Default: all candidates.
    leak : str
        A sentence about a suspected target leak, which makes the scores worthless; "" if there is none.
    scores_note : str
        A sentence that says for which new rows the scores hold, for example rows of new groups.
    folds : int
        The number of folds if rows were predicted out of fold; 0 for test rows.
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
    impossible: int = 0
    simpler: Sequence[str] | None = None
    leak: str = ""
    scores_note: str = ""
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
        """Evaluate a model and other candidates from their scores of the same rows.

        `scores` maps the name of each candidate to its scores of the rows, and `model` is the name of the model. `y`,
        `weight` and `group` have the count, the weight and the group of each row; rows of a group are not independent.
        `folds` and the further `options`, such as `simpler`, are attributes of `Evaluation`.
        """
        weight, model_scores = np.ones(len(y)) if weight is None else weight, scores[model]
        crps, used = {name: weighted_mean(row_scores.crps, weight) for name, row_scores in scores.items()}, weight > 0
        others = [
            name for name in scores if name != model and is_valid_score(crps[name]) and is_valid_score(crps[model])
        ]
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
            impossible=int(np.isposinf(model_scores.nll[used]).sum()),
            folds=folds,
            **options,
        )
        if evaluation.rival is None:
            return evaluation
        error_gain = compare_scores(model_scores.mae, scores[evaluation.rival].mae, weight, len(others), group, folds)
        return replace(evaluation, error_gains={evaluation.rival: error_gain})

    def margin(self, name: str) -> float:
        """Return the largest difference in CRPS between the model and the candidate `name` that is negligible.

        It is 1% of the candidate's CRPS or, if that is larger, 0.1% of the mean count (at most 0.001). It is at least
        1e-6, because smaller differences may be rounding errors.
        """
        return max(MAX_DIFFERENCE * self.crps[name], _ROUNDING, _NEGLIGIBLE_SHARE * min(self.mean_count, 1.0))

    def against(self, name: str) -> str:
        """Compare the model with the candidate `name`: "better", "as good as", "undecided" or "worse".

        The model is better or worse if the 95% interval of the difference in CRPS excludes 0. It is as good as the
        candidate only if there is evidence for this: the interval lies within the margin of negligible differences (a
        test of equivalence by two one-sided tests of 2.5% each).
        """
        gain, margin = self.gains[name], self.margin(name)
        if -margin <= gain.low and gain.high <= margin:
            return "as good as"
        if not gain.is_clear:
            return "undecided"
        return "better" if gain.mean > 0 else "worse"

    @property
    def others(self) -> list[str]:
        """The names of all candidates except the model, sorted by CRPS."""
        return sorted(self.gains, key=lambda name: self.crps[name])

    @property
    def rival(self) -> str | None:
        """The name of the candidate that decides the verdict; None if there is no other candidate.

        The rival is the first of these that exists:

        1. the best candidate that is clearly better than the model;
        2. the simplest candidate that is simpler than the model and as good;
        3. the best candidate for which the comparison is undecided;
        4. the best candidate that is as good as the model;
        5. the best candidate that is clearly worse.
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
        """The CRPS of the rival minus that of the model, positive if the model is better; 0 if there is no rival."""
        return Gain(0.0, 0.0, 0.0) if self.rival is None else self.gains[self.rival]

    @property
    def rival_is_simpler(self) -> bool:
        """True if the rival is simpler than the model."""
        return self.simpler is None or self.rival in self.simpler

    @property
    def row_words(self) -> str:
        """The name of the scored rows within a sentence: "test rows" or "out-of-fold rows"."""
        return "out-of-fold rows" if self.folds else "test rows"

    @property
    def is_decidable(self) -> bool:
        """True if there are enough rows for a verdict (`independent_rows` of at least 50) with different counts."""
        return self.independent_rows >= MIN_ROWS and self.only_count is None

    @property
    def independent_rows(self) -> float:
        """The effective number of rows, on which standard errors are based; at most `rows`."""
        return min(self.rows, self.effective_rows or self.rows)

    @property
    def too_narrow(self) -> bool:
        """True if the model's intervals cover clearly fewer counts than asked.

        The coverage must be more than 2 percentage points below its nominal value of 90%, and Wilson's 95% interval of
        the coverage must exclude this value.
        """
        return self.coverage < COVERAGE - MAX_SHORTFALL and (
            wilson_interval(self.coverage, self.independent_rows)[1] < COVERAGE
        )

    @property
    def too_wide(self) -> bool:
        """True if the model's intervals cover clearly more counts than expected.

        The coverage must be more than 5 percentage points above `expected`, and Wilson's 95% interval of the coverage
        must exclude `expected`. The comparison is not with the nominal coverage, because intervals end at integers and
        often have to exceed it.
        """
        return self.coverage > self.expected + MAX_EXCESS and (
            wilson_interval(self.coverage, self.independent_rows)[0] > self.expected
        )

    @property
    def medians_disagree(self) -> bool:
        """True if the rival is better than the model by absolute error but worse by CRPS, or vice versa.

        The difference in mean absolute error must exceed 1% of the larger error. It must also be statistically
        significant or exceed 50% of the smaller error.
        """
        name = self.rival or ""
        if name not in self.error_gains:
            return False
        other, sign = self.error_gains[name], np.sign(self.gain.mean)
        small = MAX_DIFFERENCE * max(self.errors[name], self.errors[self.model])
        is_far = abs(other.mean) > _LARGE_ERROR_DIFFERENCE * min(self.errors[name], self.errors[self.model])
        return bool(sign * other.mean < -small and (other.is_clear or is_far))


def is_valid_score(mean_crps: float) -> bool:
    """Return True if a mean CRPS is finite and not negative. It can overflow for very large counts."""
    return math.isfinite(mean_crps) and mean_crps >= 0
