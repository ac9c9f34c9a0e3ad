"""Small data with a known distribution and small models, which many tests share."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ddpn import CountRegressor
from ddpn.files import sha256
from ddpn.model_files import _checksum

#: Two small networks with one encoding.
SMALL = {"members": 2, "hidden": (8,), "numeric": "standard", "epochs": 5, "random_state": 0, "device": "cpu"}


@pytest.fixture(scope="session")
def quick() -> Callable[..., CountRegressor]:
    """An ensemble that is trained in a twentieth of a second."""
    return lambda **options: CountRegressor(**SMALL | options)


@pytest.fixture(scope="session")
def counts() -> tuple[np.ndarray, np.ndarray]:
    """90 rows of three numbers, and Poisson counts whose mean depends on the first two."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(90, 3))
    return X, rng.poisson(np.exp(1.2 + 0.8 * X[:, 0] - 0.4 * X[:, 1])).astype(float)


@pytest.fixture(scope="session")
def exposures() -> np.ndarray:
    """One exposure per row of `counts`."""
    return np.random.default_rng(6).uniform(0.2, 4.0, 90)


@pytest.fixture(scope="session")
def larger() -> tuple[np.ndarray, np.ndarray]:
    """300 rows: more than one batch, and enough for validation rows."""
    rng = np.random.default_rng(8)
    X = rng.normal(size=(300, 2)) * (rng.uniform(size=(300, 2)) > 0.3)
    return X, rng.poisson(np.exp(1.0 + X[:, 0])).astype(float)


@pytest.fixture(scope="session")
def wards() -> tuple[pd.DataFrame, np.ndarray]:
    """90 rows of text, levels, numbers with gaps and flags; counts are higher in ward A."""
    rng = np.random.default_rng(9)
    ward = np.array(["A", "B", "C"])[rng.integers(0, 3, 90)]
    age = np.where(rng.uniform(size=90) < 0.2, np.nan, rng.uniform(20, 80, 90))
    frame = pd.DataFrame({"ward": ward, "kind": pd.Categorical(ward), "age": age, "urgent": rng.uniform(size=90) < 0.5})
    return frame, rng.poisson(np.where(ward == "A", 9.0, 2.0)).astype(float)


@pytest.fixture(scope="session")
def fitted(quick, counts) -> CountRegressor:
    """An ensemble for tests that only predict with it."""
    return quick(members=3, epochs=40).fit(*counts)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of the paper's data; tests that need them are skipped where there is none."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("DDPN_DATA", beside))
    if not (folder / "length_of_stay").is_dir():
        pytest.skip(f"no data in {folder}: set DDPN_DATA to a folder that has them")
    return folder


@pytest.fixture(scope="session")
def rewrite() -> Callable[..., None]:
    """Change a saved model and update its hashes, as somebody would who wants it to be loaded."""

    def change(folder: Path, files: dict[str, bytes] | None = None, **manifest: Any) -> None:
        known = json.loads((folder / "model.json").read_text()) | manifest
        for name, content in (files or {}).items():
            (folder / name).write_bytes(content)
            known["files"][name] = sha256(content)
        known["checksum"] = _checksum(known)
        (folder / "model.json").write_text(json.dumps(known))

    return change


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests on Ray come last: a process that was its driver has threads, and others start processes by a fork."""
    items.sort(key=lambda item: "tests/cluster/" in item.nodeid)
