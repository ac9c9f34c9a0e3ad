"""Goodness of fit of a GLM, and warnings about over-dispersion and undetermined coefficients."""

from typing import NamedTuple, Self

import numpy as np
import torch

from ddpn.estimators.coefficients import INTERCEPT
from ddpn.members.linear import LinearFit
from ddpn.runtime.validation import join_words

#: A coefficient with a larger standard error (on a log scale, for a column of standard deviation 1) is undetermined.
_MAX_STANDARD_ERROR = 30.0
#: Over-dispersion is reported if the score test exceeds this many standard deviations, and the variance of the counts
#: this multiple of the model's variance: standard errors are then at least 10% too small. At most 1 in 1,000 true
#: Poisson tables was reported (4,000 tables each of 20 to 300 rows, means of 0.1 to 20).
_MIN_OVERDISPERSION_Z, _MIN_OVERDISPERSION = 4.5, 1.2
#: With a smaller sum of counts the score test is far from normal.
_MIN_SUM_OF_COUNTS = 10
#: A Double Poisson whose gamma is at its lower limit is reported if the variance of the counts exceeds this multiple of
#: the model's variance. Counts of a Negative Binomial with alpha = 2 reach the limit by chance, without harm.
_MIN_EXCESS_AT_LIMIT = 1.5
#: The meaning of a dispersion at an end of its range, by label of the parameter and end.
_LIMITS = {
    ("log gamma", "low"): (
        "The counts vary more than a Double Poisson can. Predicted distributions are then too narrow; coefficients of "
        'the log mean and their robust standard errors hold. Consider likelihood="negative_binomial".'
    ),
    ("log alpha", "low"): (
        "The counts do not vary more than Poisson counts of the same means, so that alpha is 0. Consider "
        'likelihood="double_poisson", which can be under-dispersed, or likelihood="poisson".'
    ),
}


class GoodnessOfFit(NamedTuple):
    """Goodness-of-fit statistics of a GLM.

    All but the last are None if the coefficients are not those of the log mean, or if counts are bounded or censored.

    Parameters
    ----------
    deviance : float or None
        The deviance.
    pearson_chi2 : float or None
        Pearson's chi-squared statistic.
    overdispersion_z : float or None
        The statistic of the score test of over-dispersion, which is standard normal if counts are Poisson. Also None if
        the sum of the counts is below 10.
    total_weight : float
        The sum of the rows' weights.
    """

    deviance: float | None
    pearson_chi2: float | None
    overdispersion_z: float | None
    total_weight: float

    @classmethod
    @torch.no_grad()
    def from_fit(cls, fit: LinearFit, loglik: float) -> Self:
        """Compute the statistics of a GLM on its training rows. `loglik` is the log-likelihood of these rows.

        The deviance compares the GLM with a saturated model, which has the same dispersion in each row but predicts
        each count as its mean. The statistic of the score test (Dean and Lawless, 1989) is standard normal if counts
        are Poisson.
        """
        objective = fit.objective
        head, sample, weight = objective.head, objective.sample, objective.weight.numpy()
        if not head.location_is_mean or not sample.is_unrestricted:
            return cls(None, None, None, float(weight.sum()))
        raw = objective.raw(fit.optimum.theta)
        dist = head.forward(raw, sample.exposure)
        y, mean, variance = (x.numpy() for x in (sample.y, dist.mean, dist.variance))
        saturated = raw.clone()
        exposure = torch.ones_like(sample.y) if sample.exposure is None else sample.exposure
        saturated[:, 0] = (sample.y.clamp(min=1.0) / exposure).log()
        best = np.where(y > 0, -head.loss(saturated, sample.y, sample.exposure).numpy(), 0.0)
        squares = np.square(y - mean)
        z = float(weight @ (squares - y) / np.sqrt(2.0 * weight @ np.square(mean)))
        deviance, total = 2.0 * (float(weight @ best) - loglik), float(weight.sum())
        has_test = weight @ y >= _MIN_SUM_OF_COUNTS
        return cls(deviance, float(weight @ (squares / variance)), z if has_test else None, total)


