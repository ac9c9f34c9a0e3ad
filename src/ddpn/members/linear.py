"""Models whose raw outputs are linear in the columns: which columns are fitted, in what units, and what is found."""

from typing import NamedTuple

import numpy as np
import torch
from scipy.linalg import block_diag, solve_triangular

from ddpn.members.maximum_likelihood import LinearObjective, Optimum, approach, inverse_information, maximize
from ddpn.networks.heads import Head
from ddpn.sample import Sample

#: A standardised column of which the others before it explain all but this share is a combination of them (as in R's
#: `lm`).
_REDUNDANT = 1e-7
#: A column this much narrower than its distance from 0 is constant up to rounding.
_CONSTANT = 1e-14


class LinearPredictor(NamedTuple):
    """Raw outputs from columns, by way of standardised ones: with columns far from 0 no digits are lost."""

    center: np.ndarray
    scale: np.ndarray
    slopes: np.ndarray
    base: np.ndarray

    def raw(self, X: np.ndarray) -> np.ndarray:
        """Shape: (rows, columns) -> (rows, raw outputs)."""
        return ((X - self.center) / self.scale) @ self.slopes.T + self.base


class Coordinates(NamedTuple):
    """Column j becomes (x - center) / scale; those that are constant or combinations of columns before are not `kept`.

    `inflation` says how many times larger each kept column's standard error is than it were without the others: the
    square root of its variance inflation factor.

    >>> coordinates = standardize(np.array([[1.0, 2.0], [3.0, 6.0], [5.0, 10.0]]), np.ones(3))
    >>> coordinates.kept.tolist()
    [True, False]
    """

    center: np.ndarray
    scale: np.ndarray
    kept: np.ndarray
    is_constant: np.ndarray
    inflation: np.ndarray

    def reduced(self, X: np.ndarray) -> np.ndarray:
        """The inputs of the fit. Shape: (N, K) -> (N, number of columns kept)."""
        return ((X - self.center) / self.scale)[:, self.kept]

    def to_columns(self, linear: bool) -> np.ndarray:
        """The matrix from (intercept, slopes) of the fit to those of the given columns."""
        if not linear:
            return np.ones((1, 1))
        slopes = np.diag(1.0 / self.scale)[:, self.kept]
        return np.block([[np.ones((1, 1)), -(self.center @ slopes)[None]], [np.zeros((len(slopes), 1)), slopes]])


class LinearFit(NamedTuple):
    """The coefficients of the columns as they were given, their covariance, and how the search ended.

    `follows` says which raw outputs depend on the columns; the others are intercepts. `standard_deviations` are those
    of the intercept and of the coefficients of standardised columns that `coordinates` keep, one array per raw output.
    The other coefficients are not identified: they are 0, and their covariances are NaN.
    """

    linear: LinearPredictor
    coef: np.ndarray
    intercept: np.ndarray
    covariance: np.ndarray
    loglik: float
    n_parameters: int
    optimum: Optimum
    follows: tuple[bool, ...]
    standard_deviations: list[np.ndarray]
    coordinates: Coordinates


@torch.inference_mode(False)
def fit_line(
    head: Head, X: np.ndarray, sample: Sample, dispersion: str, alpha: float, rough: bool = False
) -> LinearPredictor:
    """What `fit_linear` finds, without inference; if `rough`, to some digits."""
    coordinates, objective = _objective(head, X, sample, dispersion, alpha)
    start = objective.start()
    theta = approach(objective, start) if rough else maximize(objective, start).theta
    return _line(coordinates, objective, theta)


