"""Counts far above their mean, more than a distribution with the fitted dispersion has."""

import numpy as np

from ddpn.diagnosis.moments import Table, moment_test
from ddpn.diagnosis.result import Finding, percent, write_p


def tail_finding(table: Table) -> Finding:
    """Counts beyond an upper quantile of their predicted distribution: 0.1%, or about five rows in small tables."""
    level = float(np.clip(5.0 / len(table.y), 1e-3, 1e-2))
    above = 1.0 - np.cumsum(table.pmf, axis=1) + table.pmf
    test = moment_test(table, (above <= level).astype(float))
    ratio = test.observed / max(test.expected, 1e-12)
    rows = int(np.sum(table.at_rows(above) <= level))
    effect = f"{percent(test.observed)} extreme counts, {percent(max(test.expected, 0.0))} expected"
    sentence = (
        f"{rows:,} counts ({percent(test.observed)}) lie beyond the upper {percent(level)} quantile of their fitted "
        f"distribution, where {percent(max(test.expected, 0.0))} are expected ({write_p(test.p_more)}): the tail is heavy."
    )
    clean = f"The upper tail is not heavier than that of the fitted distribution ({effect})."
    return Finding("tail", "heavy-tailed", effect, test.p_more, ratio >= 2.0 and rows >= 5, sentence, clean)
