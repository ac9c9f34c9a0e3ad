"""Share ground truth: tables of 50-digit sums, and distributions summed integer by integer in extended precision."""

import csv
import math
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

REFERENCE = Path(__file__).resolve().parents[1] / "reference"
Real = np.longdouble
#: Enumerated distributions go this deep below their peak (e^-120), so that tails down to e^-60 are right relatively.
DEPTH = 120.0


def _read_columns(name: str) -> dict[str, np.ndarray]:
    with (REFERENCE / name).open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {key: np.array([float(row[key]) for row in rows]) for key in rows[0] if key != "how"}


@pytest.fixture(scope="session")
def reference() -> Callable[[str], dict[str, np.ndarray]]:
    """Read the columns of a table in tests/reference."""
    return _read_columns


@pytest.fixture(scope="session")
def golden() -> dict[str, torch.Tensor]:
    """Both golden tables, row by row the same distributions, as float64 columns."""
    dists, more = _read_columns("double_poisson.csv"), _read_columns("double_poisson_quantiles.csv")
    for key in ("mu", "gamma"):
        np.testing.assert_array_equal(dists[key], more[key])
    return {key: torch.from_numpy(column) for key, column in (dists | more).items()}


def _read_family(name: str, family: str) -> dict[str, np.ndarray]:
    """Read the columns of one family from a table of several."""
    with (REFERENCE / name).open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row.pop("family") == family]
    return {key: np.array([float(row[key]) for row in rows]) for key in rows[0]}


@pytest.fixture(scope="session")
def golden_families() -> Callable[[str], dict[str, np.ndarray]]:
    """Read 40-digit sums of the distributions of one family."""
    return lambda family: _read_family("count_families_exact.csv", family)


@pytest.fixture(scope="session")
def r_families() -> Callable[[str], dict[str, np.ndarray]]:
    """Read values of one family by R packages."""
    return lambda family: _read_family("count_families.csv", family)


class EnumeratedCounts:
    """Probabilities of every integer from `first` on; cdf, survival and crps also of counts beyond."""

    def __init__(self, first: int, p: np.ndarray) -> None:
        self.first, self.p = first, p
        self.y = np.arange(first, first + len(p), dtype=Real)
        self.below = p.cumsum()
        self.above = np.append(p[::-1].cumsum()[::-1][1:], Real(0))

    def expectation(self, f: np.ndarray) -> float:
        return float((self.p * f).sum())

    @property
    def mode(self) -> float:
        """The smaller of two modes that differ by rounding only."""
        return float(self.y[np.argmax(self.p >= self.p.max() * (1 - 1e-15))])

    @property
    def mean(self) -> float:
        return self.mode + self.expectation(self.y - self.mode)

    @property
    def variance(self) -> float:
        shift = self.expectation(self.y - self.mode)
        return self.expectation((self.y - self.mode) ** 2) - shift**2

    @property
    def entropy(self) -> float:
        """With log p of the mode as log1p of minus the others, so that tiny entropies are right."""
        masses = np.delete(self.p, int(self.mode) - self.first)
        masses, others = masses[masses > 0], masses.sum()
        return float(-(masses * np.log(masses)).sum() - (1 - others) * np.log1p(-others))

    @property
    def half_mean_difference(self) -> float:
        """E|Z - Z'| / 2 = sum F (1 - F)."""
        return float((self.below * self.above).sum())

    def at(self, values: np.ndarray, y: np.ndarray | float, before: float, after: float) -> np.ndarray:
        index = np.asarray(y, dtype=np.int64) - self.first
        inside = values[np.clip(index, 0, len(values) - 1)]
        return np.where(index < 0, before, np.where(index >= len(values), after, inside)).astype(np.float64)

    def pmf(self, y: np.ndarray | float) -> np.ndarray:
        return self.at(self.p, y, 0.0, 0.0)

    def log_pmf(self, y: float) -> float:
        return float(np.log(self.p[int(y) - self.first]))

    def cdf(self, y: np.ndarray | float) -> np.ndarray:
        return self.at(self.below, y, 0.0, 1.0)

    def survival(self, y: np.ndarray | float) -> np.ndarray:
        return self.at(self.above, y, 1.0, 0.0)

    def crps(self, y: float) -> float:
        """Return the sum of (F(z) - 1[z >= y])^2, with both tails from their own end."""
        at = min(max(int(y) - self.first, 0), len(self.y))
        outside = max(self.first - y, 0) + max(y - float(self.y[-1]) - 1, 0)
        return float((self.below[:at] ** 2).sum() + (self.above[at:] ** 2).sum() + outside)

    def quantile(self, q: np.ndarray | float) -> np.ndarray:
        return (self.first + np.searchsorted(self.below, np.asarray(q, dtype=Real))).astype(np.float64)


