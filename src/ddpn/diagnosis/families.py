"""Smooth count distributions with the dispersion that fits best, around known means."""

from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize_scalar

from ddpn.distributions import DoublePoisson, NegativeBinomial, Poisson
from ddpn.distributions.double_poisson.weights import deviance, log_h_of_count

#: Range of the logarithm of gamma and alpha.
_LOG_GAMMA, _LOG_ALPHA = (-5.0, 4.0), (-9.0, 4.0)
#: Rows that the parameter is fitted to, at most.
_ROWS = 10_000


class Family(NamedTuple):
    """A likelihood of `ddpn.heads.HEADS` with one parameter for all rows, and its mean log-likelihood.

    The parameter is gamma of a Double Poisson (variance about mean / gamma) or alpha of a Negative Binomial
    (variance = mean + alpha mean^2).
    """

    name: str
    parameter: float
    loglik: float

    def distribution(self, mean: np.ndarray) -> Any:
        """The distribution of rows with these means."""
        mu = torch.from_numpy(np.ascontiguousarray(mean))
        kind = NegativeBinomial if self.name == "negative_binomial" else DoublePoisson
        return kind(mu, torch.full_like(mu, self.parameter), validate_args=False)

    def log_table(self, mean: np.ndarray, size: int, log_factor: float = 0.0) -> np.ndarray:
        """log p of the counts 0 to size - 1, with the parameter times exp(log_factor). Shape: (means, size)."""
        y, mu = torch.arange(size, dtype=torch.float64)[None], torch.from_numpy(mean)[:, None]
        parameter = self.parameter * float(np.exp(log_factor))
        if self.name == "negative_binomial":
            alpha = torch.full_like(mu, parameter)
            return np.asarray(NegativeBinomial(mu, alpha, validate_args=False).log_prob(y).numpy())
        # Normalised by the sum over the table instead of one sum per row.
        return np.asarray(torch.log_softmax(log_h_of_count(y) - parameter * deviance(y, mu), dim=1).numpy())


def fit_families(y: np.ndarray, mean: np.ndarray, weight: np.ndarray) -> dict[str, Family]:
    """The Poisson, Double Poisson and Negative Binomial around these means, by maximum likelihood."""
    if len(y) > _ROWS:
        rows = np.sort(np.random.default_rng(0).choice(len(y), _ROWS, replace=False))
        y, mean, weight = y[rows], mean[rows], weight[rows]
    counts, means, shares = (torch.from_numpy(v) for v in (y, mean, weight / weight.sum()))

    def loglik(kind: Any, log_parameter: float) -> float:
        parameter = torch.full_like(means, float(np.exp(log_parameter)))
        return float(shares @ kind(means, parameter, validate_args=False).log_prob(counts))

    found = {"poisson": Family("poisson", 1.0, float(shares @ Poisson(means, validate_args=False).log_prob(counts)))}
    for name, kind, bounds in (
        ("double_poisson", DoublePoisson, _LOG_GAMMA),
        ("negative_binomial", NegativeBinomial, _LOG_ALPHA),
    ):
        best = minimize_scalar(
            lambda at, kind=kind: -loglik(kind, at), bounds=bounds, method="bounded", options={"xatol": 1e-3}
        )
        found[name] = Family(name, float(np.exp(best.x)), -float(best.fun))
    return found


def smoothest(families: dict[str, Family]) -> Family:
    """The likelier of the Double Poisson and the Negative Binomial, both of which contain the Poisson (nearly)."""
    return max((families["double_poisson"], families["negative_binomial"]), key=lambda family: family.loglik)
