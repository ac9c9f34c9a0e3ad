"""What the uncertainty of a GLM's coefficients means for its predictions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddpn.members.glm import GLM
from ddpn.members.linear import LinearPredictor


def draw_glms(
    glm: GLM, is_linear: Sequence[bool], covariance: np.ndarray, n_draws: int, generator: np.random.Generator
) -> list[GLM]:
    """Draw GLMs whose coefficients differ from those of `glm` by normal errors with the given covariance.

    Return `n_draws` GLMs, drawn by `generator`. `is_linear` says of each parameter of the likelihood, such as log mean
    and log gamma, whether it is linear in the columns (True) or constant (False). `covariance` is the covariance matrix
    of all coefficients (`CountGLM.covariance_`), shape (coefficients, coefficients): parameter by parameter, each
    intercept before its slopes. Coefficients that are not identified, whose covariance is NaN, stay as they are.
    """
    linear = glm.linear
    # Rounding may make a variance slightly negative, which is no reason to warn.
    errors = generator.multivariate_normal(
        np.zeros(len(covariance)), np.nan_to_num(covariance), size=n_draws, method="eigh", check_valid="ignore"
    )
    n_slopes = linear.slopes.shape[1]
    drawn = []
    for error in errors:
        base, slopes, position = linear.base.copy(), linear.slopes.copy(), 0
        for output, has_slopes in enumerate(is_linear):
            base[output] += error[position]
            if has_slopes:
                slope_errors = error[position + 1 : position + 1 + n_slopes]
                slopes[output] += slope_errors * linear.scale
                base[output] += slope_errors @ linear.center
            position += 1 + n_slopes * has_slopes
        predictor = LinearPredictor(linear.center, linear.scale, slopes, base)
        drawn.append(GLM(glm.head, predictor, glm.unit, glm.encoder, low=glm.low, high=glm.high))
    return drawn


def compute_log_mean_errors(inputs: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Compute the standard error of the log mean of each row.

    `inputs` is the design matrix without the intercept. `covariance` is the covariance matrix of the coefficients of
    the log mean, the intercept first. Coefficients that are not identified, whose covariance is NaN, count as exact.
    Shape: inputs (rows, columns), covariance (1 + columns, 1 + columns) -> (rows,).
    """
    rows = np.c_[np.ones(len(inputs)), inputs]
    return np.sqrt(np.einsum("ij,jk,ik->i", rows, np.nan_to_num(covariance), rows))
