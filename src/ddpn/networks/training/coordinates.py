"""The coordinates a linear model is fitted in: columns standardised, those that say nothing new left out."""

from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

#: A standardised column of which the others before it explain all but this share is a combination of them (as in R's
#: `lm`).
_REDUNDANT = 1e-7
#: A column this much narrower than its distance from 0 is constant up to rounding.
_CONSTANT = 1e-14


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
