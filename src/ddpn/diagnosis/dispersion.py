"""Conditional dispersion: the variance of a count over its mean, given the features."""

from dataclasses import dataclass

import numpy as np

from ddpn.diagnosis.approximations import SumNull
from ddpn.diagnosis.means import Means, emphasis

#: Level of the interval and of all tests.
LEVEL = 0.05
_RESAMPLES = 400


@dataclass(frozen=True)
class Dispersion:
    """Variance / mean given the features, with a 95% interval and the p-value of a Poisson.

    `direction` is "over", "under" or "equi": the latter wherever the interval contains 1.

    Attributes
    ----------
    estimate : float
        Variance / mean.
    low, high : float
        The ends of the 95% interval.
    p_value : float
        Of the hypothesis that the counts are Poisson.
    spread : float
        The standard deviation of an unknown factor of the mean that would explain the excess variance, for
        over-dispersion.
    """

    estimate: float
    low: float
    high: float
    p_value: float
    spread: float

    @property
    def direction(self) -> str:
        """The side of 1 on which the whole interval lies."""
        return "over" if self.low > 1.0 else "under" if self.high < 1.0 else "equi"


def conditional_dispersion(y: np.ndarray, weight: np.ndarray, means: Means) -> Dispersion:
    """The dispersion given the out-of-fold means.

    Per row the term is ((y - mean)^2 - y) / mean. For a Poisson count its expectation is 0, its variance 2 and its
    third moment 8 + 4 / mean, whatever the mean; an error of the mean changes it in second order only, by
    error^2 / mean, which `Means.noise` measures.
    """
    mean = means.mean
    share = emphasis(mean, weight)
    share = share / share.sum()
    terms = ((y - mean) ** 2 - y) / mean
    raw = float(share @ terms)
    null = SumNull(2.0 * float(share @ share), float(share**3 @ (8.0 + 4.0 / mean)))
    over, under = raw - means.most_noise, raw - means.noise
    p_value = min(1.0, 2.0 * min(null.above(over), null.below(under)))
    low, high = _bootstrap(terms, share)
    # Towards 1 the interval is at least as wide as for a Poisson, so that it leaves 1 out only if the test rejects.
    if raw > means.noise:
        low = min(low, raw - null.quantile(1.0 - LEVEL / 2))
    else:
        high = max(high, raw - null.quantile(LEVEL / 2))
    low, high = (1.0 + low) / (1.0 + means.most_noise), (1.0 + high) / (1.0 + means.noise)
    estimate = (1.0 + raw) / (1.0 + means.noise)
    factor = _factor(y, weight, means, estimate)
    return Dispersion(max(estimate, 0.0), max(low, 0.0), max(high, 0.0), p_value, factor)


def _bootstrap(terms: np.ndarray, share: np.ndarray) -> tuple[float, float]:
    """Percentiles of the mean of the terms over resampled rows, which hold for heavy tails better than a normal."""
    rng, means = np.random.default_rng(0), []
    for _ in range(_RESAMPLES):
        drawn = share * np.bincount(rng.integers(0, len(share), len(share)), minlength=len(share))
        means.append(drawn @ terms / drawn.sum())
    low, high = np.quantile(means, [LEVEL / 2, 1.0 - LEVEL / 2])
    return float(low), float(high)


def _factor(y: np.ndarray, weight: np.ndarray, means: Means, estimate: float) -> float:
    """sqrt of ((y - mean)^2 - y) over mean^2, pooled over rows: the coefficient of variation of a random factor."""
    if estimate <= 1.0:
        return 0.0
    mean = means.mean
    excess = float(weight @ ((y - mean) ** 2 - y)) / float(weight @ mean**2)
    return float(np.sqrt(max(excess, 0.0)))
