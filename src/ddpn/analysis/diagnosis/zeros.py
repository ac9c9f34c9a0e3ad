"""More or fewer zeros than a smooth distribution with the fitted dispersion has."""

from typing import NamedTuple

import numpy as np
from scipy import stats
from scipy.optimize import minimize

from ddpn.analysis.diagnosis.moments import MomentTest, Table, moment_test
from ddpn.analysis.diagnosis.result import Finding, percent, write_p

_ROWS = 5000


def zero_finding(table: Table) -> Finding:
    """The share of zeros against the expected share."""
    test = moment_test(table, (table.counts == 0).astype(float)[None])
    sign = "more" if test.observed > test.expected else "fewer"
    # Few zeros more or less change no recommendation.
    matters = abs(test.observed - test.expected) >= 0.01
    sentence = (
        f"{percent(test.observed)} of the counts are 0, {sign} than the {percent(test.expected)} that a smooth "
        f"distribution with the same mean and dispersion has"
    )
    name = "zero-inflated" if sign == "more" else "too few zeros"
    clean = "The number of zeros agrees with a smooth distribution of the same mean and dispersion"
    return _finding("zeros", name, test, test.p_value, matters, sentence, clean)


def _finding(
    name: str, label: str, test: MomentTest, p_value: float, matters: bool, sentence: str, clean: str
) -> Finding:
    effect = f"{percent(test.observed)} observed, {percent(test.expected)} expected"
    return Finding(name, label, effect, p_value, matters, f"{sentence} ({write_p(p_value)}).", f"{clean} ({effect}).")


class ZeroInflation(NamedTuple):
    """The likelier base distribution of a zero-inflated model, and its share of extra zeros."""

    base: str
    share: float


def zero_inflation(y: np.ndarray, mean: np.ndarray) -> ZeroInflation:
    """Choose between a zero-inflated Poisson and Negative Binomial by BIC, with means (1 - share) * location."""
    if len(y) > _ROWS:
        rows = np.random.default_rng(0).choice(len(y), _ROWS, replace=False)
        y, mean = y[rows], mean[rows]

    def loss(share: float, alpha: float) -> float:
        mu = mean / (1.0 - share)
        r = 1.0 / max(alpha, 1e-6)
        log_pmf = stats.nbinom.logpmf(y, r, r / (r + mu)) if alpha > 1e-6 else stats.poisson.logpmf(y, mu)
        mixed = np.where(y == 0, np.log(share + (1 - share) * np.exp(log_pmf)), np.log1p(-share) + log_pmf)
        return -float(mixed.sum())

    def expit(x: float) -> float:
        return float(0.98 / (1.0 + np.exp(-x)))

    poisson = minimize(lambda at: loss(expit(at[0]), 0.0), [0.0], method="Nelder-Mead")
    start = [float(poisson.x[0]), -1.0]
    wide = minimize(lambda at: loss(expit(at[0]), float(np.exp(np.clip(at[1], -12, 4)))), start, method="Nelder-Mead")
    if 2 * (poisson.fun - wide.fun) > np.log(len(y)):
        return ZeroInflation("negative_binomial", expit(wide.x[0]))
    return ZeroInflation("poisson", expit(poisson.x[0]))
