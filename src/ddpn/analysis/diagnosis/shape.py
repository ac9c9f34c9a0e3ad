"""Zeros, heaping and the upper tail, against a smooth distribution with the fitted dispersion."""

import numpy as np
from scipy import stats

from ddpn.analysis.diagnosis.moments import ProbabilityTable, moment_test
from ddpn.analysis.diagnosis.result import Finding, percent, write_p

#: The largest count must be at least this to see heaping: below, one or two multiples say nothing about rounding.
_LARGEST = 12
#: Rows that must be extreme: fewer may be errors of recording or of the mean.
_FEWEST = 3


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
    third = float(stats.binom.sf(_FEWEST - 1, len(of_rows), of_rows[_FEWEST - 1]))
    p_value, rows = min(1.0, 2.0 * min(test.p_more, third)), int(np.sum(of_rows <= level))
    matters = rows >= 5 and (test.observed >= 2.0 * test.expected or third < test.p_more)
    effect = f"{percent(test.observed)} extreme counts, {percent(test.expected)} expected"
    sentence = (
        f"{rows:,} counts ({percent(test.observed)}) lie beyond the upper {percent(level)} quantile of their fitted "
        f"distribution, where {percent(test.expected)} are expected; the third most extreme has a probability of "
        f"{of_rows[_FEWEST - 1]:.1g} ({write_p(p_value)}): the tail is heavy."
    )
    clean = f"The upper tail is not heavier than that of the fitted distribution ({effect})."
    return Finding("tail", "heavy-tailed", effect, p_value, matters, sentence, clean)
