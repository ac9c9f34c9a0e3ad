"""The Double Poisson head of the paper (DDPN) and its variants."""

import math
from typing import Literal

import torch
from torch import Tensor
from torch.distributions import constraints

from ddpn.distributions import DoublePoisson, MeanDoublePoisson
from ddpn.networks.heads.clamps import (
    LOG_GAMMA,
    LOG_MU,
    bend,
    highest_log_gamma,
    log_mean,
    lowest_log_gamma,
    mean_preserving_log_gamma,
    unbend,
)
from ddpn.networks.heads.constant_fit import WeightedCounts, minimise_loss
from ddpn.networks.heads.head import Head, check_beta, promote_precision
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.errors import ConfigError
from ddpn.runtime.validation import check_choice

#: With `location="mean"`, gamma is at most 4 times the mean, or 4 if the mean is below 1. Including the bend beyond the
#: bound, gamma stays below 20 times the mean, above which no mu has exactly this mean.
_LOG_MAX_GAMMA_RATIO = math.log(4.0)


class DoublePoissonHead(Head):
    """The Double Poisson likelihood: over-, equi- and under-dispersed counts, variance about mu / gamma.

    Raw outputs: (log mu, log gamma) or, with `location="mean"`, (log mean, log gamma). An exposure multiplies mu or the
    mean. If it multiplies mu, gamma is limited so that the mean is nearly proportional to the exposure
    (`ddpn.networks.heads.clamps.mean_preserving_log_gamma`).

    Parameters
    ----------
    beta : float
        A number from 0 to 1. The loss is multiplied by gamma^-beta, which is treated as a constant in the gradient (Eq.
        3 of the paper). With beta = 1, gamma does not influence the fit of the mean.
    objective : {"exact", "paper"}
        "exact" is the negative log-likelihood. "paper" omits the normalising constant of the distribution (Eq. 2). This
        makes hardly any difference for means above 10, but fits another distribution to smaller counts.
    location : {"mu", "mean"}
        The quantity whose logarithm is the first raw output. "mu" is fast, but approximates the mean only if gamma mu
        is large. With "mean", mu is solved from the exact mean of every row, which takes about three times as long.
        `CountGLM` uses "mean", so that its coefficients can be interpreted.

    Examples
    --------
    >>> head = DoublePoissonHead(objective="paper")
    >>> head(torch.tensor([2.0, 0.0])).mean
    tensor(7.3891)
    >>> head.loss(torch.tensor([0.0, 0.0]), torch.tensor(0))
    tensor(1.)
    """

    name = "double_poisson"
    is_baseline = True
    n_raw = 2
    support = constraints.nonnegative_integer
    parameter_names = ("log mu", "log gamma")
    dispersion_outputs = (1,)
    objective_options = ("beta", "objective")

    def __init__(
        self,
        *,
        beta: float = 0.0,
        objective: Literal["exact", "paper"] = "exact",
        location: Literal["mu", "mean"] = "mu",
    ) -> None:
        check_beta(beta)
        check_choice("objective", objective, ("exact", "paper"))
        check_choice("location", location, ("mu", "mean"))
        if objective == "paper" and location == "mean":
            remedy = 'Use objective="exact".'
            raise ConfigError('cannot be combined with `objective="paper"`', argument="location", remedy=remedy)
        self.beta, self.objective, self.location = beta, objective, location
        self.location_is_mean = location == "mean"
        if self.location_is_mean:
            self.parameter_names = ("log mean", "log gamma")  # type: ignore[misc]
        else:
            self.location_note = "mu is close to the mean of the counts only where gamma mu is large."

    @property
    def loss_is_likelihood(self) -> bool:
        """True if the loss is the exact negative log-likelihood, without the factor gamma^-beta."""
        return self.objective == "exact" and not self.beta

    def check_bounds(self) -> None:
        """Raise a `ConfigError` if the options of this head do not allow training on bounded or censored counts.

        Such counts need the exact likelihood: `objective="exact"` and `beta=0`.
        """
        if not self.loss_is_likelihood:
            got, remedy = f'objective="{self.objective}"', 'Use objective="exact".'
            if self.beta:
                got, remedy = f"beta={self.beta}", "Leave it out."
            raise ConfigError(f"Bounded and censored counts need the exact likelihood, got {got}. {remedy}")

    def forward(self, raw: Tensor, exposure: Tensor | None = None) -> DoublePoisson | MeanDoublePoisson:
        """Create a Double Poisson with mu (or mean) exposure * e^raw[0] and gamma e^raw[1], both smoothly bounded.

        See `Head.forward` for the shapes. With an exposure and `location="mu"`, gamma is limited further, so that the
        mean is nearly proportional to the exposure.
        """
        log_location, log_gamma = self._apply_links(promote_precision(raw), exposure)
        if self.location == "mean":
            return MeanDoublePoisson(log_location.exp(), log_gamma.exp(), validate_args=False)
        if exposure is not None:
            log_gamma = mean_preserving_log_gamma(log_gamma, log_location)
        return DoublePoisson(log_location.exp(), log_gamma.exp(), validate_args=False)

    def loss(self, raw: Tensor, y: Tensor, exposure: Tensor | None = None) -> Tensor:
        """Compute the loss of each row, a base loss times gamma^-beta (see `Head.loss` for the arguments).

        The base loss is -log p(y) with `objective="exact"`, and Eq. 2 of the paper, which omits the normalising
        constant of p, with `objective="paper"`. gamma is the predicted inverse dispersion of the row, and no gradient
        flows through the factor gamma^-beta. Eq. 2 is evaluated in float64, because its terms nearly cancel for large
        counts.
        """
        if self.loss_is_likelihood:
            return super().loss(raw, y, exposure)
        log_mu, log_gamma = self._apply_links(raw.double(), exposure)
        if self.objective == "exact":
            value = super().loss(raw.double(), y, exposure)
        else:  # Eq. 2: -log(gamma) / 2 + gamma mu - gamma y (1 + log mu - log y)
            value = log_gamma.exp() * _compute_deviance(log_mu, y.double()) - 0.5 * log_gamma
        return (value * (-self.beta * log_gamma.detach()).exp()).to(promote_precision(raw).dtype)

    def start(self, y: Tensor, weight: Tensor | None = None, exposure: Tensor | None = None) -> Tensor:
        """Return the raw outputs of an intercept-only fit with the loss `objective` (see `Head.start`).

        `beta` is ignored: all rows have the same gamma, so the factor gamma^-beta would not change their relative
        weights.
        """
        rows = WeightedCounts(CountRows(None, y, weight, exposure))
        mean = rows.mean(rows.y)
        log_mu = (mean / rows.mean(rows.scale)).log().clamp(min=LOG_MU[0])
        # 1 / gamma is twice the mean of D(y; mu), which is 0 if all counts are equal.
        log_gamma = -(2.0 * rows.mean(_compute_deviance(log_mu + rows.scale.log(), rows.y)).clamp(min=0.0)).log()
        lowest, highest = lowest_log_gamma(mean.log()), highest_log_gamma(mean.log())
        guess = torch.stack([unbend(log_mu, *LOG_MU), unbend(log_gamma, lowest, highest)])
        if self.objective == "paper":
            return guess
        # Eq. 2 overestimates gamma for small counts. Starting from a wide distribution, the search avoids a plateau.
        guess[1].clamp_(max=0.0)
        bounds = [(low - 1.0, high + 1.0) for low, high in (LOG_MU, (lowest.item(), LOG_GAMMA[1]))]
        return minimise_loss(rows.make_mean_loss(DoublePoissonHead(location=self.location).sample_loss), guess, bounds)

    def _apply_links(self, raw: Tensor, exposure: Tensor | None) -> tuple[Tensor, Tensor]:
        """Compute the log of mu (or of the mean), including the exposure, and log gamma. Both are smoothly bounded.

        Shape: `raw` (..., 2) -> two tensors (...).
        """
        first, second = raw.unbind(-1)
        log_location = log_mean(first, exposure)
        highest = (
            highest_log_gamma(log_location) if self.location == "mu" else _highest_log_gamma_for_mean(log_location)
        )
        return log_location, bend(second, lowest_log_gamma(log_location), highest)


def _highest_log_gamma_for_mean(log_mean: Tensor) -> Tensor:
    """Return the upper bound on log gamma of a Double Poisson, given its log mean.

    gamma is the inverse dispersion. The bound is the log of 4 max(mean, 1), at most log 1e4. It has the shape of
    `log_mean`.
    """
    return log_mean.clamp(0.0, LOG_GAMMA[1] - _LOG_MAX_GAMMA_RATIO) + _LOG_MAX_GAMMA_RATIO


def _compute_deviance(log_mu: Tensor, y: Tensor) -> Tensor:
    """Compute mu - y + y log(y / mu), half the Poisson deviance, for each element. For y = 0, it is mu."""
    return log_mu.exp() + y * (y.clamp(min=1.0).log() - 1.0 - log_mu)
