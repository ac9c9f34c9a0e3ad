"""Share a small table with columns of every kind, and a plan that fits in a second.

Tests of the commands and of estimators use the default likelihood; these tests use the cheapest.
"""

from collections.abc import Callable

import numpy as np
import polars as pl
import pytest

from ddpn.workflow.config import FitConfig
from ddpn.workflow.fitting import Fitted, fit
from ddpn.workflow.preparing import Prepared, prepare

#: Two small networks, one encoding, one batch size.
QUICK = {
    "n_networks": 2, "hidden": (8,), "numeric": "standard", "epochs": 3, "device": "cpu", "likelihood": "poisson",
    "training_options": {"batch_size": 70},
}  # fmt: skip


@pytest.fixture(scope="session")
def table() -> pl.DataFrame:
    """300 patients: visits follow severity, ward and days observed."""
    rng = np.random.default_rng(3)
    n = 300
    severity, days = rng.normal(size=n), rng.uniform(0.5, 3.0, n)
    ward = rng.choice(["A", "B", "C"], n)
    visits = rng.poisson(days * np.exp(0.5 + 0.6 * severity + (ward == "A")))
    age = [None if rng.random() < 0.1 else float(v) for v in rng.normal(50, 9, n)]
    return pl.DataFrame(
        {
            "severity": severity,
            "ward": ward,
            "days": days,
            "smokes": rng.random(n) < 0.3,
            "age": age,
            "weight": rng.integers(1, 4, n),
            "patient": [f"p{row}" for row in range(n)],
            "admitted": pl.date_range(pl.date(2024, 1, 1), pl.date(2024, 10, 26), "1d", eager=True),
            "visits": visits,
        }
    )


@pytest.fixture(scope="session")
def plan() -> Callable[..., FitConfig]:
    """Make a plan for the table with other options; `model` adds to the quick ones."""

    def make(**options) -> FitConfig:
        model = QUICK | options.pop("model", {})
        usual = {"target": "visits", "exposure": "days", "weight": "weight"}
        return FitConfig(**usual | {"compare_with": ("constant", "poisson_glm")} | options | model)

    return make


@pytest.fixture(scope="session")
def patients(table, plan) -> Prepared:
    """The table, ready for fitting."""
    return prepare(table, plan())


@pytest.fixture(scope="session")
def patients_fit(patients) -> Fitted:
    """Networks mixed with a GLM, and two members for comparison; tests must not change it."""
    return fit(patients, {"data": "patients.csv", "command": "ddpn fit"})


@pytest.fixture
def patients_without_mixing(table, plan) -> Prepared:
    """The same table for networks alone: two batches per epoch, nothing to compare with."""
    return prepare(table, plan(compare_with=(), model={"mix_with": ()}))
