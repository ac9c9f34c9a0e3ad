"""Recommendation of a likelihood and further arguments from the findings of a diagnosis."""

from collections.abc import Mapping

import numpy as np
from scipy import stats
from scipy.optimize import minimize
from scipy.special import expit

from ddpn.analysis.diagnosis.checks import NONE_BELOW
from ddpn.analysis.diagnosis.finding import Finding
from ddpn.analysis.diagnosis.smooth import FittedFamily
from ddpn.runtime.errors import format_argument

_WORDS = {"poisson": "Poisson", "double_poisson": "Double Poisson", "negative_binomial": "Negative Binomial"}
#: The most rows to which models of zeros are fitted.
_MAX_BIC_ROWS = 5000


def recommend(
    findings: Mapping[str, Finding],
    direction: str,
    families: Mapping[str, FittedFamily],
    y: np.ndarray,
    mean: np.ndarray,
) -> tuple[str, str, dict[str, int | str]]:
    """Recommend a likelihood and further arguments of the estimator.

    `findings` are the reported findings, keyed by the name of the check. `direction` is "over", "under" or "equi" (see
    `Dispersion.direction`). `families` are the results of `fit_families`. `y` and `mean` have the count and the
    predicted mean of each row.

    Return the name of the likelihood, the reason as text, and the further arguments by name, such as `lower`.
    """
    likelihood = "poisson"
    reason = "A Poisson suffices; mixed, the default of ddpn fit, contains it (nearly) and is a safe choice."
    if direction == "under":
        likelihood = "double_poisson"
        reason = "The Double Poisson can have a variance below the mean; the Negative Binomial cannot."
    elif direction == "over":
        best, other = sorted(families.values(), key=lambda family: -family.loglik)
        likelihood, gain = best.name, best.loglik - other.loglik
        reason = (
            f"With one dispersion for all rows the {_WORDS[best.name]} fits the over-dispersed counts better than the "
            f"{_WORDS[other.name]} (by {gain:.2g} in log-likelihood per row)."
        )
    options, zeros = dict[str, int | str](), findings["zeros"].label if "zeros" in findings else ""
    if zeros == "zero-inflated":
        base, share = choose_zero_inflated_base(y, mean)
        likelihood = f"zero_inflated_{base}"
        reason = f"About {share:.0%} of the rows are extra zeros: a zero-inflated {_WORDS[base]} fits them."
    elif zeros == "too few zeros":
        likelihood = f"hurdle_{likelihood}"
        reason = "There are fewer zeros than in a smooth distribution, so they need a separate probability."
    elif "tail" in findings and direction == "over":
        likelihood, reason = "mixed", "The tail is heavier than that of a single distribution; a mixture can follow it."
    reasons = [reason]
    if "tail" in findings:
        reasons.append("Extreme counts also occur if the dispersion differs between rows, which ddpn fit predicts.")
    if zeros == NONE_BELOW:
        options["lower"] = low = int(y.min())
        reasons.append(f"If counts below {low} cannot occur, use {format_argument('lower', low)}.")
    if "ceiling" in findings:
        top = int(y.max())
        reasons.append(
            f"Check how the column was recorded: if {top} means '{top} or more', use "
            f"{format_argument('censored_above', top)}; if larger counts are impossible, use "
            f"{format_argument('upper', top)}."
        )
    if "heaping" in findings:
        reasons.append("No likelihood models rounding: probabilities of single counts are unreliable.")
    return likelihood, " ".join(reasons), options


def choose_zero_inflated_base(y: np.ndarray, mean: np.ndarray) -> tuple[str, float]:
    """Choose the distribution to which a zero-inflated likelihood adds zeros, by BIC.

    `y` has the counts. `mean` is the mean of each row with its extra zeros, so the distribution without them has the
    mean `mean` / (1 - share).

    Return "poisson" or "negative_binomial", and the share of the rows that are extra zeros.
    """
    if len(y) > _MAX_BIC_ROWS:
        rows = np.random.default_rng(0).choice(len(y), _MAX_BIC_ROWS, replace=False)
        y, mean = y[rows], mean[rows]

    def to_share(x: float) -> float:
        return float(0.98 * expit(x))

    def loss(share: float, alpha: float) -> float:
        mu = mean / (1.0 - share)
        r = 1.0 / max(alpha, 1e-6)
        log_pmf = stats.nbinom.logpmf(y, r, r / (r + mu)) if alpha > 1e-6 else stats.poisson.logpmf(y, mu)
        mixed = np.where(y == 0, np.log(share + (1 - share) * np.exp(log_pmf)), np.log1p(-share) + log_pmf)
        return -float(mixed.sum())

    poisson = minimize(lambda at: loss(to_share(at[0]), 0.0), [0.0], method="Nelder-Mead")
    start = [float(poisson.x[0]), -1.0]
    wide = minimize(
        lambda at: loss(to_share(at[0]), float(np.exp(np.clip(at[1], -12, 4)))), start, method="Nelder-Mead"
    )
    if 2 * (poisson.fun - wide.fun) > np.log(len(y)):
        return "negative_binomial", to_share(wide.x[0])
    return "poisson", to_share(poisson.x[0])
