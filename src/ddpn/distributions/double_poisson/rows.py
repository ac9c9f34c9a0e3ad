"""Rows of the Double Poisson: pmf, windows and tails, spelled out for speed."""

from typing import Any

import torch
from torch import Tensor

from ddpn.distributions import panels
from ddpn.distributions.dispatch import Case, by_case, is_host
from ddpn.distributions.double_poisson import cuda_scores, normalizer, series, weights
from ddpn.distributions.quadrature import PREFIX, between
from ddpn.distributions.rows import DEPTH
from ddpn.distributions.special import HALF_LOG_TWO_PI, SharedNodes, beside
from ddpn.distributions.tails import ParameterRows

#: Nodes of one panel that holds a whole distribution but its first integers, as in `normalizer`.
_WHOLE_NODES = 40
#: Nodes of a tail (half a distribution), and of a tail that includes the first integers.
_TAIL_NODES, _PREFIX_NODES = 16, 32


class DoublePoissonRows(ParameterRows):
    """Rows of mu and gamma; prepared rows also know log(sqrt(gamma) / c) and the mean."""

    # Clear of 0, sums over the integers equal integrals once the standard deviation is above 1.2 (`series`).
    short = 32
    # Each about 2.7 standard deviations wide.
    panels = 6
    tables = normalizer.TABLES
    short_tail = 48
    tail_nodes = _TAIL_NODES + 8

    def __init__(self, mu: Tensor, gamma: Tensor, known: tuple[Tensor, ...] = ()) -> None:
        super().__init__(mu, gamma, known=known)
        self.mu, self.gamma = mu, gamma

    def prepared(self, far: bool = False) -> Any:
        if self.known:
            return self
        log_c, mean, _ = normalizer.first_moments(self.mu, self.gamma, far)
        return DoublePoissonRows(self.mu, self.gamma, known=(0.5 * self.gamma.log() - log_c, mean))

    def kernel_parameters(self) -> tuple[str, tuple[Tensor, ...]]:
        return "double_poisson", (self.mu, self.gamma, self._offset())

    def _offset(self) -> Tensor:
        """log(sqrt(gamma) / c)."""
        return self.prepared().known[0]

    def _log_weight(self, y: Tensor, log_scale: Tensor) -> Tensor:
        """log of h(y) exp(-gamma D(y)) sqrt(2 pi mu) at real y >= 12, plus `log_scale` per row.

        With k = gamma mu, x = y / mu - 1 and u = log(1 + x) it is k x - (k + k x) u - u / 2 minus Stirling's error.
        """
        k, scale = (self.gamma * self.mu).unsqueeze(1), log_scale.unsqueeze(1)
        x = (y * torch.reciprocal(self.mu).unsqueeze(1)).sub_(1.0)
        u = torch.log1p(x)
        kx = torch.addcmul(scale, x, k)
        return weights.minus_stirling_error(kx.addcmul_(kx + (k + 0.5 - scale), u, value=-1.0), y)

    def log_pmf(self, y: Tensor) -> Tensor:
        mu, gamma, offset = (beside(x, y) for x in (self.mu, self.gamma, self._offset()))
        return weights.log_h_of_count(y) - gamma * weights.deviance(y, mu) + offset

    def smooth_log_pmf(self, y: Tensor) -> Tensor:
        return self._log_weight(y, self._offset() - 0.5 * self.mu.log() - HALF_LOG_TWO_PI)

    def pmf(self, y: Tensor) -> Tensor:
        return self.smooth_log_pmf(y).exp_()

    def shared_pmf(self, at: SharedNodes) -> Tensor:
        """D(y; mu) = D(y; centre) + D(centre; mu) - (y - centre) log(mu / centre): no logarithm per value."""
        mu, gamma = self.mu.view(len(at.y), -1), self.gamma.view(len(at.y), -1)
        offset = self._offset().view_as(mu) - gamma * weights.deviance(at.centre, mu)
        slope = gamma * (mu / at.centre).log()
        found = torch.addcmul(offset.unsqueeze(2), gamma.unsqueeze(2), at.deviance.unsqueeze(1), value=-1.0)
        return found.addcmul_(slope.unsqueeze(2), at.gap.unsqueeze(1)).add_(at.log_h.unsqueeze(1)).exp_()

    def pmf_near(self, y: Tensor) -> Tensor:
        return self._log_weight(y, torch.zeros_like(self.mu)).softmax(1)

    def pmf_table(self, n: int) -> Tensor:
        return weights.log_weight_table(self.mu, self.gamma, n).softmax(1)

    def pmf_first(self, n: int) -> Tensor:
        offset = self._offset() - self.gamma * self.mu
        return weights.log_weight_table(self.mu, self.gamma, n).add_(offset.unsqueeze(1)).exp_()

    def mean(self) -> Tensor:
        return self.known[1]

    def mean_variance(self) -> tuple[Tensor, Tensor]:
        return normalizer.mean_variance(self.mu, self.gamma)

    def window(self, depth: float | Tensor = DEPTH) -> tuple[Tensor, Tensor]:
        return weights.lower_end(self.mu, self.gamma, depth), weights.upper_end(self.mu, self.gamma, depth)

    def upper_bound(self) -> Tensor:
        return weights.upper_end(self.mu, self.gamma, DEPTH, steps=1)

    def sides(self, y: Tensor) -> tuple[Tensor, Tensor]:
        if y.is_cuda and (found := cuda_scores.sides(y, self.mu, self.gamma)) is not None:
            return found
        return super().sides(y)

    def fused_crps(self, y: Tensor) -> Tensor | None:
        return cuda_scores.crps(y, self.mu, self.gamma) if y.is_cuda else None

    def nodes(self, start: Tensor, end: Tensor, from_zero: bool) -> tuple[Tensor, Tensor]:
        return between(start, end, _PREFIX_NODES if from_zero else _TAIL_NODES)

    def table_end(self, y: Tensor) -> Tensor:
        above = torch.where(y > self.mu, weights.deviance(y, self.mu), torch.zeros_like(y))
        return weights.upper_end(self.mu, self.gamma, DEPTH + self.gamma * above)

    def tail_end(self, y: Tensor, lower: Tensor) -> Tensor:
        """In closed form from outside, then by Newton's method close to 0, where that bound is loose.

        Two bounds, both from D being convex: with u = sqrt(y / mu) - 1, D / mu is 2 u^2 + 2/3 u^3 + ... (below the mean
        between that and u^2); and beyond y, D grows at least at its slope there, log(y / mu).
        """
        mu, gamma, side = self.mu, self.gamma, torch.where(lower, -1.0, 1.0).to(y.dtype)
        log_ratio = torch.log1p(((y - mu) / mu).clamp(min=-1 + 2**-53))
        depth = DEPTH + gamma * torch.addcmul(mu - y, y, log_ratio)
        u = (depth / (2.0 * gamma * mu)).sqrt()
        above = u * (1.0 + u * (u / 12.0 - 1.0 / 6.0)).clamp(max=1.0)
        below = -(u * (1.0 + u * (1.0 / 6.0 + 0.6 * u))).clamp(max=1.0)
        by_curve = mu * (1.0 + torch.where(lower, below, above)).square()
        slope = (side * torch.log1p((y.clamp(min=1.0) - mu) / mu)).clamp(min=1e-300)
        by_slope = side * (y.clamp(min=1.0) + side * DEPTH / (gamma * slope))
        end = side * torch.minimum(side * by_curve, by_slope)
        close = (gamma * mu < series.MIN_K).logical_and_(~lower)
        if not is_host(y):
            return torch.where(close, _tighter(end, y, mu, gamma), end)
        index = close.nonzero().squeeze(1)
        if len(index):
            end[index] = _tighter(*(x[index] for x in (end, y, mu, gamma)))
        return end

    def far_half_mean_difference(self) -> Tensor:
        by_series = self.gamma * self.mu >= series.MIN_K

        def expanded(dist: DoublePoissonRows) -> tuple[Tensor]:
            return (series.half_mean_difference(dist.mu, dist.gamma),)

        def summed(dist: DoublePoissonRows) -> tuple[Tensor]:
            # These windows reach 0, and are smooth enough for one panel beyond the first integers.
            ends = torch.stack(dist.window(), dim=1)
            return (panels.half_mean_difference(panels.panels(dist, ends, _WHOLE_NODES)),)

        cases = [Case(by_series, expanded, 20), Case(~by_series, summed, PREFIX + _WHOLE_NODES)]
        return by_case(cases, self)[0]


def _tighter(end: Tensor, y: Tensor, mu: Tensor, gamma: Tensor) -> Tensor:
    """The end of an upper tail, by Newton's method from a bound."""
    return weights.upper_end(mu, gamma, DEPTH + gamma * weights.deviance(y, mu), steps=2, start=torch.maximum(end, mu))
