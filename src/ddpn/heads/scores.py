"""Losses together with their gradients, in closed form: what a training step on a CPU evaluates.

At the size of a training step an operation on a CPU costs more to call than to compute, and autograd doubles the calls.
So a head may write its loss and the gradient in its raw outputs as one function (`Head.loss_and_gradient`), without
autograd. Second derivatives, GPUs and `torch.func` use the differentiable loss (`Head.differentiable_loss`).

Shape: raw outputs and gradients have the raw outputs first, (P, ...), so that each of them is one block of memory.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ddpn.distributions.arguments import broadcast_shapes
from ddpn.distributions.double_poisson import normalizer_table
from ddpn.distributions.double_poisson.weights import deviance, log_h_of_count, log_h_of_small_count
from ddpn.distributions.negative_binomial import unit_deviance
from ddpn.distributions.special import stirling_error_from_zero

#: Where a family's loss and gradient come from: its parameters' logarithms.
Evaluated = tuple[Tensor, tuple[Tensor, ...]]
#: From here Stirling's series gives the derivative of its error to 3e-12; below, the digamma function does.
_SERIES = 16.0
#: Below this, sums of log-gamma functions have an error of at most 2e-11.
_DIRECT = 1e4


class Counts(NamedTuple):
    """Observed counts y (...), and what losses need of them alone: log(e^-y y^y / y!) and y log y.

    Losses that are not `exact` may have the errors of float32: those of raw outputs in float32.
    """

    y: Tensor
    log_h: Tensor
    y_log_y: Tensor
    exact: bool = True

    @classmethod
    def of(cls, y: Tensor, exact: bool = True) -> "Counts":
        """Of counts in float64."""
        is_small = y.numel() > 0 and _is_within(y.unsqueeze(0), ((0.0, 31.0),))
        log_h = log_h_of_small_count(y) if is_small else log_h_of_count(y)
        return cls(y, log_h, y * y.clamp(min=1.0).log(), exact)


class _Scored(torch.autograd.Function):
    """The loss of every row, which keeps its gradient for the backward pass."""

    @staticmethod
    def forward(ctx: Any, raw: Tensor, loss: Tensor, gradient: Tensor, again: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.save_for_backward(raw, gradient)
        ctx.again = again
        return loss.view_as(loss)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        raw, gradient = ctx.saved_tensors
        if torch.is_grad_enabled():  # second derivatives are wanted
            # Of a sum, because gradients of several values import sympy, which takes a second.
            total = (ctx.again(raw) * grad).sum()
            return torch.autograd.grad(total, raw, create_graph=True)[0], None, None, None
        return grad.unsqueeze(-1) * gradient, None, None, None


def scored_loss(head: Any, raw: Tensor, y: Tensor, exposure: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """The head's loss in `dtype`, differentiable in raw, by `loss_and_gradient`; None where that does not serve."""
    others = [y] if exposure is None else [y, exposure]
    if raw.device.type != "cpu" or any(x.requires_grad for x in others) or torch.compiler.is_compiling():
        return None
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return None
    named = zip(("rows of raw", "y", "exposure"), [raw[..., 0], *others], strict=False)
    shape = broadcast_shapes(**{name: tuple(x.shape) for name, x in named})
    if not shape.numel():
        return None
    raw = raw if raw.shape[:-1] == shape else raw.expand(*shape, -1)
    with torch.inference_mode(False), torch.no_grad():  # links may need autograd
        columns = torch.empty((raw.shape[-1], *shape), dtype=torch.float64).copy_(raw.movedim(-1, 0))
        y, *scale = (torch.empty(shape, dtype=torch.float64).copy_(x) for x in others)
        counts = Counts.of(y, exact=dtype == torch.float64)
        found = head.loss_and_gradient(columns, counts, scale[0] if scale else None)
        if found is None:
            return None
        loss = found[0].to(dtype)
        if not raw.requires_grad:
            return loss
        # In the layout of the raw outputs, which the backward pass of the projection continues with.
        gradient = torch.empty_like(raw, dtype=dtype).copy_(found[1].movedim(0, -1))
    arguments = raw, loss, gradient, lambda x: head.differentiable_loss(x, y, scale[0] if scale else None)
    # Without torch's own step before it, which inspects a signature.
    return super(torch.autograd.Function, _Scored).apply(*arguments)


