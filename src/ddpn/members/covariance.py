"""Covariance matrices of coefficients, from Hessians and from scores of rows."""

import numpy as np

#: Curvatures below this share of the largest count as flat, because a Hessian in float64 has no more digits.
_MIN_CURVATURE_SHARE = 1e-12


def scale_by_curvature(hessian: np.ndarray) -> np.ndarray:
    """Return the scale factor 1 / sqrt(|curvature|) of each coefficient, which makes its scaled curvature 1 or -1.

    The curvature of a coefficient is its diagonal entry of `hessian`, which has shape (coefficients, coefficients). If
    it is 0, the scale factor is 1. The result has shape (coefficients,).
    """
    curvature = np.abs(np.diag(hessian))
    return 1.0 / np.sqrt(np.where(curvature > 0.0, curvature, 1.0))


def compute_covariance(hessian: np.ndarray, total_weight: float = 1.0) -> np.ndarray:
    """Compute the covariance of the estimates: the inverse of `total_weight` times the Hessian of the mean loss.

    `total_weight` is the sum of the weights of all rows. `hessian` and the result have shape (coefficients,
    coefficients).

    Curvatures near zero are raised to a small positive limit. The variance of coefficients that the rows do not
    determine is therefore very large rather than infinite.
    """
    units = scale_by_curvature(hessian)
    values, vectors = np.linalg.eigh(hessian * np.outer(units, units))
    inverse = (vectors / np.maximum(values, _MIN_CURVATURE_SHARE * values[-1])) @ vectors.T
    return inverse * np.outer(units, units) / total_weight


def compute_sandwich(
    bread: np.ndarray, scores: np.ndarray, weight: np.ndarray, groups: np.ndarray | None = None
) -> np.ndarray:
    """Compute the sandwich estimator of the covariance, bread @ meat @ bread, which is robust to a wrong likelihood.

    `bread` is the inverse information of all rows together, of shape (k, k). `scores` has the gradient of each row's
    loss, shape (rows, k), and `weight` the weight of each row, shape (rows,). The meat is the sum of score score' over
    the rows, where a row of weight w counts as w rows (statsmodels' `cov_type="HC0"`).

    If `groups` is given (the number of each row's group, from 0), scores are first summed within each group. With G
    groups and n rows (the sum of the weights), the result is multiplied by G / (G - 1) (n - 1) / (n - k) (statsmodels'
    `cov_type="cluster"`).
    """
    if groups is None:
        return bread @ (scores.T @ (weight[:, None] * scores)) @ bread
    sums = np.zeros((int(groups.max()) + 1, len(bread)))
    np.add.at(sums, groups, weight[:, None] * scores)
    size, rows = len(sums), weight.sum()
    correction = size / (size - 1.0) * (rows - 1.0) / (rows - len(bread))
    return correction * (bread @ (sums.T @ sums) @ bread)
