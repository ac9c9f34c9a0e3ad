"""`CountGLM`: generalised linear models of counts, fitted to the exact maximum of their likelihood."""

import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.special import ndtr, ndtri
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from ddpn.estimators.estimator import CountEstimator, merge_equal_rows, needs_exposure
from ddpn.members.glm import GLM, Design, check_complete
from ddpn.members.linear import Coordinates, fit_linear
from ddpn.members.member import arrays_from_bytes, arrays_to_bytes, exposure_unit, in_units
from ddpn.networks.heads import HEADS, Head, make_head
from ddpn.predictor import Predictor
from ddpn.runtime.display import html_table, text_table
from ddpn.runtime.errors import InputError
from ddpn.runtime.validation import check_choice, check_integer, check_number, is_number, listed

INTERCEPT = "(intercept)"
#: Up to so many rows, equal ones become one: a weight and repeated rows are then the same to the last bit.
_MERGED = 1000
#: Standard errors beyond this, on a log scale and for a column of standard deviation 1, belong to no estimate.
_RUNAWAY = 30.0
#: Fitted arrays and numbers that a saved model holds besides its predictor.
_ARRAYS = ("coef_", "intercept_", "covariance_", "standard_errors_")
_NUMBERS = ("loglik_", "aic_", "bic_", "gradient_norm_", "n_iter_", "converged_", "n_rows_")
_FILE = "coefficients.safetensors"


class CoefficientTable(NamedTuple):
    """One row per coefficient: estimate, standard error, z, two-sided p and a Wald interval (`low`, `high`)."""

    parameter: tuple[str, ...]
    feature: tuple[str, ...]
    estimate: np.ndarray
    std_error: np.ndarray
    z: np.ndarray
    p: np.ndarray
    low: np.ndarray
    high: np.ndarray
    coverage: float

    @property
    def columns(self) -> dict[str, Any]:
        """Every column by the name it is printed under, such as for `pandas.DataFrame`."""
        share = f"{100 * self.coverage:g}%"
        names = ("parameter", "feature", "estimate", "std. error", "z", "p", f"{share} low", f"{share} high")
        return dict(zip(names, self[:-1], strict=True))

    def __str__(self) -> str:
        return text_table(list(self.columns), self._rows(), names=2)

    def _rows(self) -> list[tuple[str, ...]]:
        """The cells of every coefficient."""
        formats = {"z": ".2f", "p": ".3g", "parameter": "", "feature": ""}
        texts = ([f"{value:{formats.get(name, '.4g')}}" for value in each] for name, each in self.columns.items())
        return list(zip(*texts, strict=True))

    def _repr_html_(self) -> str:
        return html_table(self.columns, self._rows())