def of_family(
    evaluate: Callable[..., Evaluated],
    links: Callable[[Tensor, Tensor | None], tuple[Tensor, ...]],
    ranges: tuple[tuple[float, float], ...] | None,
    raw: Tensor,
    counts: Counts,
    exposure: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Loss and gradient of a family in its raw outputs.

    `evaluate` returns the loss and its derivatives in the logarithms of the parameters, of which the first is that of
    the location. `links` returns these logarithms. Within `ranges` (None: nowhere) they are the raw outputs, to the
    first of which the logarithm of the exposure is added.
    """
    if ranges is not None and _is_within(raw, ranges):
        logs = raw.unbind() if exposure is None else (raw[0] + exposure.log(), *raw[1:])
        loss, slopes = evaluate(counts, *logs)
        return loss, torch.stack(slopes)
    with torch.enable_grad():
        x = raw.detach().requires_grad_()
        bent = links(x.movedim(0, -1), exposure)
    loss, slopes = evaluate(counts, *(each.detach() for each in bent))
    with torch.enable_grad():
        # Of a sum: see `_Scored`.
        total = torch.stack([(each * slope).sum() for each, slope in zip(bent, slopes, strict=True)]).sum()
    return loss, torch.autograd.grad(total, x)[0]


def _is_within(raw: Tensor, ranges: tuple[tuple[float, float], ...]) -> bool:
    ends = (torch.aminmax(each) for each in raw)
    return all(low <= end.min and end.max <= high for end, (low, high) in zip(ends, ranges, strict=True))


def poisson(counts: Counts, log_mu: Tensor) -> Evaluated:
    """-log p(y) and its derivative in log mu."""
    mu = log_mu.exp()
    return deviance(counts.y, mu) - counts.log_h, (mu - counts.y,)


def double_poisson(counts: Counts, log_mu: Tensor, log_gamma: Tensor) -> Evaluated:
    """-log p(y) and its derivatives in log mu and log gamma.

    Those of log c, and of gamma D(y; mu) - log gamma / 2.
    """
    mu, gamma = log_mu.exp(), log_gamma.exp()
    normalizer = normalizer_table.exact if counts.exact else normalizer_table.by_table
    log_c, by_log_mu, by_log_gamma = (x.view(mu.shape) for x in normalizer(log_mu.reshape(-1), log_gamma.reshape(-1)))
    scaled_dev = deviance(counts.y, mu).mul_(gamma)
    loss = log_c.add_(scaled_dev).sub_(counts.log_h).add_(log_gamma, alpha=-0.5)
    by_log_mu.addcmul_(gamma, mu.sub_(counts.y))
    # A probability: rounding in log c must not lift it above 1.
    return loss.clamp_(min=0.0), (by_log_mu, by_log_gamma.add_(scaled_dev).sub_(0.5))


def negative_binomial(counts: Counts, log_mu: Tensor, log_alpha: Tensor) -> Evaluated:
    """-log p(y) and its derivatives in log mu and log alpha.

    With r = 1 / alpha and n = y + r, p(y) = Gamma(n) / (Gamma(r) y!) (mu / (mu + r))^y (r / (mu + r))^r.
    """
    y, mu, r = counts.y, log_mu.exp(), torch.exp(-log_alpha)
    n, total = y + r, mu + r
    q = (y - mu) / total
    if not n.max() < _DIRECT:
        value, by_r = _large_negative_binomial(counts, mu, r, n, q)
    else:
        both = torch.stack([n, r])
        (log_gamma_n, log_gamma_r), (slope_n, slope_r) = both.lgamma().unbind(), both.digamma_().unbind()
        log_total = total.log_()
        value = (n * log_total).addcmul_(r, log_alpha).sub_(log_gamma_n).add_(log_gamma_r)
        value.addcmul_(y, log_mu, value=-1.0).sub_(y).add_(counts.y_log_y).sub_(counts.log_h)
        by_r = slope_n.sub_(slope_r).sub_(log_alpha).sub_(log_total).sub_(q)
    return value.clamp_(min=0.0), (q.mul_(r).neg_(), by_r.mul_(r))


def _large_negative_binomial(counts: Counts, mu: Tensor, r: Tensor, n: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    """-log p(y) and the score of r, by Stirling's formula with its error s: free of cancellation for large y and r.

    log p = log h(y) - D(y) - log(n / r) / 2 + s(n) - s(r), with q = (y - mu) / (mu + r) and the unit deviance
    D(y) = y log(y / mu) - n log(1 + q).
    """
    y = counts.y
    log_ratio = torch.where(q < -0.5, (n / (mu + r)).log(), torch.log1p(q))
    # Far below the mean `unit_deviance` would lose the digits of r / (mu + r).
    far = y * (torch.log1p(r / mu) - torch.log1p(r / y.clamp(min=1.0))) - r * log_ratio
    log_p = counts.log_h - torch.where(q < -0.5, far, unit_deviance(y, mu, r)) - 0.5 * torch.log1p(y / r)
    (s_n, s_r), (slope_n, slope_r) = (x.unbind() for x in _stirling(torch.stack([n, r])))
    return s_r - s_n - log_p, log_ratio - q + 0.5 * y / (n * r) + slope_n - slope_r


def _stirling(x: Tensor) -> tuple[Tensor, Tensor]:
    """The error of Stirling's formula and its derivative, for x > 0."""
    large, small = x.clamp(min=_SERIES), x.clamp(max=_SERIES)
    square = large.reciprocal().square_()
    series = (square * (-5 / 1260)).add_(3 / 360).mul_(square).sub_(1 / 12).mul_(square)
    exact = small.digamma() - small.log() + 0.5 / small
    return stirling_error_from_zero(x), torch.where(x < _SERIES, exact, series)
