"""`diagnose`: all checks of a target in their order."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ddpn.analysis.diagnosis.dispersion import conditional_dispersion, dispersion_finding
from ddpn.analysis.diagnosis.means import MEAN_MODELS, Means, out_of_fold_means
from ddpn.analysis.diagnosis.moments import ProbabilityTable, tabulate
from ddpn.analysis.diagnosis.recommendation import recommend
from ddpn.analysis.diagnosis.reference import Reference, fit_families, smoothest
from ddpn.analysis.diagnosis.result import Diagnosis, Finding, Recommendation, Summary
from ddpn.analysis.diagnosis.shape import ceiling_finding, floor_finding, heaping_finding, tail_finding, zero_finding
from ddpn.analysis.gains import holm
from ddpn.runtime.errors import ConfigError
from ddpn.runtime.validation import check_choice, check_integer, is_integer
from ddpn.sample import Sample, checked_sample
from ddpn.tables.count_range import CountRange
from ddpn.tables.row_hashes import group_labels

#: Rows, and counts above 0, below which nothing is tested: an interval of the dispersion would be wider than +-0.4.
MIN_ROWS, MIN_POSITIVE = 50, 10


def diagnose(
    X: Any,
    y: Any,
    *,
    exposure: Any = None,
    sample_weight: Any = None,
    lower: int = 0,
    upper: Any = None,
    censored_above: int | None = None,
    censored: Any = None,
    groups: Any = None,
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
    lower : int
        The smallest possible count.
    upper : int or array, optional
        The largest possible count, of all rows or of each row. The counts are then compared with a Binomial of so many
        trials instead of a Poisson.
    censored_above : int, optional
        Counts of this size or more are recorded as this one.
    censored : array of bool, optional
        Rows whose count stands for that many or more.
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
    per_row = upper is not None and not is_integer(upper)
    known = CountRange(lower, None if per_row else upper, censored_above, upper_per_row=per_row)
    sample = known.of(checked_sample(X, y, sample_weight, exposure), upper if per_row else None, censored)
    if groups is not None:
        sample = sample.replace(group=group_labels(groups, len(sample)))
    return diagnose_sample(sample, target, mean_model, max_rows, random_state, progress, known.options)


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
    if sample.upper is not None and sample.exposure is not None:
        raise ConfigError(
            "Give either `exposure` or an upper bound, not both: counts with an upper bound are compared with a "
            "Binomial, whose scale is the bound."
        )
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
    reference = Reference.of(sample, options)
    means = out_of_fold_means(reference, mean_model, seed, step)
    step("Checking dispersion, zeros, bounds, heaping and the tail")
    return _checked(reference.without_features(), target, summary, means, notes)


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


def _checked(reference: Reference, target: str, summary: Summary, means: Means, notes: list[str]) -> Diagnosis:
    dispersion, label = conditional_dispersion(reference, means), means.label(reference)
    families, ceiling = fit_families(reference, means.mean), ""
    findings = [dispersion_finding(dispersion, label, reference)]
    table = tabulate(smoothest(families), reference, means.mean)
    if table is None:
        notes = [*notes, "The counts are too large: zeros, bounds, heaping and the tail were not tested."]
    else:
        if len(table.y) < len(means.mean):
            notes = [*notes, f"Zeros, heaping and the tail were tested on {len(table.y):,} random rows."]
        shape, ceiling = _shape_findings(table, means.mean, reference)
        findings += shape
    adjusted = holm([each.p_value for each in findings])
    findings = _consistent([each.adjust(p) for each, p in zip(findings, adjusted, strict=True)])
    by_name = {each.name: each for each in findings}
    direction = dispersion.direction if findings[0].found else "equi"
    advice = recommend(by_name, direction, families, ceiling, reference, means.mean)
    return Diagnosis(
        target, summary, advice, tuple(findings), dispersion, label, means.explained, tuple(notes), reference.name
    )


def _shape_findings(table: ProbabilityTable, mean: np.ndarray, reference: Reference) -> tuple[list[Finding], str]:
    """Zeros or floor, ceiling, heaping and tail, and the kind of ceiling; a bound that is known is not looked for."""
    findings, kind = [], ""
    if not reference.is_truncated:
        findings.append(zero_finding(table) if table.y.min() == 0 else floor_finding(table))
    if not reference.is_bounded and reference.sample.limit is None:
        limit, kind = ceiling_finding(table, mean)
        findings.append(limit)
    return [*findings, heaping_finding(table), tail_finding(table)], kind


def _consistent(findings: list[Finding]) -> list[Finding]:
    """Leave out findings that others explain: all checks share one dispersion, which bounds and tails distort."""
    labels = {each.label for each in findings if each.found}
    bounded = any(each.found for each in findings if each.name in ("floor", "ceiling"))
    explained = {"too few zeros"} if "heavy-tailed" in labels else set()
    explained |= {"heavy-tailed", "too few zeros"} if bounded else set()
    return [each.explained() if each.found and each.label in explained else each for each in findings]
