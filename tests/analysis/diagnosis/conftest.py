"""Counts of which the right diagnosis is known."""

from typing import NamedTuple

import numpy as np
import pytest
import torch

from ddpn import DoublePoisson


class Simulated(NamedTuple):
    X: np.ndarray
    mean: np.ndarray
    rng: np.random.Generator

    @classmethod
    def of(cls, rows: int) -> "Simulated":
        """Three columns, and means that follow the first."""
        rng = np.random.default_rng(1)
        X = rng.normal(size=(rows, 3))
        return cls(X, np.exp(1.2 + 0.5 * X[:, 0]), rng)

    def double_poisson(self, gamma: float) -> np.ndarray:
        mu = torch.from_numpy(self.mean)
        drawn = DoublePoisson(mu, torch.full_like(mu, gamma)).sample(generator=torch.Generator().manual_seed(0))
        return drawn.numpy()


@pytest.fixture
def simulated() -> Simulated:
    return Simulated.of(1000)
