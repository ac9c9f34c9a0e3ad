"""`diagnose`: all checks of a target in their order, and from findings to a likelihood and options of `ddpn fit`."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy import stats
from scipy.optimize import minimize
from scipy.special import expit

from ddpn.analysis.diagnosis.checks import (
    NONE_BELOW,
    FittedFamily,
    ceiling_finding,
    conditional_dispersion,
    dispersion_finding,
    fit_families,
    heaping_finding,
    tabulate,
    tail_finding,
    zero_finding,
)
from ddpn.analysis.diagnosis.means import LABELS, MEAN_MODELS, Means, out_of_fold_means
from ddpn.analysis.diagnosis.result import Diagnosis, Finding, Recommendation, TargetSummary
from ddpn.analysis.gains import holm
from ddpn.runtime.validation import check_choice, check_integer
from ddpn.sample import Sample, checked_sample
from ddpn.tables.count_range import CountRange
from ddpn.tables.row_hashes import group_labels

#: Rows, and counts above 0, below which nothing is tested: an interval of the dispersion would be wider than +-0.4.
MIN_ROWS, MIN_POSITIVE = 50, 10
_WORDS = {"poisson": "Poisson", "double_poisson": "Double Poisson", "negative_binomial": "Negative Binomial"}
#: Rows that the models of zeros are fitted to.
_ROWS = 5000


def diagnose(
    X: Any,
    y: Any,
    *,
    exposure: Any = None,
    sample_weight: Any = None,
    groups: Any = None,
    target: str = "y",
    mean_model: str = "auto",
    max_rows: int = 20_000,
    random_state: int = 0,
    progress: Callable[[str], object] | None = None,
) -> Diagnosis:
    """Diagnose a count target given the features, and recommend a likelihood.

    The conditional mean is estimated out of fold, so that a flexible model does not hide variance. Dispersion is tested
    first; then zeros, the largest count, heaping and the upper tail are compared with a smooth distribution of the same
    mean and dispersion. All p-values are adjusted by Holm's method: of clean Poisson targets about 5% have a finding.

    Counts with a known bound or recording limit are not diagnosed: `CountRegressor` and `ddpn fit` take `lower`,
    `upper`, `censored_above` and `censored`, and fit distributions that have the same limits.

    Parameters
    ----------
    X : array or data frame
        Features, as for `CountRegressor.fit`; missing values and text are allowed.
    y : array
        Counts.
    exposure, sample_weight : array, optional
        The known scale and the weight of each row.
    groups : array, optional
        What each row belongs to, such as a person: means are predicted for groups that the mean model was not fitted
        to, and the p-values of dispersion, zeros and heaping allow for dependent rows within a group.
    target : str
        The name of the target in sentences.
    mean_model : {"auto", "constant", "glm", "boosting"}
        "auto" takes the model with the smallest out-of-fold deviance; "glm" is the fastest that uses features.
    max_rows : int
        Larger tables are reduced to a random sample of so many rows.
    random_state : int
        Seed of the sample, the folds and the trees.
    progress : callable, optional
        Called with the name of each step.

    Returns
    -------
    Diagnosis
        Effects, p-values, sentences and a recommendation.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(1000, 2))
    >>> y = rng.poisson(np.exp(1 + X[:, 0]) * rng.gamma(2, 0.5, size=1000))
    >>> found = diagnose(X, y, mean_model="glm")
    >>> found.labels, found.recommendation.likelihood
    (('over-dispersed',), 'negative_binomial')
    """
    check_choice("mean_model", mean_model, MEAN_MODELS)
    check_integer("max_rows", max_rows, MIN_ROWS)
    check_integer("random_state", random_state, 0)
    sample = checked_sample(X, y, sample_weight, exposure)
    if groups is not None:
        sample = sample.replace(group=group_labels(groups, len(sample)))
    return diagnose_sample(sample, target, mean_model, max_rows, random_state, progress)


def diagnose_sample(
    sample: Sample,
    target: str = "y",
    mean_model: str = "auto",
    max_rows: int = 20_000,
    seed: int = 0,
    progress: Callable[[str], object] | None = None,
    options: tuple[str, ...] = (),
) -> Diagnosis:
    """`diagnose` for rows that are validated already; `options` of `ddpn fit` describe their bounds and limits."""
    CountRange().check_known(sample)
    sample, step = sample.rows(sample.is_used), progress or (lambda words: None)
    if sample.limit is not None and not np.isfinite(sample.limit).any():
        sample = sample.replace(limit=None)
    total, notes = len(sample), list[str]()
    if total > max_rows:
        sample = sample.rows(np.sort(np.random.default_rng(seed).choice(total, max_rows, replace=False)))
        notes.append(f"A random sample of {max_rows:,} of {total:,} rows was used.")
    summary, advice = _summary(sample, total), Recommendation(None, "No recommendation is possible.")
    hopeless = _hopeless(sample.y)
    if not hopeless and not sample.is_plain:
        hopeless, advice = "counts with known bounds or limits are not tested.", _of_bounds(sample, options)
    if hopeless:
        return Diagnosis(target, summary, advice, notes=(hopeless, *notes))
    means = out_of_fold_means(sample, mean_model, seed, step)
    step("Checking dispersion, zeros, the largest count, heaping and the tail")
    return _checked(sample.replace(X=None), target, summary, means, notes)


def _of_bounds(sample: Sample, options: tuple[str, ...]) -> Recommendation:
    """The advice for counts whose bounds or limits are known."""
    # A likelihood of shares takes the upper bound as the total of a row, and no exposure beside it.
    is_share = sample.upper is not None and sample.exposure is None
    likelihood = "double_binomial" if is_share else "mixed"
    reason = "ddpn fit takes bounds and limits from these options, and fits distributions that have them."
    return Recommendation(likelihood, reason, options)


def _summary(sample: Sample, total: int) -> TargetSummary:
    y, weight = sample.y, sample.weight_or_ones
    mean = float(np.average(y, weights=weight))
    variance, zeros = (float(np.average(each, weights=weight)) for each in (np.square(y - mean), y == 0))
    return TargetSummary(total, len(y), mean, variance, zeros, float(y.min()), float(y.max()))


def _hopeless(y: np.ndarray) -> str:
    """Why nothing can be tested, or ""."""
    if not y.any():
        return "all counts are 0, so there is nothing to predict."
    if not np.ptp(y):
        return f"all counts are {y[0]:,.0f}, so there is nothing to predict."
    if len(y) < MIN_ROWS:
        return f"too few rows for a diagnosis: {len(y):,}, and {MIN_ROWS} are needed."
    positive = int(np.sum(y > 0))
    if positive < MIN_POSITIVE:
        return f"too few counts above 0 for a diagnosis: {positive:,}, and {MIN_POSITIVE} are needed."
    return ""


def _checked(sample: Sample, target: str, summary: TargetSummary, means: Means, notes: list[str]) -> Diagnosis:
    dispersion, families = conditional_dispersion(sample, means), fit_families(sample, means.mean)
    findings = [dispersion_finding(dispersion, means.name)]
    table = tabulate(max(families.values(), key=lambda family: family.loglik), sample, means.mean)
    if table is None:
        notes = [*notes, "The counts are too large: zeros, the largest count, heaping and the tail were not tested."]
    else:
        findings += [check(table) for check in (zero_finding, ceiling_finding, heaping_finding, tail_finding)]
    adjusted = holm([each.p_value for each in findings])
    findings = _consistent([each.adjust(p) for each, p in zip(findings, adjusted, strict=True)])
    direction = dispersion.direction if findings[0].found else "equi"
    advice = recommend({each.name: each for each in findings if each.found}, direction, families, sample.y, means.mean)
    label = LABELS[means.name]
    return Diagnosis(target, summary, advice, tuple(findings), dispersion, label, means.explained, tuple(notes))


def _consistent(findings: list[Finding]) -> list[Finding]:
    """Leave out findings that others explain: all checks share one dispersion, which a limit and a tail distort."""
    labels = {each.label for each in findings if each.found}
    explained = {"too few zeros"} if "heavy-tailed" in labels else set()
    is_limited = any(each.found for each in findings if each.name == "ceiling")
    explained |= {"heavy-tailed", "too few zeros"} if is_limited or NONE_BELOW in labels else set()
    explained |= {"zero-inflated"} if is_limited else set()
    return [each.explained() if each.found and each.label in explained else each for each in findings]


# Recommendation ------------------------------------------------------------------------------------------------------


def recommend(
    found: Mapping[str, Finding],
    direction: str,
    families: Mapping[str, FittedFamily],
    y: np.ndarray,
    mean: np.ndarray,
) -> Recommendation:
    """The likelihood for what was found, by the name of the check."""
    likelihood, reason = _base(direction, families)
    options, zeros = list[str](), found["zeros"].label if "zeros" in found else ""
    if zeros == "zero-inflated":
        inflation = zero_inflation(y, mean)
        likelihood = f"zero_inflated_{inflation.base}"
        words = f"a zero-inflated {_WORDS[inflation.base]} fits them"
        reason = f"About {inflation.share:.0%} of the rows are extra zeros: {words}."
    elif zeros == "too few zeros":
        likelihood = f"hurdle_{likelihood}"
        reason = "Zeros are rarer than a smooth distribution has them, so they need a probability of their own."
    elif "tail" in found and direction == "over":
        likelihood, reason = "mixed", "The tail is heavier than that of one distribution: a mixture per row follows it."
    reasons = [reason]
    if "tail" in found:
        reasons.append("Extreme counts also occur where the dispersion differs between rows, which ddpn fit predicts.")
    if zeros == NONE_BELOW:
        low = f"{y.min():.0f}"
        options.append(f"--lower {low}")
        reasons.append(f"If counts below {low} cannot occur, pass lower={low} (--lower {low}).")
    if "ceiling" in found:
        top = f"{y.max():.0f}"
        reasons.append(
            f"Check how the column was recorded: if {top} means '{top} or more', pass censored_above={top} "
            f"(--censored-above {top}); if larger counts are impossible, pass upper={top} (--upper {top})."
        )
    if "heaping" in found:
        reasons.append("No likelihood here models rounding: read single probabilities with care, intervals less so.")
    return Recommendation(likelihood, " ".join(reasons), tuple(options))


def _base(direction: str, families: Mapping[str, FittedFamily]) -> tuple[str, str]:
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
