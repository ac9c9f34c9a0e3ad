"""Exact maximum likelihood of models whose raw outputs are linear in the columns, for any head.

The loss of a row depends only on its P raw outputs, so autograd computes just P + P x P numbers per row. Matrix
products do the rest by the chain rule: the gradient is Z' g, the Hessian Z' diag(h) Z. A dense autograd Hessian would
evaluate the loss once for every coefficient.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import minimize
from torch import Tensor

from ddpn.networks.heads import Head
from ddpn.networks.heads.rates import PoissonHead
from ddpn.networks.training import TensorRows
from ddpn.runtime.deadlines import check_deadline
from ddpn.runtime.threads import single_blas_thread, threads_for

#: A Newton step lowers the objective by about half its decrement, -step' gradient, whatever the units of y and x. Below
#: the first limit, a step is not worth taking if the gradient is small. Below the second, the coefficients of n rows
#: are within sqrt(n) 1e-6 standard errors of the maximum, even if the gradient is not small: with large counts,
#: rounding keeps it above any fixed number.
_MAX_DECREMENT, _MAX_CLOSE_DECREMENT = 1e-6, 1e-12
#: The longest Newton step that counts, in units of log parameters. A longer one lies on a plateau, where the rows do
#: not determine a parameter and the quadratic approximation is wrong.
_MAX_STEP = 100.0
#: L-BFGS: the most steps of its two rounds, each scaled by the information at its start; and the smallest relative
#: decrease of the objective in a step.
_ROUGH_STEPS, _ROUGH_TOLERANCE = (10, 60), 1e-5
#: The most steps of the rounds if no Newton steps follow. Rounds are added until one ends by itself.
_ROUGH_ROUNDS = (10, 60, 60, 60, 60)
#: Second raw outputs from which a search may start. A Double Poisson is a Poisson at 0, and a Negative Binomial is
#: close to a Poisson at -2 (alpha = e^-2).
_DISPERSIONS = (-2.0, 0.0)
#: The share of the information that is added to its diagonal, in case columns are redundant.
_JITTER_SHARE = 1e-9
#: The lower limit of 1 minus the leverage of a row. A row that alone determines a coefficient has no residual error.
_MIN_ONE_MINUS_LEVERAGE = 0.1
#: The number of final Newton steps, which improve the digits. A maximum at infinity is not pursued.
_POLISH_STEPS = 8
#: Curvatures below this share of the largest count as flat, because a Hessian in float64 has no more digits.
_MIN_CURVATURE_SHARE = 1e-12


class Optimum(NamedTuple):
    """The coefficients `theta` at which a search ended, and whether it converged.

    `gradient_norm` is the norm of the gradient of the objective there, NaN after a rough search. `n_iter` is the number
    of steps.
    """

    theta: np.ndarray
    gradient_norm: float
    n_iter: int
    converged: bool


class _Point(NamedTuple):
    theta: np.ndarray
    value: float
    gradient: np.ndarray

    @property
    def norm(self) -> float:
        return float(np.linalg.norm(self.gradient))


class LinearObjective:
    """The function of the coefficients that a fit minimises, with its first and second derivatives.

    It is the weighted mean loss of N rows plus alpha / 2 times the sum of squared slopes. Raw output p is linear in
    all K columns if `linear[p]` is True, else constant. The vector theta holds the D coefficients of one raw output
    after the other: the intercept, then the slopes if there are any. `alpha` is the weight of the penalty, one number
    for all raw outputs or one for each. Shape: X of the sample (N, K), its other fields (N,), all float64 tensors;
    theta (D,).

    >>> from ddpn.networks.heads import make_head
    >>> from ddpn.rows.count_rows import CountRows
    >>> sample = CountRows(torch.tensor([[-1.0], [1.0]]).double(), torch.tensor([1.0, 3.0]).double())
    >>> objective = LinearObjective(make_head("poisson"), sample, (True,))
    >>> optimum = maximize(objective, objective.start())
    >>> bool(np.allclose(optimum.theta, [np.log(3) / 2, np.log(3) / 2])), optimum.converged
    (True, True)
    """

    def __init__(
        self, head: Head, sample: TensorRows, linear: tuple[bool, ...], alpha: float | Sequence[float] = 0.0
    ) -> None:
        self.head, self.sample, self.linear = head, sample, linear
        self._last: tuple[np.ndarray, np.ndarray] | None = None
        self.weight = torch.ones_like(sample.y) if sample.weight is None else sample.weight
        self.share = self.weight / self.weight.sum()
        self.design = torch.cat([sample.X.new_ones(len(sample), 1), sample.X], dim=1)
        widths = [self.design.shape[1] if is_linear else 1 for is_linear in linear]
        ends = np.cumsum(widths).tolist()
        # For each raw output, the positions of its coefficients in theta, and the columns that they multiply.
        self.blocks = [slice(end - width, end) for end, width in zip(ends, widths, strict=True)]
        self.columns = [self.design[:, :width] for width in widths]
        self.alphas = np.broadcast_to(np.asarray(alpha, dtype=float), len(widths))
        penalties = zip(widths, self.alphas, strict=True)
        self.penalty = np.concatenate([np.r_[0.0, np.full(width - 1, penalty)] for width, penalty in penalties])

    @cached_property
    def constant(self) -> np.ndarray:
        """The coefficients of the fit without columns (`Head.sample_start`), in which all slopes are 0."""
        theta = np.zeros(self.blocks[-1].stop)
        theta[[block.start for block in self.blocks]] = self.head.sample_start(self.sample).numpy()
        return theta

    def start(self) -> np.ndarray:
        """Choose the coefficients from which the search starts: a Poisson GLM with the best of a few dispersions.

        The constant fit would be a bad start, because it explains all variation of the counts by their dispersion. If
        counts vary much, the Double Poisson is then so wide that its location has almost no slope, and the search ends
        where it began. Heads whose first raw output is not a log mean of counts nevertheless start from the constant
        fit.
        """
        head = self.head
        if not head.is_count or head.exposure_is_total or isinstance(head, PoissonHead):
            return self.constant
        others = np.array([block.start for block in self.blocks[1:]], dtype=int)
        line, starts = self._fit_poisson_line(), []
        for dispersion in (self.constant[others], *_DISPERSIONS):
            theta = np.zeros_like(self.constant)
            theta[self.blocks[0]], theta[others] = line, dispersion
            starts.append(theta)
        return min(starts, key=self.value)

    def value(self, theta: np.ndarray) -> float:
        """Compute the objective; NaN becomes infinity."""
        penalty = 0.5 * float(self.penalty @ np.square(theta))
        return float(np.nan_to_num(self.share.numpy() @ self.losses(theta) + penalty, nan=np.inf))

    def _fit_poisson_line(self) -> np.ndarray:
        """Fit the intercept and slopes of a Poisson GLM approximately, to the same rows with the same penalty."""
        poisson = LinearObjective(PoissonHead(), self.sample, (True,), float(self.penalty.max(initial=0.0)))
        return _minimise_roughly(poisson, poisson.start(), sum(_ROUGH_STEPS))[0]

    def raw(self, theta: np.ndarray) -> Tensor:
        """Compute the raw outputs of all rows. Shape: (D,) -> (N, P)."""
        parts = [torch.from_numpy(theta[block]) for block in self.blocks]
        return torch.stack([columns @ part for columns, part in zip(self.columns, parts, strict=True)], dim=1)

    def losses(self, theta: np.ndarray) -> np.ndarray:
        """Compute the loss of every row, without weights and penalty. Shape: (N,)."""
        with torch.no_grad():
            return self.head.sample_loss(self.raw(theta), self.sample).numpy()

    def value_and_gradient(self, theta: np.ndarray, rough: bool = False) -> tuple[float, np.ndarray]:
        """Compute the objective and its gradient (D,). If `rough`, use float32, which is faster."""
        check_deadline()
        raw = self.raw(theta)
        raw = (raw.float() if rough else raw).requires_grad_()
        value = self.share @ self.head.sample_loss(raw, self.sample).double()
        slopes = torch.autograd.grad(value, raw)[0].double()
        gradient = [(columns.T @ slopes[:, p]).numpy() for p, columns in enumerate(self.columns)]
        penalty = self.penalty * theta
        return value.item() + 0.5 * float(penalty @ theta), np.concatenate(gradient) + penalty

    def hessian(self, theta: np.ndarray) -> np.ndarray:
        """Compute the second derivatives of the objective (D, D); the last result is cached."""
        if self._last is not None and np.array_equal(self._last[0], theta):
            return self._last[1]
        raw = self.raw(theta).requires_grad_()
        value = self.share @ self.head.sample_loss(raw, self.sample)
        (slopes,) = torch.autograd.grad(value, raw, create_graph=True)
        hessian = np.diag(self.penalty)
        for p, upper in enumerate(self.blocks):
            (curvatures,) = torch.autograd.grad(slopes[:, p].sum(), raw, retain_graph=True)
            for q, lower in enumerate(self.blocks[: p + 1]):
                block = (self.columns[p].T @ (curvatures[:, q : q + 1] * self.columns[q])).numpy()
                hessian[upper, lower] += block
                if p != q:
                    hessian[lower, upper] += block.T
        self._last = theta.copy(), hessian
        return hessian

    def scores(self, theta: np.ndarray, covariance: np.ndarray | None = None) -> np.ndarray:
        """Compute the gradient of every row's loss with respect to all coefficients, without weights and penalty.

        Shape: (N, D). With the `covariance` of the coefficients, gradients are divided by 1 minus the leverage of the
        row, as if the row had not been fitted.
        """
        raw = self.raw(theta)
        slopes = self.head.gradient(raw, self.sample)
        if covariance is not None:
            curvatures, inverse = self.head.curvature(raw, self.sample), torch.from_numpy(covariance)
            for p, (block, columns) in enumerate(zip(self.blocks, self.columns, strict=True)):
                leverage = curvatures[:, p] * ((columns @ inverse[block, block]) * columns).sum(1)
                slopes[:, p] /= (1.0 - leverage).clamp(min=_MIN_ONE_MINUS_LEVERAGE)
        parts = [slopes[:, p : p + 1] * columns for p, columns in enumerate(self.columns)]
        return torch.cat(parts, dim=1).numpy()

    def information_roots(self, theta: np.ndarray) -> list[np.ndarray]:
        """Compute, for each raw output, a Cholesky factor of its expected information plus the penalty."""
        sample, raw = self.sample, self.raw(theta)
        curvatures = self.head.curvature(raw, sample)
        roots = []
        for p, (block, columns) in enumerate(zip(self.blocks, self.columns, strict=True)):
            information = (columns.T @ ((self.share * curvatures[:, p]).unsqueeze(1) * columns)).numpy()
            diagonal = self.penalty[block] + _JITTER_SHARE * np.diag(information)
            roots.append(cholesky(information + np.diag(diagonal), lower=True))
        return roots


def _minimise_roughly(
    objective: LinearObjective, theta: np.ndarray, max_iter: int, rounds: tuple[int, ...] = _ROUGH_STEPS
) -> tuple[np.ndarray, int, bool]:
    """Minimise the objective approximately by L-BFGS, without second derivatives, which take ten times as long.

    Coefficients are scaled by their expected information, which heads compute in closed form, so that some tens of
    gradients are enough. The search is restarted with the new information at least once, and again while a round uses
    up its steps. Returns the coefficients, the number of steps, and True if the last round ended before its steps were
    used up.
    """
    n_iter, is_done = 0, False
    for number, steps in enumerate(rounds):
        if n_iter >= max_iter or (is_done and number > 1):
            break
        steps = min(steps, max_iter - n_iter)
        theta, more = _search_scaled(objective, theta, steps)
        n_iter, is_done = n_iter + more, more < steps
    return theta, n_iter, is_done


def _search_scaled(objective: LinearObjective, start: np.ndarray, max_iter: int) -> tuple[np.ndarray, int]:
    """Minimise the objective by L-BFGS; return the coefficients and the number of steps.

    Coefficients are in units in which their expected information at the start is 1.
    """
    parts = list(zip(objective.information_roots(start), objective.blocks, strict=True))

    def theta(u: np.ndarray) -> np.ndarray:
        return start + np.concatenate([solve_triangular(root.T, u[block]) for root, block in parts])

    def evaluate_scaled(u: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = objective.value_and_gradient(theta(u), rough=True)
        return value, np.concatenate([solve_triangular(root, gradient[block], lower=True) for root, block in parts])

    options = {"maxiter": max_iter, "ftol": _ROUGH_TOLERANCE, "gtol": 0.0}
    result = minimize(evaluate_scaled, np.zeros_like(start), jac=True, method="L-BFGS-B", options=options)
    return theta(result.x), int(result.nit)


def maximize(objective: LinearObjective, theta: np.ndarray, tol: float = 1e-6, max_iter: int = 200) -> Optimum:
    """Minimise the objective by Newton's method within a trust region.

    `converged` means that the gradient norm is at most `tol` and another Newton step is not worth taking, or that such
    a step would change nothing. The search continues beyond this point as far as rounding allows, for at most
    `max_iter` steps.
    """
    with threads_for(objective.design.numel() * objective.design.shape[1]), single_blas_thread():
        theta, n_iter, _ = _minimise_roughly(objective, theta, max_iter)
        point = _evaluate(objective, theta)
        if n_iter < max_iter:
            # Newton's method in units in which all curvatures at the start are 1.
            units = _scale_by_curvature(objective.hessian(theta))

            def value_and_gradient(u: np.ndarray) -> tuple[float, np.ndarray]:
                value, gradient = objective.value_and_gradient(theta + units * u)
                return value, units * gradient

            result = minimize(
                value_and_gradient,
                np.zeros_like(units),
                jac=True,
                hess=lambda u: objective.hessian(theta + units * u) * np.outer(units, units),
                method="trust-exact",
                options={"gtol": _MAX_CLOSE_DECREMENT**0.5, "maxiter": max_iter - n_iter},
            )
            better = _evaluate(objective, theta + units * result.x)
            point, n_iter = better if better.value <= point.value else point, n_iter + int(result.nit)
        hessian = objective.hessian(point.theta)
        inverse = inverse_information(hessian)
        # Newton steps with a fixed Hessian, as long as they reduce the gradient.
        for _ in range(_POLISH_STEPS if n_iter < max_iter else 0):
            following = _evaluate(objective, point.theta - inverse @ point.gradient)
            if not following.norm < point.norm:
                break
            point = following
        is_determined = np.abs(inverse @ point.gradient) <= _MAX_STEP
        decrement = 0.0
        if is_determined.any():
            gradient = point.gradient[is_determined]
            decrement = float(gradient @ inverse_information(hessian[np.ix_(is_determined, is_determined)]) @ gradient)
    return Optimum(
        point.theta, point.norm, n_iter, decrement <= (_MAX_DECREMENT if point.norm <= tol else _MAX_CLOSE_DECREMENT)
    )


def _evaluate(objective: LinearObjective, theta: np.ndarray) -> _Point:
    return _Point(theta, *objective.value_and_gradient(theta))


def _scale_by_curvature(hessian: np.ndarray) -> np.ndarray:
    """Return a unit for each coefficient in which its curvature is 1, so that the units of counts do not matter."""
    curvature = np.abs(np.diag(hessian))
    return 1.0 / np.sqrt(np.where(curvature > 0.0, curvature, 1.0))


def inverse_information(hessian: np.ndarray, total: float = 1.0) -> np.ndarray:
    """Compute (total * hessian)^-1, the covariance of the estimates; very large in directions without information.

    `hessian` is that of the mean loss, and `total` the sum of the weights.
    """
    units = _scale_by_curvature(hessian)
    values, vectors = np.linalg.eigh(hessian * np.outer(units, units))
    inverse = (vectors / np.maximum(values, _MIN_CURVATURE_SHARE * values[-1])) @ vectors.T
    return inverse * np.outer(units, units) / total


def find_optimum(objective: LinearObjective, theta: np.ndarray, tol: float, max_iter: int, rough: bool) -> Optimum:
    """Minimise the objective from the coefficients `theta`: by `maximize`, or if `rough`, by L-BFGS alone."""
    if not rough:
        return maximize(objective, theta, tol, max_iter)
    with threads_for(objective.design.numel() * objective.design.shape[1]), single_blas_thread():
        theta, n_iter, is_done = _minimise_roughly(objective, theta, sum(_ROUGH_ROUNDS), _ROUGH_ROUNDS)
    return Optimum(theta, np.nan, n_iter, is_done)
