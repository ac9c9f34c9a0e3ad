"""The checks of a diagnosis: dispersion, zeros, the largest count, heaping and the upper tail.

The dispersion is tested against a Poisson, everything else against a smooth distribution with the same means and the
dispersion that fits best.

A statistic sum of s(y) depends on the means and on the dispersion, which are estimates. Both dependencies are removed
to first order: s is replaced by its residual after regressions on y and on the score of the dispersion, under the
fitted distribution. For the Double Poisson and the Negative Binomial, where y / variance is the score of the mean, the
expectation of that residual does not change with small errors of either.
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
from ddpn.runtime.display import percent
from ddpn.storage.contents import JsonObject

if TYPE_CHECKING:
    from scipy.stats._distn_infrastructure import rv_frozen

#: Level of the interval and of all tests.
LEVEL = 0.05
#: The smooth distributions, and the range of the logarithm of their dispersion.
_FAMILIES: dict[str, type[DoublePoisson] | type[NegativeBinomial]] = {
    "double_poisson": DoublePoisson,
    "negative_binomial": NegativeBinomial,
}
_BOUNDS = {"double_poisson": (-5.0, 4.0), "negative_binomial": (-9.0, 4.0)}
#: Rows that the dispersion is fitted to, at most.
_MAX_FIT_ROWS = 10_000
#: Means that probabilities are tabulated for, cells of the table, and the largest count.
_MEANS, _CELLS, _MAX_COUNT = 256, 1_500_000, 20_000
#: Half the relative step of the parameter in its score.
_STEP = 1e-3
#: The largest count must be at least this to see heaping: below, one or two multiples say nothing about rounding.
_LARGEST = 12
#: Rows that must be extreme: fewer may be errors of recording or of the mean.
_EXTREME = 3
#: Rows at the largest count without which nothing is reported, and their ratio to the expected ones.
_MIN_PILE, _MIN_PILE_RATIO = 5, 1.5


def format_p_value(value: float) -> str:
    """Write a p-value as in a sentence.

    >>> format_p_value(0.034), format_p_value(1e-9)
    ('p = 0.034', 'p < 0.001')
    """
    return "p < 0.001" if value < 0.001 else f"p = {value:.2g}"


@dataclass(frozen=True)
class Finding:
    """One check of a diagnosis.

    Attributes
    ----------
    name, label : str
        The name of the check, and what a finding is called, such as "zero-inflated".
    effect : str
        The size of the effect, in words.
    p_value, adjusted : float
        The p-value, by itself and after Holm's correction for all checks.
    matters : bool
        Whether the effect is large enough to report.
    sentence, clean : str
        The sentences for a finding and for none.
    is_explained : bool
        Whether another finding explains it.
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
        """Whether the effect matters and is significant."""
        return self.matters and self.adjusted < LEVEL

    @property
    def outcome(self) -> str:
        """The label of a finding, or why there is none."""
        if self.found:
            return self.label
        return "no finding" if self.adjusted >= LEVEL else "see the others" if self.is_explained else "negligible"

    @property
    def words(self) -> str:
        """The sentence that applies."""
        return self.sentence if self.found else self.clean

    def to_dict(self) -> JsonObject:
        """Return the finding as a dictionary for JSON."""
        return {
            "check": self.name, "found": self.found, "outcome": self.outcome,
            "effect": self.effect, "p_value": self.p_value, "adjusted_p_value": self.adjusted, "sentence": self.words,
        }  # fmt: skip


def sum_null(variance: float, third: float) -> "rv_frozen":
    """Return the distribution of a sum of independent terms with mean 0: Pearson's type III, which has its skewness.

    For Poisson counts with large means the dispersion statistic is a chi-squared variable, and this is exact.

    >>> chi = sum_null(variance=2 * 50, third=8 * 50)
    >>> bool(abs(chi.sf(10.0) - stats.chi2(50).sf(60.0)) < 1e-12)
    True
    """
    scale = float(np.sqrt(max(variance, 1e-300)))
    return stats.pearson3(float(np.clip(third / scale / scale / scale, -5.0, 5.0)), scale=scale)


