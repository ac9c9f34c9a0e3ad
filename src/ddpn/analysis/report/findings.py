"""The sentences below the verdict: error, coverage, calibration, alternatives, uncertainty, dispersion.

The headline itself comes from `ddpn.analysis.verdict`, which every command shares.
"""

import numpy as np

from ddpn.analysis.figure_data import Pit
from ddpn.analysis.gains import gain_of, wilson, z_of
from ddpn.analysis.numbers import fmt, mean, percent, plural, quantile
from ddpn.analysis.report.evidence import LEVEL, Evidence, RowGroup, group_of
from ddpn.analysis.verdict import MIN_ROWS, Evaluation, change
from ddpn.calibration.recalibration import Recalibration

#: A bias that is worth a sentence, as a share of the mean count.
_BIAS = 0.02
#: A sentence is only about groups with so many rows, and such a share of all rows.
_MIN_ROWS, _MIN_SHARE = 10, 0.02
#: A standard deviation this much above (or below) what the mean count explains is worth a sentence.
_BEYOND = 1.25
#: Below this share of the variance the members agree.
_AGREED = 0.02


def error_sentences(evidence: Evidence, target: str) -> str:
    """The typical error of single predictions, and the bias if there is one."""
    y, weight, error = evidence.y, evidence.weight, evidence.scores.mae
    level = mean(y, weight)
    half, most = (quantile(error, weight, q) for q in (0.5, 0.9))
    middle = "exact" if half == 0 else f"off by {fmt(half)} or less"
    words = (
        f"Half of the predictions are {middle}, 90% are off by {fmt(most)} or less. The mean absolute error is "
        f"{fmt(mean(error, weight))}, and the mean of {target} is {fmt(level)}."
    )
    bias = gain_of(evidence.mean - y, weight)
    if len(y) >= MIN_ROWS and level > 0 and abs(bias.mean) > _BIAS * level and bias.is_clear:
        side = "above" if bias.mean > 0 else "below"
        words += (
            f" There is a bias: on average predicted means are {percent(abs(bias.mean) / level)} {side} the counts."
        )
    return words


def coverage_sentences(evidence: Evidence, found: Evaluation) -> str:
    """The share of rows inside the interval, its uncertainty, and what it means.

    Calibrated intervals should cover what they were calibrated to. Uncalibrated ones of integers cover more, and are
    compared with what the predicted distributions expect.
    """
    level = percent(LEVEL, 0)
    low, high = wilson(found.coverage, found.size)
    share, interval = percent(found.coverage), f"95% interval {percent(low)} to {percent(high)}"
    if evidence.weighted:
        words = f"It covers {share} of the weighted rows ({interval}). "
    else:
        inside = round(found.coverage * found.rows)
        words = f"It covers {inside:,} of {plural(found.rows, 'row')} ({share}, {interval}). "
    if evidence.calibrated:
        expected, reason = LEVEL, f"the calibration aimed at {level}"
        words += f"It was calibrated on {plural(evidence.calibrated, 'held-out row')}. "
    else:
        expected = mean(evidence.expected, evidence.weight)
        reason = f"the distributions expect {percent(expected)}; intervals of integers cover more than {level}"
    if found.too_narrow:
        return words + f"That is clearly less than {level}: the intervals are too narrow."
    if found.too_wide:
        return words + f"That is clearly more than {level}: the intervals are too wide."
    if high < expected:
        return words + f"That is a little less than expected ({reason}): the model is slightly overconfident."
    if low > expected:
        return words + f"That is more than expected ({reason}): the intervals are wider than necessary."
    return words + f"That is as expected ({reason})."


