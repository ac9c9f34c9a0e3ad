"""The Negative Binomial distribution by its mean and overdispersion."""

from functools import cached_property, partial
from typing import Any

import torch
from scipy.special import betainc
from torch import Tensor
from torch.distributions import constraints

from ddpn.distributions import panels
from ddpn.distributions.arguments import as_parameters, broadcast_shapes, check_positive, is_checked
from ddpn.distributions.dispatch import Case, by_case, is_host
from ddpn.distributions.parametric import ParametricDistribution
from ddpn.distributions.quadrature import JOIN
from ddpn.distributions.rows import DEPTH, Cut
from ddpn.distributions.special import HALF_LOG_TWO_PI, SharedNodes, beside, stirling_error, stirling_error_from_zero
from ddpn.distributions.tails import ParameterRows

#: Steps of Newton's method to the ends of a window: from twice the depth, as the bounds are at most, to a 1000th of it.
_STEPS = 4
#: Up to this depth p(0) is far from underflow, and a table is a running product of ratios.
_BY_PRODUCTS = 600.0
#: Windows that end before this are resolved by a grid whatever alpha is: the CRPS is exact to 1e-9.
_GRID_END = 1e6
#: For alpha mu, and 1 / alpha, between this and its inverse the incomplete beta function is exact to 1e-11.
_ODDS = 1e4
#: Below this mean a table is made of ratios: |log p(0)| is at most as large, and sums keep eleven digits.
_BY_RATIOS = 512.0
#: Below this alpha 12 panels give E|Z - Z'| / 2 to 1e-11, above it twice as many do to 1e-8 up to a mean of 1e10.
_FEW_PANELS = 0.1


def unit_deviance(y: Tensor, mu: Tensor, r: Tensor) -> Tensor:
    """y log(y / mu) - (y + r) log((y + r) / (mu + r)), free of cancellation for small and for large r = 1 / alpha."""
    gap = y - mu
    inner = (r * gap / (mu * (y + r))).clamp(min=-1 + 2**-53)
    return y * torch.log1p(inner) - r * torch.log1p(gap / (mu + r))


def _log_pmf(y: Tensor, mu: Tensor, r: Tensor) -> Tensor:
    """log p(y) by Loader's saddle point, Stirling errors and the unit deviance: large counts keep their digits."""
    safe = y.clamp(min=1.0)
    n = safe + r
    saturated = 0.5 * (r / (safe * n)).log() - HALF_LOG_TWO_PI
    saturated = saturated + stirling_error_from_zero(n) - stirling_error_from_zero(r) - stirling_error_from_zero(safe)
    return torch.where(y > 0, saturated - unit_deviance(safe, mu, r), -r * torch.log1p(mu / r))


def _betainc(a: Tensor, b: Tensor, x: Tensor) -> Tensor:
    """The regularised incomplete beta function I_x(a, b), on a CPU."""
    return torch.as_tensor(betainc(a.numpy(), b.numpy(), x.numpy()), dtype=torch.float64)


def _both_tails(a: Tensor, b: Tensor, share: Tensor, rest: Tensor) -> tuple[Tensor, Tensor]:
    """1 - I and I, the incomplete beta function with a and b at share = 1 - rest; the smaller is computed."""
    upper = a * rest >= b * share  # where a count is beyond the mean, about
    for _ in range(2):
        small = _betainc(torch.where(upper, a, b), torch.where(upper, b, a), torch.where(upper, share, rest))
        wrong = small > 0.75
        if not bool(wrong.any()):
            break
        upper = upper ^ wrong
    large = 1.0 - small
    return torch.where(upper, large, small), torch.where(upper, small, large)


def _sides_by_beta(rows: "NegativeBinomialRows", y: Tensor) -> tuple[Tensor, Tensor]:
    rest = 1.0 / (1.0 + rows.alpha * rows.mu)
    return _both_tails(y + 1.0, 1.0 / rows.alpha, rows.alpha * rows.mu * rest, rest)


def _cut_by_beta(rows: "NegativeBinomialRows", y: Tensor) -> tuple[Tensor, ...]:
    """z p(z) is mu times the pmf at z - 1 of the Negative Binomial with 1 / alpha + 1 and the same share."""
    r, mu, rest = 1.0 / rows.alpha, rows.mu, 1.0 / (1.0 + rows.alpha * rows.mu)
    share = rows.alpha * mu * rest
    cdf, survival = _both_tails(y + 1.0, r, share, rest)
    below, above = _both_tails(y.clamp(min=0.5), r + 1.0, share, rest)
    below, above = torch.where(y > 0, below, 0.0), torch.where(y > 0, above, 1.0)
    part = torch.where(y < mu, y * cdf - mu * below, mu * above - y * survival).clamp(min=0.0)
    return cdf, survival, (y - mu).abs() + 2.0 * part