def design_effect(terms: np.ndarray, group: np.ndarray | None) -> float:
    """Divide the variance of a sum of terms, estimated by groups, by that of independent terms; at least 1.

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


def conditional_dispersion(sample: CountRows, means: Means) -> Dispersion:
    """Variance / mean given the out-of-fold means.

    Per row the term is ((y - mean)^2 - y) / mean, the score of the dispersion of a Poisson count: its expectation is 0,
    its variance 2 and its third moment 8 + 4 / mean. An error of the mean changes it in second order only, by
    error^2 / mean, which `Means.noise` measures: too much where a mean model has hardly more rows than parameters. So
    the noise is taken off an excess of variance, and never makes counts under-dispersed.

    With groups, such as repeated counts of one person, the variance of the mean of the terms is multiplied by its
    design effect, and the interval is that of the means of groups.
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
    # Towards 1 the interval is at least as wide as for a Poisson, so that it leaves 1 out only if the test rejects.
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
    """Describe the dispersion as a finding."""
    interval = f"95% interval {dispersion.low:.2f} to {dispersion.high:.2f}"
    start = (
        f"Given these features and this mean model ({LABELS[mean_model]}), the variance is "
        f"{dispersion.estimate:.2f} times the mean ({interval}, {format_p_value(dispersion.p_value)})"
    )
    more = {
        "over": ": over-dispersed. Features or interactions that the mean model lacks, worth about "
        f"±{dispersion.spread:.0%} of the mean, would have the same effect.",
        "under": ": under-dispersed. Errors of the mean model can only hide under-dispersion, not cause it.",
        "equi": "",
    }[dispersion.direction]
    is_consistent = dispersion.direction == "equi" and dispersion.p_value >= LEVEL
    why = "consistent with" if is_consistent else "not clearly different from"
    clean = f"{start}: {why} a Poisson{'' if is_consistent else ', as several checks are made'}."
    label = {"over": "over-dispersed", "under": "under-dispersed", "equi": ""}[dispersion.direction]
    effect = f"variance / mean {dispersion.estimate:.2f} ({interval})"
    return Finding("dispersion", label, effect, dispersion.p_value, dispersion.direction != "equi", start + more, clean)


# Smooth distributions ------------------------------------------------------------------------------------------------


class FittedFamily(NamedTuple):
    """A likelihood of `HEADS` with one parameter for all rows, and its mean log-likelihood.

    The parameter is gamma of a Double Poisson (variance about mean / gamma), or alpha of a Negative Binomial (variance
    = mean + alpha mean^2).
    """

    name: str
    parameter: float
    loglik: float

    def distribution(self, mean: np.ndarray, factor: float = 1.0) -> CountDistribution:
        """Return the distribution of rows with these means, with the parameter multiplied by `factor`."""
        mu = torch.from_numpy(np.ascontiguousarray(mean))
        return _FAMILIES[self.name](mu, torch.full_like(mu, factor * self.parameter), validate_args=False)


def fit_families(sample: CountRows, mean: np.ndarray) -> dict[str, FittedFamily]:
    """Fit the Double Poisson and the Negative Binomial around these means by maximum likelihood.

    Each of them contains the Poisson (nearly).
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
    """Probabilities of every count for a grid of means, and each row's position in it. Shape: pmf (means, counts)."""

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
        """Return the residuals of values after a regression on y, at each mean."""
        y, s = (v - np.sum(self.pmf * v, axis=1, keepdims=True) for v in (self.counts[None], values))
        slope = np.sum(self.pmf * y * s, axis=1) / np.maximum(np.sum(self.pmf * y * y, axis=1), 1e-300)
        return np.asarray(s - slope[:, None] * y)


