"""The Double Poisson's log likelihood and moments with derivatives in closed form.

Scores: d log p / d log mu = gamma (y - E[Z]) and d log p / d log gamma = gamma (E[D] - D(y)). Derivatives of moments
are covariances, so Hessians and the Fisher information can be had; no autograd runs through a sum.
"""

from typing import Any

import torch
from torch import Tensor

from ddpn.distributions.double_poisson.normalizer import Moments, first_moments, moments
from ddpn.distributions.double_poisson.weights import deviance, log_h_of_count
from ddpn.distributions.gradients import RowWise, barrier


class _LogNormalizer(RowWise):
    """(log c, E[Z], E[D]): log c differentiable twice, the moments once."""

    @staticmethod
    def forward(mu: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return first_moments(mu, gamma)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(*inputs, *output[1:])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, g_log_c: Tensor | None, *g_moments: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        mu, gamma, mean, dev = ctx.saved_tensors
        g_mu, g_gamma = None, None
        if g_log_c is not None:
            if torch.is_grad_enabled():
                _, mean, dev = log_normalizer_and_moments(mu, gamma)
            g_mu, g_gamma = g_log_c * gamma * (mean - mu) / mu, g_log_c * (0.5 / gamma - dev)
        if any(g is not None for g in g_moments):
            more = _moments_backward(mu, gamma, *g_moments)
            g_mu, g_gamma = more if g_mu is None or g_gamma is None else (g_mu + more[0], g_gamma + more[1])
        return g_mu, g_gamma


def _moments_backward(mu: Tensor, gamma: Tensor, g_mean: Tensor | None, g_dev: Tensor | None) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        m = Moments(*_Moments.apply(mu, gamma))
        by_mu, by_gamma = torch.zeros_like(mu), torch.zeros_like(mu)
        if g_mean is not None:
            by_mu, by_gamma = by_mu + g_mean * gamma * m.variance / mu, by_gamma - g_mean * m.covariance
        if g_dev is not None:
            by_mu = by_mu + g_dev * (1.0 + (gamma * m.covariance - m.mean) / mu)
            by_gamma = by_gamma - g_dev * m.deviance_variance
    parts = [g for g in (g_mean, g_dev) if g is not None]
    name = "the second derivative of a Double Poisson's mean"
    return barrier(name, by_mu, mu, gamma, *parts), barrier(name, by_gamma, mu, gamma, *parts)


class _Moments(RowWise):
    """The fields of `normalizer.Moments`, of which the variance is differentiable."""

    @staticmethod
    def forward(mu: Tensor, gamma: Tensor) -> Moments:
        return moments(mu, gamma)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Any) -> None:
        found = Moments(*output)
        ctx.save_for_backward(*inputs, found.third, found.square_deviance)
        ctx.mark_non_differentiable(found.mean, *found[2:])

    @staticmethod
    def backward(ctx: Any, _: Tensor, grad: Tensor, *others: Tensor) -> tuple[Tensor, Tensor]:
        mu, gamma, third, square_deviance = ctx.saved_tensors
        with torch.no_grad():
            by_mu, by_gamma = grad * gamma * third / mu, -grad * square_deviance
        name = "the second derivative of a Double Poisson's variance"
        return barrier(name, by_mu, mu, gamma, grad), barrier(name, by_gamma, mu, gamma, grad)


class _LogProb(RowWise):
    """log p(y) and its scores."""

    @staticmethod
    def forward(y: Tensor, mu: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        log_c, mean, mean_dev = first_moments(mu, gamma)
        dev = deviance(y, mu)
        # A probability: rounding in log c must not lift it above 1.
        value = (log_h_of_count(y) - gamma * dev + 0.5 * gamma.log() - log_c).clamp_(max=0.0)
        return value, gamma * (y - mean) / mu, mean_dev - dev

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(*inputs, *output[1:])
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *others: Tensor) -> tuple[None, Tensor | None, Tensor | None]:
        y, mu, gamma, score_mu, score_gamma = ctx.saved_tensors
        if grad is None:
            return None, None, None
        if torch.is_grad_enabled():
            _, mean, mean_dev = log_normalizer_and_moments(mu, gamma)
            dev = mu - y + y * (y.clamp(min=1.0).log() - mu.log())
            score_mu, score_gamma = gamma * (y - mean) / mu, mean_dev - dev
        return None, grad * score_mu, grad * score_gamma


def log_prob(y: Tensor, mu: Tensor, gamma: Tensor) -> Tensor:
    """log p(y), differentiable twice. Shape: float64 vectors (rows,)."""
    return _LogProb.apply(y, mu, gamma)[0]


def log_normalizer_and_moments(mu: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Differentiable log c, E[Z] and E[D]."""
    return _LogNormalizer.apply(mu, gamma)


def variance(mu: Tensor, gamma: Tensor) -> Tensor:
    """Differentiable Var[Z]."""
    return _Moments.apply(mu, gamma)[1]
