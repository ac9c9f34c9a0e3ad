"""Test the dispersion given the features against a Poisson."""

from dataclasses import dataclass

import numpy as np

from ddpn.analysis.diagnosis.finding import Finding
from ddpn.analysis.diagnosis.means import LABELS, Means, emphasis
from ddpn.analysis.diagnosis.significance import LEVEL, design_effect, format_p_value, sum_null
from ddpn.analysis.gains import mean_gain
from ddpn.rows.count_rows import CountRows


@dataclass(frozen=True)
class Dispersion:
    """The ratio variance / mean given the features, with a 95% interval and the p-value of a Poisson.

    `direction` is "over", "under" or "equi". It is "equi" if the interval contains 1.

    Attributes
    ----------
    estimate : float
        Variance / mean.
    low, high : float
        The ends of the 95% interval.
    p_value : float
        The p-value of the hypothesis that the counts are Poisson.
    spread : float
        For over-dispersion, the standard deviation of an unknown factor of the mean that would explain the excess
        variance.
    """

    estimate: float
    low: float
    high: float
    p_value: float
    spread: float

    @property
    def direction(self) -> str:
        """The side of 1 on which the whole interval lies: "over", "under", or "equi" if it contains 1."""
        return "over" if self.low > 1.0 else "under" if self.high < 1.0 else "equi"


def conditional_dispersion(sample: CountRows, means: Means) -> Dispersion:
    """Estimate variance / mean, given out-of-fold means.

    The term of a row is ((y - mean)^2 - y) / mean, the score of the dispersion of a Poisson count, with expectation 0,
    variance 2 and third moment 8 + 4 / mean. An error of the mean changes its expectation only by error^2 / mean, which
    `Means.noise` estimates. This is too much if the mean model has nearly as many parameters as there are rows. So the
    noise is subtracted from an excess of variance, but never makes counts under-dispersed.

    With groups, such as repeated counts of one person, the variance of the mean term is multiplied by its design
    effect, and the interval is computed from means of groups.
    """
    mean, y, group = means.mean, sample.y, sample.group
    share = emphasis(sample, mean)
    share = share / share.sum()
    terms = (np.square(y - mean) - y) / mean
    raw = float(share @ terms)
    effect = design_effect(share * (terms - raw), group)
    third = float(share**3 @ (8.0 + 4.0 / mean))
    null = sum_null(effect * 2.0 * float(np.square(share).sum()), effect**1.5 * third)
    p_value = min(1.0, 2.0 * float(min(null.sf(raw - means.most_noise), null.cdf(raw))))
    _, low, high = mean_gain(terms, share, group=group)[:3]
    # Towards 1, the interval is at least as wide as for a Poisson. So it excludes 1 only if the test rejects.
    if raw > means.noise:
        low = min(low, raw - float(null.ppf(1.0 - LEVEL / 2)))
    else:
        high = max(high, raw - float(null.ppf(LEVEL / 2)))
    ends = (1.0 + low) / (1.0 + means.most_noise), 1.0 + high
    estimate = max((1.0 + raw) / (1.0 + float(np.clip(raw, 0.0, means.noise))), 0.0)
    weight = sample.weight_or_ones
    excess = float((weight * mean) @ terms) / float(weight @ mean**2)
    spread = float(np.sqrt(max(excess, 0.0))) if estimate > 1.0 else 0.0
    return Dispersion(estimate, max(ends[0], 0.0), max(ends[1], 0.0), p_value, spread)


def describe_dispersion(dispersion: Dispersion, mean_model: str) -> Finding:
    """Describe the dispersion as a finding: it matters unless its interval contains 1.

    `mean_model` is the name of the model that predicted the means.
    """
    interval = f"95% interval {dispersion.low:.2f} to {dispersion.high:.2f}"
    start = (
        f"Given these features and this mean model ({LABELS[mean_model]}), the variance is "
        f"{dispersion.estimate:.2f} times the mean ({interval}, {format_p_value(dispersion.p_value)})"
    )
    more = {
        "over": ": over-dispersed. Features or interactions that are missing from the mean model and change the mean "
        f"by about ±{dispersion.spread:.0%} would have the same effect.",
        "under": ": under-dispersed. Errors of the mean model can only hide under-dispersion, not cause it.",
        "equi": "",
    }[dispersion.direction]
    is_consistent = dispersion.direction == "equi" and dispersion.p_value >= LEVEL
    why = "consistent with" if is_consistent else "not clearly different from"
    clean = f"{start}: {why} a Poisson{'' if is_consistent else ', given the number of checks'}."
    label = {"over": "over-dispersed", "under": "under-dispersed", "equi": ""}[dispersion.direction]
    effect = f"variance / mean {dispersion.estimate:.2f} ({interval})"
    return Finding("dispersion", label, effect, dispersion.p_value, dispersion.direction != "equi", start + more, clean)
