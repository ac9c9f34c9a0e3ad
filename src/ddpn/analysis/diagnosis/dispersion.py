"""Conditional dispersion: the variance of a count over its mean, given the features."""

from dataclasses import dataclass, replace

import numpy as np

from ddpn.analysis.diagnosis.approximations import SumNull
from ddpn.analysis.diagnosis.means import Means, emphasis
from ddpn.analysis.diagnosis.recorded import Known, Limits

#: Level of the interval and of all tests.
LEVEL = 0.05
_RESAMPLES = 400
#: Counts that are drawn from the reference of counts with bounds or limits, and rows that are resampled at once.
_DRAWN = 50_000


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
    null = SumNull(2.0 * float(share @ share), float(share**3 @ (8.0 + 4.0 / mean)))
    found = _estimated(terms, share, null, means)
    return replace(found, spread=_factor(y, weight, means, found.estimate))


def _estimated(terms: np.ndarray, share: np.ndarray, null: SumNull, means: Means, gain: float = 1.0) -> Dispersion:
    """The dispersion by the weighted mean of terms, which grows by `gain` per unit of variance / mean."""
    raw = float(share @ terms)
    over, under = raw - gain * means.most_noise, raw - gain * means.noise
    p_value = min(1.0, 2.0 * min(null.above(over), null.below(under)))
    low, high = _bootstrap(terms, share)
    # Towards 1 the interval is at least as wide as for a Poisson, so that it leaves 1 out only if the test rejects.
    if raw > gain * means.noise:
        low = min(low, raw - null.quantile(1.0 - LEVEL / 2))
    else:
        high = max(high, raw - null.quantile(LEVEL / 2))
    low, high = (1.0 + low / gain) / (1.0 + means.most_noise), (1.0 + high / gain) / (1.0 + means.noise)
    estimate = (1.0 + raw / gain) / (1.0 + means.noise)
    return Dispersion(max(estimate, 0.0), max(low, 0.0), max(high, 0.0), p_value, 0.0)


def recorded_dispersion(y: np.ndarray, weight: np.ndarray, means: Means, limits: Limits) -> Dispersion:
    """The dispersion of counts with known bounds or limits, relative to their reference, see `Limits`.

    Per row the term is E[((Z - mean)^2 - v - v' (Z - mean)) / v | what was recorded], with the variance v of the
    reference and its derivative v': the score of the dispersion, of expectation 0 under the reference. Truncation and
    censoring make it depend on the mean: the part that follows the score of the mean is removed. Its moments, and its
    growth with the dispersion (half its variance), are those of counts that are drawn from the reference.
    """
    location, rng = means.mean, np.random.default_rng(0)
    share = emphasis(limits.variance(location), weight) * limits.dispersed()
    share = share / share.sum()
    everywhere = replace(limits, limit=limits.all_limits(y, rng), is_random=False)
    number = int(np.clip(_DRAWN // len(y), 4, 50))
    expected = limits.expected(location)
    drawn = [
        _scores(everywhere.draw(location, everywhere.limit, rng), location, everywhere, expected) for _ in range(number)
    ]
    dispersion, mean = (np.array(each) for each in zip(*drawn, strict=True))
    groups = np.searchsorted(np.quantile(location, np.linspace(0, 1, _groups(len(y)) + 1)[1:-1]), location)
    slope = np.array([_slope(dispersion[:, groups == g], mean[:, groups == g]) for g in range(groups.max() + 1)])[
        groups
    ]
    null_terms = dispersion - slope * mean
    second, third = (np.mean(null_terms**power, axis=0) for power in (2, 3))
    null = SumNull(float(share**2 @ second), float(share**3 @ third))
    gain = max(float(share @ (second / (2.0 * np.maximum(limits.dispersed(), 1e-9)))), 1e-3)
    of_dispersion, of_mean = _scores(y, location, limits, expected)
    found = _estimated(of_dispersion - slope * of_mean, share, null, means, gain)
    excess = max(found.estimate - 1.0, 0.0) * float(weight @ limits.variance(location)) / float(weight @ location**2)
    return replace(found, spread=float(np.sqrt(excess)))


def _scores(y: np.ndarray, location: np.ndarray, limits: Limits, expected: Known) -> tuple[np.ndarray, np.ndarray]:
    """The scores of the dispersion and of the mean of every row, under the reference, with its expected moments."""
    variance, slope = limits.variance(location), 1.0 - 2.0 * location / limits.upper
    known = limits.known(y, location)
    # E[(Z - mean)^2] = E[Z (Z - 1)] + E[Z] - 2 mean E[Z] + mean^2; constants cancel.
    gaps = known.factorial - expected.factorial, known.mean - expected.mean
    return (gaps[0] + (1.0 - 2.0 * location - slope) * gaps[1]) / variance, gaps[1]


def _groups(rows: int) -> int:
    """Groups of rows with similar means, of a hundred rows or more."""
    return int(np.clip(rows // 100, 1, 10))


def _slope(values: np.ndarray, on: np.ndarray) -> float:
    return float(np.sum(values * on) / max(np.sum(on * on), 1e-300))


def _bootstrap(terms: np.ndarray, share: np.ndarray) -> tuple[float, float]:
    """Percentiles of the mean of the terms over resampled rows, which hold for heavy tails better than a normal."""
    rng, rows, means = np.random.default_rng(0), len(share), []
    size = max(_DRAWN // rows, 1)
    for start in range(0, _RESAMPLES, size):
        number = min(size, _RESAMPLES - start)
        drawn = rng.integers(0, rows, (number, rows)) + rows * np.arange(number)[:, None]
        times = np.bincount(drawn.ravel(), minlength=number * rows).reshape(number, rows) * share
        means.append(times @ terms / times.sum(axis=1))
    low, high = np.quantile(np.concatenate(means), [LEVEL / 2, 1.0 - LEVEL / 2])
    return float(low), float(high)


def _factor(y: np.ndarray, weight: np.ndarray, means: Means, estimate: float) -> float:
    """sqrt of ((y - mean)^2 - y) over mean^2, pooled over rows: the coefficient of variation of a random factor."""
    if estimate <= 1.0:
        return 0.0
    mean = means.mean
    excess = float(weight @ ((y - mean) ** 2 - y)) / float(weight @ mean**2)
    return float(np.sqrt(max(excess, 0.0)))
