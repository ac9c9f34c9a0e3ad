"""What counts are compared with: a Poisson or Binomial, and smooth distributions with the dispersion that fits best."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize_scalar

from ddpn.distributions import DoubleBinomial, DoublePoisson, NegativeBinomial, Poisson
from ddpn.distributions.families.double_binomial import log_weight
from ddpn.distributions.limits import as_recorded, bounded
from ddpn.distributions.rule import deviance, log_h_of_count
from ddpn.sample import Sample

#: The largest location, as a share of the upper bound, and the smallest, as a share of the overall rate.
LARGEST, SMALLEST = 1.0 - 1e-6, 1e-4
#: Range of the logarithm of gamma and alpha.
_LOG_GAMMA, _LOG_ALPHA = (-5.0, 4.0), (-9.0, 4.0)
#: The distributions with a dispersion, and the range of its logarithm: without an upper bound, and with one.
_WIDER = {"double_poisson": _LOG_GAMMA, "negative_binomial": _LOG_ALPHA}
_WIDER_BOUNDED = {"double_binomial": _LOG_GAMMA}
#: Rows that the parameter is fitted to, at most; fewer where bounds or limits make a likelihood expensive.
_ROWS, _BOUNDED_ROWS = 10_000, 3000


class MeanAndVariance(NamedTuple):
    """The mean and the variance of what is known about a count. Shape: (rows,) each."""

    mean: np.ndarray
    variance: np.ndarray

    def around(self, location: np.ndarray) -> np.ndarray:
        """E[(Z - location)^2]."""
        return self.variance + np.square(self.mean - location)


@dataclass(frozen=True, eq=False)
class Reference:
    """A Poisson or Binomial per row, truncated below a lower bound and right-censored at a limit.

    Each row has a location: the mean before truncation and censoring. Of a censored count only Z >= limit is known.

    Attributes
    ----------
    sample : Sample
        The counts as recorded, with their bounds and limits. Every row has a weight above 0.
    limits_are_partial : bool
        Whether limits are known of censored counts alone, so that those of other rows are unknown.
    options : tuple of str
        The options of `ddpn fit` that describe the bounds and limits.
    """

    sample: Sample
    limits_are_partial: bool = False
    options: tuple[str, ...] = ()

    @classmethod
    def of(cls, sample: Sample, options: tuple[str, ...] = ()) -> "Reference":
        """The reference of a sample."""
        limit = sample.limit
        if limit is not None and np.isinf(limit).all():
            sample, limit = sample.replace(limit=None), None
        # One limit for all rows is known; flags are given for censored counts only.
        return cls(sample, limit is not None and bool(np.isinf(limit).any()), options)

    def rows(self, index: Any) -> "Reference":
        """That of some rows."""
        return replace(self, sample=self.sample.rows(index))

    def without_features(self) -> "Reference":
        """The counts alone."""
        return replace(self, sample=self.sample.replace(X=None))

    @property
    def y(self) -> np.ndarray:
        """The counts as recorded."""
        return np.asarray(self.sample.y)

    @property
    def weight(self) -> np.ndarray:
        """Weights with a mean of 1."""
        return self.sample.weight_or_ones / self.sample.weight_or_ones.mean()

    @property
    def is_bounded(self) -> bool:
        """Whether counts have an upper bound, so that a Binomial is the reference."""
        return self.sample.upper is not None

    @property
    def is_truncated(self) -> bool:
        """Whether counts have a lower bound above 0."""
        return self.sample.lower is not None and bool(self.sample.lower.any())

    @property
    def is_censored(self) -> np.ndarray:
        """Mask of the counts that stand for that many or more."""
        return np.zeros(len(self.y), dtype=bool) if self.sample.limit is None else self.y >= self.sample.limit

    @property
    def dispersed(self) -> np.ndarray:
        """1 - 1 / n, what the dispersion of a Binomial is identified by: a single trial has none."""
        return np.asarray(1.0 - 1.0 / self.sample.upper) if self.is_bounded else np.ones(len(self.y))

    # Words -------------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Its name in sentences."""
        return f"{'truncated ' if self.is_truncated else ''}{'Binomial' if self.is_bounded else 'Poisson'}"

    @property
    def ratio(self) -> str:
        """What the dispersion is, in words."""
        return "variance / that of a Binomial" if self.is_bounded else f"variance / mean{self._before(',')}"

    @property
    def multiple(self) -> str:
        """The variance of which the dispersion is a multiple, in words."""
        return "that of a Binomial with the same mean" if self.is_bounded else f"the mean{self._before()}"

    def _before(self, end: str = "") -> str:
        if self.sample.limit is not None:
            return f", before censoring{end}"
        return f", before truncation{end}" if self.is_truncated else ""

    # Distributions -----------------------------------------------------------------------------------------------

    def distribution(self, location: np.ndarray) -> Any:
        """The distribution of every count before truncation and censoring."""
        return FittedFamily("binomial" if self.is_bounded else "poisson", 1.0, 0.0).distribution(
            location, self.sample.upper
        )

    def clipped(self, location: np.ndarray) -> np.ndarray:
        """Locations inside the range of possible ones."""
        scale = self.sample.exposure if self.sample.exposure is not None else np.ones(len(self.y))
        scale = self.sample.upper if self.is_bounded else scale
        rate = np.average(self.y / scale, weights=self.weight * scale)
        return np.clip(location, SMALLEST * rate * scale, LARGEST * scale if self.is_bounded else None)

    def variance(self, location: np.ndarray) -> np.ndarray:
        """The variance before truncation and censoring."""
        return np.asarray(location * (1.0 - location / self.sample.upper) if self.is_bounded else location)

    def emphasis(self, location: np.ndarray) -> np.ndarray:
        """Weights of rows in an estimate of dispersion: rows with a variance below 1 say little about it."""
        return self.weight * np.minimum(self.variance(location), 1.0) * self.dispersed

    def expected(self, location: np.ndarray) -> MeanAndVariance:
        """The moments of a possible count."""
        if not self.is_truncated:
            return MeanAndVariance(location, self.variance(location))
        return _beyond(self.distribution(location), self.sample.lower)

    def known(self, location: np.ndarray) -> MeanAndVariance:
        """The moments given what was recorded: the count itself, or the tail beyond a limit."""
        censored, found = self.is_censored, MeanAndVariance(self.y.copy(), np.zeros(len(self.y)))
        if censored.any():
            part = self.rows(censored)
            tail = _beyond(part.distribution(location[censored]), part.y)
            found.mean[censored], found.variance[censored] = tail
        return found

    def log_likelihood(self, location: np.ndarray) -> np.ndarray:
        """That of what was recorded."""
        dist = as_recorded(self.distribution(location), self.sample.replace(upper=None))
        return np.asarray(dist.log_prob(torch.from_numpy(self.y)).numpy())

    def drawn(self, location: np.ndarray, rng: np.random.Generator) -> "Reference":
        """The same with counts that are drawn from the reference; those at their limit are censored."""
        draw = torch.Generator().manual_seed(int(rng.integers(2**31)))
        y = bounded(self.distribution(location), self.sample.lower, None).sample(generator=draw).numpy()
        limit = self.all_limits(rng)
        sample = self.sample.replace(y=y if limit is None else np.minimum(y, limit), limit=limit)
        return replace(self, sample=sample, limits_are_partial=False)

    def all_limits(self, rng: np.random.Generator) -> np.ndarray | None:
        """The limits of all rows; unknown ones are drawn from those above the count, by their Kaplan-Meier estimate."""
        limit = self.sample.limit
        if not self.limits_are_partial:
            return None if limit is None else np.asarray(limit)
        censored = self.is_censored
        values, survival = _kaplan_meier(limit, self.y, censored)
        exact = np.flatnonzero(~censored)
        level = np.interp(self.y[exact], values, survival, left=1.0) * rng.uniform(0.0, 1.0, len(exact))
        # The first limit at which the survival falls below the level; none beyond the last.
        place = np.searchsorted(-survival, -level, side="left")
        drawn = limit.copy()
        drawn[exact] = np.maximum(np.append(values, np.inf)[place], self.y[exact] + 1.0)
        return np.asarray(drawn)


