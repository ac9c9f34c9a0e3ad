"""Linear predictors of raw outputs: standardised columns, the fit, and the covariance of its coefficients."""

from typing import NamedTuple

import numpy as np
import torch
from scipy.linalg import block_diag

from ddpn.members.linear_search import LinearObjective, Optimum, find_optimum, inverse_information
from ddpn.networks.heads import Head
from ddpn.rows.count_rows import CountRows

#: A standardised column is a combination of the columns before it if they explain all but this share (as in R's `lm`).
_MIN_UNEXPLAINED = 1e-7
#: A column this much narrower than its distance from 0 is constant up to rounding.
_MAX_RELATIVE_SPREAD = 1e-14


class LinearPredictor(NamedTuple):
    """Raw outputs as a linear function of standardised columns, which loses no digits for columns far from 0."""

    center: np.ndarray
    scale: np.ndarray
    slopes: np.ndarray
    base: np.ndarray

    def raw(self, X: np.ndarray) -> np.ndarray:
        """Compute raw outputs. Shape: (rows, columns) -> (rows, raw outputs)."""
        return ((X - self.center) / self.scale) @ self.slopes.T + self.base


class Coordinates(NamedTuple):
    """Standardised coordinates of columns, (x - center) / scale.

    Columns that are constant, or linear combinations of the columns before them, are not `kept`.

    >>> coordinates = standardize(np.array([[1.0, 2.0], [3.0, 6.0], [5.0, 10.0]]), np.ones(3))
    >>> coordinates.kept.tolist()
    [True, False]
    """

    center: np.ndarray
    scale: np.ndarray
    kept: np.ndarray
    is_constant: np.ndarray

    def transform(self, X: np.ndarray) -> np.ndarray:
        """Standardise columns and keep those of the fit. Shape: (N, K) -> (N, number of columns kept)."""
        return ((X - self.center) / self.scale)[:, self.kept]

    def to_columns(self, linear: bool) -> np.ndarray:
        """Compute the matrix from (intercept, slopes) of the fit to those of the original columns."""
        if not linear:
            return np.ones((1, 1))
        slopes = np.diag(1.0 / self.scale)[:, self.kept]
        return np.block([[np.ones((1, 1)), -(self.center @ slopes)[None]], [np.zeros((len(slopes), 1)), slopes]])


class LinearFit(NamedTuple):
    """The result of a linear fit: the line, its coordinates, the objective and how the search ended."""

    linear: LinearPredictor
    coordinates: Coordinates
    objective: LinearObjective
    optimum: Optimum

    @torch.inference_mode(False)
    def covariances(self, kind: str = "model", groups: np.ndarray | None = None) -> tuple[np.ndarray, list[np.ndarray]]:
        """Compute the covariance of the coefficients of the original columns, NaN where not identified.

        `kind` is "model", the inverse of the observed information, which is right if the likelihood is; "robust", the
        sandwich estimator, right also where only the mean is; "HC3", the same from scores that allow for the leverage
        of their rows; or "clustered", the sandwich estimator with sums of scores by `groups`, the number of each row's
        group. The second result are standard deviations by the observed information, of the intercept and of the
        coefficients of standardised columns that `coordinates` keep, one array per raw output.
        """
        objective, kept = self.objective, self.coordinates.kept
        covariance = inverse_information(objective.hessian(self.optimum.theta), objective.weight.numpy().sum())
        deviations = np.sqrt(np.diag(covariance))
        if kind != "model":
            scores = objective.scores(self.optimum.theta, covariance if kind == "HC3" else None)
            covariance = sandwich(covariance, scores, objective.weight.numpy(), groups)
        back = block_diag(*(self.coordinates.to_columns(linear) for linear in objective.linear))
        covariance = back @ covariance @ back.T
        unknown = ~np.concatenate([np.r_[True, kept] if linear else [True] for linear in objective.linear])
        covariance[unknown], covariance[:, unknown] = np.nan, np.nan
        return covariance, [deviations[block] for block in objective.blocks]


