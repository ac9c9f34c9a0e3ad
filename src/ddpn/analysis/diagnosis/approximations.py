"""Tail probabilities of sums by their first three moments."""

import numpy as np
from scipy import stats


class SumNull:
    """The distribution of a sum of independent terms with mean 0: Pearson's type III, which has its skewness.

    For Poisson counts with large means the dispersion statistic is a chi-squared variable, and this is exact.

    >>> chi = SumNull(variance=2 * 50, third=8 * 50)
    >>> bool(abs(chi.above(10.0) - stats.chi2(50).sf(60.0)) < 1e-12)
    True
    """

    def __init__(self, variance: float, third: float) -> None:
        self.scale = float(np.sqrt(max(variance, 1e-300)))
        self.frozen = stats.pearson3(
            float(np.clip(third / self.scale / self.scale / self.scale, -5.0, 5.0)), scale=self.scale
        )

    def above(self, value: float) -> float:
        """P(sum >= value)."""
        return float(self.frozen.sf(value))

    def below(self, value: float) -> float:
        """P(sum <= value)."""
        return float(self.frozen.cdf(value))

    def quantile(self, level: float) -> float:
        """The value with a probability of `level` below it."""
        return float(self.frozen.ppf(level))


def holm(p_values: list[float]) -> list[float]:
    """P-values adjusted for several tests by Holm's method.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p_values, kind="stable")
    factors = np.arange(len(p_values), 0, -1)
    adjusted = np.maximum.accumulate(np.asarray(p_values)[order] * factors)
    back = np.empty(len(p_values))
    back[order] = np.minimum(adjusted, 1.0)
    return [float(value) for value in back]
