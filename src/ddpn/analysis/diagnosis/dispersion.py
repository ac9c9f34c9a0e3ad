"""Estimate of the dispersion of counts given the features, and a test whether the counts are Poisson."""

from dataclasses import dataclass

import numpy as np

from ddpn.analysis.diagnosis.finding import Finding
from ddpn.analysis.diagnosis.means import LABELS, Means, dispersion_weights
from ddpn.analysis.diagnosis.significance import LEVEL, approximate_null, design_effect, format_p_value
from ddpn.analysis.gains import mean_gain
from ddpn.rows.count_rows import CountRows


@dataclass(frozen=True)
class Dispersion:
    """Dispersion of the counts given the features: variance / mean, with a 95% interval and a test for Poisson counts.

    Attributes
    ----------
    estimate : float
        The estimate of variance / mean, which is 1 for Poisson counts.
    low, high : float
        The ends of the 95% interval.
    p_value : float
        The p-value of the test that the counts are Poisson.
    spread : float
        The relative standard deviation of an unobserved random factor of the mean that would explain the excess
        variance. It is 0 if `estimate` is at most 1.
    """

    estimate: float
    low: float
    high: float
    p_value: float
    spread: float

    @property
    def direction(self) -> str:
        """The side of 1 on which the whole 95% interval lies: "over" or "under"; "equi" if the interval contains 1."""
        return "over" if self.low > 1.0 else "under" if self.high < 1.0 else "equi"


def estimate_dispersion(sample: CountRows, means: Means) -> Dispersion:
    """Estimate variance / mean given the features from out-of-fold means, and test whether the counts are Poisson.

    The estimate is 1 plus the mean of t = ((y - mean)^2 - y) / mean over the rows, weighted by `dispersion_weights`.
    For Poisson counts, t has expectation 0, variance 2 and third moment 8 + 4 / mean.

    Errors of the out-of-fold means increase the estimate by about `Means.noise`, so the estimate is corrected for this
    noise. The noise is overestimated if the mean model has nearly as many parameters as there are rows. Therefore, the
    correction may weaken the evidence for over-dispersion, but it never makes counts look under-dispersed.

    If rows have groups, such as repeated counts of one person, the p-value allows for dependence within groups by a
    design effect, and the interval is computed from group means.
    """
    mean, y, group = means.mean, sample.y, sample.group
    share = dispersion_weights(sample, mean)
    share = share / share.sum()
    terms = (np.square(y - mean) - y) / mean
    raw = float(share @ terms)
    effect = design_effect(share * (terms - raw), group)
    third = float(share**3 @ (8.0 + 4.0 / mean))
    null = approximate_null(effect * 2.0 * float(np.square(share).sum()), effect**1.5 * third)
    p_value = min(1.0, 2.0 * float(min(null.sf(raw - means.max_noise), null.cdf(raw))))
    _, low, high = mean_gain(terms, share, group=group)[:3]
    # Towards 1, the interval is at least as wide as for a Poisson. So it excludes 1 only if the test rejects.
    if raw > means.noise:
        low = min(low, raw - float(null.ppf(1.0 - LEVEL / 2)))
    else:
        high = max(high, raw - float(null.ppf(LEVEL / 2)))
    ends = (1.0 + low) / (1.0 + means.max_noise), 1.0 + high
    estimate = max((1.0 + raw) / (1.0 + float(np.clip(raw, 0.0, means.noise))), 0.0)
    weight = sample.weight_or_ones
    excess = float((weight * mean) @ terms) / float(weight @ mean**2)
    spread = float(np.sqrt(max(excess, 0.0))) if estimate > 1.0 else 0.0
    return Dispersion(estimate, max(ends[0], 0.0), max(ends[1], 0.0), p_value, spread)


def describe_dispersion(dispersion: Dispersion, mean_model: str) -> Finding:
    """Convert a dispersion estimate to a `Finding` with a sentence about it.

    The finding is large enough to report if the 95% interval of the dispersion excludes 1. `mean_model` is the name of
    the model that predicted the means.
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