def sandwich(bread: np.ndarray, scores: np.ndarray, weight: np.ndarray, groups: np.ndarray | None = None) -> np.ndarray:
    """Compute bread @ meat @ bread, the covariance of estimates that does not rely on the likelihood.

    The meat is the sum of score score' over the rows, a row of weight w being w rows: statsmodels' `cov_type="HC0"`.
    With groups, scores are added up within each group, and the result is multiplied by G / (G - 1) (n - 1) / (n - k)
    for G groups, n rows and k coefficients: statsmodels' `cov_type="cluster"`. Shape: bread (k, k), scores (n, k).
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
    follows: tuple[bool, ...],
    alpha: float,
    tol: float = 1e-6,
    max_iter: int = 200,
    rough: bool = False,
) -> LinearFit:
    """Maximise the weighted likelihood of `sample.y`, with alpha / 2 times the sum of squared slopes as penalty.

    `follows` says which raw outputs are linear in the columns; the others are intercepts. If `rough`, a step lowers the
    mean loss by less than 1e-5 of itself where the search ends: enough to predict with, several times faster. Shape:
    X (rows, columns).
    """
    coordinates = standardize(X, sample.weight_or_ones, reduce=alpha == 0.0)
    rows = sample.replace(X=coordinates.transform(X), weight=sample.weight_or_ones).map(torch.from_numpy)
    objective = LinearObjective(head, rows, follows, float(alpha))
    best = find_optimum(objective, objective.start(), tol, max_iter, rough)
    if objective.value(best.theta) > objective.value(objective.constant):  # which is one of its lines
        best = find_optimum(objective, objective.constant, tol, max_iter, rough)
    slopes = np.zeros((len(objective.blocks), len(coordinates.center)))
    for p, block in enumerate(objective.blocks):
        if follows[p]:
            slopes[p, coordinates.kept] = best.theta[block][1:]
    base = best.theta[[block.start for block in objective.blocks]]
    line = LinearPredictor(coordinates.center, coordinates.scale, slopes, base)
    return LinearFit(line, coordinates, objective, best)


def standardize(X: np.ndarray, weight: np.ndarray, reduce: bool = True) -> Coordinates:
    """Compute standardised coordinates of columns, from rows with weights.

    Without `reduce` only constant columns are left out, for a fit with a penalty.
    """
    share = weight / weight.sum()
    # By differences from a row: the mean of a constant column is then that constant to the last digit.
    center = X[0] + share @ (X - X[0])
    spread = np.abs(X - center).max(axis=0, initial=0.0)
    constant = spread <= _MAX_RELATIVE_SPREAD * np.abs(center)
    safe = np.where(constant, 1.0, spread)
    # Squares of deviations as shares of the widest: no column is too large to be squared.
    scale = np.where(constant, 1.0, safe * np.sqrt(share @ np.square((X - center) / safe)))
    center = np.where(constant, 0.0, center)
    if not reduce:
        return Coordinates(center, scale, ~constant, constant)
    rows = np.where(constant, 0.0, (X - center) / scale) * np.sqrt(share)[:, None]
    triangle: np.ndarray = np.linalg.qr(rows, mode="r")  # type: ignore[assignment]
    return Coordinates(center, scale, _find_independent(triangle), constant)


def _find_independent(triangle: np.ndarray) -> np.ndarray:
    """Return a mask of the columns, of length 1 or 0, that are not combinations of the columns before them."""
    size, columns = triangle.shape
    if size == columns and (np.abs(np.diag(triangle)) > _MIN_UNEXPLAINED).all():
        return np.ones(columns, dtype=bool)
    kept, basis = np.zeros(columns, dtype=bool), np.zeros((size, size))
    for j, column in enumerate(triangle.T):
        previous = basis[:, : kept.sum()]
        remainder = column - previous @ (previous.T @ column)
        remainder = remainder - previous @ (previous.T @ remainder)  # once more: the first time leaves rounding errors
        length = np.linalg.norm(remainder)
        if length > _MIN_UNEXPLAINED:
            basis[:, kept.sum()], kept[j] = remainder / length, True
    return kept
