"""Counts that are rounded to multiples of 5 or 10."""

import numpy as np

from ddpn.analysis.diagnosis.moments import Table, moment_test
from ddpn.analysis.diagnosis.result import Finding, percent, write_p

#: The largest count must be at least this: below, one or two multiples say nothing about rounding.
_LARGEST = 12


def heaping_finding(table: Table) -> Finding:
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


def _contrast(table: Table, size: int, skip: int) -> np.ndarray:
    """1 at multiples and -1/2 at both neighbours, which differ little in a smooth distribution; bounds are left out."""
    counts = table.counts.astype(int)
    multiple = np.arange(size, min(int(table.y.max()) - 1, len(counts) - 1), size)
    if skip:
        multiple = multiple[multiple % skip != 0]
    found = np.zeros(len(counts))
    found[multiple], found[multiple - 1], found[multiple + 1] = 1.0, -0.5, -0.5
    return found
