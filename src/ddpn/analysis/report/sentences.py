"""Sentences of a report about errors, coverage, PIT, recalibration and uncertainty.

The headline of a report is the verdict, which `ddpn.analysis.verdict` writes for all commands.
"""

import numpy as np

from ddpn.analysis.evaluation import MIN_ROWS, Evaluation
from ddpn.analysis.gains import mean_gain
from ddpn.analysis.pit import Pit
from ddpn.analysis.report.evidence import Evidence
from ddpn.analysis.report.row_groups import RowGroup, summarize_group
from ddpn.analysis.row_scores import COVERAGE as LEVEL
from ddpn.calibration.recalibration import Recalibration
from ddpn.runtime.display import format_number, percent, plural
from ddpn.statistics import bonferroni_z, weighted_mean, weighted_quantile, wilson_interval

#: The smallest bias that is reported, as a share of the mean count.
_MIN_BIAS = 0.02
#: The fewest rows, and the smallest share of all rows, of a group that a sentence mentions.
_MIN_ROWS, _MIN_SHARE = 10, 0.02
#: Components agree if their epistemic share of the variance is smaller.
_MIN_DISAGREEMENT = 0.02


def describe_errors(evidence: Evidence, target: str) -> str:
    """Describe the typical error of a prediction and, if it is large enough to report, the bias.

    `target` is the name of the target.
    """
    y, weight, error = evidence.y, evidence.weight, evidence.scores.mae
    level = weighted_mean(y, weight)
    half, most = (weighted_quantile(error, weight, q) for q in (0.5, 0.9))
    middle = "exact" if half == 0 else f"off by {format_number(half)} or less"
    words = (
        f"Half of the predictions are {middle}, 90% are off by {format_number(most)} or less. The mean absolute error "
        f"is {format_number(weighted_mean(error, weight))}, and the mean of {target} is {format_number(level)}."
    )
    bias = mean_gain(evidence.mean - y, weight)
    if len(y) >= MIN_ROWS and level > 0 and abs(bias.mean) > _MIN_BIAS * level and bias.is_clear:
        side = "above" if bias.mean > 0 else "below"
        words += (
            f" There is a bias: on average predicted means are {percent(abs(bias.mean) / level)} {side} the counts."
        )
    return words


def describe_coverage(evidence: Evidence, evaluation: Evaluation) -> str:
    """Describe how many counts lie inside their intervals, and compare this share with the expected coverage.

    The expected coverage is the mean probability of the intervals by the predicted distributions. The description
    includes a confidence interval of the coverage.
    """
    asked, expected = percent(LEVEL, 0), evaluation.expected
    low, high = wilson_interval(evaluation.coverage, evaluation.independent_rows)
    share, interval = percent(evaluation.coverage), f"95% interval {percent(low)} to {percent(high)}"
    if evidence.weighted:
        words = f"It covers {share} of the weighted rows ({interval}). "
    else:
        inside = round(evaluation.coverage * evaluation.rows)
        words = f"It covers {inside:,} of {plural(evaluation.rows, 'row')} ({share}, {interval}). "
    reason = f"expected {percent(expected)}; at least {asked} asked"
    if evidence.calibration_rows:
        words += f"It was calibrated on {plural(evidence.calibration_rows, 'held-out row')}. "
    if evaluation.too_narrow:
        return words + f"That is clearly less than asked ({reason}): the intervals are too narrow."
    if evaluation.too_wide:
        return words + f"That is clearly more than expected ({reason}): the intervals are too wide."
    if high < expected:
        return words + f"That is a little less than expected ({reason}): the model is slightly overconfident."
    if low > expected:
        return words + f"That is more than expected ({reason}): the intervals are wider than necessary."
    return words + f"That is as expected ({reason})."


def describe_pit(pit: Pit) -> str:
    """Describe the shape of the PIT histogram in a sentence, and what it means if it is more than chance."""
    if pit.shape == "flat":
        return "The PIT histogram is flat except for chance: there is no evidence against the predicted distributions."
    if pit.shape == "uneven":
        return "The PIT histogram has bars outside the range of chance, but without a slope, a U or a hump."
    shape = {"U": "U-shaped", "hump": "hump-shaped"}.get(pit.shape, "sloped")
    return f"The PIT histogram is {shape}, more than chance explains ({pit.meaning})."


def describe_recalibration(recalibration: Recalibration | None) -> str:
    """Describe whether predicted distributions are recalibrated, and how much this lowers the CRPS of held-out rows.

    If `recalibration` is None, because no map was fitted, the text is empty.
    """
    if recalibration is None:
        return ""
    gain = f"{format_number(recalibration.gain)} ± {format_number(recalibration.error)} (mean and standard error)"
    rows = plural(recalibration.rows, "held-out row")
    if not recalibration.is_used:
        change = (
            f"only {format_number(recalibration.gain)} lower"
            if recalibration.gain > 0
            else f"{format_number(-recalibration.gain)} higher"
        )
        error = f"(standard error {format_number(recalibration.error)})"
        return f"Recalibration was tried on {rows} and is not used: with it, their CRPS is {change} {error}."
    return (
        f"The predicted distributions are recalibrated by a monotone map of their cdf, fitted to {rows}. The CRPS "
        f"improved by {gain}; each row was scored with a map fitted to other rows. Aleatoric and epistemic variance "
        "are those of the mixture, scaled to the recalibrated variance."
    )


def describe_uncertainty(evidence: Evidence, groups: list[RowGroup]) -> list[tuple[str, str]]:
    """Describe how much of the predicted variance is noise and how much is disagreement within the mixture.

    A second topic follows if the intervals of one of the `groups` of rows are too narrow. Return a list of (topic,
    sentences).
    """
    whole = summarize_group("", "all rows", evidence, np.arange(len(evidence.y)))
    min_rows = max(_MIN_ROWS, _MIN_SHARE * whole.rows)
    large = [group for group in groups if group.rows >= min_rows]
    reason = ""
    if evidence.components == 1:
        reason = "A single model has no epistemic uncertainty: fit several members to measure it."
    elif whole.share < _MIN_DISAGREEMENT:
        reason = (
            f"The {evidence.components} components of the mixture agree: their disagreement is {percent(whole.share)} "
            "of the variance. The rest is noise in the counts, which more training rows would not remove."
        )
    elif large:
        group = max(large, key=lambda group: group.share)
        reason = (
            f"{percent(1 - whole.share)} of the variance is noise in the counts (aleatoric), {percent(whole.share)} is "
            f"disagreement between the components (epistemic). They disagree most where {group.column} is "
            f"{group.label} ({percent(group.share)}): more training rows of that kind would help."
        )
    topics = [("Reason", reason)] if reason else []
    # The group with the lowest coverage, if this is more than chance, corrected for the number of groups.
    highest = {
        group: wilson_interval(group.coverage, group.effective_rows, bonferroni_z(len(large)))[1] for group in large
    }
    weakest = min(large, key=highest.__getitem__, default=whole)
    if highest.get(weakest, 1.0) < LEVEL:
        words = (
            f"Where {weakest.column} is {weakest.label}, the {percent(LEVEL, 0)} interval covers only "
            f"{percent(weakest.coverage)} of {weakest.rows:,} rows. Do not rely on it there."
        )
        topics.append(("Narrow intervals", words))
    return topics
