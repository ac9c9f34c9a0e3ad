"""Share a small model with every kind of column, fitted once, and its server in this process."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from starlette.testclient import TestClient

from ddpn.serving import create_app
from ddpn.workflow.config import FitConfig
from ddpn.workflow.fitting import fit
from ddpn.workflow.preparing import prepare

ROW = {
    "severity": 0.4, "ward": "A", "zip": "01234", "smokes": True, "age": 50.5, "admitted": "2024-03-05", "days": 1.5,
}  # fmt: skip


@pytest.fixture(scope="session")
def table() -> pl.DataFrame:
    """400 patients: visits follow severity, ward and days observed."""
    rng = np.random.default_rng(3)
    n = 400
    severity, days, ward = rng.normal(size=n), rng.uniform(0.5, 3.0, n), rng.choice(["A", "B", "C"], n)
    age = [None if rng.random() < 0.1 else float(v) for v in rng.normal(50, 9, n)]
    return pl.DataFrame(
        {
            "severity": severity,
            "ward": ward,
            "zip": rng.choice(["01234", "56789", "11111"], n),
            "smokes": rng.random(n) < 0.3,
            "age": age,
            "admitted": pl.date_range(pl.date(2024, 1, 1), pl.date(2025, 2, 3), "1d", eager=True),
            "days": days,
            "patient": [f"p{row}" for row in range(n)],
            "visits": rng.poisson(days * np.exp(0.5 + 0.6 * severity + (ward == "A"))),
        }
    )


@pytest.fixture(scope="session")
def folder(table) -> Any:
    """Two small networks mixed with a GLM, with calibrated intervals and flags."""
    model = {"n_networks": 2, "hidden": (8,), "numeric": "standard", "epochs": 5, "device": "cpu", "mix_with": ("glm",)}
    model["likelihood"] = "double_poisson"
    plan = FitConfig(target="visits", exposure="days", compare_with=("constant",), **model)
    return fit(prepare(table, plan), {"data": "patients.csv", "command": "ddpn fit"}).folder


@pytest.fixture(scope="session")
def model_path(folder, tmp_path_factory) -> Path:
    """The model folder."""
    path = tmp_path_factory.mktemp("serving") / "patients.model"
    folder.save(path)
    return path


@pytest.fixture(scope="session")
def app(model_path) -> Any:
    """A server of two models, which are the same."""
    return create_app({"patients": model_path, "again": model_path}, reload_every=0.0)


@pytest.fixture(scope="session")
def client(app) -> Iterator[TestClient]:
    """A client that sends requests to the server."""
    with TestClient(app) as test_client:
        yield test_client


@pytest.fixture
def row() -> dict[str, Any]:
    """A row that is accepted."""
    return dict(ROW)


@pytest.fixture(scope="session")
def predict(client) -> Callable[..., Any]:
    """Predict one row, some of its cells changed, and return the response."""

    def send(path: str = "/predict", more: dict[str, Any] | None = None, **cells: Any) -> Any:
        content = json.dumps({"rows": [{**ROW, **cells}], **(more or {})})  # clients may escape what is no UTF-8
        return client.post(path, content=content, headers={"content-type": "application/json"})

    return send
