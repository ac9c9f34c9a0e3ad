"""The paper's simulations: random draws from known count distributions."""

from collections.abc import Callable
from dataclasses import dataclass
from math import pi

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ddpn.distributions import CountDistribution, DoublePoisson, NegativeBinomial, Poisson
from ddpn.paper.datasets.dataset import SEED, SHARES, Split, split
from ddpn.runtime.validation import check_choice

#: The smallest rate, because some rates reach 0. With this rate, the distribution is a point at 0 in float64.
_MIN_RATE = 1e-12


class Reflected(CountDistribution):
    """The distribution of `top` - Z given Z <= `top`. A long upper tail of Z becomes a long lower tail.

    The support is {0, ..., top}. With `folds=1`, Z follows `dist`. Otherwise, the pmf of Z is proportional to the pmf
    of `dist` to the power `folds`; this is called the conflation of `folds` copies of `dist`.

    >>> from ddpn.distributions import Poisson
    >>> dist = Reflected(Poisson(2.0), top=30)
    >>> round(dist.mean.item(), 4), round(dist.variance.item(), 4), dist.mode.item()
    (28.0, 2.0, 28.0)
    """

    def __init__(self, dist: CountDistribution, top: int, folds: int = 1, validate_args: bool | None = None) -> None:
        counts = torch.arange(float(top), -1.0, -1.0, dtype=torch.float64)
        with torch.no_grad():
            log_p = dist.log_prob(counts.view(-1, *[1] * len(dist.batch_shape)))
        self._table = (folds * log_p.double()).movedim(0, -1).log_softmax(-1).to(log_p.dtype)
        super().__init__(dist.batch_shape, validate_args)

    @property
    def top(self) -> int:
        """The largest count."""
        return self._table.shape[-1] - 1

    def log_prob(self, value: Tensor) -> Tensor:
        """Compute the log pmf, which is minus infinity above `top`."""
        y = torch.as_tensor(value, device=self._table.device)
        shape = torch.broadcast_shapes(y.shape, self.batch_shape)
        index = y.expand(shape).clamp(max=self.top).long().unsqueeze(-1)
        log_p = self._table.expand(*shape, -1).gather(-1, index).squeeze(-1)
        return torch.where(y <= self.top, log_p, -torch.inf)

    def bracket(self, depth: float) -> tuple[Tensor, Tensor]:
        """Return 0 and `top`, the ends of the support. They contain all mass, so `depth` has no effect.

        The arguments and results are those of `CountDistribution.bracket`.
        """
        first = torch.zeros_like(self._table[..., 0])
        return first, first + self.top

    def rows(self, index: Tensor) -> "Reflected":
        """Select distributions along the first batch axis."""
        new = object.__new__(Reflected)
        new._table = self._table[index]
        CountDistribution.__init__(new, new._table.shape[:-1], self._check)
        return new


@dataclass(frozen=True, eq=False)
class Simulation:
    """A simulated data set, with the distribution from which its counts were drawn.

    Attributes
    ----------
    name : str
        The name of the simulation.
    x : array, shape (n,)
        The inputs.
    y : array of int, shape (n,)
        The counts.
    split : Split
        Training, validation and test rows.
    distribution : callable
        A function that returns the true distribution of y for an array of x.
    """

    name: str
    x: NDArray[np.float64]
    y: NDArray[np.int64]
    split: Split
    distribution: Callable[[ArrayLike], CountDistribution]

    @property
    def X(self) -> NDArray[np.float64]:  # noqa: N802
        """The inputs as a matrix with shape (n, 1), for estimators."""
        return self.x[:, None]

    @property
    def truth(self) -> CountDistribution:
        """The true distribution of each count. No model has a better expected score."""
        return self.distribution(self.x)