def _compute_log_h(y: np.ndarray) -> np.ndarray:
    """Return log(e^-y y^y / y!): from factorials below 40, by Stirling's series (exact to 1e-22) above."""
    small = np.array([n * np.log(Real(max(n, 1))) - n - np.log(Real(math.factorial(n))) for n in range(40)])
    x = np.maximum(y, 40)
    coefficients = [Real(1) / 12, Real(-1) / 360, Real(1) / 1260, Real(-1) / 1680, Real(1) / 1188, Real(-691) / 360360]
    square, series = 1 / (x * x), np.zeros_like(x)
    for c in reversed(coefficients):  # powers of extended precision would take ten times as long
        series = series * square + c
    series = series / x
    large = -np.log(2 * Real(math.pi) * x) / 2 - series
    return np.where(y < 40, small[np.minimum(y, 39).astype(int)], large) if y[0] < 40 else large


def _compute_deviance(y: np.ndarray, mu: float) -> np.ndarray:
    """Return mu - y + y log(y / mu)."""
    gap = y - Real(mu)
    return np.where(y > 0, y * np.log1p(np.where(y > 0, gap / Real(mu), 0)), 0) - gap


class DoublePoissonSum:
    """DoublePoisson(mu, gamma), summed directly."""

    def __init__(self, mu: float, gamma: float) -> None:
        # D(y; mu) >= (sqrt(y) - sqrt(mu))^2 bounds the window.
        width = math.sqrt(DEPTH / gamma)
        first = math.floor(max(math.sqrt(mu) - width, 0.0) ** 2)
        last = math.ceil((math.sqrt(mu) + width) ** 2) + 4
        self.mu, self.gamma = float(mu), float(gamma)
        y = np.arange(first, last + 1, dtype=Real)
        self.deviance = _compute_deviance(y, mu)
        log_weight = _compute_log_h(y) - Real(gamma) * self.deviance
        self.log_total = np.log(np.exp(log_weight - log_weight.max()).sum()) + log_weight.max()
        self.sums = EnumeratedCounts(first, np.exp(log_weight - self.log_total))
        self.log_c = float(self.log_total + np.log(Real(gamma)) / 2)

    def log_p(self, y: np.ndarray) -> np.ndarray:
        """Return log p at any counts, also beyond the window."""
        return _compute_log_h(y) - Real(self.gamma) * _compute_deviance(y, self.mu) - self.log_total

    def count_at(self, share: float, depth: float) -> float:
        """Return the count `share` of the way, in sqrt(y), from one end to the other of the window gamma D <= depth."""
        inside = np.flatnonzero(self.gamma * self.deviance <= depth)
        if len(inside) == 0:
            return self.sums.mode
        low, high = np.sqrt(self.sums.y[inside[[0, -1]]].astype(float))
        return float(round((low + share * (high - low)) ** 2))


