"""What the tests of the estimator share: small data with a known law, and small ensembles."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ddpn import CountRegressor
from ddpn.heads import HEADS

#: Every likelihood, and the paper's objective beside the exact one.
LIKELIHOODS = [{"likelihood": name} for name in HEADS] + [{"objective": "paper"}]


@pytest.fixture(params=LIKELIHOODS, ids=lambda options: "-".join(options.values()))
def likelihood(request) -> dict[str, Any]:
    """Options that name a likelihood."""
    return request.param


@pytest.fixture(scope="session")
def quick() -> Callable[..., CountRegressor]:
    """An ensemble that trains in a fraction of a second."""
    small = {"members": 2, "hidden": (8,), "numeric": "standard", "epochs": 5, "random_state": 0, "device": "cpu"}
    return lambda **options: CountRegressor(**small | options)


@pytest.fixture(scope="session")
def counts() -> tuple[np.ndarray, np.ndarray]:
    """90 rows of three numbers, and Poisson counts whose mean the first two move."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(90, 3))
    return X, rng.poisson(np.exp(1.2 + 0.8 * X[:, 0] - 0.4 * X[:, 1])).astype(float)


@pytest.fixture(scope="session")
def exposures() -> np.ndarray:
    """One a row of `counts`."""
    return np.random.default_rng(6).uniform(0.2, 4.0, 90)


@pytest.fixture(scope="session")
def fitted(quick, counts) -> CountRegressor:
    """One ensemble for tests that only ask it things."""
    return quick(members=3, epochs=40).fit(*counts)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Where the paper's data lie; tests that need them are skipped where they do not."""
    beside = Path(__file__).resolve().parents[3] / "shared" / "data"
    folder = Path(os.environ.get("DDPN_DATA", beside))
    if not (folder / "length_of_stay").is_dir():
        pytest.skip(f"no data in {folder}: set DDPN_DATA to a folder that has them")
    return folder
