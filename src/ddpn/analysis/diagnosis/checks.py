"""Checks of counts against a fitted distribution: zeros, the largest count, heaping and the upper tail.

The fitted distribution is a Double Poisson or a Negative Binomial whose dispersion is fitted to the counts. Its pmf is
smooth. So if the counts deviate from it, there is a reason, such as rounding or a recording limit.
"""

import numpy as np
from scipy import stats

from ddpn.analysis.diagnosis.finding import Finding
from ddpn.analysis.diagnosis.significance import format_p_value
from ddpn.analysis.diagnosis.smooth import ProbabilityTable, moment_test
from ddpn.runtime.display import percent, plural

#: The smallest maximum of the counts with which heaping is tested. With fewer multiples of 5, it cannot be recognised.
_MIN_HEAPED_MAXIMUM = 12
#: The test of the tail uses the row of this rank among extreme rows. One or two may be errors of recording or of the
#: mean.
_EXTREME_RANK = 3
#: The fewest rows at the largest count that are reported, and their smallest ratio to the expected number.
_MIN_PILE, _MIN_PILE_RATIO = 5, 1.5
#: The label of counts whose minimum is above 0.
NONE_BELOW = "no small counts"


def check_zeros(table: ProbabilityTable) -> Finding:
    """Test whether there are more or fewer zeros than expected under the fitted distribution.

    `table` has the fitted distribution of every row. If the smallest observed count m is above 0, the share of counts
    below m, of which none was observed, is tested instead.
    """
    low = max(int(table.y.min()), 1)
    test = moment_test(table, (table.counts < low).astype(float)[None])
    sign = "more" if test.observed > test.expected else "fewer"
    label = "zero-inflated" if sign == "more" else "too few zeros" if test.observed else NONE_BELOW
    what = "0" if low == 1 else f"below {low:,}"
    # A small difference in zeros changes no recommendation.
    matters = abs(test.observed - test.expected) >= 0.01
    observed, expected = test.format_shares()
    effect = f"{observed} observed, {expected} expected"
    sentence = (
        f"{observed} of the counts are {what}, {sign} than the {expected} expected from a smooth distribution with the "
        f"same mean and dispersion ({format_p_value(test.p_value)})."
    )
    which = "zeros" if low == 1 else f"counts {what}"
    clean = f"The number of {which} agrees with a smooth distribution of the same mean and dispersion ({effect})."
    return Finding("zeros", label, effect, test.p_value, matters, sentence, clean)


def check_ceiling(table: ProbabilityTable) -> Finding:
    """Test whether the counts have a limit at their maximum.

    There are two signs of a limit, compared with the fitted distribution in `table`. More counts may equal the maximum
    than expected, because larger counts were recorded as the maximum. Or many larger counts are expected but none was
    observed, because they are impossible.
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
    """Test whether multiples of 5 or 10 are more frequent than expected under the fitted distribution in `table`.

    Multiples of 10 and odd multiples of 5 are tested separately. The two p-values are combined by a Bonferroni
    correction. Each test compares the multiples with their two neighbours, which are about as probable in a smooth
    distribution. If no count exceeds 11, heaping is not tested, and the finding says so.
    """
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
    observed, expected = shown.format_shares()
    effect = f"{observed} multiples of {unit}, {expected} expected"
    sentence = (
        f"{observed} of the counts are multiples of {unit}, but a smooth distribution has {expected}: some counts are "
        f"rounded ({format_p_value(p_value)})."
    )
    clean = f"No heaping at multiples of 5 or 10 ({effect})."
    return Finding("heaping", "heaped", effect, p_value, matters, sentence, clean)


def check_tail(table: ProbabilityTable) -> Finding:
    """Test whether the counts have a heavier upper tail than the fitted distribution in `table`.

    Two tests are combined by a Bonferroni correction. Both use P(Y >= y), the probability under the fitted distribution
    of a count at least as large as the observed count y of a row:

    - whether this probability is small in more rows than expected (small means at most 5 / number of rows, but not less
      than 0.1% and not more than 1%);
    - whether the third smallest of these probabilities over all rows is smaller than expected.
    """
    level = float(np.clip(5.0 / len(table.y), 1e-3, 1e-2))
    above = np.cumsum(table.pmf[:, ::-1], axis=1)[:, ::-1]
    test = moment_test(table, (above <= level).astype(float))
    masses = np.sort(above[table.position, table.y])
    third = float(stats.binom.sf(_EXTREME_RANK - 1, len(masses), masses[_EXTREME_RANK - 1]))
    p_value, rows = min(1.0, 2.0 * min(test.p_more, third)), int(np.sum(masses <= level))
    matters = rows >= 5 and (test.observed >= 2.0 * test.expected or third < test.p_more)
    observed, expected = test.format_shares(2)
    effect = f"{observed} extreme counts, {expected} expected"
    sentence = (
        f"{observed} of the counts ({rows:,}) are among the {percent(level, 2)} largest of their fitted distribution, "
        f"but only {expected} are expected there. The third most extreme count has a probability of "
        f"{masses[_EXTREME_RANK - 1]:.1g} ({format_p_value(p_value)}): the tail is heavy."
    )
    clean = f"The upper tail is not heavier than that of the fitted distribution ({effect})."
    return Finding("tail", "heavy-tailed", effect, p_value, matters, sentence, clean)