@dataclass(frozen=True)
class Process:
    """The recipe of a simulation: x is uniform between `low` and `high`, and y follows `distribution(x)`.

    `n` is the default number of rows. `shares` are the shares of training, validation and test rows. `added_points` are
    pairs (x, y) that are added to the training rows.
    """

    low: float
    high: float
    distribution: Callable[[ArrayLike], CountDistribution]
    n: int
    shares: tuple[float, float, float] = SHARES
    added_points: tuple[tuple[float, int], ...] = ()


def _tensor(x: ArrayLike) -> Tensor:
    return torch.as_tensor(x, dtype=torch.float64)


def wave(x: ArrayLike) -> CountDistribution:
    """Return the distribution of 30 - Z. The pmf of Z is the normalised fifth power of that of Poisson(10 sin x + 10).

    It is shown in Figure 1 and derived in Appendix B.3 of the paper. Z is conditioned on Z <= 30, because P(Z > 30) is
    at most 1.7e-7 (at sin x = 1).
    """
    rate = (10 * torch.sin(_tensor(x)) + 10).clamp(min=_MIN_RATE)
    return Reflected(Poisson(rate), top=30, folds=5)


def poisson(x: ArrayLike) -> CountDistribution:
    """Return Poisson(exp(x / 2)) (Section 4.2)."""
    return Poisson((0.5 * _tensor(x)).exp())


def negative_binomial(x: ArrayLike) -> CountDistribution:
    """Return NegBinom(r = x^2, p = 1/2), with mean x^2 and variance 2 x^2 (Section 4.2)."""
    r = _tensor(x).square().clamp(min=_MIN_RATE)
    return NegativeBinomial(mu=r, alpha=1.0 / r)


def isolated_points(x: ArrayLike) -> CountDistribution:
    """Return DoublePoisson(mu=ceil(x sin x) + 15, gamma=6 - 0.03 x^2) (Section 4.5).

    The simulation adds isolated points to draws from this distribution.
    """
    x = _tensor(x)
    return DoublePoisson(mu=torch.ceil(x * torch.sin(x)) + 15, gamma=6 - 0.03 * x.square())


SIMULATIONS = {
    "wave": Process(0.0, 2 * pi, wave, n=1000),
    "poisson": Process(-5.0, 5.0, poisson, n=1000),
    "negative_binomial": Process(-3.0, 3.0, negative_binomial, n=1000),
    # All rows are training rows, because the paper shows the fit and no predictions.
    "isolated": Process(3.0, 8.0, isolated_points, n=498, shares=(1.0, 0.0, 0.0), added_points=((1.0, 16), (10.0, 10))),
}


def simulate(name: str, n: int | None = None, seed: int = SEED) -> Simulation:
    """Draw one of the paper's simulated data sets.

    Parameters
    ----------
    name : {"wave", "poisson", "negative_binomial", "isolated"}
        The simulation.
    n : int, optional
        The number of rows. Default: the number in the paper.
    seed : int
        Seed of the draws and of the split.

    Examples
    --------
    >>> data = simulate("wave", n=1000)
    >>> [len(rows) for rows in data.split]
    [800, 100, 100]
    >>> data.distribution(0.0).mean.round(decimals=2).item(), data.truth.variance.shape
    (20.4, torch.Size([1000]))
    """
    process = SIMULATIONS[check_choice("name", name, SIMULATIONS)]
    n = process.n if n is None else n
    train, validation, test = split(n, seed, process.shares)
    rng = np.random.default_rng(seed)
    x, u = rng.uniform(process.low, process.high, n), rng.random(n)
    # By inversion of the cdf, so that draws do not depend on torch's generator.
    y = process.distribution(x).icdf(torch.from_numpy(u)).numpy()
    x = np.concatenate([x, [point for point, _ in process.added_points]])
    y = np.concatenate([y, [count for _, count in process.added_points]]).astype(np.int64)
    parts = Split(np.concatenate([train, np.arange(n, len(y))]), validation, test)
    return Simulation(name, x, y, parts, process.distribution)