def comparison_sentences(found: Evaluation) -> str:
    """The model against its best alternative, and the others that it does not clearly beat."""

    def label(name: str) -> str:
        return found.labels.get(name, name)

    if not found.others:
        return "There is no alternative to compare with, so it is unknown whether a simpler model would do as well."
    best, *others = found.others
    own, theirs = found.crps[found.model], found.crps[best]
    words = (
        f"Its CRPS is {change(found.gains[best], theirs)}, compared with the best alternative, {label(best)} "
        f"({fmt(own)} and {fmt(theirs)})"
    )
    words += ", which is no clear difference." if found.against(best) == "unclear" else "."
    unclear = [name for name in others if found.against(name) != "better"]
    if unclear:
        words += f" It is not clearly better than {', '.join(map(label, unclear))}."
    elif others and found.against(best) == "better":
        words += " It is better than the other alternatives too."
    for name in found.others:
        if found.error_gains[name].high < 0:
            maes = f"{fmt(found.errors[name])} and {fmt(found.errors[found.model])}"
            words += f" As a single number, the median of {label(name)} is closer to the counts (MAE {maes})."
    return words


_SHAPES = {
    "flat": "is flat up to chance: there is no evidence against the predicted distributions.",
    "up": "is sloped: counts are larger than predicted more often than they should be.",
    "down": "is sloped: counts are smaller than predicted more often than they should be.",
    "U": "is U-shaped: too many counts are in the tails. The distributions are too narrow.",
    "hump": "is hump-shaped: too few counts are in the tails. The distributions are too wide.",
    "uneven": "has bars outside the range of chance, but without a slope, a U or a hump.",
}


def pit_sentence(pit: Pit) -> str:
    """What the shape of the PIT histogram means, where it is more than chance."""
    return f"The PIT histogram {_SHAPES[pit.shape]}"


def recalibration_sentences(found: Recalibration | None) -> str:
    """Whether the predicted distributions are recalibrated, and how much that gained on validation rows."""
    if found is None:
        return ""
    gain = f"{fmt(found.gain)} ± {fmt(found.error)} (mean and standard error)"
    rows = plural(found.rows, "held-out row")
    if not found.is_used:
        change = f"only {fmt(found.gain)} lower" if found.gain > 0 else f"{fmt(-found.gain)} higher"
        error = f"(standard error {fmt(found.error)})"
        return f"Recalibration was tried on {rows} and is not used: with it, their CRPS is {change} {error}."
    return (
        f"The predicted distributions are recalibrated by a monotone map of their cdf, from {rows}, whose CRPS "
        f"improved by {gain}, each scored with a map from other rows. Aleatoric and epistemic variance are those of "
        "the mixture, scaled to the recalibrated variance."
    )


def pearson(y: np.ndarray, m: np.ndarray, weight: np.ndarray) -> tuple[str, str]:
    """Over-, under- or (if that may be chance) equi-dispersed; and mean((y - m)^2 / m) as text, with its 95% interval.

    The statistic is 1 for Poisson counts with means m. Rows with a mean and a count of 0 count as 0.
    """
    found = gain_of(np.square(y - m) / np.maximum(m, np.finfo(float).tiny), weight)
    kind = "over-dispersed" if found.low > 1 else "under-dispersed" if found.high < 1 else "equi-dispersed"
    return kind, f"{fmt(found.mean)} (95% interval {fmt(found.low)} to {fmt(found.high)})"


_CONDITIONAL = {
    "over-dispersed": "Given the predicted mean, counts vary more than Poisson counts: intervals of a Poisson model "
    "would be too narrow.",
    "under-dispersed": "Given the predicted mean, counts vary less than Poisson counts. A Poisson or negative binomial "
    "model cannot express that: its intervals would be too wide.",
    "equi-dispersed": "Given the predicted mean, counts vary about as much as Poisson counts.",
}


