"""What the tests of the workflow share: a small table with everything in it, and a plan that fits in a second."""

from collections.abc import Callable

import numpy as np
import polars as pl
import pytest

from ddpn.workflow.fitting import Fitted, Prepared, fit, prepare
from ddpn.workflow.plan import Plan

#: One small network, and one encoding.
QUICK = {"members": 2, "hidden": (8,), "numeric": "standard", "epochs": 3, "device": "cpu"}


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
def plan() -> Callable[..., Plan]:
    """A plan for the table, with other options."""
    return lambda **options: Plan(
        **{"target": "visits", "exposure": "days", "weight": "weight", "model": QUICK} | options
    )


@pytest.fixture(scope="session")
def prepared(table, plan) -> Prepared:
    """The table, ready."""
    return prepare(table, plan())


@pytest.fixture(scope="session")
def fitted(prepared) -> Fitted:
    """A model and its baselines, for tests that only ask them things."""
    return fit(prepared, {"data": "patients.csv", "command": "ddpn fit"})
