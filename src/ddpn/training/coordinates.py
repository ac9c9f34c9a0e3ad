"""The coordinates a linear model is fitted in: columns standardised, directions in which no row differs left out."""

from typing import NamedTuple

import numpy as np

#: A direction whose standard deviation is below this share of the largest is the others' rounding error.
_RANK = 1e-10
#: A column this much narrower than its distance from 0 is constant up to rounding.
_CONSTANT = 1e-14
#: A coefficient with more than this share of its unit vector outside the basis is not determined by the rows.
_UNDETERMINED = 1e-8


class Coordinates(NamedTuple):
    """Column j becomes (x - center) / scale; `basis` (K, R), orthonormal, spans the directions in which rows differ.

    >>> coordinates = standardize(np.array([[1.0, 2.0], [3.0, 6.0], [5.0, 10.0]]), np.ones(3))
    >>> coordinates.basis.shape, coordinates.determined.tolist()
    ((2, 1), [True, False, False])
    """

    center: np.ndarray
    scale: np.ndarray
    basis: np.ndarray

    def reduced(self, X: np.ndarray) -> np.ndarray:
        """The inputs of the fit. Shape: (N, K) -> (N, R)."""
        standardized = (X - self.center) / self.scale
        return standardized if self.is_full else standardized @ self.basis

    @property
    def is_full(self) -> bool:
        """Whether rows differ in every direction, so that no column is redundant."""
        return self.basis.shape[0] == self.basis.shape[1]

    @property
    def determined(self) -> np.ndarray:
        """Whether the rows determine the intercept, and the coefficient of each column. Shape: (1 + K,)."""
        middle = self.center / self.scale
        outside = np.linalg.norm(middle - self.basis @ (self.basis.T @ middle))
        intercept = outside <= np.sqrt(_UNDETERMINED) * (1.0 + np.linalg.norm(middle))
        return np.r_[intercept, 1.0 - np.square(self.basis).sum(1) <= _UNDETERMINED]

    def to_columns(self, linear: bool) -> np.ndarray:
        """The matrix from (intercept, slopes) of the fit to those of the given columns."""
        if not linear:
            return np.ones((1, 1))
        slopes = self.basis / self.scale[:, None]
        return np.block([[np.ones((1, 1)), -(self.center @ slopes)[None]], [np.zeros((len(slopes), 1)), slopes]])


def standardize(X: np.ndarray, weight: np.ndarray, reduce: bool = True) -> Coordinates:
    """The coordinates of these rows; a constant column gets no direction, and does not change the intercept.

    Without `reduce` all directions stay, for a fit with a penalty.
    """
    share = weight / weight.sum()
    center = share @ X
    spread = np.abs(X - center).max(axis=0, initial=0.0)
    constant = spread <= _CONSTANT * np.abs(center)
    safe = np.where(constant, 1.0, spread)
    # Squares of deviations as shares of the widest: no column is too large to be squared.
    scale = np.where(constant, 1.0, safe * np.sqrt(share @ np.square((X - center) / safe)))
    if not reduce:
        return Coordinates(center, scale, np.eye(X.shape[1]))
    rows = np.where(constant, 0.0, (X - center) / scale) * np.sqrt(share)[:, None]
    return Coordinates(np.where(constant, 0.0, center), scale, _basis(rows))


def _basis(rows: np.ndarray) -> np.ndarray:
    """Orthonormal directions in which the rows differ; the columns themselves where those are all."""
    if not rows.size:
        return np.eye(rows.shape[1])
    _, spreads, directions = np.linalg.svd(np.linalg.qr(rows, mode="r"), full_matrices=False)
    rank = int((spreads > _RANK * spreads.max()).sum())
    return np.eye(rows.shape[1]) if rank == rows.shape[1] else directions[:rank].T
