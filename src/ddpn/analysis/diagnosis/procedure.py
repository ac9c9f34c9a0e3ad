"""`diagnose`: run all checks of a target, and derive a likelihood and further arguments from the findings."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from html import escape
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats
from scipy.optimize import minimize
from scipy.special import expit

from ddpn.analysis.diagnosis.checks import (
    NONE_BELOW,
    Dispersion,
    Finding,
    FittedFamily,
    check_ceiling,
    check_heaping,
    check_tail,
    check_zeros,
    conditional_dispersion,
    describe_dispersion,
    fit_families,
    tabulate,
)
from ddpn.analysis.diagnosis.means import LABELS, MEAN_MODELS, out_of_fold_means
from ddpn.rows.count_range import CountRange
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.display import TextTable
from ddpn.runtime.errors import format_argument
from ddpn.runtime.validation import check_choice, check_integer
from ddpn.statistics import adjust_p_values
from ddpn.storage.contents import JsonObject
from ddpn.tables.groups import name_interval_groups
from ddpn.tables.row_draw import MAX_ROWS, check_max_rows, describe_draw, draw_sample, draw_to_json

#: The fewest rows, and the fewest counts above 0, for tests. With fewer, the interval of the dispersion would be wider
#: than +-0.4.
MIN_ROWS, MIN_POSITIVE = 50, 10
_WORDS = {"poisson": "Poisson", "double_poisson": "Double Poisson", "negative_binomial": "Negative Binomial"}
#: The most rows to which models of zeros are fitted.
_MAX_BIC_ROWS = 5000


@dataclass(frozen=True)
class Diagnosis:
    """The properties of a count target given its features. Use `print` or `to_dict()`.

    Attributes
    ----------
    target : str
        The name of the target.
    summary : dict
        Statistics of the target without the features: the number of "rows" in the table and of rows "used", "mean",
        "variance", the share of "zeros", "minimum", "maximum" and "variance_over_mean" (NaN if all counts are 0).
    likelihood : str or None
        The recommended likelihood, a name in `ddpn.networks.heads.HEADS`. None if no recommendation is possible.
    reason : str
        The reason for the recommendation.
    options : dict
        Further recommended arguments of the estimators, or options of `ddpn fit`, by name.
    findings : tuple of Finding
        The results of all checks.
    dispersion, mean_model : Dispersion, str
        The dispersion, and the model of the mean. None if there are too few rows or counts above 0, or if counts have
        known bounds or limits.
    explained : float
        The share of the Poisson deviance that the mean model explains out of fold.
    notes : tuple of str
        Sentences about rows that were not used and checks that were skipped.
    """

    target: str
    summary: dict[str, float]
    likelihood: str | None
    reason: str
    options: Mapping[str, int | str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    dispersion: Dispersion | None = None
    mean_model: str | None = None
    explained: float = 0.0
    notes: tuple[str, ...] = ()

    def finding(self, name: str) -> Finding:
        """Return the result of the check `name`: "dispersion", "zeros", "ceiling", "heaping" or "tail"."""
        return next(finding for finding in self.findings if finding.name == name)

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of all findings, such as "over-dispersed" and "zero-inflated"."""
        return tuple(finding.label for finding in self.findings if finding.found)

    @property
    def headline(self) -> str:
        """The result in one sentence."""
        if self.dispersion is None:
            return f"{self.target}: {self.notes[0]}"
        if not self.labels:
            return f"{self.target}: no finding; given the features, the counts are consistent with a Poisson."
        return f"{self.target}: {', '.join(self.labels)}, given the features."

    def to_dict(self) -> JsonObject:
        """Return the diagnosis as a dictionary for JSON."""
        dispersion = self.dispersion
        return {
            "target": self.target,
            "headline": self.headline,
            "draw": draw_to_json(int(self.summary["used"]), int(self.summary["rows"])),
            "summary": {name: None if value != value else value for name, value in self.summary.items()},
            "mean_model": self.mean_model,
            "deviance_explained": self.explained,
            "dispersion": None if dispersion is None else {**asdict(dispersion), "direction": self.direction},
            "findings": [finding.to_dict() for finding in self.findings],
            "recommendation": {
                "likelihood": self.likelihood,
                "reason": self.reason,
                "arguments": self.arguments,
            },
            "notes": list(self.notes),
        }

    @property
    def direction(self) -> str | None:
        """The dispersion relative to a Poisson: "over", "under" or "equi"; None if it was not estimated."""
        if self.dispersion is None:
            return None
        return self.dispersion.direction if self.finding("dispersion").found else "equi"

    def __str__(self) -> str:
        lines = [self.headline, *(f"- {finding.words}" for finding in self.findings)]
        lines += [f"Note: {note}" for note in self.notes[self.dispersion is None :]]
        return "\n".join([*lines, f"Recommendation: {self._python_advice}"])

    def _repr_html_(self) -> str:
        rows = [
            (
                finding.name,
                finding.outcome,
                finding.effect,
                "< 0.001" if finding.adjusted < 0.001 else f"{finding.adjusted:.3f}",
            )
            for finding in self.findings
        ]
        checks = TextTable(("check", "result", "effect", "adjusted p"), rows).to_html() if rows else ""
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes[self.dispersion is None :])
        advice = f"<p><strong>Recommendation:</strong> {escape(self._python_advice)}</p>"
        return f"<p><strong>{escape(self.headline)}</strong></p>{checks}{notes}{advice}"

    @property
    def _python_advice(self) -> str:
        """The recommended likelihood as an argument of an estimator, and the reason."""
        return self.reason if self.likelihood is None else f'likelihood="{self.likelihood}". {self.reason}'

    @property
    def arguments(self) -> dict[str, int | str]:
        """The recommended arguments of the estimators, such as `CountRegressor(**arguments)`; empty without advice."""
        return {} if self.likelihood is None else {"likelihood": self.likelihood, **self.options}


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
    first. Then zeros, the largest count, heaping and the upper tail are compared with a smooth distribution with the
    same mean and dispersion. All p-values are adjusted by Holm's method: for Poisson targets, there is a finding in
    about 5% of cases.

    Counts with known bounds or recording limits are not diagnosed. `CountRegressor` and `ddpn fit` take these as
    `lower`, `upper`, `censored_above` and `censored`, and fit distributions with the same limits.

    Parameters
    ----------
    X : array or data frame
        Features, as for `CountRegressor.fit`; missing values and text are allowed.
    y : array
        Counts.
    exposure, sample_weight : array, optional
        The known scale and the weight of each row.
    groups : array, optional
        What each row belongs to, such as a person. Means are then predicted for groups that the mean model has not
        seen, and the p-values of dispersion, zeros and heaping allow for dependence within groups.
    target : str
        The name of the target in sentences.
    mean_model : {"auto", "constant", "glm", "boosting"}
        "auto" chooses the model with the smallest out-of-fold deviance. "glm" is the fastest model with features.
    max_rows : int or None
        The most rows to use. From a larger table, rows are drawn at random, always the same ones. None uses all rows.
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
    >>> found = diagnose(X, y, mean_model="glm")
    >>> found.labels, found.likelihood
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
    """Diagnose the counts of validated rows; otherwise like `diagnose`.

    `options` are the user's arguments that define bounds and recording limits, such as `upper`, by name: they are
    recommended again if counts have such limits. `mean_model` is one of `MEAN_MODELS`. `total` is the number of rows
    from which the sample was already drawn.
    """
    CountRange().check_known(sample)
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
    means = out_of_fold_means(sample, mean_model, seed, step)
    step("Checking dispersion, zeros, the largest count, heaping and the tail")
    sample = sample.replace(X=None)
    dispersion, families = conditional_dispersion(sample, means), fit_families(sample, means.mean)
    findings = [describe_dispersion(dispersion, means.name)]
    table = tabulate(max(families.values(), key=lambda family: family.loglik), sample, means.mean)
    if table is None:
        notes.append("The counts are too large: zeros, the largest count, heaping and the tail were not tested.")
    else:
        findings += [check(table) for check in (check_zeros, check_ceiling, check_heaping, check_tail)]
    adjusted = adjust_p_values([finding.p_value for finding in findings])
    findings = _drop_side_effects([replace(finding, adjusted=p) for finding, p in zip(findings, adjusted, strict=True)])
    direction = dispersion.direction if findings[0].found else "equi"
    by_name = {finding.name: finding for finding in findings if finding.found}
    likelihood, reason, further = recommend(by_name, direction, families, y, means.mean)
    label, facts = LABELS[means.name], (target, summary, likelihood, reason, further)
    return Diagnosis(*facts, tuple(findings), dispersion, label, means.explained, tuple(notes))


def _drop_side_effects(findings: list[Finding]) -> list[Finding]:
    """Mark findings that are side effects of other findings, so that they are not reported; return all findings.

    All checks compare with distributions of the same dispersion. If counts have an upper or a lower limit, or a heavy
    tail, it distorts this dispersion, and then other checks find too few or too many zeros as well.
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


# Recommendation ------------------------------------------------------------------------------------------------------


def recommend(
    findings: Mapping[str, Finding],
    direction: str,
    families: Mapping[str, FittedFamily],
    y: np.ndarray,
    mean: np.ndarray,
) -> tuple[str, str, dict[str, int | str]]:
    """Return the recommended likelihood, the reason, and further recommended arguments of an estimator.

    `findings` are those to report, keyed by the name of the check. `direction` is that of the dispersion, `families`
    are the fits of `fit_families`, and y and `mean` the counts and the means of the rows.
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
    """Choose the base of a zero-inflated likelihood by BIC: return "poisson" or "negative_binomial".

    Also return the share of extra zeros. `mean` has the mean of each row including extra zeros; the base has the mean
    `mean` / (1 - share).
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
