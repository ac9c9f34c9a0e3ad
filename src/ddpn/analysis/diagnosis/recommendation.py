"""From findings to a likelihood and options of `ddpn fit`."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from scipy import stats
from scipy.optimize import minimize
from scipy.special import expit

from ddpn.analysis.diagnosis.reference import FittedFamily, Reference
from ddpn.analysis.diagnosis.result import Finding, Recommendation

_WORDS = {
    "poisson": "Poisson",
    "double_poisson": "Double Poisson",
    "negative_binomial": "Negative Binomial",
}
#: Rows that the models of zeros are fitted to.
_ROWS = 5000


def recommend(
    findings: Mapping[str, Finding],
    direction: str,
    families: Mapping[str, FittedFamily],
    ceiling: str,
    reference: Reference,
    mean: np.ndarray,
) -> Recommendation:
    """The likelihood for these findings; `ceiling` is what kind of ceiling was found."""
    found = {name: finding for name, finding in findings.items() if finding.found}
    low, high = int(reference.y.min()), int(reference.y.max())
    likelihood, reason = _base(direction, families)
    options = list(reference.options)
    if "ceiling" in found and ceiling == "ceiling":
        options.append(f"--upper {high}")
        likelihood = "double_binomial"
        reason = f"The counts have an upper limit of {high:,}: a distribution on a limited range puts no probability "
        reason += "beyond it."
    elif "zeros" in found and found["zeros"].label == "zero-inflated":
        inflation = zero_inflation(reference.y, mean)
        likelihood = f"zero_inflated_{inflation.base}"
        words = f"a zero-inflated {_WORDS[inflation.base]} fits them"
        reason = f"About {inflation.share:.0%} of the rows are extra zeros: {words}."
    elif "zeros" in found:
        likelihood = f"hurdle_{likelihood if likelihood in _WORDS else 'double_poisson'}"
        reason = "Zeros are rarer than a smooth distribution has them, so they need a probability of their own."
    elif "tail" in found and direction == "over":
        likelihood, reason = "mixed", "The tail is heavier than that of one distribution: a mixture per row follows it."
    reasons = [reason]
    if "tail" in found:
        reasons.append("Extreme counts also occur where the dispersion differs between rows, which ddpn fit predicts.")
    if "ceiling" in found and ceiling != "ceiling":
        options.append(f"--censored-above {high}")
        reasons.append(f"If {high:,} means '{high:,} or more', treat these counts as censored.")
    if "floor" in found:
        options.append(f"--lower {low}")
        reasons.append(f"Counts below {low:,} do not occur.")
    if "heaping" in found:
        reasons.append("No likelihood here models rounding: read single probabilities with care, intervals less so.")
    return Recommendation(likelihood, " ".join(reasons), tuple(options))


def _base(direction: str, families: Mapping[str, FittedFamily]) -> tuple[str, str]:
    if "double_binomial" in families:
        words = {"over": "above", "under": "below", "equi": "near"}[direction]
        return "double_binomial", (
            f"The Double Binomial puts no probability beyond the upper bound and follows a variance {words} that of a "
            "Binomial."
        )
    if direction == "under":
        return "double_poisson", "The Double Poisson can have a variance below the mean; the Negative Binomial cannot."
    if direction == "equi":
        reason = "A Poisson suffices; mixed, the default of ddpn fit, contains it (nearly) and is a safe choice."
        return "poisson", reason
    double, negative = families["double_poisson"], families["negative_binomial"]
    best, other = (double, negative) if double.loglik > negative.loglik else (negative, double)
    gain = best.loglik - other.loglik
    return best.name, (
        f"With one dispersion for all rows the {_WORDS[best.name]} fits the over-dispersed counts better than the "
        f"{_WORDS[other.name]} (by {gain:.2g} in log-likelihood per row)."
    )


class ZeroInflation(NamedTuple):
    """The likelier base distribution of a zero-inflated model, and its share of extra zeros."""

    base: str
    share: float


def zero_inflation(y: np.ndarray, mean: np.ndarray) -> ZeroInflation:
    """Choose between a zero-inflated Poisson and Negative Binomial by BIC, with means (1 - share) * location."""
    if len(y) > _ROWS:
        rows = np.random.default_rng(0).choice(len(y), _ROWS, replace=False)
        y, mean = y[rows], mean[rows]

    def share_of(x: float) -> float:
        return float(0.98 * expit(x))

    def loss(share: float, alpha: float) -> float:
        mu = mean / (1.0 - share)
        r = 1.0 / max(alpha, 1e-6)
        log_pmf = stats.nbinom.logpmf(y, r, r / (r + mu)) if alpha > 1e-6 else stats.poisson.logpmf(y, mu)
        mixed = np.where(y == 0, np.log(share + (1 - share) * np.exp(log_pmf)), np.log1p(-share) + log_pmf)
        return -float(mixed.sum())

    poisson = minimize(lambda at: loss(share_of(at[0]), 0.0), [0.0], method="Nelder-Mead")
    start = [float(poisson.x[0]), -1.0]
    wide = minimize(
        lambda at: loss(share_of(at[0]), float(np.exp(np.clip(at[1], -12, 4)))), start, method="Nelder-Mead"
    )
    if 2 * (poisson.fun - wide.fun) > np.log(len(y)):
        return ZeroInflation("negative_binomial", share_of(wide.x[0]))
    return ZeroInflation("poisson", share_of(poisson.x[0]))