def check_overdispersion(quality: GoodnessOfFit, n_coefficients: int) -> list[str]:
    """Return a list with one warning if the counts of a Poisson GLM are clearly over-dispersed, else an empty list.

    The standard errors of the GLM are then too small. Counts are clearly over-dispersed if the score test exceeds 4.5
    standard deviations and their variance is at least 1.2 times that of a Poisson (Pearson's chi-squared per degree of
    freedom). `quality` has the statistics of the fit, and `n_coefficients` is the number of coefficients with the
    intercept.
    """
    chi2, z, freedom = quality.pearson_chi2, quality.overdispersion_z, quality.total_weight - n_coefficients
    if chi2 is None or z is None or freedom <= 0.0:
        return []
    ratio = chi2 / freedom
    if z < _MIN_OVERDISPERSION_Z or ratio < _MIN_OVERDISPERSION:
        return []
    return [
        f"The counts are over-dispersed: their variance is about {ratio:.1f} times that of a Poisson, so that standard "
        f"errors are about {np.sqrt(ratio):.1f} times too small and intervals too narrow. Use the default likelihood "
        'or likelihood="negative_binomial", or pass covariance="robust" for standard errors that allow for it.'
    ]


def check_coefficients(
    fit: LinearFit,
    labels: tuple[str, ...],
    columns: list[str],
    standard_errors: list[np.ndarray],
    quality: GoodnessOfFit,
) -> list[str]:
    """Return warnings about columns without a coefficient, and about coefficients with very large standard errors.

    A standard error is very large if it exceeds 30 for a column of standard deviation 1. Only parameters on a log scale
    are checked.

    Parameters
    ----------
    fit : LinearFit
        The fitted model.
    labels : tuple of str
        The names of the parameters on the scale of the coefficients, such as "log mu" and "log gamma". Each is either
        linear in the columns or constant.
    columns : list of str
        The names of the columns.
    standard_errors : list of array
        For each parameter, the standard errors of its coefficients, for standardised columns: of its intercept alone
        or, if it is linear in the columns, of its intercept and its slopes.
    quality : GoodnessOfFit
        The goodness of fit.
    """
    kept, constant = fit.standardization.kept, fit.standardization.is_constant
    names, sentences = np.array(columns, dtype=object), []
    groups = {"Constant columns": constant, "Combinations of the columns before them": ~kept & ~constant}
    lost = [
        f"{what}: {join_words([repr(name) for name in names[mask]])}." for what, mask in groups.items() if mask.any()
    ]
    if lost:
        remedy = "Drop these columns." if kept[~constant].all() else "Drop these columns, or pass alpha."
        fate = "The rows do not determine some coefficients, which are 0 with standard error NaN."
        sentences.append(" ".join([fate, *lost, remedy]))
    # Only outputs on a log scale are comparable: the mean of a Gaussian has the units of the counts.
    features = np.r_[[INTERCEPT], names[kept]]
    wide = {p: spread > _MAX_STANDARD_ERROR for p, spread in enumerate(standard_errors) if labels[p].startswith("log")}
    undetermined = {p: features[: len(mask)][mask] for p, mask in wide.items() if mask.any()}
    reason = _explain_undetermined(fit, labels, list(undetermined), quality) if undetermined else ""
    if reason:
        shown = "; ".join(
            f"{labels[p]}: {join_words([repr(name) for name in some])}" for p, some in undetermined.items()
        )
        sentences.append(f"The rows hardly determine some coefficients ({shown}), {reason}")
    return sentences


_GENERAL_REASON = (
    "whose standard errors are very large. Columns are nearly combinations of others, or the likelihood has no "
    "maximum, so that coefficients grow without bound. Drop columns, pass alpha, or choose a simpler likelihood."
)


def _explain_undetermined(
    fit: LinearFit, labels: tuple[str, ...], undetermined: list[int], quality: GoodnessOfFit
) -> str:
    """Return the end of a sentence that explains very large standard errors of coefficients; "" if they are harmless.

    They are harmless if two conditions hold. The only such coefficient is a constant gamma at the low end of its range.
    And the variance of the counts is less than 1.5 times the variance that the model predicts.

    `undetermined` are the indices of the parameters with a very large standard error. The other arguments are as for
    `check_coefficients`.
    """
    p = undetermined[0]
    if len(undetermined) > 1 or p not in fit.objective.head.dispersion_outputs or fit.objective.linear[p]:
        return _GENERAL_REASON
    limit = labels[p], "low" if fit.linear.base[p] < 0.0 else "high"
    chi2 = quality.pearson_chi2
    if limit == ("log gamma", "low") and chi2 is not None and chi2 < _MIN_EXCESS_AT_LIMIT * quality.total_weight:
        return ""
    return f"because it is at the end of its range. {_LIMITS[limit]}" if limit in _LIMITS else _GENERAL_REASON
