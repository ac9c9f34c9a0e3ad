"""Share a small under-dispersed set of series with a known truth, and the score of sample paths."""

import numpy as np
import pytest
import torch

from ddpn import DoublePoisson

HORIZON = 7


@pytest.fixture(autouse=True)
def _seed_torch() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def means() -> np.ndarray:
    """12 series of 120 days, of different size, with a weekly pattern."""
    level = np.geomspace(3.0, 40.0, 12)[:, None]
    return level * (1.0 + 0.5 * np.sin(2.0 * np.pi * np.arange(120) / 7.0))


@pytest.fixture(scope="session")
def series(means) -> np.ndarray:
    """Counts with a variance of an eighth of their mean."""
    dist = DoublePoisson(torch.from_numpy(means), torch.tensor(8.0))
    return dist.sample(generator=torch.Generator().manual_seed(0)).numpy()


@pytest.fixture(scope="session")
def compute_sample_crps():
    """Compute the mean CRPS of samples (n, ...) by all pairs of them."""

    def score(samples: np.ndarray, y: np.ndarray) -> float:
        spread = np.mean([np.abs(samples - np.roll(samples, shift, axis=0)).mean() for shift in range(1, len(samples))])
        return float(np.abs(samples - y).mean() - 0.5 * spread)

    return score