class NegativeBinomialRows(ParameterRows):
    """Rows of mu and alpha; prepared rows also know a window of twice the usual depth."""

    def __init__(self, mu: Tensor, alpha: Tensor, known: tuple[Tensor, ...] = ()) -> None:
        super().__init__(mu, alpha, known=known)
        self.mu, self.alpha = mu, alpha

    def prepared(self, far: bool = False) -> Any:
        if self.known:
            return self
        return NegativeBinomialRows(self.mu, self.alpha, known=self.window(2.0 * DEPTH))

    def normalised(self) -> Any:
        return self

    def kernel_parameters(self) -> tuple[str, tuple[Tensor, ...]]:
        return "negative_binomial", (self.mu, self.alpha)

    def log_pmf(self, y: Tensor) -> Tensor:
        return _log_pmf(y, beside(self.mu, y), beside(1.0 / self.alpha, y))

    def pmf_first(self, n: int) -> Tensor:
        """By the ratios p(y) / p(y - 1), without the log-gamma function, for means that are small enough."""
        if not is_host(self.mu):
            return super().pmf_first(n)
        mu, alpha = self.mu.unsqueeze(1), self.alpha.unsqueeze(1)
        at_zero = -torch.log1p(alpha * mu) / alpha
        y = torch.arange(1.0, n, dtype=torch.float64, device=self.device)
        if bool((at_zero >= -_BY_PRODUCTS).all()):
            scale = mu / (1.0 + alpha * mu)
            ratios = (alpha * scale) * (y - 1.0).div_(y)
            return torch.cat([at_zero.exp(), torch.addcdiv(ratios, scale, y)], dim=1).cumprod(1)
        if bool((self.mu >= _BY_RATIOS).any()):
            return super().pmf_first(n)
        ratios = (mu / y).log() + torch.log1p(alpha * (y - 1.0 - mu) / (1.0 + alpha * mu))
        return torch.cat([at_zero, at_zero + ratios.cumsum(1)], dim=1).exp()

    def shared_pmf(self, at: SharedNodes) -> Tensor:
        """As `smooth_log_pmf`, with one logarithm per value: what depends on y alone is common to all components."""
        mu, r, centre = (
            self.mu.view(len(at.y), -1, 1),
            (1.0 / self.alpha).view(len(at.y), -1, 1),
            at.centre.unsqueeze(2),
        )
        log_ratio, inverse = (mu / centre).log(), torch.reciprocal(mu + r)
        constant = 0.5 * (r * inverse).log() - stirling_error_from_zero(r) + centre * log_ratio
        n = at.y.unsqueeze(1) + r
        found = torch.log1p((n * inverse).sub_(1.0)).mul_(n - 0.5)
        found.add_(at.log_h_minus_deviance.unsqueeze(1)).addcmul_(log_ratio - 1.0, at.gap.unsqueeze(1)).add_(constant)
        # Stirling's error of n by two terms, as in `minus_stirling_error`.
        inverse = n.reciprocal_()
        return found.addcmul_(inverse, torch.mul(inverse, inverse).sub_(30.0), value=-1 / 360).exp_()

    def smooth_log_pmf(self, y: Tensor) -> Tensor:
        """By Stirling's series, without the log-gamma function of `log_pmf`."""
        mu, r = self.mu.unsqueeze(1), (1.0 / self.alpha).unsqueeze(1)
        n = y + r
        saturated = 0.5 * (r / (y * n)).log() - HALF_LOG_TWO_PI - stirling_error_from_zero(r)
        return saturated + stirling_error(n) - stirling_error(y) - unit_deviance(y, mu, r)

    def mean(self) -> Tensor:
        return self.mu

    def mean_variance(self) -> tuple[Tensor, Tensor]:
        return self.mu, self.mu + self.alpha * self.mu**2

    def sides(self, y: Tensor) -> tuple[Tensor, Tensor]:
        cdf, survival = self._by_beta(_sides_by_beta, ParameterRows.sides, y)
        return cdf, survival

    def cut(self, y: Tensor) -> Cut:
        return Cut(*self._by_beta(_cut_by_beta, ParameterRows.cut, y))

    def _by_beta(self, closed: Any, summed: Any, y: Tensor) -> tuple[Tensor, ...]:
        """By the incomplete beta function, where its argument keeps its digits on either side of 1/2; else by sums."""
        if not is_host(y):
            return summed(self, y)
        odds = self.alpha * self.mu
        usual = (odds > 1.0 / _ODDS) & (odds < _ODDS) & (self.alpha > 1.0 / _ODDS)
        return by_case([Case(usual, closed, 1), Case(~usual, summed, 1)], self, y)

    def resolution(self, t: Tensor) -> Tensor:
        first, last = self.window()
        scale = self._scale(last) - self._scale(first)
        return beside(self.panels / scale.clamp(min=1e-300), t) / torch.sqrt(1.0 + beside(self.alpha, t) * t * t)

    def far_distance(self, y: Tensor) -> Tensor:
        return self.cut(y).distance if is_host(y) else super().far_distance(y)

    def _depth(self, y: Tensor) -> Tensor:
        return unit_deviance(y, self.mu, 1.0 / self.alpha)

    def tail_end(self, y: Tensor, lower: Tensor) -> Tensor:
        """Within the window of twice the depth; and as the deviance is convex, no further than its slope at y says."""
        side = torch.where(lower, -1.0, 1.0).to(y.dtype)
        r = 1.0 / self.alpha
        at = y.clamp(min=0.5)
        slope = torch.log1p((r * (at - self.mu) / (self.mu * (at + r))).clamp(min=-1 + 2**-53))
        by_slope = at + side * DEPTH / (side * slope).clamp(min=1e-300)
        depth = self._depth(y)
        first, last = self.known or 2 * (self._end(depth + DEPTH, lower),)
        by_window = torch.where(lower, torch.maximum(first, by_slope), torch.minimum(last, by_slope))
        return torch.where(depth > DEPTH, by_slope, by_window).clamp(min=0.0)

    def window(self, depth: float | Tensor = DEPTH) -> tuple[Tensor, Tensor]:
        return self._usual_window if isinstance(depth, float) and depth == DEPTH else self._found_window(depth)

    @cached_property
    def _usual_window(self) -> tuple[Tensor, Tensor]:
        return self._found_window(DEPTH)

    def _found_window(self, depth: float | Tensor) -> tuple[Tensor, Tensor]:
        depth = depth + torch.zeros_like(self.mu)
        return self._lower_end(depth), self._upper_end(depth)

    def _end(self, depth: Tensor, lower: Tensor) -> Tensor:
        """Where the unit deviance reaches `depth`, below the mean where `lower`; 0 where the window reaches 0."""
        return torch.where(lower, self._lower_end(depth), self._upper_end(depth))

    def _lower_end(self, depth: Tensor) -> Tensor:
        zero, scale = torch.zeros_like(self.mu), self._scale(self.mu)
        start = zero
        # The deviance exceeds (distance in scale)^2 / 8, mostly even the square itself, but where alpha is large, and
        # with it the way to 0 short.
        for share in (8.0, 1.0):
            below = self._unscale((scale - (share * depth).sqrt()).clamp(min=0.0))
            start = torch.where(self._depth(below) > depth, below, start)
        return torch.where(self._depth(zero) <= depth, zero, self._reached(depth, start))

    def _upper_end(self, depth: Tensor) -> Tensor:
        return self._reached(depth, self._upper_bound(depth))

    def _upper_bound(self, depth: Tensor) -> Tensor:
        tail = 4.0 * (depth + 1.0) / torch.log1p(1.0 / (self.alpha * self.mu))
        far = self.mu + tail + 20.0 * (depth * self.mu * (1.0 + self.alpha * self.mu)).sqrt()
        # Above the mean the deviance exceeds (distance in scale)^2.
        return torch.minimum(far, self._unscale(self._scale(self.mu) + depth.sqrt()))

    def upper_bound(self) -> Tensor:
        depth = torch.full_like(self.mu, DEPTH)
        return self._reached(depth, self._upper_bound(depth), 1)

    def _reached(self, depth: Tensor, bound: Tensor, steps: int = _STEPS) -> Tensor:
        """Where the unit deviance reaches depth, by Newton's method from a bound that is deeper.

        The deviance is convex, so every iterate is deeper too: what a window leaves out is below e^-depth.
        """
        y, r = bound, 1.0 / self.alpha
        of_mean = torch.reciprocal(self.mu + r)
        for _ in range(steps):
            gap = y - self.mu
            slope = torch.log1p((r * gap / (self.mu * (y + r))).clamp_(min=-1 + 2**-53))
            more = (y * slope - r * torch.log1p(gap * of_mean) - depth).clamp_(min=0.0)
            y = y - torch.where(more > 0.0, more / slope, more)
        return y.clamp(min=0.0)

    def table_end(self, y: Tensor) -> Tensor:
        return self._upper_end(DEPTH + torch.where(y > self.mu, self._depth(y), 0.0))

    def spread(self, first: Tensor, last: Tensor) -> Tensor:
        return self._spread(first, last, self.panels)

    def _spread(self, first: Tensor, last: Tensor, count: int) -> Tensor:
        low, high = (self._scale(x.clamp(min=JOIN - 0.5)).unsqueeze(1) for x in (first, last))
        share = torch.linspace(0.0, 1.0, count + 1, dtype=low.dtype, device=low.device)
        inner = self._unscale(torch.lerp(low.expand(-1, count + 1), high, share))
        return torch.cat([first.unsqueeze(1), inner[:, 1:-1], last.unsqueeze(1)], dim=1)

    def one_panel(self) -> Tensor:
        """Up to alpha = 1 sqrt(y) smooths the power of y as which the pmf starts; beyond, it is ever more singular."""
        return self.alpha <= 1.0

    def on_grid(self) -> Tensor:
        return (self.alpha <= 2.0) | (self.window()[1] < _GRID_END)

    def far_half_mean_difference(self) -> Tensor:
        def summed(count: int, dist: NegativeBinomialRows) -> tuple[Tensor]:
            breaks = dist._spread(*dist.window(), count)
            return (panels.half_mean_difference(panels.panels(dist, breaks)),)

        few, nodes = self.alpha <= _FEW_PANELS, self.panels * panels.NODES
        cases = [
            Case(few, partial(summed, self.panels), nodes),
            Case(~few, partial(summed, 2 * self.panels), 2 * nodes),
        ]
        return by_case(cases, self)[0]

    def _scale(self, y: Tensor) -> Tensor:
        """asinh(sqrt(alpha y)) / sqrt(alpha): in it the standard deviation is about 1/2 everywhere."""
        return torch.asinh((self.alpha * y).sqrt()) / self.alpha.sqrt()

    def _unscale(self, s: Tensor) -> Tensor:
        alpha = beside(self.alpha, s)
        return torch.sinh(s * alpha.sqrt()).square() / alpha