@torch.no_grad()
def _beyond(dist: Any, least: np.ndarray) -> MeanAndVariance:
    """The moments given a count of at least `least`."""
    tail = bounded(dist, least, None)
    return MeanAndVariance(tail.mean.numpy().copy(), tail.variance.numpy().copy())


def _kaplan_meier(limit: np.ndarray, y: np.ndarray, censored: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct limits and the probability of a larger one: here a limit is the event, an exact count hides it."""
    at, values = np.where(censored, limit, y), np.unique(limit[censored])
    survival = np.cumprod([1.0 - np.sum(censored & (limit == v)) / max(np.sum(at >= v), 1) for v in values])
    return values, np.asarray(survival)


# Smooth distributions -------------------------------------------------------------------------------------------------


class FittedFamily(NamedTuple):
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
        if self.name == "poisson":
            return Poisson(mu, validate_args=False)
        parameter = torch.full_like(mu, self.parameter)
        if self.name == "double_poisson":
            return DoublePoisson(mu, parameter, validate_args=False)
        if self.name == "negative_binomial":
            return NegativeBinomial(mu, parameter, validate_args=False)
        return DoubleBinomial(torch.from_numpy(upper), mu, parameter, validate_args=False)

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


def fit_families(reference: Reference, mean: np.ndarray) -> dict[str, FittedFamily]:
    """The Double Poisson and the Negative Binomial around these means, by maximum likelihood.

    Of counts with upper bounds: the Double Binomial.
    """
    most = _ROWS if reference.sample.is_plain else _BOUNDED_ROWS
    if len(mean) > most:
        rows = np.sort(np.random.default_rng(0).choice(len(mean), most, replace=False))
        reference, mean = reference.rows(rows), mean[rows]
    counts, shares = torch.from_numpy(reference.y), torch.from_numpy(reference.weight / reference.weight.sum())
    sample = reference.sample.replace(upper=None)

    def fitted(name: str, parameter: float) -> FittedFamily:
        family = FittedFamily(name, parameter, 0.0)
        dist = as_recorded(family.distribution(mean, reference.sample.upper), sample)
        return family._replace(loglik=float(shares @ dist.log_prob(counts)))

    found = {}
    for name, bounds in (_WIDER_BOUNDED if reference.is_bounded else _WIDER).items():
        best = minimize_scalar(
            lambda at, name=name: -fitted(name, float(np.exp(at))).loglik,
            bounds=bounds, method="bounded", options={"xatol": 1e-3},
        )  # fmt: skip
        found[name] = FittedFamily(name, float(np.exp(best.x)), -float(best.fun))
    return found


def smoothest(families: dict[str, FittedFamily]) -> FittedFamily:
    """The likeliest of the fitted distributions: each of them contains the Poisson or Binomial (nearly)."""
    return max(families.values(), key=lambda family: family.loglik)
