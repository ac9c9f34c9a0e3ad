"""Smooth count distributions with the dispersion that fits best, around known means."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize_scalar

from ddpn.analysis.diagnosis.reference import Reference
from ddpn.distributions import DoubleBinomial, DoublePoisson, NegativeBinomial, Poisson
from ddpn.distributions.families.double_binomial import log_weight
from ddpn.distributions.recording import as_recorded
from ddpn.distributions.rule import deviance, log_h_of_count

#: Range of the logarithm of gamma and alpha.
_LOG_GAMMA, _LOG_ALPHA = (-5.0, 4.0), (-9.0, 4.0)
#: The distributions with a dispersion, and the range of its logarithm: without an upper bound, and with one.
_WIDER = {"double_poisson": _LOG_GAMMA, "negative_binomial": _LOG_ALPHA}
_WIDER_BOUNDED = {"double_binomial": _LOG_GAMMA}
#: Rows that the parameter is fitted to, at most; fewer where bounds or limits make a likelihood expensive.
_ROWS, _BOUNDED_ROWS = 10_000, 3000


class Family(NamedTuple):
    """A likelihood of `HEADS` (or Binomial) with one parameter for all rows, and its mean log-likelihood.

    The parameter is gamma of a Double Poisson (variance about mean / gamma) or a Double Binomial, or alpha of a
    Negative Binomial (variance = mean + alpha mean^2).
    """

    name: str
    parameter: float
    loglik: float

    def distribution(self, mean: np.ndarray, upper: np.ndarray | None = None) -> Any:
        """The distribution of rows with these means and upper bounds, before truncation and censoring."""
        mu = torch.from_numpy(np.ascontiguousarray(mean))
        return _KINDS[self.name](mu, torch.full_like(mu, self.parameter), upper)

    def log_table(
        self, mean: np.ndarray, size: int, log_factor: float = 0.0, upper: np.ndarray | None = None
    ) -> np.ndarray:
        """log p of the counts 0 to size - 1, with the parameter times exp(log_factor). Shape: (means, size).

        `upper` are the upper bounds of a Double Binomial.
        """
        y, mu = torch.arange(size, dtype=torch.float64)[None], torch.from_numpy(mean)[:, None]
        parameter = self.parameter * float(np.exp(log_factor))
        if self.name == "negative_binomial":
            alpha = torch.full_like(mu, parameter)
            return np.asarray(NegativeBinomial(mu, alpha, validate_args=False).log_prob(y).numpy())
        # Normalised by the sum over the table instead of one sum per row.
        if upper is None:
            return np.asarray(torch.log_softmax(log_h_of_count(y) - parameter * deviance(y, mu), dim=1).numpy())
        total = torch.from_numpy(upper)[:, None]
        each = log_weight(torch.minimum(y, total), mu, torch.full_like(mu, parameter), total)
        return np.asarray(torch.log_softmax(torch.where(y <= total, each, -torch.inf), dim=1).numpy())


def _double_binomial(mu: torch.Tensor, gamma: torch.Tensor, upper: Any) -> Any:
    return DoubleBinomial(torch.from_numpy(upper), mu, gamma, validate_args=False)


#: The distribution of each name, from means, a parameter and upper bounds.
_KINDS: dict[str, Callable[..., Any]] = {
    "poisson": lambda mu, _, upper: Poisson(mu, validate_args=False),
    "double_poisson": lambda mu, gamma, upper: DoublePoisson(mu, gamma, validate_args=False),
    "negative_binomial": lambda mu, alpha, upper: NegativeBinomial(mu, alpha, validate_args=False),
    "binomial": _double_binomial,
    "double_binomial": _double_binomial,
}


def fit_families(reference: Reference, mean: np.ndarray) -> dict[str, Family]:
    """The Poisson, Double Poisson and Negative Binomial around these means, by maximum likelihood.

    Of counts with upper bounds: the Binomial and the Double Binomial.
    """
    most = _ROWS if reference.sample.is_plain else _BOUNDED_ROWS
    if len(mean) > most:
        rows = np.sort(np.random.default_rng(0).choice(len(mean), most, replace=False))
        reference, mean = reference.rows(rows), mean[rows]
    counts, shares = torch.from_numpy(reference.y), torch.from_numpy(reference.weight / reference.weight.sum())
    sample = reference.sample.replace(upper=None)

    def fitted(name: str, parameter: float) -> Family:
        family = Family(name, parameter, 0.0)
        dist = as_recorded(family.distribution(mean, reference.sample.upper), sample)
        return family._replace(loglik=float(shares @ dist.log_prob(counts)))

    simple = "binomial" if reference.is_bounded else "poisson"
    found = {simple: fitted(simple, 1.0)}
    for name, bounds in (_WIDER_BOUNDED if reference.is_bounded else _WIDER).items():
        best = minimize_scalar(
            lambda at, name=name: -fitted(name, float(np.exp(at))).loglik,
            bounds=bounds, method="bounded", options={"xatol": 1e-3},
        )  # fmt: skip
        found[name] = Family(name, float(np.exp(best.x)), -float(best.fun))
    return found


def smoothest(families: dict[str, Family]) -> Family:
    """The likeliest distribution with a dispersion: each of them contains the Poisson or Binomial (nearly)."""
    wider = [family for name, family in families.items() if name not in ("poisson", "binomial")]
    return max(wider, key=lambda family: family.loglik)
