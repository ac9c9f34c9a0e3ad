"""`CountGLM`: generalised linear models of counts, fitted by exact maximum likelihood."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from ddpn.estimators.coefficient_draws import compute_log_mean_errors, draw_glms
from ddpn.estimators.coefficients import INTERCEPT, CoefficientTable, GLMSummary
from ddpn.estimators.dispersion import GoodnessOfFit, check_coefficients, check_overdispersion
from ddpn.estimators.estimator import CountEstimator
from ddpn.members.design import Design, check_complete
from ddpn.members.folds import CrossFitted
from ddpn.members.glm import GLM
from ddpn.members.linear import fit_linear
from ddpn.networks.heads import HEADS, Head, make_head
from ddpn.prediction.prediction import Prediction
from ddpn.predictor import Predictor
from ddpn.rows.checks import TableLike
from ddpn.rows.count_rows import CountRows
from ddpn.rows.exposure import choose_exposure_unit, divide_exposure
from ddpn.runtime.errors import ConfigError, InputError, warn_user
from ddpn.runtime.frames import library_name
from ddpn.runtime.validation import check_choice, check_integer, check_number, is_number
from ddpn.storage.contents import JsonObject, arrays_from_bytes, arrays_to_bytes
from ddpn.tables.reading import read_table
from ddpn.tables.schema import Schema

#: In samples of up to this many rows, equal rows are merged, so that weights and repeated rows give identical results.
_MAX_MERGED_ROWS = 1000
#: Fitted arrays and numbers that a saved model holds besides its predictor.
_ARRAYS = ("coef_", "intercept_", "covariance_", "standard_errors_")
_NUMBERS = (
    "loglik_", "aic_", "bic_", "deviance_", "pearson_chi2_", "gradient_norm_", "n_iter_", "converged_", "n_rows_",
    "n_dropped_", "n_groups_", "covariance_type_",
)  # fmt: skip
_FILE = "coefficients.safetensors"
#: The words for each `covariance_type_` in summaries.
_COVARIANCES = {"model": "model-based", "robust": "robust (HC0)", "HC3": "robust (HC3)", "clustered": "clustered"}


@dataclass(kw_only=True, eq=False, repr=False)
class CountGLM(CountEstimator):
    """A generalised linear model (GLM) of counts, fitted by exact maximum likelihood.

    The log mean is linear in the columns. Each level of a category has a coefficient, except the first in alphabetical
    order. `summary()` shows coefficients, rate ratios and intervals.

    Parameters
    ----------
    likelihood : str
        A name in `ddpn.networks.heads.HEADS` that has a GLM. It determines the location, which is linear in the
        columns. This is the log mean for "double_poisson", "poisson", "negative_binomial", "generalized_poisson" and
        "conway_maxwell_poisson", logit p for "double_binomial" (with totals as `upper`), and the mean for "gaussian".
        For "zero_inflated_..." and "hurdle_...", it is the log mean of the base; see the note in the summary.
    dispersion : {"auto", "constant", "linear"}
        Which parameters besides the location depend on the columns. With "auto", a dispersion (gamma, alpha, nu, the
        variance) is one number for all rows. In zero-inflated and hurdle models, logit pi is linear in the columns,
        where pi is the probability of a zero that is not drawn from the base. With "constant", none depends on the
        columns; with "linear", all do.
    location : {"mean", "mu"}
        The parameter of a Double Poisson whose logarithm is linear in the columns: its mean, or its location mu, which
        differs from the mean. "mu" is the GLM of the DDPN paper. It is fitted faster and can be exported, but has no
        rate ratios.
    covariance : {"auto", "model", "robust", "HC3"}
        The covariance of the coefficients. "model" is the inverse of the observed information, right if the counts have
        this likelihood. "robust" is the sandwich estimator (statsmodels' `cov_type="HC0"`), right for large samples if
        the log mean is linear, whatever the distribution. "HC3" adds a correction for the leverage of each row, and is
        more accurate with a few hundred rows. "auto" is "HC3" for Double Poissons with `location="mean"`, because their
        variance is a working assumption, and "model" for all others. If `groups` are passed to `fit`, the covariance is
        always clustered.
    alpha : float
        Strength of the ridge penalty: the negative log-likelihood per row plus alpha / 2 times the sum of squared
        coefficients is minimised.
        The penalised coefficients are those of standardised columns, without intercepts. With a penalty, coefficients
        are finite even if columns separate the counts.
    tol : float
        The search ends when the norm of the gradient of this objective, for standardised columns, is at most this.
    max_iter : int
        The largest number of steps of the search.
    missing : {"error", "drop"}
        What `fit` does with rows that have a missing value in X. Predictions always need complete rows.
    lower, upper : int, optional
        The smallest and the largest possible count. Other counts have probability 0.
    censored_above : int, optional
        The recording limit: larger counts are recorded as this number ("10 or more").
    fractional : {"error", "round"}
        Whether counts that are not integers raise an error or are rounded.

    Attributes
    ----------
    coef_, intercept_ : arrays, shapes (parameters, columns) and (parameters,)
        Coefficients and intercepts of the parameters, the location first. A category has one column for each level but
        the first.
    covariance_, standard_errors_ : arrays
        Covariance and standard errors of the coefficients, in the order of `coefficient_table()`. If a column is
        constant or a linear combination of earlier columns, its coefficient is 0, and its entries here are NaN.
    covariance_type_ : {"model", "robust", "HC3", "clustered"}
        The type of `covariance_`.
    loglik_, aic_, bic_ : float
        Log-likelihood of the training rows, Akaike's and the Bayesian information criterion.
    deviance_ : float or None
        Twice the difference between the log-likelihoods of a saturated model (mean y in every row, the fitted
        dispersion) and of this model. None if coefficients are not those of the log mean, or if counts are bounded or
        censored.
    pearson_chi2_ : float or None
        The sum of squared residuals divided by variances. None in the same cases as `deviance_`.
    n_rows_ : int
        The number of rows used, which have a weight above 0.
    n_dropped_ : int
        The number of rows dropped for missing values.
    n_groups_ : int or None
        The number of groups; None if `fit` got no groups.
    converged_, n_iter_, gradient_norm_
        Whether the search converged, its number of steps, and the norm of the gradient at its end.

    Examples
    --------
    >>> X = np.linspace(-2, 2, 500).reshape(-1, 1)
    >>> y = np.random.default_rng(0).poisson(np.exp(1 + X[:, 0]))
    >>> model = CountGLM(likelihood="poisson").fit(X, y)
    >>> print(model.coefficient_table())
    parameter  feature      estimate  std. error      z          p  95% low  95% high
    log mean   (intercept)     1.048     0.03171  33.06  1.14e-239   0.9862     1.111
    log mean   x0             0.9443     0.02352  40.14          0   0.8982    0.9904
    """

    likelihood: str = field(default="double_poisson", kw_only=False)
    dispersion: str = "auto"
    location: str = "mean"
    covariance: str = "auto"
    alpha: float = 0.0
    tol: float = 1e-6
    max_iter: int = 200
    missing: str = "error"
    lower: int = 0
    upper: int | None = None
    censored_above: int | None = None
    fractional: str = "error"

    _allows_missing = False

    # Fitting -----------------------------------------------------------------------------------------------------

    def fit(
        self,
        X: TableLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        upper: ArrayLike | None = None,
        censored: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Fit the coefficients by maximum likelihood.

        Parameters
        ----------
        X : array-like or data frame
            One row per count.
        y : array-like
            The counts.
        sample_weight : array-like, optional
            How many times each row counts.
        exposure : array-like, optional
            The known scale of each row, such as days observed. It multiplies the predicted location. Predictions need
            exposures as well.
        upper : array-like, optional
            The largest possible count of each row. Predictions need upper bounds as well.
        censored : array-like of bool, optional
            True for rows whose count y means "y or more".
        groups : array-like, optional
            The group of each row, such as a person. Standard errors are then clustered, because rows of a group may
            depend on each other. There should be about 40 groups or more.

        Returns
        -------
        self
        """
        head = self._make_head()
        sample = CountRows.from_arguments(X, y, sample_weight, exposure, upper, censored, groups, self.fractional)
        counts = self._make_range(head, sample)
        sample = counts.apply(sample)
        counts.check_not_all_censored(sample)
        head.check_targets(sample.y, sample.exposure, sample.labels)
        table = read_table(X, type(self))
        sample = sample.replace(X=table)
        used = sample.has_weight
        if self.missing == "drop":
            used = used & ~table.is_missing()
            if not used.any():
                remedy = "Fill in missing values, or use CountRegressor, which accepts them."
                raise InputError(argument="X", must="have a row without missing values", got="none", remedy=remedy)
        else:
            remedy = 'Pass missing="drop" to leave these rows out, or use CountRegressor, which accepts missing values'
            check_complete(table, sample.labels, remedy)
        n_dropped = int((sample.has_weight & ~used).sum())
        table = table.rows(used)
        design = Design.from_table(table)
        rows = sample.replace(X=None).rows(used).replace(X=design.matrix(table))
        if not rows.y.any():
            raise InputError("y must hold a positive count, got zeros only, which no finite coefficients fit.")
        merged, codes = _merge_rows(rows)
        unit = choose_exposure_unit(merged, head.exposure_is_total) if head.is_count else 1.0
        scaled = divide_exposure(merged, unit)
        fit = fit_linear(head, scaled.X, scaled, self._list_linear_outputs(head), self.alpha, self.tol, self.max_iter)
        member = GLM(head, fit.linear, unit, design)
        predictor = Predictor({"glm": member}, None, counts.needs_exposure(sample), counts=counts)
        predictor.summarise_scales(rows)
        best, weight = fit.optimum, merged.weight_or_ones
        covariance_type = self._covariance_type(head, codes)
        covariance, standard_errors = fit.covariances(kind=covariance_type, groups=codes)
        loglik = -float(weight @ fit.objective.losses(best.theta))
        quality = GoodnessOfFit.from_fit(fit, loglik)
        self._store_fit(Schema.from_table(table), predictor, sample.rows(used) if n_dropped else sample)
        self._library = library_name(X)
        self.n_rows_, self.n_dropped_ = len(rows), n_dropped
        self.n_groups_ = None if codes is None else int(codes.max()) + 1
        self.coef_ = fit.linear.slopes / fit.linear.scale
        self.intercept_ = fit.linear.base - self.coef_ @ fit.linear.center
        self.intercept_[0] -= np.log(unit)  # the log rate per exposure of 1
        self.covariance_, self.standard_errors_ = covariance, np.sqrt(np.diag(covariance))
        self.covariance_type_ = covariance_type
        self.converged_, self.gradient_norm_, self.n_iter_ = best.converged, best.gradient_norm, max(1, best.n_iter)
        self.loglik_, self.deviance_, self.pearson_chi2_ = loglik, quality.deviance, quality.pearson_chi2
        self.aic_ = 2.0 * len(best.theta) - 2.0 * self.loglik_
        self.bic_ = float(np.log(weight.sum())) * len(best.theta) - 2.0 * self.loglik_
        if not self.converged_:
            warn_user(
                f"The search did not reach a maximum: the gradient norm is {self.gradient_norm_:.2g} after "
                f"{self.n_iter_} steps. Raise max_iter or alpha, or choose a simpler likelihood.",
                ConvergenceWarning,
            )
        sentences = check_coefficients(
            fit, _label_parameters(head), design.list_input_names(), standard_errors, quality
        )
        if head.name == "poisson" and covariance_type == "model":
            sentences += check_overdispersion(quality, len(best.theta))
        for sentence in sentences:
            warn_user(sentence)
        return self

    def _make_head(self) -> Head:
        """Validate the constructor arguments and return the head of the likelihood."""
        check_choice("likelihood", self.likelihood, [name for name in HEADS if HEADS[name].has_glm])
        check_choice("dispersion", self.dispersion, ("auto", "constant", "linear"))
        check_choice("location", self.location, ("mean", "mu"))
        check_choice("covariance", self.covariance, ("auto", "model", "robust", "HC3"))
        check_choice("missing", self.missing, ("error", "drop"))
        at_least = is_number(self.alpha) and 0.0 <= self.alpha < np.inf
        check_number("alpha", self.alpha, "a finite number of at least 0", at_least)
        check_number("tol", self.tol, "a finite positive number", is_number(self.tol) and 0.0 < self.tol < np.inf)
        check_integer("max_iter", self.max_iter, 1)
        has_location = "location" in HEADS[self.likelihood].option_defaults()
        return make_head(self.likelihood, **({"location": self.location} if has_location else {}))

    def _list_linear_outputs(self, head: Head) -> tuple[bool, ...]:
        """Return, for each parameter of the likelihood, whether it is linear in the columns (True) or constant (False).

        Parameters are on the scale of the coefficients, such as log mu and log gamma. The first one, the location, is
        always linear.
        """
        if self.dispersion == "auto":
            return tuple(p not in head.dispersion_outputs for p in range(head.n_raw))
        return (True, *[self.dispersion == "linear"] * (head.n_raw - 1))

    def _covariance_type(self, head: Head, groups: np.ndarray | None) -> str:
        if groups is not None:
            return "clustered"
        if self.covariance != "auto":
            return self.covariance
        return "HC3" if head.name == "double_poisson" and head.location_is_mean else "model"

    # What was fitted ---------------------------------------------------------------------------------------------

    @property
    def _glm(self) -> GLM:
        member = self._fitted.members["glm"]
        assert isinstance(member, GLM)
        return member

    @property
    def head_(self) -> Head:
        """The head of the likelihood. It turns linear predictors into distributions."""
        return self._glm.head

    def coefficient_table(self, coverage: float = 0.95) -> CoefficientTable:
        """Return a table of all coefficients, with standard errors, z statistics, p-values and Wald intervals.

        Each parameter's intercept precedes its other coefficients.

        Parameters
        ----------
        coverage : float
            The confidence level of the intervals.

        Returns
        -------
        CoefficientTable
            `print` it, or use its `columns`.
        """
        check_is_fitted(self)
        is_share = is_number(coverage) and 0.0 < coverage < 1.0
        check_number("coverage", coverage, "a number between 0 and 1", is_share)
        input_names = self._glm.encoder.list_input_names()
        parameter, feature, parts = [], [], []
        for p, (name, follows) in enumerate(
            zip(_label_parameters(self.head_), self._list_linear_outputs(self.head_), strict=True)
        ):
            features = [INTERCEPT, *(input_names if follows else [])]
            parameter += [name] * len(features)
            feature += features
            parts.append(np.r_[self.intercept_[p], self.coef_[p] if follows else []])
        return CoefficientTable.from_estimates(
            parameter, feature, np.concatenate(parts), self.standard_errors_, coverage, self._library
        )

    def summary(self, coverage: float = 0.95) -> GLMSummary:
        """Summarise the fit for printing: statistics of the fit, coefficients with ratios, and dispersion.

        Parameters
        ----------
        coverage : float
            The confidence level of the intervals.

        Returns
        -------
        GLMSummary
            `print` it, or use its `facts` and `columns`, such as `pandas.DataFrame(summary.columns)`.

        Examples
        --------
        >>> X = np.linspace(-2, 2, 500).reshape(-1, 1)
        >>> y = np.random.default_rng(0).poisson(np.exp(1 + X[:, 0]))
        >>> print(CountGLM().fit(X, y).summary())
        CountGLM: Double Poisson
        rows                       500    AIC           1,926.74
        coefficients                 3    BIC           1,939.38
        standard errors   robust (HC3)    deviance        540.65
        converged        yes (4 steps)    Pearson chi2    530.70
        log-likelihood         -960.37
        <BLANKLINE>
        Coefficients of the log mean
        feature      estimate  std. error      z          p  95% low  95% high  rate ratio  ratio low  ratio high
        (intercept)     1.049     0.03286  31.91  1.92e-223   0.9843     1.113
        x0             0.9441     0.02634  35.85  2.03e-281   0.8924    0.9957        2.57      2.441       2.707
        <BLANKLINE>
        Coefficients of log gamma
        parameter  feature      estimate  std. error      z      p  95% low  95% high
        log gamma  (intercept)  -0.04919     0.06616  -0.74  0.457  -0.1789   0.08047
        """
        table = self.coefficient_table(coverage)
        is_location = np.array([name == table.parameter[0] for name in table.parameter])
        facts: dict[str, str | float] = {"rows": self.n_rows_, "coefficients": len(table.parameter)}
        facts |= {"groups": self.n_groups_} if self.n_groups_ is not None else {}
        facts |= {"dropped rows": self.n_dropped_} if self.n_dropped_ else {}
        facts["standard errors"] = _COVARIANCES[self.covariance_type_]
        facts["converged"] = f"{'yes' if self.converged_ else 'NO'} ({self.n_iter_} steps)"
        facts |= {"log-likelihood": self.loglik_, "AIC": self.aic_, "BIC": self.bic_}
        if self.deviance_ is not None and self.pearson_chi2_ is not None:
            facts |= {"deviance": self.deviance_, "Pearson chi2": self.pearson_chi2_}
        label, notes = table.parameter[0], [self.head_.location_note] if self.head_.location_note else []
        ratio = "rate ratio" if self.head_.location_is_mean else "ratio" if label.startswith("log ") else ""
        ratio = "odds ratio" if label.startswith("logit ") else ratio
        title = self.likelihood.replace("_", " ").title()
        return GLMSummary(title, facts, table.rows(is_location), table.rows(~is_location), ratio, tuple(notes))

    # Uncertainty of the coefficients -----------------------------------------------------------------------------

    def predict_distribution(
        self,
        X: TableLike,
        exposure: ArrayLike | None = None,
        upper: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        *,
        coefficient_draws: int = 0,
        random_state: int = 0,
    ) -> Prediction:
        """Predict the whole distribution of every row.

        Parameters
        ----------
        X, exposure, upper, groups
            As for `CountRegressor.predict_distribution`.
        coefficient_draws : int
            0 takes the fitted coefficients as exact. With a larger number, such as 100, the prediction is a mixture
            over that many draws of the coefficients from their normal approximation (`covariance_`). Intervals are then
            wider, and `epistemic` is the variance due to the coefficients. This matters for large means and few rows.
        random_state : int
            The seed of the draws.

        Returns
        -------
        Prediction
            With `mean`, `std`, `interval`, `quantile`, `pmf`, `prob_above`, `sample`, `plot`, `to_frame` and more.
        """
        check_integer("coefficient_draws", coefficient_draws)
        if not coefficient_draws:
            return super().predict_distribution(X, exposure, upper, groups)
        is_linear, generator = self._list_linear_outputs(self.head_), np.random.default_rng(random_state)
        copies = draw_glms(self._glm, is_linear, self.covariance_, coefficient_draws, generator)
        model = copy(self)
        model.predictor_ = copy(self.predictor_)
        model.predictor_.members = {"glm": CrossFitted(copies)}
        return super(CountGLM, model).predict_distribution(X, exposure, upper, groups)

    def predict_mean_interval(
        self, X: TableLike, coverage: float = 0.95, exposure: ArrayLike | None = None
    ) -> np.ndarray:
        """Compute a confidence interval for the mean of each row.

        It is exp(log mean - z se) to exp(log mean + z se), where se is the standard error of the log mean, computed
        from `covariance_` (as `get_prediction(...).summary_frame()` in statsmodels). It says how well the mean is
        known. Single counts vary around the mean: `predict_interval` predicts where they lie.

        Parameters
        ----------
        X, exposure
            As for `predict_distribution`.
        coverage : float
            The confidence level.

        Returns
        -------
        array of float, shape (rows, 2)
            The lower and upper end of each interval.

        Examples
        --------
        >>> X = np.linspace(-2, 2, 500).reshape(-1, 1)
        >>> y = np.random.default_rng(0).poisson(np.exp(1 + X[:, 0]))
        >>> CountGLM("poisson").fit(X, y).predict_mean_interval([[0.0], [2.0]]).round(2)
        array([[ 2.68,  3.04],
               [17.77, 20.01]])
        """
        check_is_fitted(self)
        is_share = is_number(coverage) and 0.0 < coverage < 1.0
        check_number("coverage", coverage, "a number between 0 and 1", is_share)
        is_bounded = not self.predictor_.counts.is_unrestricted
        if not self.head_.location_is_mean or is_bounded:
            why = "counts are bounded or censored" if is_bounded else "coefficients are not those of the log mean"
            raise ConfigError(
                f"There is no confidence interval of the mean, because {why}. Use predict_distribution with "
                "coefficient_draws=200: its `epistemic` is the variance of the mean."
            )
        inputs = self._glm.encoder.encode(self.parse(X))
        n_coefficients = 1 + inputs.shape[1]
        errors = compute_log_mean_errors(inputs, self.covariance_[:n_coefficients, :n_coefficients])
        reach = ndtri(0.5 + coverage / 2.0) * errors
        return self.predict(X, exposure)[:, None] * np.exp(np.c_[-reach, reach])

    # Saving ------------------------------------------------------------------------------------------------------

    def _extra_state(self) -> tuple[dict[str, bytes], JsonObject]:
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        return {_FILE: arrays_to_bytes(**arrays)}, {name: getattr(self, name) for name in _NUMBERS}

    def _restore_extra(self, files: dict[str, bytes], extra: JsonObject) -> None:
        arrays = arrays_from_bytes(files[_FILE])
        self.__dict__.update({name: arrays[name] for name in _ARRAYS} | {name: extra[name] for name in _NUMBERS})


def _label_parameters(head: Head) -> tuple[str, ...]:
    """Return the names of the parameters on the scale of the coefficients, such as "log mean" and "log gamma"."""
    return ("log mean", *head.parameter_names[1:]) if head.location_is_mean else head.parameter_names


def _merge_rows(rows: CountRows) -> tuple[CountRows, np.ndarray | None]:
    """Merge equal rows into one row with their total weight, if the table has at most 1,000 rows.

    Equal rows of different groups are not merged. Return the rows, and the group of each of them as an integer or, if
    there are no groups, None.
    """
    if rows.group is not None:
        codes = np.unique(rows.group, return_inverse=True)[1].ravel()
        if not codes.any():
            raise InputError("groups must have at least two different values, got one.")
        rows = rows.replace(group=codes)
    if len(rows) <= _MAX_MERGED_ROWS:
        rows = rows.merge_equal_rows(rows.X if rows.group is None else np.c_[rows.X, rows.group])
    return rows, rows.group
