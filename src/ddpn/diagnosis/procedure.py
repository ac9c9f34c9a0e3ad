"""`diagnose`: all checks of a target in their order."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ddpn.diagnosis.approximations import holm
from ddpn.diagnosis.bounds import ceiling_finding, floor_finding
from ddpn.diagnosis.dispersion import LEVEL, Dispersion, conditional_dispersion
from ddpn.diagnosis.families import fit_families, smoothest
from ddpn.diagnosis.heaping import heaping_finding
from ddpn.diagnosis.means import LABELS, MEAN_MODELS, Means, out_of_fold_means
from ddpn.diagnosis.moments import MAX_COUNT, tabulate
from ddpn.diagnosis.recommendation import recommend
from ddpn.diagnosis.result import Diagnosis, Evidence, Finding, Recommendation, Summary, write_p
from ddpn.diagnosis.tails import tail_finding
from ddpn.diagnosis.zeros import zero_finding, zero_inflation
from ddpn.sample import Sample, checked_sample
from ddpn.validation import check_choice, check_integer

#: Rows, and counts above 0, below which nothing is tested: an interval of the dispersion would be wider than +-0.4.
MIN_ROWS, MIN_POSITIVE = 50, 10


def diagnose(
    X: Any,
    y: Any,
    *,
    exposure: Any = None,
    sample_weight: Any = None,
    target: str = "y",
    mean_model: str = "auto",
    max_rows: int = 20_000,
    random_state: int = 0,
    progress: Callable[[str], object] | None = None,
) -> Diagnosis:
    """Diagnose a count target given the features, and recommend a likelihood.

    The conditional mean is estimated out of fold, so that a flexible model does not hide variance. Dispersion is tested
    first; then zeros, bounds, heaping and the upper tail are compared with a smooth distribution of the same mean and
    dispersion. All p-values are adjusted by Holm's method: of clean Poisson targets about 5% have a finding.

    Parameters
    ----------
    X : array or data frame
        Features, as for `CountRegressor.fit`; missing values and text are allowed.
    y : array
        Counts.
    exposure, sample_weight : array, optional
        The known scale and the weight of each row.
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
    return diagnose_sample(
        checked_sample(X, y, sample_weight, exposure), target, mean_model, max_rows, random_state, progress
    )


def diagnose_sample(
    sample: Sample,
    target: str = "y",
    mean_model: str = "auto",
    max_rows: int = 20_000,
    seed: int = 0,
    progress: Callable[[str], object] | None = None,
) -> Diagnosis:
    """`diagnose` for rows that are validated already."""
    sample, step = sample.rows(sample.is_used), progress or (lambda words: None)
    total, notes = len(sample), []
    if total > max_rows:
        sample = sample.rows(np.sort(np.random.default_rng(seed).choice(total, max_rows, replace=False)))
        notes.append(f"A random sample of {max_rows:,} of {total:,} rows was used.")
    summary = _summary(sample, total)
    hopeless = _hopeless(sample.y)
    if hopeless:
        return Diagnosis(
            target, summary, Recommendation(None, "No recommendation is possible."), notes=(hopeless, *notes)
        )
    means = out_of_fold_means(sample, mean_model, seed, step)
    step("Checking dispersion, zeros, bounds, heaping and the tail")
    return _checked(sample, target, summary, means, notes)


def _summary(sample: Sample, total: int) -> Summary:
    y, weight = sample.y, sample.weight_or_ones
    mean = float(np.average(y, weights=weight))
    variance, zeros = (float(np.average(each, weights=weight)) for each in (np.square(y - mean), y == 0))
    return Summary(total, len(y), mean, variance, zeros, float(y.min()), float(y.max()))


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


def _checked(sample: Sample, target: str, summary: Summary, means: Means, notes: list[str]) -> Diagnosis:
    y, weight = sample.y, sample.weight_or_ones
    dispersion = conditional_dispersion(y, weight, means)
    families = fit_families(y, means.mean, weight)
    chosen, ceiling = smoothest(families), ""
    findings = [_dispersion_finding(dispersion, means)]
    if y.max() > MAX_COUNT:
        notes = [*notes, f"Counts above {MAX_COUNT:,}: zeros, bounds, heaping and the tail were not tested."]
    else:
        table = tabulate(chosen, y, means.mean, weight)
        limit, ceiling = ceiling_finding(table, means.mean)
        low = zero_finding(table) if y.min() == 0 else floor_finding(table)
        findings += [low, limit, heaping_finding(table), tail_finding(table)]
    adjusted = holm([each.p_value for each in findings])
    findings = _consistent([each.adjust(p) for each, p in zip(findings, adjusted, strict=True)])
    by_name = {each.name: each for each in findings}
    zeros = by_name.get("zeros")
    inflated = zeros is not None and zeros.found and zeros.label == "zero-inflated"
    inflation = zero_inflation(y, means.mean) if inflated else None
    direction = dispersion.direction if findings[0].found else "equi"
    advice = recommend(by_name, direction, families, inflation, ceiling, (int(y.min()), int(y.max())))
    return Diagnosis(
        target, summary, advice, tuple(findings), dispersion, LABELS[means.name], means.explained, tuple(notes),
        Evidence(y, weight, means.mean, families, chosen),
    )  # fmt: skip


def _consistent(findings: list[Finding]) -> list[Finding]:
    """Leave out findings that others explain: all checks share one dispersion, which bounds and tails distort."""
    labels = {each.label for each in findings if each.found}
    bounded = any(each.found for each in findings if each.name in ("floor", "ceiling"))
    explained = {"too few zeros"} if "heavy-tailed" in labels else set()
    explained |= {"heavy-tailed", "too few zeros"} if bounded else set()
    return [each.explained() if each.found and each.label in explained else each for each in findings]


def _dispersion_finding(found: Dispersion, means: Means) -> Finding:
    interval = f"95% interval {found.low:.2f} to {found.high:.2f}"
    effect = f"variance / mean {found.estimate:.2f} ({interval})"
    start = (
        f"Given these features and this mean model ({LABELS[means.name]}), the variance is {found.estimate:.2f} times "
        f"the mean ({interval}, {write_p(found.p_value)})"
    )
    more = {
        "over": ": over-dispersed. Features or interactions that the mean model lacks, worth about "
        f"±{found.spread:.0%} of the mean, would have the same effect.",
        "under": ": under-dispersed. Errors of the mean model can only hide under-dispersion, not cause it.",
        "equi": "",
    }[found.direction]
    contains = found.direction == "equi" and found.p_value >= LEVEL
    why = (
        "consistent with a Poisson" if contains else "not clearly different from a Poisson, as several checks are made"
    )
    label = {"over": "over-dispersed", "under": "under-dispersed", "equi": ""}[found.direction]
    return Finding(
        "dispersion", label, effect, found.p_value, found.direction != "equi", start + more, f"{start}: {why}."
    )