@torch.no_grad()
def tabulate(family: FittedFamily, sample: CountRows, mean: np.ndarray) -> ProbabilityTable | None:
    """Tabulate probabilities and scores of a fitted family; return None if counts are too large.

    There is one line per mean on a grid, and one column per count.
    """
    # A count that is hardly ever exceeded.
    largest = float(family.distribution(np.array([mean.max()])).icdf(torch.tensor(1 - 1e-7))[0])
    if sample.y.max() > _MAX_COUNT:
        return None
    size = int(min(max(largest, sample.y.max()), _MAX_COUNT)) + 2
    counts = torch.arange(float(size), dtype=torch.float64)
    # All means where there are few, else quantiles of them and even steps of their logarithm.
    grid, most = np.unique(mean), int(np.clip(_CELLS // size, 16, _MEANS))
    if len(grid) > most:
        ranks, means = np.linspace(0, 1, most // 2), np.log(grid)
        grid = np.unique(np.exp(np.r_[np.quantile(means, ranks), np.linspace(means[0], means[-1], most // 2)]))

    def logs(factor: float) -> np.ndarray:
        log_pmf = family.distribution(grid[:, None], factor).log_prob(counts).numpy()
        return np.asarray(log_pmf - np.logaddexp.reduce(log_pmf, axis=1, keepdims=True))

    pmf = np.exp(logs(1.0))
    score = (logs(np.exp(_STEP)) - logs(np.exp(-_STEP))) / (2 * _STEP)
    line = np.searchsorted(0.5 * (grid[1:] + grid[:-1]), mean)
    return ProbabilityTable(counts.numpy(), pmf @ counts.numpy(), pmf, score, line, sample)


class MomentTest(NamedTuple):
    """The weighted share of rows with a feature, observed and expected, and the p-values of more and of less."""

    observed: float
    expected: float
    p_more: float
    p_less: float

    def shares(self, digits: int = 1) -> tuple[str, str]:
        """Write the observed and the expected share in percent; the expected one, an estimate, is at least 0."""
        return percent(self.observed, digits), percent(max(self.expected, 0.0), digits)

    @property
    def p_value(self) -> float:
        """Two-sided."""
        return min(1.0, 2.0 * min(self.p_more, self.p_less))


def moment_test(table: ProbabilityTable, values: np.ndarray) -> MomentTest:
    """Test the mean of s(y), whose `values` are given per mean of the grid and count, or per count."""
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
    of_rows = share * residual[table.position, table.y]
    excess, observed = float(of_rows.sum()), float(share @ s[table.position, table.y])
    effect = design_effect(of_rows - share * excess, table.sample.group)
    null = sum_null(effect * variance, effect**1.5 * third)
    return MomentTest(observed, observed - excess, float(null.sf(excess)), float(null.cdf(excess)))


# Zeros, the largest count, heaping and the tail ----------------------------------------------------------------------


#: The label of counts without small ones.
NONE_BELOW = "no small counts"


def check_zeros(table: ProbabilityTable) -> Finding:
    """Compare the share of zeros with its expectation; without zeros, the share of counts below the smallest."""
    low = max(int(table.y.min()), 1)
    test = moment_test(table, (table.counts < low).astype(float)[None])
    sign = "more" if test.observed > test.expected else "fewer"
    label = "zero-inflated" if sign == "more" else "too few zeros" if test.observed else NONE_BELOW
    what = "0" if low == 1 else f"below {low:,}"
    # Few zeros more or less change no recommendation.
    matters = abs(test.observed - test.expected) >= 0.01
    observed, expected = test.shares()
    effect = f"{observed} observed, {expected} expected"
    sentence = (
        f"{observed} of the counts are {what}, {sign} than the {expected} that a smooth distribution with the same "
        f"mean and dispersion has ({format_p_value(test.p_value)})."
    )
    which = "zeros" if low == 1 else f"counts {what}"
    clean = f"The number of {which} agrees with a smooth distribution of the same mean and dispersion ({effect})."
    return Finding("zeros", label, effect, test.p_value, matters, sentence, clean)


def check_ceiling(table: ProbabilityTable) -> Finding:
    """Compare the rows at the largest count with a smooth distribution, for a limit or "that many or more"."""
    top, total = int(table.y.max()), len(table.y)
    at_top, inside = int(np.sum(table.y == top)), np.clip(table.pmf[:, : top + 1].sum(axis=1), 1e-300, 1.0)
    rows = np.bincount(table.position, minlength=len(inside))
    expected, beyond = float(rows @ np.minimum(table.pmf[:, top] / inside, 1.0)), float(rows @ (1.0 - inside))
    pile = stats.binom(total, expected / total)
    # Given that one row is there: the largest count is chosen by the rows. So is what is expected beyond it, which has
    # an exponential distribution of mean 1.
    p_pile, p_beyond = min(1.0, float(pile.sf(at_top - 1) / max(pile.sf(0), 1e-300))), float(np.exp(-beyond))
    p_value, at = min(1.0, 2.0 * min(p_pile, p_beyond)), percent(at_top / total)
    is_pile = at_top >= _MIN_PILE and at_top >= _MIN_PILE_RATIO * expected
    if is_pile or p_pile <= p_beyond:
        label, matters = "piled up at the maximum", is_pile
        effect = f"{at} at the maximum {top:,}, {percent(expected / total)} expected"
        what = f"{at_top:,} rows ({at}) are at the maximum {top:,}, where a smooth distribution has "
        what += f"{percent(expected / total)}"
    else:
        label, matters = "upper limit", beyond >= 0.01 * total
        effect = f"none above {top:,}, {percent(beyond / total)} expected"
        what = f"None of the counts is above {top:,}, where a smooth distribution has {percent(beyond / total)}"
    sentence = f"{what} ({format_p_value(p_value)}): larger counts may be impossible, or recorded as {top:,}."
    return Finding("ceiling", label, effect, p_value, matters, sentence, f"No limit at the maximum ({effect}).")


def check_heaping(table: ProbabilityTable) -> Finding:
    """Multiples of 5 and of 10 against their neighbours, more than a smooth distribution explains."""
    largest = table.y.max()
    if largest < _LARGEST:
        clean = f"Heaping cannot be seen in counts up to {largest}."
        return Finding("heaping", "heaped", "not tested", 1.0, False, "", clean)
    tests = {}
    for size in (10, 5):
        # 1 at multiples and -1/2 at both neighbours, which differ little in a smooth distribution; bounds are left out.
        multiple, contrast = np.arange(size, min(largest - 1, len(table.counts) - 1), size), 0.0 * table.counts
        if size == 5:
            multiple = multiple[multiple % 10 != 0]
        contrast[multiple], contrast[multiple - 1], contrast[multiple + 1] = 1.0, -0.5, -0.5
        tests[size] = moment_test(table, contrast[None])
    p_value = min(1.0, 2.0 * min(test.p_more for test in tests.values()))
    # Only those that are not multiples of 10 show that 5 is the unit.
    unit = 5 if tests[5].p_more <= 0.025 else 10
    shown = moment_test(table, ((table.counts > 0) & (table.counts % unit == 0)).astype(float)[None])
    matters = shown.observed - shown.expected >= 0.01
    observed, expected = shown.shares()
    effect = f"{observed} multiples of {unit}, {expected} expected"
    sentence = (
        f"{observed} of the counts are multiples of {unit}, where a smooth distribution has {expected}: some counts "
        f"are rounded ({format_p_value(p_value)})."
    )
    clean = f"No heaping at multiples of 5 or 10 ({effect})."
    return Finding("heaping", "heaped", effect, p_value, matters, sentence, clean)


def check_tail(table: ProbabilityTable) -> Finding:
    """Test for counts beyond an upper quantile of their fitted distribution, by the third most extreme of all."""
    level = float(np.clip(5.0 / len(table.y), 1e-3, 1e-2))
    above = np.cumsum(table.pmf[:, ::-1], axis=1)[:, ::-1]
    test = moment_test(table, (above <= level).astype(float))
    of_rows = np.sort(above[table.position, table.y])
    third = float(stats.binom.sf(_EXTREME - 1, len(of_rows), of_rows[_EXTREME - 1]))
    p_value, rows = min(1.0, 2.0 * min(test.p_more, third)), int(np.sum(of_rows <= level))
    matters = rows >= 5 and (test.observed >= 2.0 * test.expected or third < test.p_more)
    observed, expected = test.shares(2)
    effect = f"{observed} extreme counts, {expected} expected"
    sentence = (
        f"{rows:,} counts ({observed}) lie beyond the upper {percent(level, 2)} quantile of their fitted distribution, "
        f"where {expected} are expected; the third most extreme has a probability of {of_rows[_EXTREME - 1]:.1g} "
        f"({format_p_value(p_value)}): the tail is heavy."
    )
    clean = f"The upper tail is not heavier than that of the fitted distribution ({effect})."
    return Finding("tail", "heavy-tailed", effect, p_value, matters, sentence, clean)
