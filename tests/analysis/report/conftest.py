"""Share what tests of the report need: a data frame with hostile names, a small fitted model, and its report."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import BaseEstimator

from ddpn import CountGLM, DDPNRegressor, Poisson
from ddpn.analysis.report import write_report
from ddpn.analysis.report.evidence import Evidence, gather_evidence
from ddpn.distributions.batch_shapes import reshape_batch
from ddpn.members import Member
from ddpn.predictor import Predictor
from ddpn.rows.count_rows import CountRows
from ddpn.tables.columns import Column, Kind

HOSTILE = "<script>alert(1)</script> & \"co\" 'x'"


class PositionalMember(Member):
    """A member that predicts one of several distributions, by the position of a row."""

    def __init__(self, dist: Any) -> None:
        self.dist = dist

    def distribution(self, X, exposure=None):
        rows = self.dist.rows(torch.from_numpy(X[0].values.astype(int)))
        return reshape_batch(rows, (len(X), 1))

    fit = state = from_state = None


def simulate_frame(rows: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Simulate counts that are driven by `x` and the level "b"; `noise` has no effect."""
    rng = np.random.default_rng(seed)
    x, ward = rng.normal(size=rows), rng.choice(["a", "b", HOSTILE], rows)
    frame = pd.DataFrame(
        {
            "x": x,
            HOSTILE: ward,
            "noise": np.where(rng.random(rows) < 0.1, np.nan, rng.normal(size=rows)),
            "flag": rng.random(rows) < 0.3,
        }
    )
    return frame, rng.poisson(np.exp(1.0 + 0.7 * x + 0.5 * (ward == "b")))


@pytest.fixture(scope="session")
def quick() -> Callable[..., DDPNRegressor]:
    small = {"n_networks": 2, "hidden": (16,), "numeric": "standard", "epochs": 4, "random_state": 0, "device": "cpu"}
    return lambda **options: DDPNRegressor(**small | {"preset": "default", "likelihood": "mixed"} | options)


@pytest.fixture(scope="session")
def small_model(quick) -> DDPNRegressor:
    return quick(epochs=5).fit(*simulate_frame(250, 0))


@pytest.fixture(scope="session")
def with_exposure() -> tuple[CountGLM, dict[str, np.ndarray]]:
    """A model of counts that grow with the exposure alone, and its data."""
    rng = np.random.default_rng(0)
    X, exposure = rng.normal(size=(160, 1)), rng.uniform(0.1, 20.0, 160)
    data = {"X": X, "y": rng.poisson(exposure), "exposure": exposure}
    return CountGLM(likelihood="poisson").fit(**data), data


@pytest.fixture(scope="session")
def data() -> tuple[pd.DataFrame, np.ndarray]:
    return simulate_frame(300, 1)


@pytest.fixture(scope="session")
def baselines(data) -> dict[str, Any]:
    """The distribution of the counts, and a constant."""
    frame, y = data
    truth = np.exp(1.0 + 0.7 * frame["x"] + 0.5 * (frame[HOSTILE] == "b")).to_numpy(copy=True)
    return {"truth": Poisson(torch.from_numpy(truth)), "constant": Poisson(torch.tensor(float(y.mean())).double())}


@pytest.fixture(scope="session")
def evidence(small_model, data, baselines) -> Evidence:
    return gather_evidence(small_model, CountRows(*data), baselines)


@pytest.fixture(scope="session")
def make_evidence() -> Callable[..., Evidence]:
    """Gather evidence of these distributions and counts, without a fitted model."""

    def make(dist: Any, y: Any, columns: Any = (), exposure: Any = None, **more: Any) -> Evidence:
        sample = CountRows(np.arange(len(y), dtype=float)[:, None], np.asarray(y, dtype=float))
        model: Any = BaseEstimator()
        model.n_features_in_, model.predictor_ = 1, Predictor({"one": PositionalMember(dist)})
        model.parse, model.day_columns_ = model.predictor_.parse, frozenset()
        extra = [] if exposure is None else [Column("exposure", Kind.NUMBER, exposure)]
        positions = {"exposure": len(columns)} if extra else {}
        inputs = SimpleNamespace(
            columns=[*columns, *extra], width=len(columns), extra=positions, day_columns=frozenset()
        )
        return gather_evidence(model, sample)._replace(**{"inputs": inputs, "components": 2} | more)

    return make


@pytest.fixture(scope="session")
def report_path(tmp_path_factory, small_model, data, baselines) -> Path:
    """A whole report, with hostile text wherever a user's may be."""
    frame, y = data
    task = {
        "target": HOSTILE,
        "command": f"ddpn fit {HOSTILE}",
        "split": {"train": 500, "test": 300},
        HOSTILE: [HOSTILE],
    }
    others = {HOSTILE: baselines["truth"], "constant": baselines["constant"]}
    path = tmp_path_factory.mktemp("report") / "report.html"
    options = {"warnings": [f"Warning of {HOSTILE}."], "leak": "A leak is suspected."}
    return write_report(path, small_model, CountRows(frame, y), baselines=others, task=task, **options)
