"""Fit GLMs with any likelihood, and estimate the covariance of their coefficients.

The raw outputs of the likelihood, such as log mu, are constant or linear in the columns. Columns are standardised for
the fit. Coefficients are then converted back to the original columns.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from scipy.linalg import block_diag

from ddpn.members.covariance import compute_covariance, compute_sandwich
from ddpn.members.linear_search import LinearObjective, Optimum, find_optimum
from ddpn.networks.heads import Head
from ddpn.rows.count_rows import CountRows

#: A standardised column is redundant if the columns before it explain all but this share (as in R's `lm`).
_MIN_UNEXPLAINED = 1e-7
#: A column is constant up to rounding if its spread, relative to its distance from 0, is at most this.
_MAX_RELATIVE_SPREAD = 1e-14


class LinearPredictor(NamedTuple):
    """A linear map from the columns x of a row to raw outputs, such as log mu: slopes @ ((x - center) / scale) + base.

    `base` has the intercepts, the raw outputs at x = center. Columns are standardised first, which avoids a loss of
    precision if their values are far from 0. The shapes are (columns,) for `center` and `scale`, (raw outputs, columns)
    for `slopes`, and (raw outputs,) for `base`.
    """

    center: np.ndarray
    scale: np.ndarray
    slopes: np.ndarray
    base: np.ndarray

    def raw(self, X: np.ndarray) -> np.ndarray:
        """Compute the raw outputs of rows, such as log mu. Shape: (rows, columns) -> (rows, raw outputs)."""
        return ((X - self.center) / self.scale) @ self.slopes.T + self.base


class Standardization(NamedTuple):
    """The standardisation of columns, (x - center) / scale, and which columns a fit uses.

    All fields have shape (columns,). `center` is the weighted mean of a column and `scale` its weighted standard
    deviation, or 0 and 1 for a constant column. `is_constant` is True for constant columns. `kept` is True for the
    columns that the fit uses. A fit does not use constant columns. Without a ridge penalty, it does not use columns
    that are linear combinations of earlier ones either.

    >>> standardization = standardize(np.array([[1.0, 2.0], [3.0, 6.0], [5.0, 10.0]]), np.ones(3))
    >>> standardization.kept.tolist()
    [True, False]
    """

    center: np.ndarray
    scale: np.ndarray
    kept: np.ndarray
    is_constant: np.ndarray

    def transform(self, X: np.ndarray) -> np.ndarray:
        """Standardise the columns and drop those that are not kept. Shape: (rows, columns) -> (rows, kept columns)."""
        return ((X - self.center) / self.scale)[:, self.kept]

    def make_back_transform(self, has_slopes: bool) -> np.ndarray:
        """Return the matrix that converts coefficients for standardised columns to those for the original columns.

        The coefficients are those of one raw output: its intercept, followed by its slopes if `has_slopes`. The matrix
        has shape (1 + columns, 1 + kept columns), with zero rows for columns that are not kept. Without slopes, its
        shape is (1, 1).
        """
        if not has_slopes:
            return np.ones((1, 1))
        slopes = np.diag(1.0 / self.scale)[:, self.kept]
        return np.block([[np.ones((1, 1)), -(self.center @ slopes)[None]], [np.zeros((len(slopes), 1)), slopes]])


class LinearFit(NamedTuple):
    """The result of `fit_linear`.

    - `linear`: the fitted map from columns to raw outputs;
    - `standardization`: how the columns were standardised, and which of them were used;
    - `objective`: the penalised mean loss that was minimised;
    - `optimum`: the coefficients at its minimum, and whether the search converged.
    """

    linear: LinearPredictor
    standardization: Standardization
    objective: LinearObjective
    optimum: Optimum

    @torch.inference_mode(False)
    def covariances(self, kind: str = "model", groups: np.ndarray | None = None) -> tuple[np.ndarray, list[np.ndarray]]:
        """Estimate the covariance of the coefficients. Return a covariance matrix and a list of standard errors.

        The covariance matrix is for coefficients of the original columns, in this order: the intercept of the first raw
        output and its slopes for all columns, if it has slopes, then those of the second raw output, and so on. Entries
        for slopes of columns that the fit does not use (`Standardization.kept`) are NaN.

        The list has one array per raw output: the standard errors of the intercept and of the slopes for those columns
        that the fit uses. They are for standardised columns, and always by the estimator "model".

        `kind` is the estimator of the covariance matrix:

        - "model": the inverse of the observed information, valid if the likelihood is correct;
        - "robust": the sandwich estimator, valid if the mean is correct;
        - "HC3": the sandwich estimator, with scores divided by 1 minus the leverage of the row;
        - "clustered": the sandwich estimator, with scores summed by group. `groups` has the number of each row's group.
        """
        objective, kept = self.objective, self.standardization.kept
        covariance = compute_covariance(objective.hessian(self.optimum.theta), objective.weight.numpy().sum())
        deviations = np.sqrt(np.diag(covariance))
        if kind != "model":
            scores = objective.scores(self.optimum.theta, covariance if kind == "HC3" else None)
            covariance = compute_sandwich(covariance, scores, objective.weight.numpy(), groups)
        back = block_diag(*(self.standardization.make_back_transform(linear) for linear in objective.linear))
        covariance = back @ covariance @ back.T
        unknown = ~np.concatenate([np.r_[True, kept] if linear else [True] for linear in objective.linear])
        covariance[unknown], covariance[:, unknown] = np.nan, np.nan
        return covariance, [deviations[block] for block in objective.blocks]


@torch.inference_mode(False)
def fit_linear(
    head: Head,
    X: np.ndarray,
    sample: CountRows,
    is_linear: tuple[bool, ...],
    alpha: float | Sequence[float],
    tol: float = 1e-6,
    max_iter: int = 200,
    is_rough: bool = False,
) -> LinearFit:
    """Fit a GLM: maximise the weighted log-likelihood of `sample.y`, minus a ridge penalty.

    - `head` is the likelihood.
    - `X` has shape (rows, columns), without a column for the intercept.
    - `sample` has the counts of these rows, and optionally their weights, exposures, bounds and censoring limits. Its
      inputs are ignored.
    - `is_linear` has one entry per raw output of the likelihood: True if it is linear in the columns, False if it is
      constant.
    - `alpha` is the ridge penalty: alpha / 2 times the sum of squared slopes is added to the mean loss. It is one
      number for all raw outputs, or one for each.
    - If `is_rough`, the search ends when a step lowers the mean loss by a relative amount below 1e-5. This is accurate
      enough for predictions and several times faster.
    - `tol` is the gradient norm below which the search may count as converged (see `minimize_exactly`), and `max_iter`
      is the maximum number of steps. Both are ignored if `is_rough`.
    """
    standardization = standardize(X, sample.weight_or_ones, drop_dependent=not np.any(alpha))
    rows = sample.replace(X=standardization.transform(X), weight=sample.weight_or_ones).map(torch.from_numpy)
    objective = LinearObjective(head, rows, is_linear, alpha)
    best = find_optimum(objective, objective.start(), tol, max_iter, is_rough)
    if objective.value(best.theta) > objective.value(objective.constant):  # the search failed
        best = find_optimum(objective, objective.constant, tol, max_iter, is_rough)
    slopes = np.zeros((len(objective.blocks), len(standardization.center)))
    for p, block in enumerate(objective.blocks):
        if is_linear[p]:
            slopes[p, standardization.kept] = best.theta[block][1:]
    base = best.theta[[block.start for block in objective.blocks]]
    line = LinearPredictor(standardization.center, standardization.scale, slopes, base)
    return LinearFit(line, standardization, objective, best)


def standardize(X: np.ndarray, weight: np.ndarray, drop_dependent: bool = True) -> Standardization:
    """Compute the weighted mean and standard deviation of each column, and choose the columns that a fit uses.

    `X` has shape (rows, columns), and `weight` has the weight of each row, shape (rows,). Constant columns are never
    used. If `drop_dependent`, columns that are linear combinations of earlier ones are not used either. Only a fit with
    a ridge penalty can use them.
    """
    share = weight / weight.sum()
    # From differences to the first row, so that the mean of a constant column is exactly this constant.
    center = X[0] + share @ (X - X[0])
    spread = np.abs(X - center).max(axis=0, initial=0.0)
    constant = spread <= _MAX_RELATIVE_SPREAD * np.abs(center)
    safe = np.where(constant, 1.0, spread)
    # Deviations are divided by the largest one before they are squared, to avoid overflow.
    scale = np.where(constant, 1.0, safe * np.sqrt(share @ np.square((X - center) / safe)))
    center = np.where(constant, 0.0, center)
    if not drop_dependent:
        return Standardization(center, scale, ~constant, constant)
    rows = np.where(constant, 0.0, (X - center) / scale) * np.sqrt(share)[:, None]
    triangle: np.ndarray = np.linalg.qr(rows, mode="r")  # type: ignore[assignment]
    return Standardization(center, scale, _find_independent_columns(triangle), constant)


def _find_independent_columns(triangle: np.ndarray) -> np.ndarray:
    """Return a mask, of shape (columns,), of the columns that are not linear combinations of earlier columns.

    `triangle` is R in the QR decomposition of the columns, whose Euclidean norms must be 1 or 0.
    """
    size, columns = triangle.shape
    if size == columns and (np.abs(np.diag(triangle)) > _MIN_UNEXPLAINED).all():
        return np.ones(columns, dtype=bool)
    kept, basis = np.zeros(columns, dtype=bool), np.zeros((size, size))
    for j, column in enumerate(triangle.T):
        previous = basis[:, : kept.sum()]
        remainder = column - previous @ (previous.T @ column)
        remainder = remainder - previous @ (previous.T @ remainder)  # repeated to remove rounding errors
        length = np.linalg.norm(remainder)
        if length > _MIN_UNEXPLAINED:
            basis[:, kept.sum()], kept[j] = remainder / length, True
    return kept