def _sum_negative_binomial(mu: float, alpha: float) -> EnumeratedCounts:
    """Sum a Negative Binomial by ratios of neighbouring probabilities."""
    spread = math.sqrt(DEPTH * (mu + alpha * mu**2)) + 0.6 * DEPTH * (1.0 + alpha * mu)
    first = math.floor(max(mu - spread, 0.0))
    y = np.arange(first, math.ceil(mu + spread), dtype=Real)
    ratios = np.log((y + 1 / Real(alpha)) / (y + 1)) - np.log1p(1 / (Real(alpha) * Real(mu)))
    log_p = np.append(Real(0), ratios.cumsum())
    p = np.exp(log_p - log_p.max())
    return EnumeratedCounts(first, p / p.sum())


def _sum_distribution(kind: str, *parameters: float) -> EnumeratedCounts:
    if kind == "nb":
        return _sum_negative_binomial(*parameters)
    return DoublePoissonSum(parameters[0], parameters[1] if kind == "dp" else 1.0).sums


class MixtureSum(EnumeratedCounts):
    """Several distributions with equal weights, all of them summed on their own integers."""

    def __init__(self, parts: list[EnumeratedCounts]) -> None:
        self.parts = parts
        first, last = min(dist.first for dist in parts), max(int(dist.y[-1]) for dist in parts)
        p = np.zeros(last - first + 1, dtype=Real)
        for dist in parts:
            p[dist.first - first : dist.first - first + len(dist.p)] += dist.p / len(parts)
        super().__init__(first, p)


@pytest.fixture(scope="session")
def sum_mixture() -> Callable[[Sequence[tuple]], MixtureSum]:
    """Sum equal weights of distributions ("dp", mu, gamma), ("poisson", mu) and ("nb", mu, alpha) directly."""
    sum_once = cache(lambda dists: MixtureSum([_sum_distribution(*dist) for dist in dists]))
    return lambda dists: sum_once(tuple(dists))


@pytest.fixture(scope="session")
def sum_distribution() -> Callable[..., EnumeratedCounts]:
    """Sum ("dp", mu, gamma), ("poisson", mu) or ("nb", mu, alpha) directly."""
    return _sum_distribution


@pytest.fixture(scope="session")
def sum_masses() -> type[EnumeratedCounts]:
    """Make a distribution by its probabilities from a count on."""
    return EnumeratedCounts


@pytest.fixture(scope="session")
def sum_double_poisson() -> Callable[[float, float], DoublePoissonSum]:
    """DoublePoisson(mu, gamma), summed directly."""
    return DoublePoissonSum


@pytest.fixture(scope="session")
def random_sums() -> list[DoublePoissonSum]:
    """80 Double Poissons over the whole domain that a direct sum can reach quickly."""
    rng = np.random.default_rng(20250)
    mu = np.exp(rng.uniform(math.log(1e-6), math.log(3e4), 80))
    gamma = np.exp(rng.uniform(math.log(2e-3), math.log(1e4), 80))
    return [DoublePoissonSum(m, g) for m, g in zip(mu, gamma, strict=True)]


def _assert_within(got: object, expected: object, tolerance: float, floor: float = 1e-300, **where: object) -> None:
    got, expected = (np.asarray(x, dtype=np.float64).reshape(-1) for x in (got, expected))
    assert got.shape == expected.shape
    error = np.abs(got - expected) / np.maximum(np.abs(expected), floor)
    worst = int(np.nanargmax(np.where(np.isnan(error), np.inf, error)))
    position = ", ".join(f"{key} = {np.asarray(x).reshape(-1)[worst]:.17g}" for key, x in where.items())
    assert error[worst] <= tolerance, (
        f"off by {error[worst]:.3g}: got {got[worst]}, expected {expected[worst]} at {position}"
    )


@pytest.fixture(scope="session")
def assert_within() -> Callable[..., None]:
    """Assert |got - expected| <= tolerance * max(|expected|, floor) for all elements, and name the worst one."""
    return _assert_within
