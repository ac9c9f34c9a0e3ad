"""Maximum likelihood for GLMs with any likelihood, whose raw outputs (such as log mu) are linear in the columns.

The loss of a row depends on the coefficients only through its raw outputs, of which there are few. Autograd therefore
computes the derivatives with respect to the raw outputs, and matrix products complete the chain rule. With the design
matrix Z, the gradient is Z' g and the Hessian is Z' diag(h) Z, where g and h hold the first and second derivatives of
each row. A Hessian by autograd alone would need one pass per coefficient.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import minimize
from torch import Tensor

from ddpn.members.covariance import compute_covariance, scale_by_curvature
from ddpn.networks.heads import Head
from ddpn.networks.heads.rates import PoissonHead
from ddpn.networks.training import TensorRows
from ddpn.runtime.deadlines import check_deadline
from ddpn.runtime.threads import limit_torch_threads, single_blas_thread

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


class Optimum(NamedTuple):
    """The result of a search for the minimum of an objective.

    - `theta`: the coefficients at the end of the search;
    - `gradient_norm`: the norm of the objective's gradient at `theta`, or NaN after a rough search;
    - `n_iter`: the number of steps;
    - `converged`: True if the search converged.
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
    """The penalised mean loss as a function of the coefficients, with its gradient and Hessian.

    The objective is the weighted mean loss of the rows plus alpha / 2 times the sum of squared slopes. `head` is the
    likelihood. Its raw output number p, such as log mu, is linear in all columns if `linear[p]` is True, else constant.
    `alpha` is one number for all raw outputs, or one for each.

    The coefficient vector `theta` has shape (coefficients,). It holds the intercept of the first raw output and its
    slopes, if it has any, then those of the second raw output, and so on. All fields of `sample` are float64 tensors.
    Its `X` has shape (rows, columns), without a column for the intercept. Slopes are those of the columns as they are
    in `X`, which `fit_linear` standardises.

    >>> from ddpn.networks.heads import make_head
    >>> from ddpn.rows.count_rows import CountRows
    >>> sample = CountRows(torch.tensor([[-1.0], [1.0]]).double(), torch.tensor([1.0, 3.0]).double())
    >>> objective = LinearObjective(make_head("poisson"), sample, (True,))
    >>> optimum = minimize_exactly(objective, objective.start())
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
        """The coefficients of the best fit without slopes (see `Head.sample_start`). All slopes are 0.

        Shape: (coefficients,), like `theta`.
        """
        theta = np.zeros(self.blocks[-1].stop)
        theta[[block.start for block in self.blocks]] = self.head.sample_start(self.sample).numpy()
        return theta

    def start(self) -> np.ndarray:
        """Return the coefficients from which the search starts: those of a Poisson GLM, and a constant dispersion.

        The dispersion is the best one of three. The best fit without slopes would be a bad start, because it attributes
        all variation of the counts to dispersion. If counts vary much, its Double Poisson is so wide that the loss
        hardly depends on the slopes, and the search would end where it began. Some likelihoods nevertheless start from
        the fit without slopes: the Poisson, and those whose first raw output is not the log mean of a count. The result
        has shape (coefficients,), like `theta`.
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
        """Compute the objective at the coefficients `theta`; return infinity instead of NaN."""
        penalty = 0.5 * float(self.penalty @ np.square(theta))
        return float(np.nan_to_num(self.share.numpy() @ self.losses(theta) + penalty, nan=np.inf))

    def _fit_poisson_line(self) -> np.ndarray:
        """Fit a Poisson GLM to the same rows approximately, as a start for the search with the likelihood.

        Return its intercept, followed by its slopes. Its ridge penalty is the largest one of the raw outputs.
        """
        poisson = LinearObjective(PoissonHead(), self.sample, (True,), float(self.penalty.max(initial=0.0)))
        return _minimize_roughly(poisson, poisson.start(), sum(_ROUGH_STEPS))[0]

    def raw(self, theta: np.ndarray) -> Tensor:
        """Compute the raw outputs of all rows, such as log mu, from the coefficients `theta` (see the class).

        Shape: (coefficients,) -> (rows, raw outputs).
        """
        parts = [torch.from_numpy(theta[block]) for block in self.blocks]
        return torch.stack([columns @ part for columns, part in zip(self.columns, parts, strict=True)], dim=1)

    def losses(self, theta: np.ndarray) -> np.ndarray:
        """Compute the loss of each row, without its weight and without the penalty. Shape: (rows,)."""
        with torch.no_grad():
            return self.head.sample_loss(self.raw(theta), self.sample).numpy()

    def value_and_gradient(self, theta: np.ndarray, is_rough: bool = False) -> tuple[float, np.ndarray]:
        """Compute the objective and its gradient, of shape (coefficients,), at the coefficients `theta`.

        If `is_rough`, the likelihood is computed in float32, which is faster.
        """
        check_deadline()
        raw = self.raw(theta)
        raw = (raw.float() if is_rough else raw).requires_grad_()
        value = self.share @ self.head.sample_loss(raw, self.sample).double()
        slopes = torch.autograd.grad(value, raw)[0].double()
        gradient = [(columns.T @ slopes[:, p]).numpy() for p, columns in enumerate(self.columns)]
        penalty = self.penalty * theta
        return value.item() + 0.5 * float(penalty @ theta), np.concatenate(gradient) + penalty

    def hessian(self, theta: np.ndarray) -> np.ndarray:
        """Compute the Hessian of the objective at `theta`, of shape (coefficients, coefficients).

        The most recent result is cached.
        """
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
        """Compute the gradient of each row's loss with respect to all coefficients, without weights and penalty.

        The result has shape (rows, coefficients). If the `covariance` of the coefficients is given, of shape
        (coefficients, coefficients), gradients are divided by 1 minus the leverage of the row, as for HC3 standard
        errors. The leverage is computed separately for the coefficients of each raw output.
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

    def factor_information(self, theta: np.ndarray) -> list[np.ndarray]:
        """Return one matrix per raw output: the lower Cholesky factor of the expected information of its coefficients.

        The information is the expected Hessian of the objective, including the penalty. The matrix of a raw output with
        k coefficients has shape (k, k).
        """
        sample, raw = self.sample, self.raw(theta)
        curvatures = self.head.curvature(raw, sample)
        roots = []
        for p, (block, columns) in enumerate(zip(self.blocks, self.columns, strict=True)):
            information = (columns.T @ ((self.share * curvatures[:, p]).unsqueeze(1) * columns)).numpy()
            diagonal = self.penalty[block] + _JITTER_SHARE * np.diag(information)
            roots.append(cholesky(information + np.diag(diagonal), lower=True))
        return roots


def _minimize_roughly(
    objective: LinearObjective, theta: np.ndarray, max_iter: int, rounds: tuple[int, ...] = _ROUGH_STEPS
) -> tuple[np.ndarray, int, bool]:
    """Minimise the objective approximately by L-BFGS. Hessians are not used, because they take ten times as long.

    L-BFGS runs in rounds. Each round first rescales the coefficients by their expected information, so that a few dozen
    gradients are enough. `rounds` has the maximum number of steps of each round, and `max_iter` is the maximum number
    of steps of all rounds together. The first two rounds always run, unless the first one took `max_iter` steps.
    Another round follows only if the one before used all of its steps.

    Return the coefficients, the total number of steps, and True if the last round ended before its maximum number of
    steps. `theta` has the coefficients from which the search starts.
    """
    n_iter, is_done = 0, False
    for number, steps in enumerate(rounds):
        if n_iter >= max_iter or (is_done and number > 1):
            break
        steps = min(steps, max_iter - n_iter)
        theta, taken_steps = _run_lbfgs(objective, theta, steps)
        n_iter, is_done = n_iter + taken_steps, taken_steps < steps
    return theta, n_iter, is_done


def _run_lbfgs(objective: LinearObjective, start: np.ndarray, max_iter: int) -> tuple[np.ndarray, int]:
    """Minimise the objective by one round of L-BFGS; return the coefficients and the number of steps.

    The search starts from the coefficients `start` and takes at most `max_iter` steps. The coefficients of each raw
    output are rescaled so that their expected information at `start` is the identity.
    """
    parts = list(zip(objective.factor_information(start), objective.blocks, strict=True))

    def theta(u: np.ndarray) -> np.ndarray:
        return start + np.concatenate([solve_triangular(root.T, u[block]) for root, block in parts])

    def compute_value_and_gradient(u: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = objective.value_and_gradient(theta(u), is_rough=True)
        return value, np.concatenate([solve_triangular(root, gradient[block], lower=True) for root, block in parts])

    options = {"maxiter": max_iter, "ftol": _ROUGH_TOLERANCE, "gtol": 0.0}
    result = minimize(compute_value_and_gradient, np.zeros_like(start), jac=True, method="L-BFGS-B", options=options)
    return theta(result.x), int(result.nit)


def minimize_exactly(objective: LinearObjective, theta: np.ndarray, tol: float = 1e-6, max_iter: int = 200) -> Optimum:
    """Minimise the objective by L-BFGS, followed by Newton's method within a trust region.

    The search starts from the coefficients `theta`. It continues until rounding prevents further progress, or for
    `max_iter` steps. `Optimum.converged` is True if the gradient norm is at most `tol` and the next Newton step would
    lower the objective by a negligible amount. It is also True, whatever the gradient norm, if this amount is at the
    level of rounding errors.
    """
    with limit_torch_threads(objective.design.numel() * objective.design.shape[1]), single_blas_thread():
        theta, n_iter, _ = _minimize_roughly(objective, theta, max_iter)
        point = _evaluate(objective, theta)
        if n_iter < max_iter:
            # Newton's method in units in which all curvatures at the start are 1.
            units = scale_by_curvature(objective.hessian(theta))

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
        inverse = compute_covariance(hessian)
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
            decrement = float(gradient @ compute_covariance(hessian[np.ix_(is_determined, is_determined)]) @ gradient)
    return Optimum(
        point.theta, point.norm, n_iter, decrement <= (_MAX_DECREMENT if point.norm <= tol else _MAX_CLOSE_DECREMENT)
    )


def _evaluate(objective: LinearObjective, theta: np.ndarray) -> _Point:
    return _Point(theta, *objective.value_and_gradient(theta))


def find_optimum(objective: LinearObjective, theta: np.ndarray, tol: float, max_iter: int, is_rough: bool) -> Optimum:
    """Minimise the objective, starting from the coefficients `theta`.

    Use L-BFGS alone if `is_rough`, otherwise `minimize_exactly` with `tol` and `max_iter`.
    """
    if not is_rough:
        return minimize_exactly(objective, theta, tol, max_iter)
    with limit_torch_threads(objective.design.numel() * objective.design.shape[1]), single_blas_thread():
        theta, n_iter, is_done = _minimize_roughly(objective, theta, sum(_ROUGH_ROUNDS), _ROUGH_ROUNDS)
    return Optimum(theta, np.nan, n_iter, is_done)
