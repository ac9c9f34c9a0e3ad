"""Zeros, heaping, the upper tail and bounds, against a smooth distribution with the fitted dispersion."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import stats
from scipy.optimize import minimize
from scipy.special import expit

from ddpn.analysis.diagnosis.moments import ProbabilityTable, moment_test
from ddpn.analysis.diagnosis.result import Finding, percent, write_p

#: The largest count must be at least this to see heaping: below, one or two multiples say nothing about rounding.
_LARGEST = 12
#: Rows that must be extreme: fewer may be errors of recording or of the mean.
_EXTREME = 3
#: Rows at a bound without which nothing is reported, and the ratio to the expected rows.
_FEWEST, _RATIO = 5, 1.5
#: The expected share of rows beyond a bound from which their absence matters.
_BEYOND = 0.005
#: Rows that the models of a ceiling and of censoring are fitted to.
_ROWS = 3000
#: The difference of their log-likelihoods from which one is called better: the mean is an estimate for both.
_CLEAR = 10.0


def zero_finding(table: ProbabilityTable) -> Finding:
    """The share of zeros against the expected share."""
    test = moment_test(table, (table.counts == 0).astype(float)[None])
    sign = "more" if test.observed > test.expected else "fewer"
    name = "zero-inflated" if sign == "more" else "too few zeros"
    # Few zeros more or less change no recommendation.
    matters = abs(test.observed - test.expected) >= 0.01
    effect = f"{percent(test.observed)} observed, {percent(test.expected)} expected"
    sentence = (
        f"{percent(test.observed)} of the counts are 0, {sign} than the {percent(test.expected)} that a smooth "
        f"distribution with the same mean and dispersion has ({write_p(test.p_value)})."
    )
    clean = f"The number of zeros agrees with a smooth distribution of the same mean and dispersion ({effect})."
    return Finding("zeros", name, effect, test.p_value, matters, sentence, clean)


def heaping_finding(table: ProbabilityTable) -> Finding:
    """Multiples of 5 and of 10 against their neighbours, more than a smooth distribution explains."""
    largest = table.y.max()
    if largest < _LARGEST:
        clean = f"Heaping cannot be seen in counts up to {largest}."
        return Finding("heaping", "heaped", "not tested", 1.0, False, "", clean)
    tests = {size: moment_test(table, _contrast(table, size, skip)[None]) for size, skip in ((10, 0), (5, 10))}
    p_value = min(1.0, 2.0 * min(test.p_more for test in tests.values()))
    # Only those that are not multiples of 10 show that 5 is the unit.
    unit = 5 if tests[5].p_more <= 0.025 else 10
    shown = moment_test(table, ((table.counts > 0) & (table.counts % unit == 0)).astype(float)[None])
    matters = shown.observed - shown.expected >= 0.01
    effect = f"{percent(shown.observed)} multiples of {unit}, {percent(shown.expected)} expected"
    sentence = (
        f"{percent(shown.observed)} of the counts are multiples of {unit}, where a smooth distribution has "
        f"{percent(shown.expected)}: some counts are rounded ({write_p(p_value)})."
    )
    clean = f"No heaping at multiples of 5 or 10 ({effect})."
    return Finding("heaping", "heaped", effect, p_value, matters, sentence, clean)


def _contrast(table: ProbabilityTable, size: int, skip: int) -> np.ndarray:
    """1 at multiples and -1/2 at both neighbours, which differ little in a smooth distribution; bounds are left out."""
    counts = table.counts.astype(int)
    multiple = np.arange(size, min(int(table.y.max()) - 1, len(counts) - 1), size)
    if skip:
        multiple = multiple[multiple % skip != 0]
    found = np.zeros(len(counts))
    found[multiple], found[multiple - 1], found[multiple + 1] = 1.0, -0.5, -0.5
    return found


def tail_finding(table: ProbabilityTable) -> Finding:
    """Counts beyond an upper quantile of their fitted distribution, and the third most extreme of all."""
    level = float(np.clip(5.0 / len(table.y), 1e-3, 1e-2))
    above = np.cumsum(table.pmf[:, ::-1], axis=1)[:, ::-1]
    test = moment_test(table, (above <= level).astype(float))
    # Of a censored count this is the probability of what was recorded.
    of_rows = np.sort(above[table.place, table.y])
    third = float(stats.binom.sf(_EXTREME - 1, len(of_rows), of_rows[_EXTREME - 1]))
    p_value, rows = min(1.0, 2.0 * min(test.p_more, third)), int(np.sum(of_rows <= level))
    matters = rows >= 5 and (test.observed >= 2.0 * test.expected or third < test.p_more)
    effect = f"{percent(test.observed)} extreme counts, {percent(test.expected)} expected"
    sentence = (
        f"{rows:,} counts ({percent(test.observed)}) lie beyond the upper {percent(level)} quantile of their fitted "
        f"distribution, where {percent(test.expected)} are expected; the third most extreme has a probability of "
        f"{of_rows[_EXTREME - 1]:.1g} ({write_p(p_value)}): the tail is heavy."
    )
    clean = f"The upper tail is not heavier than that of the fitted distribution ({effect})."
    return Finding("tail", "heavy-tailed", effect, p_value, matters, sentence, clean)


# Bounds: ceilings, censored counts, floors ----------------------------------------------------------------------------


class Extreme(NamedTuple):
    """Rows at an extreme count, and what the fitted distribution expects there and beyond.

    `p_pile` is the probability of so many rows at the extreme, given that no row is beyond; `p_absent` that of no row
    beyond. Under the fitted distribution the two are independent.
    """

    value: int
    rows: int
    expected: float
    beyond: float
    p_pile: float
    p_absent: float

    @property
    def p_value(self) -> float:
        return min(1.0, 2.0 * min(self.p_pile, self.p_absent))

    @property
    def is_pile(self) -> bool:
        return self.rows >= _FEWEST and self.rows >= _RATIO * self.expected and self.p_pile <= self.p_absent

    @property
    def matters(self) -> bool:
        return self.rows >= _FEWEST and (self.rows >= _RATIO * self.expected or self.beyond >= _BEYOND)


def extreme(table: ProbabilityTable, upper: bool) -> Extreme:
    """What happens at the largest (or smallest) count."""
    value = int(table.y.max() if upper else table.y.min())
    up_to = np.clip(np.cumsum(table.pmf, axis=1), 1e-300, 1.0)
    at = table.pmf[:, value]
    inside = up_to[:, value] if upper else np.clip(1.0 - up_to[:, value] + at, 1e-300, 1.0)
    number, found = table.rows, int(np.sum(table.y == value))
    expected = float(number @ np.minimum(at / inside, 1.0))
    pile = stats.binom(len(table.y), expected / len(table.y))
    p_pile = float(pile.sf(found - 1) / max(pile.sf(0), 1e-300))
    # A mean beyond the bound is an error of the mean and no evidence for a bound.
    usual = table.mean <= value if upper else table.mean >= value
    p_absent = float(np.exp(np.sum(number[usual] * np.log(inside[usual]))))
    beyond = float(number[usual] @ (1.0 - inside[usual])) / len(table.y)
    return Extreme(value, found, expected, beyond, min(p_pile, 1.0), p_absent)


def ceiling_finding(table: ProbabilityTable, mean: np.ndarray) -> tuple[Finding, str]:
    """The finding about the largest count, and "ceiling", "censored", "either" or "" where there is no pile."""
    found = extreme(table, upper=True)
    rows = len(table.y)
    effect = f"{percent(found.rows / rows)} at the maximum {found.value:,}, {percent(found.expected / rows)} expected"
    clean = f"No pile-up at the maximum ({effect})."
    kind = ceiling_kind(table.y, mean) if found.is_pile and found.p_value < 0.05 else ""
    where = f"{found.rows:,} rows ({percent(found.rows / rows)}) are at the maximum {found.value:,}"
    if kind:
        why = {
            "censored": f"A distribution cut off at '{found.value:,} or more' (censored) fits better than a ceiling",
            "ceiling": "A limited range (a ceiling) fits better than censoring",
            "either": "The counts alone do not show whether it is a ceiling or censoring ('or more')",
        }[kind]
        sentence = (
            f"{where}, where a smooth distribution has {percent(found.expected / rows)} ({write_p(found.p_value)}). "
            f"{why}; check how the column was recorded."
        )
    else:
        sentence = (
            f"{where} and none is above, where a smooth distribution has {percent(found.beyond)} "
            f"({write_p(found.p_value)}): the counts seem to have an upper limit."
        )
    label = {"censored": "censored", "ceiling": "ceiling", "either": "ceiling or censored"}.get(kind, "upper limit")
    return Finding("ceiling", label, effect, found.p_value, found.matters, sentence, clean), kind or "ceiling"


def floor_finding(table: ProbabilityTable) -> Finding:
    """The finding about the smallest count, for counts without zeros."""
    found, rows = extreme(table, upper=False), len(table.y)
    at, usual = percent(found.rows / rows), percent(found.expected / rows)
    if found.is_pile:
        effect = f"{at} at the minimum {found.value:,}, {usual} expected"
        what = f"{at} of the counts are at the minimum {found.value:,}, where a smooth distribution has {usual}"
    else:
        effect = f"no count below {found.value:,}, {percent(found.beyond)} expected"
        what = f"No count is below {found.value:,}, where a smooth distribution has {percent(found.beyond)}"
    sentence = f"{what} ({write_p(found.p_value)}): the counts have a lower limit."
    clean = f"The smallest count is {found.value:,}, which agrees with the means ({effect})."
    return Finding("floor", "floor", effect, found.p_value, found.matters, sentence, clean)


def ceiling_kind(y: np.ndarray, mean: np.ndarray) -> str:
    """Compare a Negative Binomial that is censored at the maximum with a beta-binomial up to it, both around the means.

    Means of censored counts level off below the maximum. So the log mean (or log odds) of both is linear in the log and
    in the log odds of the out-of-fold mean, with free coefficients, and both have a dispersion.
    """
    if len(y) > _ROWS:
        rows = np.random.default_rng(0).choice(len(y), _ROWS, replace=False)
        y, mean = y[rows], mean[rows]
    y, mean = y - y.min(), np.maximum(mean - y.min(), 1e-3)
    top = int(y.max())
    at_top, share = y == top, np.clip(mean / top, 0.005, 0.995)
    log, odds = np.log(mean), np.log(share) - np.log1p(-share)

    def censored(at: np.ndarray) -> float:
        mu, r = np.exp(np.clip(at[0] + at[1] * log + at[2] * odds, -20, 20)), float(np.exp(np.clip(-at[3], -4, 9)))
        p = r / (r + mu)
        below = stats.nbinom.logpmf(y[~at_top], r, p[~at_top]).sum()
        return -float(below + stats.nbinom.logsf(top - 1, r, p[at_top]).sum())

    def bounded(at: np.ndarray) -> float:
        p, size = expit(np.clip(at[0] + at[1] * log + at[2] * odds, -20, 20)), float(np.exp(np.clip(-at[3], -4, 9)))
        return -float(stats.betabinom.logpmf(y, top, np.maximum(p * size, 1e-9), (1 - p) * size + 1e-9).sum())

    gain = _least(bounded, [0.0, 0.0, 1.0, -2.0]) - _least(censored, [0.0, 1.0, 0.0, -2.0])
    return "either" if abs(gain) < _CLEAR else "censored" if gain > 0 else "ceiling"


def _least(loss: Callable[[np.ndarray], float], start: list[float]) -> float:
    """The minimum of a function of four parameters, each of the order of 1."""
    simplex = np.vstack([start, np.asarray(start) + 0.5 * np.eye(len(start))])
    options = {"maxiter": 400, "xatol": 1e-2, "fatol": 1e-1, "initial_simplex": simplex}
    return float(minimize(loss, start, method="Nelder-Mead", options=options).fun)
