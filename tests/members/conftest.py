"""A sample with everything in it: numbers, text, gaps, weights and exposures."""

import numpy as np
import polars as pl
import pytest

from ddpn.sample import Sample


@pytest.fixture(scope="session")
def mixed_sample() -> Sample:
    """250 rows; the mean follows x, ward A and the exposure."""
    rng = np.random.default_rng(4)
    n = 250
    exposure, weight = rng.uniform(50.0, 400.0, n), rng.integers(1, 4, n).astype(float)
    X = pl.DataFrame(
        {
            "x": rng.normal(size=n),
            "ward": rng.choice(["A", "B", "C"], n).tolist(),
            "age": [None if rng.random() < 0.1 else float(v) for v in rng.normal(50, 9, n)],
            "smokes": rng.random(n) < 0.3,
        }
    )
    mean = exposure * np.exp(-4.0 + 0.5 * X["x"].to_numpy() + (X["ward"] == "A").to_numpy())
    return Sample(X, rng.poisson(mean).astype(float), weight, exposure)
