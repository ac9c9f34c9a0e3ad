"""CountGLM: generalised linear models of counts, fitted to the exact maximum of their likelihood."""

import warnings
from numbers import Integral, Real
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays
from scipy.linalg import block_diag
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ddpn.errors import ConfigError, InputError
from ddpn.estimators import saving
from ddpn.estimators.coefficients import CoefficientTable, coefficient_table
from ddpn.estimators.inputs import Targets, collapsed, targets
from ddpn.estimators.predictions import CountPredictions
from ddpn.features.table import read_table
from ddpn.heads import HEADS, Head, make_head
from ddpn.members.design import Design, check_complete, design_of
from ddpn.training.coordinates import Coordinates, standardize
from ddpn.training.maximum_likelihood import LinearObjective, inverse_information, maximize

#: What each raw number of a head is, as a table of coefficients names it.
PARAMETERS = {
    "double_poisson": ("log mu", "log gamma"),
    "poisson": ("log mu",),
    "negative_binomial": ("log mu", "log alpha"),
    "gaussian": ("mean", "log variance"),
    "natural_gaussian": ("mean / variance", "log precision"),
}
INTERCEPT = "(intercept)"
#: Up to so many rows, equal ones become one: a weight and repeated rows are then the same to the last bit.
_COLLAPSED = 1000
#: Standard errors beyond this, on a log scale and for a column of standard deviation 1, are no estimate's.
_RUNAWAY = 30.0
#: Fitted arrays that a saved model holds, besides what `_linear` needs to predict.
_ARRAYS = ("coef_", "intercept_", "covariance_", "standard_errors_")
_NUMBERS = ("loglik_", "aic_", "bic_", "gradient_norm_", "n_iter_", "converged_", "n_rows_")


class Linear(NamedTuple):
    """Raw numbers from columns, by way of standardised ones: with columns far from 0 no digits are lost."""

    center: np.ndarray
    scale: np.ndarray
    slopes: np.ndarray
    base: np.ndarray

    def raw(self, X: np.ndarray) -> np.ndarray:
        return ((X - self.center) / self.scale) @ self.slopes.T + self.base


