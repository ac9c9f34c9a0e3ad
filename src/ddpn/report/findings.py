"""The numbers of the verdict, and the sentences below it: error, coverage, calibration, baselines, dispersion.

The headline itself comes from `ddpn.workflow.verdict`, which every command shares.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from ddpn.report.evidence import LEVEL, SEED, Evidence
from ddpn.report.figures.predictions import Pit
from ddpn.report.numbers import bootstrap_mean, fmt, mean, percent, plural, quantile, wilson
from ddpn.workflow.verdict import MIN_ROWS, Evaluation, Z, effective_rows, mean_and_error

#: The evaluated model's name among the candidates.
MODEL = "This model"
#: A bias that is worth a sentence, as a share of the mean count.
_BIAS = 0.02


def evaluation(evidence: Evidence, against: Iterable[str], leak: str = "") -> Evaluation:
    """The model against these baselines, as the verdict takes it; `leak` is a sentence on a suspected target leak."""
    crps = {MODEL: evidence.model.crps} | {name: evidence.baselines[name].crps for name in against}
    return Evaluation.from_rows(MODEL, crps, evidence.model.inside, evidence.weight, target_coverage=LEVEL, leak=leak)


def comparisons(evidence: Evidence) -> dict[str, Evaluation]:
    """The model against each baseline alone, the baseline with the smallest CRPS first."""
    pairs = {name: evaluation(evidence, [name]) for name in evidence.baselines}
    return dict(sorted(pairs.items(), key=lambda item: item[1].crps[item[0]]))


def error_sentences(evidence: Evidence, target: str) -> str:
    """The typical error of single predictions, and the bias if there is one."""
    y, weight, model = evidence.y, evidence.weight, evidence.model
    level = mean(y, weight)
    half, most = (quantile(model.error, weight, q) for q in (0.5, 0.9))
    middle = "exact" if half == 0 else f"off by {fmt(half)} or less"
    words = (
        f"Half of the predictions are {middle}, 90% are off by {fmt(most)} or less. The mean absolute error is "
        f"{fmt(mean(model.error, weight))}, and the mean of {target} is {fmt(level)}."
    )
    bias, bias_error = mean_and_error(model.mean - y, weight)
    if len(y) >= MIN_ROWS and level > 0 and abs(bias) > _BIAS * level and abs(bias) > Z * bias_error:
        side = "above" if bias > 0 else "below"
        words += f" There is a bias: on average predicted means are {percent(abs(bias) / level)} {side} the counts."
    return words


def coverage_sentences(evidence: Evidence) -> str:
    """The share of rows inside the interval, its uncertainty, and what it means.

    Calibrated intervals should cover what they were calibrated to. Uncalibrated ones of integers cover more, and are
    compared with what the predicted distributions expect.
    """
    found, level = evaluation(evidence, ()), percent(LEVEL, 0)
    low, high = wilson(found.coverage, effective_rows(evidence.weight))
    share, interval = percent(found.coverage), f"95% interval {percent(low)} to {percent(high)}"
    if evidence.weighted:
        words = f"It covers {share} of the weighted rows ({interval}). "
    else:
        inside = int(evidence.model.inside.sum())
        words = f"It covers {inside:,} of {plural(found.rows, 'row')} ({share}, {interval}). "
    if evidence.calibrated:
        expected, reason = LEVEL, f"the calibration aimed at {level}"
        words += f"It was calibrated on {plural(evidence.calibrated, 'validation row')}. "
    else:
        expected = mean(evidence.model.expected, evidence.weight)
        reason = f"the distributions expect {percent(expected)}; intervals of integers cover more than {level}"
    if found.too_narrow:
        return words + f"That is clearly less than {level}: the intervals are too narrow."
    if high < expected:
        return words + f"That is a little less than expected ({reason}): the model is slightly overconfident."
    if low > expected:
        return words + f"That is more than expected ({reason}): the intervals are wider than necessary."
    return words + f"That is as expected ({reason})."


def comparison_sentences(evidence: Evidence, pairs: Mapping[str, Evaluation]) -> str:
    """The model against its best baseline, and the other baselines that it does not clearly beat."""
    if not pairs:
        return "No baseline was given, so it is unknown whether a simpler model would do as well."
    (best, pair), *others = pairs.items()
    own, theirs, sign = pair.crps[MODEL], pair.crps[best], 1 if pair.gain > 0 else -1
    ends = (sign * pair.gain + side * Z * pair.gain_error for side in (0, -1, 1))
    change, low, high = (percent(end / theirs if theirs > 0 else 0.0) for end in ends)
    words = (
        f"Its CRPS is {change} {'lower' if sign > 0 else 'higher'} than that of the best baseline, {best} "
        f"({fmt(own)} and {fmt(theirs)}; 95% interval {low} to {high})"
    )
    words += ", which is no clear difference." if pair.outcome == "unclear" else "."
    unclear = [name for name, other in others if other.outcome != "better"]
    if unclear:
        words += f" It is not clearly better than {', '.join(unclear)}."
    elif others and pair.outcome == "better":
        words += " It is better than the other baselines too."
    for name in pairs:
        other = evidence.baselines[name].error
        excess, error = mean_and_error(evidence.model.error - other, evidence.weight)
        if excess > Z * error:
            maes = f"{fmt(mean(other, evidence.weight))} and {fmt(mean(evidence.model.error, evidence.weight))}"
            words += f" As a single number, the median of {name} is closer to the counts (MAE {maes})."
    return words


def pit_sentence(pit: Pit) -> str:
    """What the shape of the PIT histogram means, where it is more than chance."""
    h = pit.heights
    half = len(h) // 2
    ends, slope = 0.5 * (h[0] + h[-1]) - 1.0, float(h[half:].mean() - h[:half].mean())
    if np.abs(h - 1.0).max() <= pit.chance:
        return "The PIT histogram is flat up to chance: there is no evidence against the predicted distributions."
    # Chance moves a difference of halves by sqrt(2 / 5) of what it moves one bar, the mean of two bars by sqrt(1 / 2).
    if abs(slope) > 0.63 * pit.chance and abs(slope) > abs(ends):
        side = "larger" if slope > 0 else "smaller"
        return f"The PIT histogram is sloped: counts are {side} than predicted more often than they should be."
    if ends > 0.71 * pit.chance:
        return "The PIT histogram is U-shaped: too many counts are in the tails. The distributions are too narrow."
    if ends < -0.71 * pit.chance:
        return "The PIT histogram is hump-shaped: too few counts are in the tails. The distributions are too wide."
    return "Some bars of the PIT histogram are outside the range of chance, but without a slope, a U or a hump."


class Pearson(NamedTuple):
    """mean((y - m)^2 / m), which is 1 for Poisson counts with means m, and its 95% bootstrap interval."""

    value: float
    low: float
    high: float

    @property
    def finding(self) -> str:
        """Over- or under-dispersed or, if the interval contains 1, equi-dispersed."""
        return "over-dispersed" if self.low > 1 else "under-dispersed" if self.high < 1 else "equi-dispersed"

    def __str__(self) -> str:
        return f"{fmt(self.value)} (95% bootstrap interval {fmt(self.low)} to {fmt(self.high)})"


def pearson(y: np.ndarray, m: np.ndarray, weight: np.ndarray) -> Pearson:
    """The statistic and its interval. Rows with a mean and a count of 0 count as 0."""
    each = np.square(y - m) / np.maximum(m, np.finfo(float).tiny)
    return Pearson(mean(each, weight), *bootstrap_mean(each, weight, SEED))


_CONDITIONAL = {
    "over-dispersed": "Given the predicted mean, counts vary more than Poisson counts: intervals of a Poisson model "
    "would be too narrow.",
    "under-dispersed": "Given the predicted mean, counts vary less than Poisson counts. A Poisson or negative binomial "
    "model cannot express that: its intervals would be too wide.",
    "equi-dispersed": "Given the predicted mean, counts vary about as much as Poisson counts.",
}


def dispersion_sentences(evidence: Evidence) -> list[str]:
    """Whether the counts are over-, equi- or under-dispersed, without a model and given its means."""
    y, weight, model, exposure = evidence.y, evidence.weight, evidence.model, evidence.exposure
    scale = np.ones_like(y) if exposure is None else exposure
    marginal = pearson(y, scale * (weight @ y) / (weight @ scale), weight)
    conditional = pearson(y, model.mean, weight)
    below = mean((model.variance < model.mean).astype(float), weight)
    around = "their mean" if exposure is None else "one common rate per unit of exposure"
    return [
        f"Without a model the counts are {marginal.finding}: the Pearson statistic around {around}, "
        f"mean (y - m)² / m, is {marginal}; it is 1 for Poisson counts.",
        f"Around the predicted means they are {conditional.finding}: {conditional}. "
        f"{_CONDITIONAL[conditional.finding]}",
        f"The model predicts a variance below the mean for {percent(below)} of the rows.",
    ]
