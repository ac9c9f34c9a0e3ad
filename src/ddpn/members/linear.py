"""Exact maximum likelihood of a model whose every raw output is linear in the columns."""

from typing import NamedTuple

import numpy as np
import torch
from scipy.linalg import block_diag

from ddpn.networks.heads import Head
from ddpn.networks.training.coordinates import Coordinates, standardize
from ddpn.networks.training.maximum_likelihood import LinearObjective, Optimum, approach, inverse_information, maximize
from ddpn.sample import Sample


class Linear(NamedTuple):
    """Raw outputs from columns, by way of standardised ones: with columns far from 0 no digits are lost."""

    center: np.ndarray
    scale: np.ndarray
    slopes: np.ndarray
    base: np.ndarray

    def raw(self, X: np.ndarray) -> np.ndarray:
        """Shape: (rows, columns) -> (rows, raw outputs)."""
        return ((X - self.center) / self.scale) @ self.slopes.T + self.base


class LinearFit(NamedTuple):
    """The coefficients of the columns as they were given, their covariance, and how the search ended.

    `follows` says which raw outputs depend on the columns; the others are intercepts. `standard_deviations` are those
    of the intercept and of the coefficients of standardised columns that `coordinates` keep, one array per raw output.
    The other coefficients are not identified: they are 0, and their covariances are NaN.
    """

    linear: Linear
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
def fit_line(head: Head, X: np.ndarray, sample: Sample, dispersion: str, alpha: float, rough: bool = False) -> Linear:
    """What `fit_linear` finds, without inference; if `rough`, to some digits."""
    coordinates, objective = _objective(head, X, sample, dispersion, alpha)
    start = objective.start()
    theta = approach(objective, start) if rough else maximize(objective, start).theta
    slopes = np.zeros((len(objective.blocks), len(coordinates.center)))
    for p, block in enumerate(objective.blocks):
        if block.stop - block.start > 1:
            slopes[p, coordinates.kept] = theta[block][1:]
    return Linear(coordinates.center, coordinates.scale, slopes, theta[[block.start for block in objective.blocks]])


@torch.inference_mode(False)
def fit_linear(
    head: Head, X: np.ndarray, sample: Sample, dispersion: str, alpha: float, tol: float = 1e-6, max_iter: int = 200
) -> LinearFit:
    """Maximise the weighted likelihood of `sample.y`, with alpha / 2 times the sum of squared slopes as penalty.

    `dispersion="linear"` lets all raw outputs follow the columns, "constant" only the first. Shape: X (rows, columns).
    """
    weight = sample.weight_or_ones
    coordinates, objective = _objective(head, X, sample, dispersion, alpha)
    follows = objective.linear
    best = maximize(objective, objective.start(), tol, max_iter)
    covariance = inverse_information(objective.hessian(best.theta), weight.sum())
    deviations = np.sqrt(np.diag(covariance))
    return LinearFit(
        *_in_columns(objective.blocks, best.theta, covariance, coordinates, follows),
        loglik=-float(weight @ objective.losses(best.theta)),
        n_parameters=len(best.theta),
        optimum=best,
        follows=follows,
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


def _in_columns(
    blocks: list[slice], theta: np.ndarray, covariance: np.ndarray, coordinates: Coordinates, follows: tuple[bool, ...]
) -> tuple[Linear, np.ndarray, np.ndarray, np.ndarray]:
    """Coefficients and covariance of the columns as they were given."""
    P, K = len(blocks), len(coordinates.center)
    coef, intercepts, slopes = np.zeros((P, K)), np.zeros(P), np.zeros((P, K))
    back = [coordinates.to_columns(linear) for linear in follows]
    for p, (block, matrix) in enumerate(zip(blocks, back, strict=True)):
        intercepts[p], *coefficients = matrix @ theta[block]
        if coefficients:
            coef[p], slopes[p, coordinates.kept] = coefficients, theta[block][1:]
    linear = Linear(coordinates.center, coordinates.scale, slopes, theta[[block.start for block in blocks]])
    whole = block_diag(*back)
    covariance = whole @ covariance @ whole.T
    unknown = ~np.concatenate([np.r_[True, coordinates.kept] if each else [True] for each in follows])
    covariance[unknown], covariance[:, unknown] = np.nan, np.nan
    return linear, coef, intercepts, covariance
