"""`diagnose`: run all checks of a count target, and recommend a likelihood from the findings."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike

from ddpn.analysis.diagnosis.checks import NONE_BELOW, check_ceiling, check_heaping, check_tail, check_zeros
from ddpn.analysis.diagnosis.dispersion import describe_dispersion, estimate_dispersion
from ddpn.analysis.diagnosis.finding import Finding
from ddpn.analysis.diagnosis.means import LABELS, MEAN_MODELS, predict_out_of_fold_means
from ddpn.analysis.diagnosis.recommendation import recommend
from ddpn.analysis.diagnosis.result import Diagnosis
from ddpn.analysis.diagnosis.smooth import fit_families, tabulate_probabilities
from ddpn.rows.count_range import CountRange
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.validation import check_choice, check_integer
from ddpn.statistics import adjust_p_values
from ddpn.tables.groups import name_interval_groups
from ddpn.tables.row_draw import MAX_ROWS, check_max_rows, describe_draw, draw_sample

#: The fewest rows, and the fewest counts above 0, for tests. With fewer, the interval of the dispersion would be wider
#: than +-0.4.
MIN_ROWS, MIN_POSITIVE = 50, 10


def diagnose(
    X: ArrayLike,
    y: ArrayLike,
    *,
    exposure: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    target: str = "y",
    mean_model: str = "auto",
    max_rows: int | None = MAX_ROWS,
    random_state: int = 0,
    progress: Callable[[str], object] | None = None,
) -> Diagnosis:
    """Diagnose a count target given the features, and recommend a likelihood.

    The conditional mean is predicted out of fold, so that a flexible model cannot hide variance. Dispersion is tested
    first. Then zeros, the largest count, heaping and the upper tail are compared with a smooth distribution that has
    the same mean and dispersion. P-values are adjusted for the number of checks by Holm's method, so that about 5% of
    Poisson targets have any finding.

    Counts with known bounds or recording limits are not diagnosed. Pass the bounds to `CountRegressor` or `ddpn fit` as
    `lower`, `upper`, `censored_above` or `censored`; the fitted distributions then have the same limits.

    Parameters
    ----------
    X : array or data frame
        Features, as for `CountRegressor.fit`; missing values and text are allowed.
    y : array
        Counts.
    exposure, sample_weight : array, optional
        The known scale and the weight of each row.
    groups : array, optional
        The group of each row, such as a person. Means of a group are then predicted by a model that was fitted to
        other groups, and the p-values of dispersion, zeros and heaping allow for dependence within groups.
    target : str
        The name of the target in sentences.
    mean_model : {"auto", "constant", "glm", "boosting"}
        The model of the mean. "auto" chooses the one with the smallest out-of-fold deviance. "glm" is the fastest
        model with features.
    max_rows : int or None
        The largest number of rows to use. From a larger table, rows are drawn at random, always the same ones. None
        uses all rows.
    random_state : int
        Seed of the folds and the trees.
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
    >>> diagnosis = diagnose(X, y, mean_model="glm")
    >>> diagnosis.labels, diagnosis.likelihood
    (('over-dispersed',), 'negative_binomial')
    """
    check_choice("mean_model", mean_model, MEAN_MODELS)
    check_max_rows(max_rows)
    check_integer("random_state", random_state, 0)
    sample = CountRows.from_arguments(X, y, sample_weight, exposure)
    if groups is not None:
        sample = sample.replace(group=name_interval_groups(groups, len(sample)))
    return diagnose_sample(sample, target, mean_model, max_rows, random_state, progress)


def diagnose_sample(
    sample: CountRows,
    target: str = "y",
    mean_model: str = "auto",
    max_rows: int | None = MAX_ROWS,
    seed: int = 0,
    progress: Callable[[str], object] | None = None,
    options: Mapping[str, int | str] = MappingProxyType({}),
    total: int | None = None,
) -> Diagnosis:
    """Diagnose the counts of validated rows. Arguments that are not described here are those of `diagnose`.

    `options` are the user's arguments that define bounds and recording limits, such as `upper`, keyed by name. If the
    counts have bounds or limits, no tests are made, and the recommendation contains these arguments again. `total` is
    the number of rows of the table from which `sample` was drawn, if it was drawn before.
    """
    CountRange().check_not_all_censored(sample)
    step = progress or (lambda words: None)
    if sample.limit is not None and not np.isfinite(sample.limit).any():
        sample = sample.replace(limit=None)
    draw = draw_sample(sample, max_rows)
    sample, total = draw.take(sample), draw.total if total is None else total
    notes = [*filter(None, [describe_draw("The diagnosis is of", len(sample), total)])]
    y, weight = sample.y, sample.weight_or_ones
    mean = float(np.average(y, weights=weight))
    variance, zeros = (float(np.average(values, weights=weight)) for values in (np.square(y - mean), y == 0))
    summary = {
        "rows": total, "used": len(y), "mean": mean, "variance": variance, "zeros": zeros,
        "minimum": float(y.min()), "maximum": float(y.max()), "variance_over_mean": variance / mean if mean else np.nan,
    }  # fmt: skip
    positive, hopeless = int(np.sum(y > 0)), ""
    if not np.ptp(y):
        hopeless = f"all counts are {y[0]:,.0f}, so there is nothing to predict."
    elif len(y) < MIN_ROWS:
        hopeless = f"too few rows for a diagnosis: {len(y):,} instead of at least {MIN_ROWS}."
    elif positive < MIN_POSITIVE:
        hopeless = f"too few counts above 0 for a diagnosis: {positive:,} instead of at least {MIN_POSITIVE}."
    if hopeless:
        return Diagnosis(target, summary, None, "No recommendation is possible.", notes=(hopeless, *notes))
    if not sample.is_unrestricted:
        # The Double Binomial takes the upper bound as the total of a row, and allows no other exposure.
        is_share = sample.upper is not None and sample.exposure is None
        reason = "With these arguments, the fitted distributions have the same bounds and limits."
        notes = ["counts with known bounds or limits are not tested.", *notes]
        likelihood = "double_binomial" if is_share else "mixed"
        return Diagnosis(target, summary, likelihood, reason, options, notes=tuple(notes))
    means = predict_out_of_fold_means(sample, mean_model, seed, step)
    step("Checking dispersion, zeros, the largest count, heaping and the tail")
    sample = sample.replace(X=None)
    dispersion, families = estimate_dispersion(sample, means), fit_families(sample, means.mean)
    findings = [describe_dispersion(dispersion, means.name)]
    table = tabulate_probabilities(max(families.values(), key=lambda family: family.loglik), sample, means.mean)
    if table is None:
        notes.append("The counts are too large: zeros, the largest count, heaping and the tail were not tested.")
    else:
        findings += [check(table) for check in (check_zeros, check_ceiling, check_heaping, check_tail)]
    adjusted = adjust_p_values([finding.p_value for finding in findings])
    findings = _mark_side_effects([replace(finding, adjusted=p) for finding, p in zip(findings, adjusted, strict=True)])
    direction = dispersion.direction if findings[0].found else "equi"
    by_name = {finding.name: finding for finding in findings if finding.found}
    likelihood, reason, further = recommend(by_name, direction, families, y, means.mean)
    label, facts = LABELS[means.name], (target, summary, likelihood, reason, further)
    return Diagnosis(*facts, tuple(findings), dispersion, label, means.explained, tuple(notes))


def _mark_side_effects(findings: list[Finding]) -> list[Finding]:
    """Mark findings that are side effects of other findings, so that they are not reported; return all findings.

    All checks use the same fitted dispersion. It is distorted by a limit at the smallest or the largest count, and by a
    heavy tail. A lower or upper limit may look like a heavy tail or too few zeros, an upper limit also like too many
    zeros, and a heavy tail like too few zeros.
    """
    labels = {finding.label for finding in findings if finding.found}
    explained = {"too few zeros"} if "heavy-tailed" in labels else set()
    is_limited = any(finding.found for finding in findings if finding.name == "ceiling")
    explained |= {"heavy-tailed", "too few zeros"} if is_limited or NONE_BELOW in labels else set()
    explained |= {"zero-inflated"} if is_limited else set()
    for index, finding in enumerate(findings):
        if finding.found and finding.label in explained:
            words = f"{finding.effect}, which the other findings may explain."
            findings[index] = replace(finding, matters=False, is_explained=True, clean=words)
    return findings
