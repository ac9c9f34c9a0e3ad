"""Values that pile up at the largest or smallest count: ceilings, censored counts, floors."""

from typing import NamedTuple

import numpy as np
from scipy import stats
from scipy.optimize import minimize
from scipy.special import expit

from ddpn.diagnosis.moments import Table
from ddpn.diagnosis.result import Finding, percent, write_p

#: Rows at a bound without which nothing is reported, and the ratio to the expected rows.
_FEWEST, _RATIO = 5, 1.5
#: The expected share of rows beyond a bound from which their absence matters.
_BEYOND = 0.005
#: Rows that the models of a ceiling and of censoring are fitted to.
_ROWS = 3000


class Edge(NamedTuple):
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


def edge(table: Table, upper: bool) -> Edge:
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
    return Edge(value, found, expected, beyond, min(p_pile, 1.0), p_absent)


def ceiling_finding(table: Table, mean: np.ndarray) -> tuple[Finding, str]:
    """The finding about the largest count, and "ceiling", "censored", "either" or "" where there is no pile."""
    found = edge(table, upper=True)
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


def floor_finding(table: Table) -> Finding:
    """The finding about the smallest count, for counts without zeros."""
    found, rows = edge(table, upper=False), len(table.y)
    effect = f"no count below {found.value:,}, {percent(found.beyond)} expected"
    sentence = (
        f"No count is below {found.value:,}, where a smooth distribution has {percent(found.beyond)}; "
        f"{percent(found.rows / rows)} are at {found.value:,} ({write_p(found.p_value)}): the counts have a lower limit."
    )
    clean = f"No counts below {found.value:,}, as expected from their means ({effect})."
    return Finding("floor", "floor", effect, found.p_value, found.matters, sentence, clean)


def ceiling_kind(y: np.ndarray, mean: np.ndarray) -> str:
    """Compare a Negative Binomial that is censored at the maximum with a beta-binomial up to it, both around the means.

    Both have a free level and slope of the log mean (or log odds) in the log of the out-of-fold mean, and a dispersion.
    """
    if len(y) > _ROWS:
        rows = np.random.default_rng(0).choice(len(y), _ROWS, replace=False)
        y, mean = y[rows], mean[rows]
    top = int(y.max())
    at_top = y == top
    x = np.log(mean)
    odds = np.log(np.clip(mean / top, 0.01, 0.99)) - np.log1p(-np.clip(mean / top, 0.01, 0.99))

    def censored(at: np.ndarray) -> float:
        mu, r = np.exp(np.clip(at[0] + at[1] * x, -20, 20)), float(np.exp(np.clip(-at[2], -4, 9)))
        p = r / (r + mu)
        below = stats.nbinom.logpmf(y[~at_top], r, p[~at_top]).sum()
        return -float(below + stats.nbinom.logsf(top - 1, r, p[at_top]).sum())

    def bounded(at: np.ndarray) -> float:
        share, size = expit(np.clip(at[0] + at[1] * odds, -20, 20)), float(np.exp(np.clip(-at[2], -4, 9)))
        return -float(stats.betabinom.logpmf(y, top, np.maximum(share * size, 1e-9), (1 - share) * size + 1e-9).sum())

    start, options = [0.0, 1.0, 0.0], {"maxiter": 250, "xatol": 1e-2, "fatol": 1e-1}
    losses = [minimize(loss, start, method="Nelder-Mead", options=options).fun for loss in (censored, bounded)]
    gain = losses[1] - losses[0]
    return "either" if abs(gain) < 3.0 else "censored" if gain > 0 else "ceiling"
