"""Checks of a diagnosis: dispersion, zeros, the largest count, heaping and the upper tail.

The dispersion is tested against a Poisson. Everything else is tested against a smooth distribution with the same means
and the dispersion that fits best.

The expectation of a statistic, sum of s(y), depends on the means and the dispersion, which are estimates. Both
dependencies are removed to first order: s is replaced by its residual after regressions on y and on the score of the
dispersion, under the fitted distribution. For the Double Poisson and the Negative Binomial, whose score of the mean is
proportional to y, the expectation of this residual is insensitive to small errors of either estimate.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from scipy import stats
from scipy.optimize import minimize_scalar

from ddpn.analysis.diagnosis.means import LABELS, Means, emphasis
from ddpn.analysis.gains import mean_gain
from ddpn.distributions import CountDistribution, DoublePoisson, NegativeBinomial
from ddpn.rows.count_rows import CountRows
from ddpn.rows.groups import encode_groups
from ddpn.runtime.display import percent, plural
from ddpn.storage.contents import JsonObject

if TYPE_CHECKING:
    from scipy.stats._distn_infrastructure import rv_frozen

#: The significance level of all tests; intervals have a coverage of 1 minus this level.
LEVEL = 0.05
#: The smooth distributions, and bounds on the logarithm of their dispersion.
_FAMILIES: dict[str, type[DoublePoisson] | type[NegativeBinomial]] = {
    "double_poisson": DoublePoisson,
    "negative_binomial": NegativeBinomial,
}
_BOUNDS = {"double_poisson": (-5.0, 4.0), "negative_binomial": (-9.0, 4.0)}
#: The most rows to which the dispersion is fitted.
_MAX_FIT_ROWS = 10_000
#: The most means and the most cells of a table of probabilities, and its largest count.
_MAX_MEANS, _MAX_CELLS, _MAX_COUNT = 256, 1_500_000, 20_000
#: Half of the relative step by which the score of the dispersion is differentiated.
_STEP = 1e-3
#: The smallest maximum of the counts with which heaping is tested. With fewer multiples of 5, it cannot be recognised.
_MIN_HEAPED_MAXIMUM = 12
#: The test of the tail uses the row of this rank among extreme rows. One or two may be errors of recording or of the
#: mean.
_EXTREME_RANK = 3
#: The fewest rows at the largest count that are reported, and their smallest ratio to the expected number.
_MIN_PILE, _MIN_PILE_RATIO = 5, 1.5


def format_p_value(value: float) -> str:
    """Write a p-value for a sentence.

    >>> format_p_value(0.034), format_p_value(1e-9)
    ('p = 0.034', 'p < 0.001')
    """
    return "p < 0.001" if value < 0.001 else f"p = {value:.2g}"


@dataclass(frozen=True)
class Finding:
    """The result of one check of a diagnosis: what was measured, whether it is significant, and how to say so.

    Attributes
    ----------
    name, label : str
        The name of the check, and the label of a finding, such as "zero-inflated".
    effect : str
        The size of the effect as text.
    p_value, adjusted : float
        The p-value, and the p-value after Holm's correction for all checks.
    matters : bool
        True if the effect is large enough to report.
    sentence, clean : str
        The sentence that reports a finding, and the sentence if there is none.
    is_explained : bool
        True if another finding explains this one.
    """

    name: str
    label: str
    effect: str
    p_value: float
    matters: bool
    sentence: str
    clean: str
    adjusted: float = 1.0
    is_explained: bool = False

    @property
    def found(self) -> bool:
        """True if the effect is large enough and significant."""
        return self.matters and self.adjusted < LEVEL

    @property
    def outcome(self) -> str:
        """The label of the finding, or the reason why there is none."""
        if self.found:
            return self.label
        return "no finding" if self.adjusted >= LEVEL else "see the others" if self.is_explained else "negligible"

    @property
    def words(self) -> str:
        """The sentence that applies: `sentence` for a finding, else `clean`."""
        return self.sentence if self.found else self.clean

    def to_dict(self) -> JsonObject:
        """Return the finding as a dictionary for JSON."""
        return {
            "check": self.name, "found": self.found, "outcome": self.outcome,
            "effect": self.effect, "p_value": self.p_value, "adjusted_p_value": self.adjusted, "sentence": self.words,
        }  # fmt: skip


def sum_null(variance: float, third: float) -> "rv_frozen":
    """Return the approximate distribution of a sum of independent terms with mean 0, to compute p-values from.

    `variance` and `third` are the variance and the third moment of the sum. The distribution is a Pearson type III.
    It has the right variance and skewness. For Poisson counts with large means it is exact, because the dispersion
    statistic is then chi-squared.

    >>> chi = sum_null(variance=2 * 50, third=8 * 50)
    >>> bool(abs(chi.sf(10.0) - stats.chi2(50).sf(60.0)) < 1e-12)
    True
    """
    scale = float(np.sqrt(max(variance, 1e-300)))
    return stats.pearson3(float(np.clip(third / scale / scale / scale, -5.0, 5.0)), scale=scale)


def design_effect(terms: np.ndarray, group: np.ndarray | None) -> float:
    """Return the factor by which similar rows within groups increase the variance of a sum over rows; at least 1.

    `terms` has the term of each row, and `group` its group. Without groups, the factor is 1.

    >>> design_effect(np.array([1.0, 1.0, -1.0, -1.0]), np.array(["a", "a", "b", "b"]))
    2.0
    """
    if group is None:
        return 1.0
    codes, _ = encode_groups(len(terms), group)
    return max(1.0, float(np.square(np.bincount(codes, terms)).sum() / max(np.square(terms).sum(), 1e-300)))


# Dispersion ----------------------------------------------------------------------------------------------------------


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


# Smooth distributions ------------------------------------------------------------------------------------------------


class FittedFamily(NamedTuple):
    """A smooth distribution that was fitted to the counts, with one dispersion for all rows; a check compares with it.

    `name` is that of a likelihood in `HEADS`, and `loglik` the mean log-likelihood of the counts. The parameter is
    gamma of a Double Poisson (variance about mean / gamma) or alpha of a Negative Binomial (variance mean + alpha
    mean^2).
    """

    name: str
    parameter: float
    loglik: float

    def distribution(self, mean: np.ndarray, factor: float = 1.0) -> CountDistribution:
        """Return the distributions of rows with the means `mean`; the dispersion parameter is scaled by `factor`."""
        mu = torch.from_numpy(np.ascontiguousarray(mean))
        return _FAMILIES[self.name](mu, torch.full_like(mu, factor * self.parameter), validate_args=False)


def fit_families(sample: CountRows, mean: np.ndarray) -> dict[str, FittedFamily]:
    """Fit the dispersion of a Double Poisson and of a Negative Binomial to the counts by maximum likelihood.

    `mean` has the mean of every row, which stays as it is. Return both fits by name. Both distributions contain the
    Poisson, at least approximately.
    """
    if len(mean) > _MAX_FIT_ROWS:
        rows = np.sort(np.random.default_rng(0).choice(len(mean), _MAX_FIT_ROWS, replace=False))
        sample, mean = sample.rows(rows), mean[rows]
    counts, weight = torch.from_numpy(sample.y), sample.weight_or_ones
    shares, families = torch.from_numpy(weight / weight.sum()), {}

    def loss(name: str, log_parameter: float) -> float:
        dist = FittedFamily(name, float(np.exp(log_parameter)), 0.0).distribution(mean)
        return -float(shares @ dist.log_prob(counts))

    for name, bounds in _BOUNDS.items():
        best = minimize_scalar(
            lambda at, name=name: loss(name, at), bounds=bounds, method="bounded", options={"xatol": 1e-3}
        )
        families[name] = FittedFamily(name, float(np.exp(best.x)), -float(best.fun))
    return families


class ProbabilityTable(NamedTuple):
    """The probabilities of all counts by a fitted family for a grid of means, so that a check sums over them quickly.

    `counts` are the counts and `mean` the means of the grid. `pmf` has the probabilities, and `score` the derivatives
    of their logarithms by the logarithm of the dispersion parameter; shape (means, counts). `position` is the index of
    each row's mean in the grid, and `sample` has the rows.
    """

    counts: np.ndarray
    mean: np.ndarray
    pmf: np.ndarray
    score: np.ndarray
    position: np.ndarray
    sample: CountRows

    @property
    def y(self) -> np.ndarray:
        """The counts of the rows as integers."""
        return self.sample.y.astype(int)

    def residual(self, values: np.ndarray) -> np.ndarray:
        """Return the residuals of a regression of `values` on the count y, for each mean of the grid.

        Shape: values (1 or means, counts) -> (means, counts).
        """
        y, s = (v - np.sum(self.pmf * v, axis=1, keepdims=True) for v in (self.counts[None], values))
        slope = np.sum(self.pmf * y * s, axis=1) / np.maximum(np.sum(self.pmf * y * y, axis=1), 1e-300)
        return np.asarray(s - slope[:, None] * y)


@torch.no_grad()
def tabulate(family: FittedFamily, sample: CountRows, mean: np.ndarray) -> ProbabilityTable | None:
    """Tabulate the probabilities of all counts by a fitted family for a grid of means; return None for large counts.

    `mean` has the mean of every row of the sample. Counts above 20,000 are too large.
    """
    # This count is exceeded with a probability of 1e-7.
    largest = float(family.distribution(np.array([mean.max()])).icdf(torch.tensor(1 - 1e-7))[0])
    if sample.y.max() > _MAX_COUNT:
        return None
    size = int(min(max(largest, sample.y.max()), _MAX_COUNT)) + 2
    counts = torch.arange(float(size), dtype=torch.float64)
    # All means if they are few; else some of their quantiles, and evenly spaced points of their logarithm.
    grid, max_means = np.unique(mean), int(np.clip(_MAX_CELLS // size, 16, _MAX_MEANS))
    if len(grid) > max_means:
        ranks, means = np.linspace(0, 1, max_means // 2), np.log(grid)
        grid = np.unique(np.exp(np.r_[np.quantile(means, ranks), np.linspace(means[0], means[-1], max_means // 2)]))

    def logs(factor: float) -> np.ndarray:
        log_pmf = family.distribution(grid[:, None], factor).log_prob(counts).numpy()
        return np.asarray(log_pmf - np.logaddexp.reduce(log_pmf, axis=1, keepdims=True))

    pmf = np.exp(logs(1.0))
    score = (logs(np.exp(_STEP)) - logs(np.exp(-_STEP))) / (2 * _STEP)
    line = np.searchsorted(0.5 * (grid[1:] + grid[:-1]), mean)
    return ProbabilityTable(counts.numpy(), pmf @ counts.numpy(), pmf, score, line, sample)


class MomentTest(NamedTuple):
    """A test of the share of rows with some property, such as zeros, against the share that a fitted family expects.

    `p_more` is the p-value if the observed share is larger than expected, `p_less` if it is smaller.
    """

    observed: float
    expected: float
    p_more: float
    p_less: float

    def shares(self, digits: int = 1) -> tuple[str, str]:
        """Write the observed and the expected share in percent, with this number of decimals.

        An expected share below 0, due to estimation, becomes 0.
        """
        return percent(self.observed, digits), percent(max(self.expected, 0.0), digits)

    @property
    def p_value(self) -> float:
        """The two-sided p-value."""
        return min(1.0, 2.0 * min(self.p_more, self.p_less))


def moment_test(table: ProbabilityTable, values: np.ndarray) -> MomentTest:
    """Test whether the mean of a statistic s(y) over the rows is as expected from the distributions of a table.

    `values` has s of each count, shape (1, counts), or of each mean of the grid and each count, shape (means, counts).
    """
    s = np.broadcast_to(values, table.pmf.shape)
    residual, score = table.residual(s), table.residual(table.score)
    share = table.sample.weight_or_ones / table.sample.weight_or_ones.sum()
    squares, cubes = (np.bincount(table.position, share**power, len(table.mean)) for power in (2, 3))
    information = squares @ np.sum(table.pmf * score * score, axis=1)
    if information > 0:
        residual = residual - (squares @ np.sum(table.pmf * residual * score, axis=1)) / information * score
    variance, third = (
        float(sums @ np.sum(table.pmf * residual**power, axis=1)) for sums, power in ((squares, 2), (cubes, 3))
    )
    terms = share * residual[table.position, table.y]
    excess, observed = float(terms.sum()), float(share @ s[table.position, table.y])
    effect = design_effect(terms - share * excess, table.sample.group)
    null = sum_null(effect * variance, effect**1.5 * third)
    return MomentTest(observed, observed - excess, float(null.sf(excess)), float(null.cdf(excess)))


# Zeros, the largest count, heaping and the tail ----------------------------------------------------------------------


#: The label of counts whose minimum is above 0.
NONE_BELOW = "no small counts"


def check_zeros(table: ProbabilityTable) -> Finding:
    """Compare the share of zeros with the share that a smooth distribution expects.

    If no count is 0, counts below the smallest one take the role of zeros.
    """
    low = max(int(table.y.min()), 1)
    test = moment_test(table, (table.counts < low).astype(float)[None])
    sign = "more" if test.observed > test.expected else "fewer"
    label = "zero-inflated" if sign == "more" else "too few zeros" if test.observed else NONE_BELOW
    what = "0" if low == 1 else f"below {low:,}"
    # A small difference in zeros changes no recommendation.
    matters = abs(test.observed - test.expected) >= 0.01
    observed, expected = test.shares()
    effect = f"{observed} observed, {expected} expected"
    sentence = (
        f"{observed} of the counts are {what}, {sign} than the {expected} expected from a smooth distribution with the "
        f"same mean and dispersion ({format_p_value(test.p_value)})."
    )
    which = "zeros" if low == 1 else f"counts {what}"
    clean = f"The number of {which} agrees with a smooth distribution of the same mean and dispersion ({effect})."
    return Finding("zeros", label, effect, test.p_value, matters, sentence, clean)


def check_ceiling(table: ProbabilityTable) -> Finding:
    """Compare the number of rows that have the largest count with the number that a smooth distribution expects.

    More rows suggest a recording limit; if many larger counts are expected, counts have an upper limit.
    """
    top, total = int(table.y.max()), len(table.y)
    at_top, inside = int(np.sum(table.y == top)), np.clip(table.pmf[:, : top + 1].sum(axis=1), 1e-300, 1.0)
    rows = np.bincount(table.position, minlength=len(inside))
    expected, beyond = float(rows @ np.minimum(table.pmf[:, top] / inside, 1.0)), float(rows @ (1.0 - inside))
    pile = stats.binom(total, expected / total)
    # Conditional on one row at the top, because the rows themselves determine the largest count. For the same reason,
    # the number expected beyond it has an exponential distribution with mean 1.
    p_pile, p_beyond = min(1.0, float(pile.sf(at_top - 1) / max(pile.sf(0), 1e-300))), float(np.exp(-beyond))
    p_value, at = min(1.0, 2.0 * min(p_pile, p_beyond)), percent(at_top / total)
    is_pile = at_top >= _MIN_PILE and at_top >= _MIN_PILE_RATIO * expected
    if is_pile or p_pile <= p_beyond:
        label, matters = "piled up at the maximum", is_pile
        effect = f"{at} at the maximum {top:,}, {percent(expected / total)} expected"
        what = f"{plural(at_top, 'row')} ({at}) {'has' if at_top == 1 else 'have'} the largest count, {top:,}, but a "
        what += f"smooth distribution has {percent(expected / total)} there"
    else:
        label, matters = "upper limit", beyond >= 0.01 * total
        effect = f"none above {top:,}, {percent(beyond / total)} expected"
        what = f"No count is above {top:,}, but a smooth distribution has {percent(beyond / total)} there"
    sentence = f"{what} ({format_p_value(p_value)}): larger counts may be impossible, or recorded as {top:,}."
    return Finding("ceiling", label, effect, p_value, matters, sentence, f"No limit at the maximum ({effect}).")


def check_heaping(table: ProbabilityTable) -> Finding:
    """Test whether multiples of 5 or 10 are more frequent than a smooth distribution explains."""
    largest = table.y.max()
    if largest < _MIN_HEAPED_MAXIMUM:
        clean = f"Heaping cannot be seen in counts up to {largest}."
        return Finding("heaping", "heaped", "not tested", 1.0, False, "", clean)
    tests = {}
    for size in (10, 5):
        # Multiples count 1 and both neighbours -1/2, which nearly cancel in a smooth distribution. The smallest and the
        # largest count are excluded.
        multiple, contrast = np.arange(size, min(largest - 1, len(table.counts) - 1), size), 0.0 * table.counts
        if size == 5:
            multiple = multiple[multiple % 10 != 0]
        contrast[multiple], contrast[multiple - 1], contrast[multiple + 1] = 1.0, -0.5, -0.5
        tests[size] = moment_test(table, contrast[None])
    p_value = min(1.0, 2.0 * min(test.p_more for test in tests.values()))
    # Only odd multiples of 5 can show that counts are rounded to 5 rather than to 10.
    unit = 5 if tests[5].p_more <= 0.025 else 10
    shown = moment_test(table, ((table.counts > 0) & (table.counts % unit == 0)).astype(float)[None])
    matters = shown.observed - shown.expected >= 0.01
    observed, expected = shown.shares()
    effect = f"{observed} multiples of {unit}, {expected} expected"
    sentence = (
        f"{observed} of the counts are multiples of {unit}, but a smooth distribution has {expected}: some counts are "
        f"rounded ({format_p_value(p_value)})."
    )
    clean = f"No heaping at multiples of 5 or 10 ({effect})."
    return Finding("heaping", "heaped", effect, p_value, matters, sentence, clean)


def check_tail(table: ProbabilityTable) -> Finding:
    """Test whether counts are larger than their fitted distributions allow: the upper tail is then heavy.

    Two tests are combined: of the number of counts beyond an upper quantile of their distributions, and of the third
    most extreme count.
    """
    level = float(np.clip(5.0 / len(table.y), 1e-3, 1e-2))
    above = np.cumsum(table.pmf[:, ::-1], axis=1)[:, ::-1]
    test = moment_test(table, (above <= level).astype(float))
    masses = np.sort(above[table.position, table.y])
    third = float(stats.binom.sf(_EXTREME_RANK - 1, len(masses), masses[_EXTREME_RANK - 1]))
    p_value, rows = min(1.0, 2.0 * min(test.p_more, third)), int(np.sum(masses <= level))
    matters = rows >= 5 and (test.observed >= 2.0 * test.expected or third < test.p_more)
    observed, expected = test.shares(2)
    effect = f"{observed} extreme counts, {expected} expected"
    sentence = (
        f"{observed} of the counts ({rows:,}) are among the {percent(level, 2)} largest of their fitted distribution, "
        f"but only {expected} are expected there. The third most extreme count has a probability of "
        f"{masses[_EXTREME_RANK - 1]:.1g} ({format_p_value(p_value)}): the tail is heavy."
    )
    clean = f"The upper tail is not heavier than that of the fitted distribution ({effect})."
    return Finding("tail", "heavy-tailed", effect, p_value, matters, sentence, clean)