@dataclass(kw_only=True, eq=False, repr=False)
class CountGLM(CountEstimator):
    """A count distribution whose every parameter is linear in the columns, by exact maximum likelihood.

    Categories become a coefficient for each level but the first in alphabetical order. Missing values are refused.

    Parameters
    ----------
    likelihood : str
        A name in `ddpn.networks.heads.HEADS` with a GLM: "double_poisson" (log mu and log gamma), "poisson" (log mu),
        "negative_binomial" (log mu and log alpha), "gaussian" (mean and log variance), "natural_gaussian",
        "double_binomial" (logit p and log gamma, with totals as `upper`), "generalized_poisson",
        "conway_maxwell_poisson", and "zero_inflated_..." and "hurdle_..." with the first three (logit pi besides).
    dispersion : {"linear", "constant"}
        "linear" lets the second parameter follow the columns too; with "constant" it is an intercept: the ordinary
        Negative Binomial model (NB2), Efron's double Poisson model, least squares.
    alpha : float
        Ridge penalty: alpha / 2 times the sum of squared coefficients of standardised columns, intercepts aside, is
        added to the mean loss. Coefficients then stay finite where columns separate the counts.
    tol : float
        The search ends when the gradient of the mean loss, for standardised columns, has at most this norm.
    max_iter : int
        Steps of the search at most.
    lower, upper : int, optional
        The smallest and the largest possible count: no probability outside.
    censored_above : int, optional
        Counts of this size or more are recorded as this one ("10 or more").
    fractional : {"error", "round"}
        What to do where y is not an integer.

    Attributes
    ----------
    coef_, intercept_ : arrays
        Coefficients (parameters, columns) and intercepts.
    covariance_, standard_errors_ : arrays
        By the observed information, in the order of `coefficient_table()`; NaN where a column is constant or a
        combination of those before it, whose coefficient is 0.
    loglik_, aic_, bic_ : float
        Log-likelihood of the training rows, Akaike's and the Bayesian information criterion.
    converged_, n_iter_, gradient_norm_
        How the search ended.

    Examples
    --------
    >>> X = np.linspace(-2, 2, 500).reshape(-1, 1)
    >>> y = np.random.default_rng(0).poisson(np.exp(1 + X[:, 0]))
    >>> model = CountGLM(likelihood="poisson").fit(X, y)
    >>> print(model.coefficient_table())
    parameter  feature      estimate  std. error      z          p  95% low  95% high
    log mu     (intercept)     1.048     0.03171  33.06  1.14e-239   0.9862     1.111
    log mu     x0             0.9443     0.02352  40.14          0   0.8982    0.9904
    """

    likelihood: str = "double_poisson"
    dispersion: str = "linear"
    alpha: float = 0.0
    tol: float = 1e-6
    max_iter: int = 200
    lower: int = 0
    upper: int | None = None
    censored_above: int | None = None
    fractional: str = "error"

    _allows_missing = False

    # Fitting -----------------------------------------------------------------------------------------------------

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, exposure: Any = None, upper: Any = None, censored: Any = None
    ) -> Self:
        """Find the most likely coefficients.

        Parameters
        ----------
        X : array-like or data frame
            One row per count, without missing values.
        y : array-like
            The counts.
        sample_weight : array-like, optional
            How many times each row counts.
        exposure : array-like, optional
            The known scale of each row, which multiplies its location. Pass it to the predictions too.
        upper : array-like, optional
            The largest possible count of each row. Pass it to the predictions too.
        censored : array-like of bool, optional
            Rows whose count stands for that many or more.

        Returns
        -------
        self
        """
        head = self._checked_head()
        sample, counts = self._rows(head, X, y, sample_weight, exposure, upper, censored)
        reader, table = self._columns(sample, counts, head)
        table = check_complete(table, sample.labels)
        used = sample.is_used
        table = [column._replace(values=column.values[used]) for column in table]
        design = Design.of(reader, table)
        rows = sample.replace(X=None).rows(used).replace(X=design.matrix(table))
        if not rows.y.any():
            raise InputError("y must hold a positive count, got zeros only: no finite coefficients fit them.")
        merged = merge_equal_rows(rows, rows.X) if len(rows) <= _MERGED else rows
        unit = exposure_unit(merged, head) if head.is_count else 1.0
        scaled = in_units(merged, unit)
        found = fit_linear(head, scaled.X, scaled, self.dispersion, self.alpha, self.tol, self.max_iter)
        member = GLM.of_design(head, design, found.linear, unit)
        predictor = Predictor({"glm": member}, None, needs_exposure(sample, counts), counts=counts)
        predictor.summarise_scales(rows)
        best, weight = found.optimum, merged.weight_or_ones
        covariance, deviations = found.covariances()
        loglik = -float(weight @ found.objective.losses(best.theta))
        self._set_fitted(reader, predictor, sample)
        self.n_rows_ = len(rows)
        self.coef_ = found.linear.slopes / found.linear.scale
        self.intercept_ = found.linear.base - self.coef_ @ found.linear.center
        self.intercept_[0] -= np.log(unit)  # of a rate per exposure of 1
        self.covariance_, self.standard_errors_ = covariance, np.sqrt(np.diag(covariance))
        self.converged_, self.gradient_norm_, self.n_iter_ = best.converged, best.gradient_norm, max(1, best.n_iter)
        self.loglik_ = loglik
        self.aic_ = 2.0 * len(best.theta) - 2.0 * self.loglik_
        self.bic_ = float(np.log(weight.sum())) * len(best.theta) - 2.0 * self.loglik_
        if not self.converged_:
            warnings.warn(
                f"The search did not reach a maximum: the gradient norm is {self.gradient_norm_:.2g} after "
                f"{self.n_iter_} steps. Raise max_iter or alpha, or choose a simpler likelihood.",
                ConvergenceWarning,
                stacklevel=2,
            )
        for sentence in _coefficient_warnings(head, design.names, found.coordinates, deviations):
            warnings.warn(sentence, UserWarning, stacklevel=2)
        return self

    def _checked_head(self) -> Head:
        check_choice("likelihood", self.likelihood, [name for name in HEADS if HEADS[name].has_glm])
        check_choice("dispersion", self.dispersion, ("linear", "constant"))
        at_least = is_number(self.alpha) and 0.0 <= self.alpha < np.inf
        check_number("alpha", self.alpha, "a finite number of at least 0", at_least)
        check_number("tol", self.tol, "a finite positive number", is_number(self.tol) and 0.0 < self.tol < np.inf)
        check_integer("max_iter", self.max_iter, 1)
        return make_head(self.likelihood)

    # What was fitted ---------------------------------------------------------------------------------------------

    @property
    def _glm(self) -> GLM:
        member = self._fitted.members["glm"]
        assert isinstance(member, GLM)
        return member

    @property
    def head_(self) -> Head:
        """The likelihood."""
        return self._glm.head

    def coefficient_table(self, coverage: float = 0.95) -> CoefficientTable:
        """Estimates with standard errors, z, p and Wald intervals, intercepts first.

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
        design = self._glm.design
        assert design is not None
        parameter, feature, parts = [], [], []
        for p, name in enumerate(self.head_.parameter_names):
            follows = p == 0 or self.dispersion == "linear"
            features = [INTERCEPT, *(design.names if follows else [])]
            parameter += [name] * len(features)
            feature += features
            parts.append(np.r_[self.intercept_[p], self.coef_[p] if follows else []])
        estimate, error = np.concatenate(parts), self.standard_errors_
        # An unknown standard error leaves all of these unknown.
        z = np.divide(estimate, error, out=np.full_like(estimate, np.nan), where=error > 0)
        reach = ndtri(0.5 + 0.5 * coverage) * error
        tests = (z, 2.0 * ndtr(-np.abs(z)), estimate - reach, estimate + reach)
        return CoefficientTable(tuple(parameter), tuple(feature), estimate, error, *tests, coverage)

    # Saving ------------------------------------------------------------------------------------------------------

    def _extra_state(self) -> tuple[dict[str, bytes], dict[str, Any]]:
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        return {_FILE: arrays_to_bytes(**arrays)}, {name: getattr(self, name) for name in _NUMBERS}

    def _restore_extra(self, files: dict[str, bytes], extra: dict[str, Any]) -> None:
        arrays = arrays_from_bytes(files[_FILE])
        self.__dict__.update({name: arrays[name] for name in _ARRAYS} | {name: extra[name] for name in _NUMBERS})


def _coefficient_warnings(
    head: Head, columns: list[str], coordinates: Coordinates, deviations: list[np.ndarray]
) -> list[str]:
    """About columns whose coefficients the rows do not determine, and coefficients that they hardly determine.

    `deviations` are standard deviations per parameter, of the intercept and of the coefficients of columns that are
    kept, where it follows them.
    """
    kept, constant = coordinates.kept, coordinates.is_constant
    names, sentences = np.array(columns, dtype=object), []
    groups = {"Constant columns": constant, "Combinations of the columns before them": ~kept & ~constant}
    lost = [f"{what}: {listed([repr(name) for name in names[each]])}." for what, each in groups.items() if each.any()]
    if lost:
        remedy = "Drop these columns." if kept[~constant].all() else "Drop these columns, or pass alpha."
        fate = "The rows do not determine some coefficients, which are 0 with standard error NaN."
        sentences.append(" ".join([fate, *lost, remedy]))
    # On a log scale: the mean of a Gaussian has the units of the counts.
    pairs = zip(head.parameter_names, deviations, strict=True)
    wide = {name: spread > _RUNAWAY for name, spread in pairs if name.startswith("log")}
    features = np.r_[[INTERCEPT], names[kept]]
    those = {name: features[: len(mask)][mask] for name, mask in wide.items() if mask.any()}
    if those:
        shown = "; ".join(f"{name}: {listed([repr(each) for each in some])}" for name, some in those.items())
        sentences.append(
            f"The rows hardly determine some coefficients ({shown}), whose standard errors are very large. Columns are "
            "nearly combinations of others, or the likelihood has no maximum, so that coefficients grow without bound. "
            "Drop columns, pass alpha, or choose a simpler likelihood."
        )
    return sentences
