"""Share a small table of visits, the model that `ddpn fit` would write for it, and what two fits have in common."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from ddpn.storage.model_files import read_files, read_manifest
from ddpn.workflow.config import FitConfig
from ddpn.workflow.fitting import fit
from ddpn.workflow.preparing import prepare


@pytest.fixture(scope="session")
def visits() -> Callable[..., pl.DataFrame]:
    """Make a table of ages, wards and Poisson counts of visits."""

    def make(rows: int, seed: int = 0) -> pl.DataFrame:
        rng = np.random.default_rng(seed)
        age, ward = rng.uniform(18, 90, rows).round(1), rng.choice(list("ABC"), rows)
        mean = np.exp(0.2 + 0.015 * age + 0.5 * (ward == "B"))
        return pl.DataFrame({"age": age, "ward": ward, "visits": rng.poisson(mean)})

    return make


@pytest.fixture(scope="session")
def table(visits, tmp_path_factory) -> Path:
    """A file with 240 rows."""
    path = tmp_path_factory.mktemp("table") / "visits.csv"
    visits(240).write_csv(path)
    return path


@pytest.fixture(scope="session")
def model(visits, tmp_path_factory) -> Path:
    """A model folder with networks and a GLM, compared with boosted trees."""
    path = tmp_path_factory.mktemp("model") / "visits.model"
    small = {"n_networks": 2, "hidden": (8,), "epochs": 2, "device": "cpu", "likelihood": "double_poisson"}
    plan = FitConfig(target="visits", compare_with=("constant", "trees"), **(small | {"mix_with": ("glm",)}))
    fit(prepare(visits(240), plan), {"data": "visits.csv", "command": "ddpn fit"}).folder.save(path)
    return path


@pytest.fixture(scope="session")
def fit_words() -> list[str]:
    """Arguments of `ddpn fit` for a small model of networks, a GLM and boosted trees."""
    words = ["--target", "visits", "--networks", "2", "--epochs", "8", "--likelihood", "double_poisson", "--seed", "1"]
    return [*words, "--mix-with", "glm", "--compare-with", "constant,trees"]


@pytest.fixture(scope="session")
def model_content() -> Callable[[Path], Any]:
    """Read all numbers of a model that two fits have in common, without dates and times. A damaged model raises."""

    def drop_seconds(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: drop_seconds(part) for name, part in value.items() if name != "seconds"}
        return [drop_seconds(part) for part in value] if isinstance(value, list) else value

    def read(path: Path) -> Any:
        manifest = read_manifest(path)
        files = {name: content for name, content in read_files(path, manifest).items() if name != "task.json"}
        weights = {name: part["weight"] for name, part in manifest["members"].items()}
        return weights, {n: drop_seconds(json.loads(c)) if n.endswith(".json") else c for n, c in files.items()}

    return read
