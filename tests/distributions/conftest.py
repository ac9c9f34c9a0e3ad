"""Ground truth the tests share: a table of 50-digit sums, and laws summed integer by integer in extended precision."""

import csv
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

REFERENCE = Path(__file__).resolve().parents[1] / "reference"
Real = np.longdouble
#: Enumerated laws go this deep below their peak (e^-120), so that tails down to e^-60 are right relatively.
DEPTH = 120.0


def _columns(name: str) -> dict[str, np.ndarray]:
    with (REFERENCE / name).open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {key: np.array([float(row[key]) for row in rows]) for key in rows[0] if key != "how"}


@pytest.fixture(scope="session")
def reference() -> Callable[[str], dict[str, np.ndarray]]:
    """Columns of a table in tests/reference."""
    return _columns


@pytest.fixture(scope="session")
def golden() -> dict[str, torch.Tensor]:
    """Both golden tables, row by row the same laws, as float64 columns."""
    laws, more = _columns("double_poisson.csv"), _columns("double_poisson_quantiles.csv")
    for key in ("mu", "gamma"):
        np.testing.assert_array_equal(laws[key], more[key])
    return {key: torch.from_numpy(column) for key, column in (laws | more).items()}


def _rows_of(name: str, family: str) -> dict[str, np.ndarray]:
    """Columns of a table of several families, of one of them."""
    with (REFERENCE / name).open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row.pop("family") == family]
    return {key: np.array([float(row[key]) for row in rows]) for key in rows[0]}


@pytest.fixture(scope="session")
def golden_families() -> Callable[[str], dict[str, np.ndarray]]:
    """40-digit sums of the distributions of one family."""
    return lambda family: _rows_of("count_families_exact.csv", family)


@pytest.fixture(scope="session")
def r_families() -> Callable[[str], dict[str, np.ndarray]]:
    """Values by R packages of one family."""
    return lambda family: _rows_of("count_families.csv", family)


class Enumerated:
    """A count law on every integer from `first` on, from its log weights there (any constant may be missing)."""

    def __init__(self, first: int, log_weight: np.ndarray) -> None:
        self.first = first
        self.y = np.arange(first, first + len(log_weight), dtype=Real)
        self.log_p = log_weight - log_weight.max()
        self.log_total = np.log(np.exp(self.log_p).sum())
        self.log_p = self.log_p - self.log_total
        self.log_total += log_weight.max()
        self.p = np.exp(self.log_p)
        self.below = self.p.cumsum()
        self.above = np.append(self.p[::-1].cumsum()[::-1][1:], Real(0))

    def expectation(self, f: np.ndarray) -> float:
        return float((self.p * f).sum())

    @property
    def mode(self) -> float:
        """The smaller of two, where the two differ by rounding only."""
        return float(self.y[np.argmax(self.log_p >= self.log_p.max() - 1e-15)])

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
        at = int(self.mode) - self.first
        rest = self.p.copy()
        rest[at] = 0
        others = rest.sum()
        return float(-(rest * self.log_p).sum() - (1 - others) * np.log1p(-others))

    @property
    def half_mean_difference(self) -> float:
        return float((self.below * self.above).sum())

    def log_pmf(self, y: float) -> float:
        return float(self.log_p[int(y) - self.first])

    def cdf(self, y: float) -> float:
        return float(self.below[int(y) - self.first])

    def survival(self, y: float) -> float:
        return float(self.above[int(y) - self.first])

    def crps(self, y: float) -> float:
        at = int(y) - self.first
        return float((self.below[:at] ** 2).sum() + (self.above[at:] ** 2).sum())

    def quantile(self, q: float) -> float:
        return float(self.y[np.searchsorted(self.below, Real(q))])

    def shortest(self, coverage: float) -> int:
        """Counts in the shortest interval that holds `coverage`, by trying every start."""
        before = np.concatenate([[Real(0)], self.below[:-1]])
        end = np.searchsorted(self.below, before + Real(coverage) - Real(1e-14))
        reached = end < len(self.y)
        return int((end - np.arange(len(end)))[reached].min()) + 1


