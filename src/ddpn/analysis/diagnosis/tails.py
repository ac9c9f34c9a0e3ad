"""Counts far above their mean, more than a distribution with the fitted dispersion has."""

import numpy as np
from scipy import stats

from ddpn.analysis.diagnosis.moments import Table, moment_test
from ddpn.analysis.diagnosis.result import Finding, percent, write_p

#: Rows that must be extreme: fewer may be errors of recording or of the mean.
_FEWEST = 3


def tail_finding(table: Table) -> Finding:
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
