"""Fit heads whose raw outputs are linear in the columns, and estimate the covariance of the coefficients.

Columns are standardised for the fit. Coefficients are then converted back to the original columns.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from scipy.linalg import block_diag

from ddpn.members.linear_search import LinearObjective, Optimum, compute_covariance, find_optimum
from ddpn.networks.heads import Head
from ddpn.rows.count_rows import CountRows

#: A standardised column is redundant if the columns before it explain all but this share (as in R's `lm`).
_MIN_UNEXPLAINED = 1e-7
#: A column is constant up to rounding if its spread, relative to its distance from 0, is at most this.
_MAX_RELATIVE_SPREAD = 1e-14


class LinearPredictor(NamedTuple):
    """A linear map from columns to raw outputs: slopes @ ((x - center) / scale) + base.

    Columns are standardised first, which avoids a loss of precision if their values are far from 0.
    """

    center: np.ndarray
    scale: np.ndarray
    slopes: np.ndarray
    base: np.ndarray

    def raw(self, X: np.ndarray) -> np.ndarray:
        """Compute the raw outputs of rows. Shape: (rows, columns) -> (rows, raw outputs)."""
        return ((X - self.center) / self.scale) @ self.slopes.T + self.base


class Coordinates(NamedTuple):
    """The standardisation of columns, (x - center) / scale, with a mask `kept` of the columns that a fit uses.

    Columns that are constant or linear combinations of earlier columns are not kept.

    >>> coordinates = standardize(np.array([[1.0, 2.0], [3.0, 6.0], [5.0, 10.0]]), np.ones(3))
    >>> coordinates.kept.tolist()
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
        """Return the matrix that maps coefficients of standardised columns to coefficients of the original columns.

        The coefficients are those of one raw output: the intercept, followed by the slopes if `has_slopes`.
        """
        if not has_slopes:
            return np.ones((1, 1))
        slopes = np.diag(1.0 / self.scale)[:, self.kept]
        return np.block([[np.ones((1, 1)), -(self.center @ slopes)[None]], [np.zeros((len(slopes), 1)), slopes]])


class LinearFit(NamedTuple):
    """The result of `fit_linear`: the linear predictor, the standardised columns, the objective and its optimum."""

    linear: LinearPredictor
    coordinates: Coordinates
    objective: LinearObjective
    optimum: Optimum

    @torch.inference_mode(False)
    def covariances(self, kind: str = "model", groups: np.ndarray | None = None) -> tuple[np.ndarray, list[np.ndarray]]:
        """Estimate the covariance matrix of the coefficients of the original columns.

        Rows and columns of coefficients that are not identified are NaN. `kind` is the estimator:

        - "model": the inverse of the observed information, valid if the likelihood is correct;
        - "robust": the sandwich estimator, valid if the mean is correct;
        - "HC3": the sandwich estimator, with scores divided by 1 minus the leverage of the row;
        - "clustered": the sandwich estimator, with scores summed by group. `groups` holds the group number of each row.

        The second result has one array per raw output: the "model" standard errors of the intercept and of the slopes
        on the standardised columns.
        """
        objective, kept = self.objective, self.coordinates.kept
        covariance = compute_covariance(objective.hessian(self.optimum.theta), objective.weight.numpy().sum())
        deviations = np.sqrt(np.diag(covariance))
        if kind != "model":
            scores = objective.scores(self.optimum.theta, covariance if kind == "HC3" else None)
            covariance = sandwich(covariance, scores, objective.weight.numpy(), groups)
        back = block_diag(*(self.coordinates.make_back_transform(linear) for linear in objective.linear))
        covariance = back @ covariance @ back.T
        unknown = ~np.concatenate([np.r_[True, kept] if linear else [True] for linear in objective.linear])
        covariance[unknown], covariance[:, unknown] = np.nan, np.nan
        return covariance, [deviations[block] for block in objective.blocks]


def sandwich(bread: np.ndarray, scores: np.ndarray, weight: np.ndarray, groups: np.ndarray | None = None) -> np.ndarray:
    """Compute the sandwich estimator of the covariance, bread @ meat @ bread, which is robust to a wrong likelihood.

    `bread` is the inverse information of shape (k, k). `scores` holds the gradient of each row's loss and has shape (n,
    k). The meat is the sum of score score' over the rows, where a row of weight w counts as w rows (statsmodels'
    `cov_type="HC0"`). With `groups`, scores are first summed within each group, and the result is multiplied by G / (G
    - 1) (n - 1) / (n - k) for G groups (statsmodels' `cov_type="cluster"`).
    """
    if groups is None:
        return bread @ (scores.T @ (weight[:, None] * scores)) @ bread
    sums = np.zeros((int(groups.max()) + 1, len(bread)))
    np.add.at(sums, groups, weight[:, None] * scores)
    size, rows = len(sums), weight.sum()
    correction = size / (size - 1.0) * (rows - 1.0) / (rows - len(bread))
    return correction * (bread @ (sums.T @ sums) @ bread)


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
    """Maximise the weighted log-likelihood of `sample.y` with raw outputs that are linear in the columns of `X`.

    The mean loss is penalised by alpha / 2 times the sum of squared slopes. `alpha` is one number for all raw outputs
    or one for each. `is_linear` has an entry per raw output: True if it is linear in the columns, False if it is
    constant. If `is_rough`, the search ends when a step lowers the mean loss by a relative amount below 1e-5. This is
    accurate enough for predictions and several times faster. `X` has shape (rows, columns).
    """
    coordinates = standardize(X, sample.weight_or_ones, drop_dependent=not np.any(alpha))
    rows = sample.replace(X=coordinates.transform(X), weight=sample.weight_or_ones).map(torch.from_numpy)
    objective = LinearObjective(head, rows, is_linear, alpha)
    best = find_optimum(objective, objective.start(), tol, max_iter, is_rough)
    if objective.value(best.theta) > objective.value(objective.constant):  # the search failed
        best = find_optimum(objective, objective.constant, tol, max_iter, is_rough)
    slopes = np.zeros((len(objective.blocks), len(coordinates.center)))
    for p, block in enumerate(objective.blocks):
        if is_linear[p]:
            slopes[p, coordinates.kept] = best.theta[block][1:]
    base = best.theta[[block.start for block in objective.blocks]]
    line = LinearPredictor(coordinates.center, coordinates.scale, slopes, base)
    return LinearFit(line, coordinates, objective, best)


def standardize(X: np.ndarray, weight: np.ndarray, drop_dependent: bool = True) -> Coordinates:
    """Compute the weighted mean and standard deviation of each column, and choose the columns to keep for a fit.

    With `drop_dependent`, columns that are linear combinations of earlier ones are not kept. A penalised fit can keep
    them.
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
        return Coordinates(center, scale, ~constant, constant)
    rows = np.where(constant, 0.0, (X - center) / scale) * np.sqrt(share)[:, None]
    triangle: np.ndarray = np.linalg.qr(rows, mode="r")  # type: ignore[assignment]
    return Coordinates(center, scale, _find_independent_columns(triangle), constant)


def _find_independent_columns(triangle: np.ndarray) -> np.ndarray:
    """Return a mask of the columns that are not linear combinations of earlier columns.

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