def _log_h(y: np.ndarray) -> np.ndarray:
    """log(e^-y y^y / y!): from factorials below 40, by Stirling's series (exact to 1e-22 there) above."""
    small = np.array([n * np.log(Real(max(n, 1))) - n - np.log(Real(math.factorial(n))) for n in range(40)])
    x = np.maximum(y, 40)
    coefficients = [Real(1) / 12, Real(-1) / 360, Real(1) / 1260, Real(-1) / 1680, Real(1) / 1188, Real(-691) / 360360]
    square, series = 1 / (x * x), np.zeros_like(x)
    for c in reversed(coefficients):  # powers of extended precision would take ten times as long
        series = series * square + c
    series = series / x
    large = -np.log(2 * Real(math.pi) * x) / 2 - series
    return np.where(y < 40, small[np.minimum(y, 39).astype(int)], large) if y[0] < 40 else large


def _deviance(y: np.ndarray, mu: float) -> np.ndarray:
    """mu - y + y log(y / mu)."""
    gap = y - Real(mu)
    return np.where(y > 0, y * np.log1p(np.where(y > 0, gap / Real(mu), 0)), 0) - gap


class Oracle:
    """DoublePoisson(mu, gamma), summed directly."""

    def __init__(self, mu: float, gamma: float) -> None:
        # D(y; mu) >= (sqrt(y) - sqrt(mu))^2 bounds the window.
        width = math.sqrt(DEPTH / gamma)
        first = math.floor(max(math.sqrt(mu) - width, 0.0) ** 2)
        last = math.ceil((math.sqrt(mu) + width) ** 2) + 4
        self.mu, self.gamma = float(mu), float(gamma)
        y = np.arange(first, last + 1, dtype=Real)
        self.deviance = _deviance(y, mu)
        self.law = Enumerated(first, _log_h(y) - Real(gamma) * self.deviance)
        self.log_c = float(self.law.log_total + np.log(Real(gamma)) / 2)

    def log_p(self, y: np.ndarray) -> np.ndarray:
        """log p at any counts, those beyond the window included."""
        return _log_h(y) - Real(self.gamma) * _deviance(y, self.mu) - self.law.log_total

    def count_at(self, share: float, depth: float) -> float:
        """The count `share` of the way, in sqrt(y), from one end to the other of the window gamma D <= depth."""
        inside = np.flatnonzero(self.gamma * self.deviance <= depth)
        if len(inside) == 0:
            return self.law.mode
        low, high = np.sqrt(self.law.y[inside[[0, -1]]].astype(float))
        return float(round((low + share * (high - low)) ** 2))


@pytest.fixture(scope="session")
def summed() -> Callable[[float, float], Oracle]:
    """DoublePoisson(mu, gamma), summed directly."""
    return Oracle


@pytest.fixture(scope="session")
def random_laws() -> list[Oracle]:
    """80 Double Poissons over the whole domain that a direct sum can reach quickly."""
    rng = np.random.default_rng(20250)
    mu = np.exp(rng.uniform(math.log(1e-6), math.log(3e4), 80))
    gamma = np.exp(rng.uniform(math.log(2e-3), math.log(1e4), 80))
    return [Oracle(m, g) for m, g in zip(mu, gamma, strict=True)]


def _assert_within(got: object, expected: object, tolerance: float, floor: float = 1e-300, **where: object) -> None:
    got, expected = (np.asarray(x, dtype=np.float64).reshape(-1) for x in (got, expected))
    assert got.shape == expected.shape
    error = np.abs(got - expected) / np.maximum(np.abs(expected), floor)
    worst = int(np.nanargmax(np.where(np.isnan(error), np.inf, error)))
    place = ", ".join(f"{key} = {np.asarray(x).reshape(-1)[worst]:.17g}" for key, x in where.items())
    assert error[worst] <= tolerance, (
        f"off by {error[worst]:.3g}: got {got[worst]}, expected {expected[worst]} at {place}"
    )


@pytest.fixture(scope="session")
def assert_within() -> Callable[..., None]:
    """|got - expected| <= tolerance * max(|expected|, floor) for each element; the worst one is named."""
    return _assert_within