def dispersion_sentences(evidence: Evidence) -> list[str]:
    """Whether the counts are over-, equi- or under-dispersed, without a model and given its means."""
    y, weight, exposure = evidence.y, evidence.weight, evidence.exposure
    scale = np.ones_like(y) if exposure is None else exposure
    alone, statistic = pearson(y, scale * (weight @ y) / (weight @ scale), weight)
    given, conditional = pearson(y, evidence.mean, weight)
    below = mean((evidence.variance < evidence.mean).astype(float), weight)
    around = "their mean" if exposure is None else "one common rate per unit of exposure"
    return [
        f"Without a model the counts are {alone}: the Pearson statistic around {around}, mean (y - m)² / m, is "
        f"{statistic}; it is 1 for Poisson counts.",
        f"Around the predicted means they are {given}: {conditional}. {_CONDITIONAL[given]}",
        f"The model predicts a variance below the mean for {percent(below)} of the rows.",
    ]


def uncertainty_sentences(
    evidence: Evidence, aleatoric: list[RowGroup], epistemic: list[RowGroup]
) -> list[tuple[str, str]]:
    """(topic, sentences) about where the model is uncertain and why, from groups by what drives each part."""
    whole = group_of("", "all rows", evidence, np.arange(len(evidence.y)))
    least = max(_MIN_ROWS, _MIN_SHARE * whole.rows)
    noisy, unknown = ([group for group in each if group.rows >= least] for each in (aleatoric, epistemic))
    found = []
    if noisy:
        found.append(("Most uncertain", _noise_sentences(max(noisy, key=lambda group: group.aleatoric), whole)))
    if reason := _reason(evidence, unknown, whole):
        found.append(("Reason", reason))
    # The group with the lowest coverage, if that is more than chance, which has as many attempts as there are groups.
    each = [*noisy, *unknown]
    highest = {group: wilson(group.coverage, group.size, z_of(len(each)))[1] for group in each}
    weakest = min(each, key=highest.__getitem__, default=whole)
    if highest.get(weakest, 1.0) < LEVEL:
        words = (
            f"Where {weakest.column} is {weakest.label}, the {percent(LEVEL, 0)} interval covers only "
            f"{percent(weakest.coverage)} of {weakest.rows:,} rows. Do not rely on it there."
        )
        found.append(("Narrow intervals", words))
    return found


def _noise_sentences(group: RowGroup, whole: RowGroup) -> str:
    deviation, usual = group.variance**0.5, whole.variance**0.5
    words = (
        f"Where {group.column} is {group.label}: the standard deviation is {fmt(deviation)} there and {fmt(usual)} "
        f"over all rows, the mean count {fmt(group.observed)} and {fmt(whole.observed)}. "
    )
    if whole.predicted <= 0 or group.predicted <= 0 or usual <= 0:
        return words
    beyond = (deviation / usual) / (group.predicted / whole.predicted) ** 0.5
    if beyond > _BEYOND:
        return words + f"That is {fmt(beyond)} times what the mean explains: these rows are hard to predict."
    if beyond < 1 / _BEYOND:
        return words + "That is less than the mean alone explains."
    if group.predicted < whole.predicted and deviation > usual:
        return words + "The mean does not explain it, because it is smaller there."
    return words + "The mean explains it: standard deviations grow with the square root of the mean."


def _reason(evidence: Evidence, unknown: list[RowGroup], whole: RowGroup) -> str:
    """Which part of the variance matters, and where the epistemic one is largest."""
    if evidence.components == 1:
        return "A single network has no epistemic uncertainty: fit several members to measure it."
    if whole.share < _AGREED:
        return (
            f"The {evidence.components} components of the mixture agree: their disagreement is {percent(whole.share)} "
            "of the variance. The rest is noise in the counts, which more training rows would not remove."
        )
    if not unknown:
        return ""
    group = max(unknown, key=lambda group: group.share)
    return (
        f"{percent(1 - whole.share)} of the variance is noise in the counts (aleatoric), {percent(whole.share)} is "
        f"disagreement between the components (epistemic). They disagree most where {group.column} is {group.label} "
        f"({percent(group.share)}): more training rows of that kind would help."
    )
