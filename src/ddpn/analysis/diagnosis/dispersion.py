"""Conditional dispersion: the variance of a count over its mean, given the features."""

from dataclasses import dataclass

import numpy as np

from ddpn.analysis.diagnosis.means import Means
from ddpn.analysis.diagnosis.moments import SumNull, design_effect
from ddpn.analysis.diagnosis.reference import MeanAndVariance, Reference
from ddpn.analysis.diagnosis.result import LEVEL, Dispersion, Finding, write_p
from ddpn.analysis.gains import gain_of

#: Counts that are drawn from a reference with bounds or limits.
_DRAWN = 50_000


@dataclass(frozen=True)
class _Terms:
    """The score of the dispersion of every row, and the moments that it has under the reference.

    `gain` is how much the weighted mean of the scores grows per unit of dispersion.
    """

    values: np.ndarray
    second: np.ndarray
    third: np.ndarray
    gain: float = 1.0


def conditional_dispersion(reference: Reference, means: Means) -> Dispersion:
    """The dispersion given the out-of-fold means, relative to the reference.

    Per row the term is E[((Z - mean)^2 - v - v' (Z - mean)) / v | what was recorded], with the variance v of the
    reference and its derivative v': the score of the dispersion, of expectation 0 under the reference. For a Poisson
    count it is ((y - mean)^2 - y) / mean, whose variance is 2 and whose third moment is 8 + 4 / mean. An error of the
    mean changes it in second order only, by error^2 / mean, which `Means.noise` measures.

    With groups, such as repeated counts of one person, the variance of the mean of the terms is multiplied by its
    design effect, and the interval is that of the means of groups.
    """
    location = means.mean
    share = reference.emphasis(location)
    share = share / share.sum()
    is_poisson = reference.sample.is_plain
    terms = _poisson_terms(reference, location) if is_poisson else _drawn_terms(reference, location, share)
    gain, group = terms.gain, reference.sample.group
    raw = float(share @ terms.values)
    effect = design_effect(share * (terms.values - raw), group)
    null = SumNull(effect * float(share**2 @ terms.second), effect**1.5 * float(share**3 @ terms.third))
    over, under = raw - gain * means.most_noise, raw - gain * means.noise
    p_value = min(1.0, 2.0 * min(null.above(over), null.below(under)))
    _, low, high = gain_of(terms.values, share, group=group)[:3]
    # Towards 1 the interval is at least as wide as for the reference, so that it leaves 1 out only if the test rejects.
    if raw > gain * means.noise:
        low = min(low, raw - null.quantile(1.0 - LEVEL / 2))
    else:
        high = max(high, raw - null.quantile(LEVEL / 2))
    ends = (1.0 + low / gain) / (1.0 + means.most_noise), (1.0 + high / gain) / (1.0 + means.noise)
    estimate = max((1.0 + raw / gain) / (1.0 + means.noise), 0.0)
    weight = reference.weight
    excess = float((weight * reference.variance(location)) @ terms.values) / gain / float(weight @ location**2)
    spread = float(np.sqrt(max(excess, 0.0))) if estimate > 1.0 else 0.0
    return Dispersion(estimate, max(ends[0], 0.0), max(ends[1], 0.0), p_value, spread)


def _poisson_terms(reference: Reference, location: np.ndarray) -> _Terms:
    of_dispersion, _ = _scores(reference, location, reference.expected(location))
    return _Terms(of_dispersion, np.full(len(location), 2.0), 8.0 + 4.0 / location)


def _drawn_terms(reference: Reference, location: np.ndarray, share: np.ndarray) -> _Terms:
    """Terms of counts with bounds or limits, whose moments are those of counts that are drawn from the reference.

    Truncation and censoring make the score of the dispersion depend on the mean: the part that follows the score of the
    mean is removed. The growth with the dispersion is half the variance of the rest.
    """
    rng, rows = np.random.default_rng(0), len(location)
    number = int(np.clip(_DRAWN // rows, 4, 50))
    complete = reference.drawn(location, rng)  # with a limit for every row
    expected = reference.expected(location)
    drawn = [_scores(complete.drawn(location, rng), location, expected) for _ in range(number)]
    dispersion, mean = (np.array(each) for each in zip(*drawn, strict=True))
    # Groups of rows with similar means, of a hundred rows or more.
    ends = np.quantile(location, np.linspace(0.0, 1.0, int(np.clip(rows // 100, 1, 10)) + 1)[1:-1])
    group = np.searchsorted(ends, location)
    slope = np.array([_slope(dispersion[:, group == g], mean[:, group == g]) for g in range(len(ends) + 1)])[group]
    null = dispersion - slope * mean
    second, third = (np.mean(null**power, axis=0) for power in (2, 3))
    gain = max(float(share @ (second / (2.0 * np.maximum(reference.dispersed, 1e-9)))), 1e-3)
    of_dispersion, of_mean = _scores(reference, location, expected)
    return _Terms(of_dispersion - slope * of_mean, second, third, gain)


def _scores(reference: Reference, location: np.ndarray, expected: MeanAndVariance) -> tuple[np.ndarray, np.ndarray]:
    """The scores of the dispersion and of the mean of every row, with the moments of a possible count."""
    known = reference.known(location)
    slope = 1.0 - 2.0 * location / reference.sample.upper if reference.is_bounded else 1.0
    of_mean = known.mean - expected.mean
    squares = known.around(location) - expected.around(location)
    return (squares - slope * of_mean) / reference.variance(location), of_mean


def _slope(values: np.ndarray, on: np.ndarray) -> float:
    return float(np.sum(values * on) / max(np.sum(on * on), 1e-300))


def dispersion_finding(found: Dispersion, label: str, reference: Reference) -> Finding:
    """The finding about the dispersion; `label` is that of the mean model."""
    interval = f"95% interval {found.low:.2f} to {found.high:.2f}"
    effect = f"{reference.ratio} {found.estimate:.2f} ({interval})"
    start = (
        f"Given these features and this mean model ({label}), the variance is {found.estimate:.2f} times "
        f"{reference.multiple} ({interval}, {write_p(found.p_value)})"
    )
    more = {
        "over": ": over-dispersed. Features or interactions that the mean model lacks, worth about "
        f"±{found.spread:.0%} of the mean, would have the same effect.",
        "under": ": under-dispersed. Errors of the mean model can only hide under-dispersion, not cause it.",
        "equi": "",
    }[found.direction]
    contains = found.direction == "equi" and found.p_value >= LEVEL
    name = f"a {reference.name}"
    why = f"consistent with {name}" if contains else f"not clearly different from {name}, as several checks are made"
    kind = {"over": "over-dispersed", "under": "under-dispersed", "equi": ""}[found.direction]
    matters = found.direction != "equi"
    return Finding("dispersion", kind, effect, found.p_value, matters, start + more, f"{start}: {why}.")