class NegativeBinomial(ParametricDistribution):
    """The Negative Binomial distribution with mean mu and variance mu + alpha mu^2.

    Parameters
    ----------
    mu : Tensor or float
        Mean, positive.
    alpha : Tensor or float
        Dispersion, positive; close to 0 is close to a Poisson.
    validate_args : bool, optional
        Whether values are checked. Default: only on a CPU.

    Examples
    --------
    >>> dist = NegativeBinomial(mu=10.0, alpha=0.5)
    >>> dist.variance.item(), dist.icdf(torch.tensor(0.5)).item()
    (60.0, 8.0)
    """

    arg_constraints = {"mu": constraints.positive, "alpha": constraints.positive}
    _names = ("mu", "alpha")
    _rows = NegativeBinomialRows

    def __init__(self, mu: Tensor | float, alpha: Tensor | float, validate_args: bool | None = None) -> None:
        self.mu, self.alpha = as_parameters(mu=mu, alpha=alpha)
        if is_checked(validate_args, self.mu):
            check_positive("mu", self.mu, "Emit its logarithm and exponentiate, or clamp it.")
            check_positive("alpha", self.alpha, "Use Poisson for alpha = 0.")
        super().__init__(self.mu.shape, validate_args)

    def log_prob(self, value: Tensor) -> Tensor:
        """log p(y), differentiable."""
        y = self._counts(value).double()
        broadcast_shapes(y=tuple(y.shape), batch_shape=tuple(self.batch_shape))
        return _log_pmf(y, self.mu.double(), 1.0 / self.alpha.double()).to(self._dtype)

    def _with_gradients(self, shape: torch.Size) -> NegativeBinomialRows:
        mu, alpha = (x.expand(shape).reshape(-1).double() for x in (self.mu, self.alpha))
        return NegativeBinomialRows(mu, alpha)

    @property
    def mean(self) -> Tensor:
        """mu."""
        return self.mu

    @property
    def variance(self) -> Tensor:
        """mu + alpha mu^2."""
        return self.mu + self.alpha * self.mu**2

    @property
    def mode(self) -> Tensor:
        """The most probable count, the smaller of two where mu (1 - alpha) is an integer."""
        peak = self.mu.double() * (1.0 - self.alpha.double())
        return (peak.ceil() - 1.0).clamp(min=0.0).to(self._dtype)
