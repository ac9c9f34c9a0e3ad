"""Statistics of a set of rows, and numbers as a reader wants to see them."""

import math

import numpy as np
from scipy.special import ndtri

#: Two-sided 95%.
Z = float(ndtri(0.975))
#: Numbers drawn for one bootstrap interval, at most; and how many resamples that may be.
_DRAWN, _RESAMPLES = 20_000_000, (200, 2000)


def mean(values: np.ndarray, weight: np.ndarray) -> float:
    """Weighted mean."""
    return float(np.average(values, weights=weight))


def quantile(values: np.ndarray, weight: np.ndarray, q: float) -> float:
    """The smallest value with at least a share q of the weight at or below it."""
    order = np.argsort(values, kind="stable")
    upto = np.cumsum(weight[order])
    # Sums of weights such as 0.1 miss their level by rounding.
    place = np.searchsorted(upto, q * upto[-1] * (1 - 1e-12))
    return float(values[order][min(int(place), len(values) - 1)])


def effective_rows(weight: np.ndarray) -> float:
    """(sum w)^2 / sum w^2, Kish's size of a weighted sample."""
    return float(weight.sum() ** 2 / np.square(weight).sum())


def wilson(share: float, rows: float, z: float = Z) -> tuple[float, float]:
    """Wilson's interval of a share that was seen among so many rows.

    >>> tuple(round(end, 4) for end in wilson(0.9, 100))
    (0.8256, 0.9448)
    """
    centre = (share + z * z / (2.0 * rows)) / (1.0 + z * z / rows)
    half = z / (1.0 + z * z / rows) * math.sqrt(share * (1.0 - share) / rows + z * z / (4.0 * rows * rows))
    return max(0.0, centre - half), min(1.0, centre + half)


def mean_interval(values: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """Normal 95% interval of a weighted mean."""
    centre = mean(values, weight)
    half = Z * math.sqrt(mean(np.square(values - centre), weight) / max(effective_rows(weight) - 1.0, 1.0))
    return centre - half, centre + half


def bootstrap_ratio(above: np.ndarray, below: np.ndarray, weight: np.ndarray, seed: int) -> tuple[float, float]:
    """95% percentile interval of sum(w above) / sum(w below), rows drawn anew with replacement."""
    rows = len(above)
    resamples = int(np.clip(_DRAWN // rows, *_RESAMPLES))
    rng = np.random.default_rng(seed)
    above, below = above * weight, below * weight
    ratios = np.empty(resamples)
    for i in range(resamples):
        index = rng.integers(rows, size=rows)
        ratios[i] = above[index].sum() / max(below[index].sum(), np.finfo(float).tiny)
    low, high = np.quantile(ratios, [0.025, 0.975])
    return float(low), float(high)


def fmt(value: float) -> str:
    """About three digits, thousands apart.

    >>> [fmt(v) for v in (0.01234, 3.14159, 25.0, 1234567.0, 0.0)]
    ['0.012', '3.14', '25', '1,234,567', '0']
    """
    if not math.isfinite(value):
        return "–" if math.isnan(value) else "∞" if value > 0 else "-∞"
    size = abs(value)
    if size >= 1e9:
        return f"{value:.2e}".replace("e+", "e")
    if value == round(value) or size >= 100:
        return f"{value:,.0f}"
    if size >= 1:
        return f"{value:.{1 if size >= 10 else 2}f}"
    return f"{value:.3f}" if size >= 0.01 else f"{value:.3g}"


def percent(share: float, digits: int = 1) -> str:
    """A share, as percent; a small one is not called 0, nor nearly all 100.

    >>> percent(0.8912), percent(1.0), percent(0.25, 0), percent(0.0002), percent(0.9999)
    ('89.1%', '100%', '25%', '<0.1%', '>99.9%')
    """
    least = 10.0**-digits
    if 0.0 < share < 0.005 * least:
        return f"<{least:g}%"
    if 1.0 - 0.005 * least < share < 1.0:
        return f">{100 - least:g}%"
    return f"{100 * share:.0f}%" if share in (0.0, 1.0) else f"{100 * share:.{digits}f}%"


def plural(number: int, one: str, more: str | None = None) -> str:
    """So many of a thing.

    >>> plural(1, "row"), plural(2000, "row")
    ('1 row', '2,000 rows')
    """
    return f"{number:,} {one if number == 1 else more or one + 's'}"
