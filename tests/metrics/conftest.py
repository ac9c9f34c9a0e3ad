"""Share distributions that every metric must take, and their scipy twins."""

import csv
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from torch.distributions import Normal

from ddpn.distributions import (
    CountDistribution,
    DoublePoisson,
    Mixture,
    NegativeBinomial,
    Poisson,
    discretize,
)

MU = torch.tensor([0.4, 6.0, 30.0], dtype=torch.float64)
SHIFTS = torch.tensor([0.8, 1.3], dtype=torch.float64)
#: Three rows of every kind of distribution that a head or an ensemble predicts.
DISTS = {
    "DoublePoisson": DoublePoisson(MU, torch.full_like(MU, 1.8)),
    "Poisson": Poisson(MU),
    "NegativeBinomial": NegativeBinomial(MU, torch.full_like(MU, 0.6)),
    "Discretized": discretize(Normal(MU, MU.sqrt())),
    "mixture of Poissons": Mixture(Poisson(MU.unsqueeze(-1) * SHIFTS)),
    "mixture of Discretized": discretize(Mixture(Normal(MU.unsqueeze(-1) * SHIFTS, 2.0))),
    "Normal": Normal(MU, MU.sqrt()),
    "mixture of Normals": Mixture(Normal(MU.unsqueeze(-1) * SHIFTS, 2.0)),
}
for _dist in DISTS.values():
    if hasattr(_dist, "interval"):
        # Many of these tests ask for the same intervals, which would take most of their time.
        _dist.interval = cache(_dist.interval)


@pytest.fixture(params=DISTS)
def dist(request):
    """A distribution of each kind, of three rows."""
    return DISTS[request.param]


@pytest.fixture(params=[name for name, dist in DISTS.items() if isinstance(dist, CountDistribution)])
def count_dist(request):
    """A distribution of counts of each kind, of three rows."""
    return DISTS[request.param]


@pytest.fixture
def y() -> torch.Tensor:
    return torch.tensor([1, 4, 41])


def _draw_counts(n: int, seed: int = 0, excess: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Draw means and Poisson counts of them; with `excess`, counts are Negative Binomial with alpha = excess."""
    rng = np.random.default_rng(seed)
    mu = np.exp(rng.uniform(-1.5, 4.5, n))
    return mu, rng.poisson(rng.gamma(1 / excess, excess * mu) if excess else mu)


@pytest.fixture
def draw_counts() -> Callable[..., tuple[np.ndarray, np.ndarray]]:
    return _draw_counts


@pytest.fixture
def compute_poisson_bounds() -> Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Return scipy's F(y - 1) and F(y)."""
    return lambda mu, y: (stats.poisson.cdf(y - 1, mu), stats.poisson.cdf(y, mu))


def _read_rows_by_distribution(name: str) -> dict[str, list[dict[str, str]]]:
    with (Path(__file__).resolve().parents[1] / "reference" / name).open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {name: [row for row in rows if row["law"] == name] for name in ("poisson", "negative_binomial")}


@pytest.fixture
def read_reference_rows() -> Callable[[str], dict[str, list[dict[str, str]]]]:
    """Read rows of a table in tests/reference, by distribution."""
    return _read_rows_by_distribution
