"""Significance of checks: the significance level, null distributions of statistics, and p-values as text."""

from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from ddpn.rows.groups import encode_groups

if TYPE_CHECKING:
    from scipy.stats._distn_infrastructure import rv_frozen


#: The significance level of all tests; intervals have a coverage of 1 minus this level.
LEVEL = 0.05


def format_p_value(value: float) -> str:
    """Format a p-value for a sentence.

    >>> format_p_value(0.034), format_p_value(1e-9)
    ('p = 0.034', 'p < 0.001')
    """
    return "p < 0.001" if value < 0.001 else f"p = {value:.2g}"


def approximate_null(variance: float, third_moment: float) -> "rv_frozen":
    """Return an approximate null distribution of a sum of independent terms with mean 0, given moments of the sum.

    `variance` and `third_moment` are the second and third moments of the sum. The result is a Pearson type III
    distribution with the same variance and skewness. For the dispersion statistic of Poisson counts with large means it
    is exact, because the statistic is then chi-squared.

    >>> chi = approximate_null(variance=2 * 50, third_moment=8 * 50)
    >>> bool(abs(chi.sf(10.0) - stats.chi2(50).sf(60.0)) < 1e-12)
    True
    """
    scale = float(np.sqrt(max(variance, 1e-300)))
    return stats.pearson3(float(np.clip(third_moment / scale / scale / scale, -5.0, 5.0)), scale=scale)


def design_effect(terms: np.ndarray, group: np.ndarray | None) -> float:
    """Return the factor by which dependence within groups increases the variance of the sum of `terms`; at least 1.

    `terms` has one term per row, with mean 0, and `group` the group of each row. Without groups, the factor is 1.

    >>> design_effect(np.array([1.0, 1.0, -1.0, -1.0]), np.array(["a", "a", "b", "b"]))
    2.0
    """
    if group is None:
        return 1.0
    codes, _ = encode_groups(len(terms), group)
    return max(1.0, float(np.square(np.bincount(codes, terms)).sum() / max(np.square(terms).sum(), 1e-300)))