class CountGLM(CountPredictions, BaseEstimator):
    """A count law whose every parameter is linear in the columns, by exact maximum likelihood.

    `likelihood` names a head of `ddpn.heads`: "double_poisson" (log mu and log gamma), "poisson" (log mu),
    "negative_binomial" (log mu and log alpha), "gaussian" (mean and log variance) or "natural_gaussian".
    `dispersion="linear"` lets the second parameter follow the columns too; with "constant" it is an intercept: the
    ordinary Negative Binomial model (NB2), Efron's double Poisson model, least squares. `alpha` adds alpha / 2 times
    the sum of squared coefficients of standardised columns, intercepts aside, to the mean loss; coefficients then stay
    finite where columns separate the counts. The search ends when the gradient of the mean loss, for standardised
    columns, has a norm of at most `tol`, or after `max_iter` steps. `fractional="round"` takes the nearest count where
    y is not one.

    Categories become a coefficient for each level but the first in alphabetical order. Missing values are refused.

    After `fit`: `coef_` (parameters, columns), `intercept_`, `covariance_` and `standard_errors_` by the observed
    information (in the order of `coefficient_table()`), `loglik_`, `aic_`, `bic_`; `converged_`, `n_iter_` and
    `gradient_norm_` tell how the search ended.

    >>> X = np.linspace(-2, 2, 500).reshape(-1, 1)
    >>> y = np.random.default_rng(0).poisson(np.exp(1 + X[:, 0]))
    >>> model = CountGLM(likelihood="poisson").fit(X, y)
    >>> print(model.coefficient_table())
    parameter  feature      estimate  std. error      z          p  95% low  95% high
    log mu     (intercept)     1.048     0.03171  33.06  1.14e-239   0.9862     1.111
    log mu     x0             0.9443     0.02352  40.14          0   0.8982    0.9904
    """

    _kind = "CountGLM"

    def __init__(
        self,
        *,
        likelihood: str = "double_poisson",
        dispersion: str = "linear",
        alpha: float = 0.0,
        tol: float = 1e-6,
        max_iter: int = 200,
        fractional: str = "error",
    ) -> None:
        self.likelihood = likelihood
        self.dispersion = dispersion
        self.alpha = alpha
        self.tol = tol
        self.max_iter = max_iter
        self.fractional = fractional

    # Fitting -----------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, sample_weight: Any = None, exposure: Any = None) -> Self:
        """Find the most likely coefficients.

        `sample_weight` counts a row so many times. `exposure`, the known scale of a row, multiplies its location.
        """
        head = self._checked_head()
        found = targets(X, y, sample_weight, exposure, self.fractional)
        table = check_complete(read_table(self, X, reset=True))
        used = np.ones(len(found.y), dtype=bool) if found.weight is None else found.weight > 0
        table = [column._replace(values=column.values[used]) for column in table]
        found = found.rows(used)
        if not found.y.any():
            raise InputError("y must hold a positive count, got zeros only: no mean is small enough. Give more rows.")
        self.head_, self.needs_exposure_, self.n_rows_ = head, exposure is not None, len(found.y)
        # Which raw numbers follow the columns.
        self._follows = (True, *[self.dispersion == "linear"] * (head.n_raw - 1))
        self.design_ = design_of(table)
        matrix = self.design_.matrix(table)
        self._maximize(*(collapsed(matrix, found) if len(matrix) <= _COLLAPSED else (matrix, found)))
        return self

    def _checked_head(self) -> Head:
        if self.likelihood in HEADS and self.likelihood not in PARAMETERS:
            listed = ", ".join(PARAMETERS)
            raise ConfigError(f"likelihood must be one of {listed}, got {self.likelihood!r}. Choose one that is.")
        if self.dispersion not in ("linear", "constant"):
            raise ConfigError(f'dispersion must be "linear" or "constant", got {self.dispersion!r}. Choose one.')
        for name, low in (("alpha", 0.0), ("tol", np.nextafter(0.0, 1.0))):
            value = getattr(self, name)
            if not isinstance(value, Real) or not low <= float(value) < np.inf:
                what = "0 or positive" if low == 0.0 else "positive"
                raise ConfigError(f"{name} must be a finite number, {what}, got {value!r}. Leave it at its default.")
        if not isinstance(self.max_iter, Integral) or self.max_iter < 1:
            raise ConfigError(f"max_iter must be a whole number of at least 1, got {self.max_iter!r}. Use 200.")
        return make_head(self.likelihood)

    def _maximize(self, X: np.ndarray, found: Targets) -> None:
        weight = np.ones(len(found.y)) if found.weight is None else found.weight
        coordinates = standardize(X, weight, reduce=self.alpha == 0.0)
        x, y, w = (torch.from_numpy(part) for part in (coordinates.reduced(X), found.y, weight))
        exposure = None if found.exposure is None else torch.from_numpy(found.exposure)
        objective = LinearObjective(self.head_, x, y, w, exposure, self._follows, float(self.alpha))
        best = maximize(objective, objective.start(), self.tol, self.max_iter)
        self.converged_, self.gradient_norm_, self.n_iter_ = best.converged, best.gradient_norm, max(1, best.n_iter)
        self.loglik_ = -float(weight @ objective.losses(best.theta))
        self.aic_ = 2.0 * len(best.theta) - 2.0 * self.loglik_
        self.bic_ = float(np.log(weight.sum())) * len(best.theta) - 2.0 * self.loglik_
        covariance = inverse_information(objective.hessian(best.theta), weight.sum())
        self._keep(objective, best.theta, covariance, coordinates)
        self._warn(objective, covariance, coordinates)

    def _keep(
        self, objective: LinearObjective, theta: np.ndarray, covariance: np.ndarray, coordinates: Coordinates
    ) -> None:
        """Coefficients of the columns as they were given."""
        self._forget_calibration()
        P, K = len(objective.blocks), len(coordinates.center)
        self.coef_, self.intercept_ = np.zeros((P, K)), np.zeros(P)
        slopes = np.zeros((P, K))
        back = [coordinates.to_columns(follows) for follows in self._follows]
        for p, (block, matrix) in enumerate(zip(objective.blocks, back, strict=True)):
            intercept, *coefficients = matrix @ theta[block]
            self.intercept_[p] = intercept
            if coefficients:
                self.coef_[p], slopes[p] = coefficients, coordinates.basis @ theta[block][1:]
        base = theta[[block.start for block in objective.blocks]]
        self._linear = Linear(coordinates.center, coordinates.scale, slopes, base)
        whole = block_diag(*back)
        self.covariance_ = whole @ covariance @ whole.T
        if not coordinates.is_full:
            unknown = ~np.concatenate([coordinates.determined if follows else [True] for follows in self._follows])
            self.covariance_[unknown], self.covariance_[:, unknown] = np.nan, np.nan
        self.standard_errors_ = np.sqrt(np.diag(self.covariance_))

    def _warn(self, objective: LinearObjective, covariance: np.ndarray, coordinates: Coordinates) -> None:
        if not self.converged_:
            warnings.warn(
                f"the search must end at a maximum, got a gradient norm of {self.gradient_norm_:.2g} after "
                f"{self.n_iter_} steps. Raise max_iter or alpha, or take a simpler likelihood.",
                ConvergenceWarning,
                stacklevel=4,
            )
        if not coordinates.is_full:
            known = zip(self.design_.names, coordinates.determined[1:], strict=True)
            names = [name for name, is_determined in known if not is_determined]
            warnings.warn(
                f"columns must not be constant or combinations of others, got {_listed(names)}: of all coefficients "
                "that fit as well the smallest were taken. Drop columns, or pass alpha.",
                UserWarning,
                stacklevel=4,
            )
        errors = np.sqrt(np.diag(covariance))
        runaway = [
            name
            for name, block in zip(PARAMETERS[self.head_.name], objective.blocks, strict=True)
            if name.startswith("log") and (errors[block] > _RUNAWAY).any()
        ]
        if runaway:
            warnings.warn(
                f"the likelihood must have a maximum, got none in {' and '.join(runaway)}: some coefficients grow "
                "without end, and their standard errors say nothing. Pass alpha, or a simpler likelihood.",
                UserWarning,
                stacklevel=4,
            )

    # What was found ----------------------------------------------------------------------------------------------

    def coefficient_table(self, coverage: float = 0.95) -> CoefficientTable:
        """Estimates with standard errors, z, p and intervals, intercepts first; `print` it, or use `to_pandas()`."""
        check_is_fitted(self)
        parameter, feature, estimate = [], [], []
        for p, (name, follows) in enumerate(zip(PARAMETERS[self.head_.name], self._follows, strict=True)):
            features = [INTERCEPT, *(self.design_.names if follows else [])]
            parameter += [name] * len(features)
            feature += features
            estimate.append(np.r_[self.intercept_[p], self.coef_[p] if follows else []])
        return coefficient_table(parameter, feature, np.concatenate(estimate), self.standard_errors_, coverage)

    def _outputs(self, X: Any) -> Tensor:
        table = check_complete(read_table(self, X, reset=False))
        return torch.from_numpy(self._linear.raw(self.design_.matrix(table))).unsqueeze(1)

    # Keeping -----------------------------------------------------------------------------------------------------

    def _saved(self) -> tuple[dict[str, bytes], dict[str, Any]]:
        arrays = {name: getattr(self, name) for name in _ARRAYS} | self._linear._asdict()
        about = {
            "design": {"columns": list(map(str, self.design_.columns)), "levels": self.design_.levels},
            "follows": self._follows,
            "fit": {name: getattr(self, name) for name in _NUMBERS},
        }
        contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        return {saving.WEIGHTS: save_arrays(contiguous)}, about

    def _restore(self, files: dict[str, bytes], manifest: dict[str, Any], path: Path) -> None:
        try:
            arrays = load_arrays(files[saving.WEIGHTS])
            self._linear = Linear(*(arrays[name] for name in Linear._fields))
            found = {name: arrays[name] for name in _ARRAYS} | {name: manifest["fit"][name] for name in _NUMBERS}
        except (KeyError, SafetensorError) as error:
            where = path / saving.WEIGHTS
            raise InputError(f"{where} must fit the manifest, got {error}. Save the model again.") from None
        for name, value in found.items():
            setattr(self, name, value)
        levels = (None if each is None else tuple(each) for each in manifest["design"]["levels"])
        self.design_ = Design(tuple(manifest["design"]["columns"]), tuple(levels))
        self._follows, self.n_features_in_ = tuple(manifest["follows"]), manifest["n_features"]
        if manifest["features"] is not None:
            self.feature_names_in_ = np.array(manifest["features"], dtype=object)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_linear")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.string = True
        tags.target_tags.positive_only = True
        return tags


def _listed(names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:8])
    return shown if len(names) <= 8 else f"{shown} and {len(names) - 8} more"