@torch.inference_mode(False)
def fit_linear(
    head: Head, X: np.ndarray, sample: Sample, dispersion: str, alpha: float, tol: float = 1e-6, max_iter: int = 200
) -> LinearFit:
    """Maximise the weighted likelihood of `sample.y`, with alpha / 2 times the sum of squared slopes as penalty.

    `dispersion="linear"` lets all raw outputs follow the columns, "constant" only the first. Shape: X (rows, columns).
    """
    weight = sample.weight_or_ones
    coordinates, objective = _objective(head, X, sample, dispersion, alpha)
    best = maximize(objective, objective.start(), tol, max_iter)
    covariance = inverse_information(objective.hessian(best.theta), weight.sum())
    deviations = np.sqrt(np.diag(covariance))
    # From coefficients of standardised columns to those of the columns as they were given.
    back = block_diag(*(coordinates.to_columns(linear) for linear in objective.linear))
    covariance = back @ covariance @ back.T
    unknown = ~np.concatenate([np.r_[True, coordinates.kept] if linear else [True] for linear in objective.linear])
    covariance[unknown], covariance[:, unknown] = np.nan, np.nan
    line = _line(coordinates, objective, best.theta)
    coef = line.slopes / line.scale
    return LinearFit(
        line,
        coef,
        intercept=line.base - coef @ line.center,
        covariance=covariance,
        loglik=-float(weight @ objective.losses(best.theta)),
        n_parameters=len(best.theta),
        optimum=best,
        follows=objective.linear,
        standard_deviations=[deviations[block] for block in objective.blocks],
        coordinates=coordinates,
    )


def _objective(
    head: Head, X: np.ndarray, sample: Sample, dispersion: str, alpha: float
) -> tuple[Coordinates, LinearObjective]:
    follows = (True, *[dispersion == "linear"] * (head.n_raw - 1))
    coordinates = standardize(X, sample.weight_or_ones, reduce=alpha == 0.0)
    rows = sample.replace(X=coordinates.reduced(X), weight=sample.weight_or_ones).map(torch.from_numpy)
    return coordinates, LinearObjective(head, rows, follows, float(alpha))


def _line(coordinates: Coordinates, objective: LinearObjective, theta: np.ndarray) -> LinearPredictor:
    slopes = np.zeros((len(objective.blocks), len(coordinates.center)))
    for p, block in enumerate(objective.blocks):
        if objective.linear[p]:
            slopes[p, coordinates.kept] = theta[block][1:]
    return LinearPredictor(
        coordinates.center, coordinates.scale, slopes, theta[[block.start for block in objective.blocks]]
    )


def standardize(X: np.ndarray, weight: np.ndarray, reduce: bool = True) -> Coordinates:
    """The coordinates of these rows. Without `reduce` only constant columns are left out, for a fit with a penalty."""
    share = weight / weight.sum()
    # By differences from a row: the mean of a constant column is then that constant to the last digit.
    center = X[0] + share @ (X - X[0])
    spread = np.abs(X - center).max(axis=0, initial=0.0)
    constant = spread <= _CONSTANT * np.abs(center)
    safe = np.where(constant, 1.0, spread)
    # Squares of deviations as shares of the widest: no column is too large to be squared.
    scale = np.where(constant, 1.0, safe * np.sqrt(share @ np.square((X - center) / safe)))
    center = np.where(constant, 0.0, center)
    if not reduce:
        return Coordinates(center, scale, ~constant, constant, np.ones((~constant).sum()))
    rows = np.where(constant, 0.0, (X - center) / scale) * np.sqrt(share)[:, None]
    triangle: np.ndarray = np.linalg.qr(rows, mode="r")  # type: ignore[assignment]
    kept = _kept(triangle)
    return Coordinates(center, scale, kept, constant, _inflation(triangle[:, kept]))


def _kept(triangle: np.ndarray) -> np.ndarray:
    """Mask of the columns, of length 1 or 0, that are no combinations of those before them."""
    size, columns = triangle.shape
    if size == columns and (np.abs(np.diag(triangle)) > _REDUNDANT).all():
        return np.ones(columns, dtype=bool)
    kept, basis = np.zeros(columns, dtype=bool), np.zeros((size, size))
    for j, column in enumerate(triangle.T):
        known = basis[:, : kept.sum()]
        rest = column - known @ (known.T @ column)
        rest = rest - known @ (known.T @ rest)  # once more: the first time leaves rounding errors
        length = np.linalg.norm(rest)
        if length > _REDUNDANT:
            basis[:, kept.sum()], kept[j] = rest / length, True
    return kept


def _inflation(columns: np.ndarray) -> np.ndarray:
    """Square roots of variance inflation factors of independent columns of length 1."""
    triangle: np.ndarray = np.linalg.qr(columns, mode="r")  # type: ignore[assignment]
    return np.linalg.norm(solve_triangular(triangle, np.eye(len(triangle))), axis=1) if triangle.size else np.ones(0)
