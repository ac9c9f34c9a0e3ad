"""What the tests of the report share: a frame with hostile names, a small ensemble, and what was found of it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from ddpn import CountRegressor, Poisson
from ddpn.report import write_report
from ddpn.report.evidence import Evidence, gather, judged

HOSTILE = "<script>alert(1)</script> & \"co\" 'x'"


def frame_of(rows: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Counts that `x` and the level "b" drive; `noise` does nothing."""
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
def quick() -> Callable[..., CountRegressor]:
    small = {"members": 2, "hidden": (16,), "numeric": "standard", "epochs": 20, "random_state": 0, "device": "cpu"}
    return lambda **options: CountRegressor(**small | options)


@pytest.fixture(scope="session")
def fitted(quick) -> CountRegressor:
    return quick().fit(*frame_of(500, 0))


@pytest.fixture(scope="session")
def data() -> tuple[pd.DataFrame, np.ndarray]:
    return frame_of(300, 1)


@pytest.fixture(scope="session")
def baselines(data) -> dict[str, Any]:
    """The law the counts come from, and a constant."""
    frame, y = data
    truth = np.exp(1.0 + 0.7 * frame["x"] + 0.5 * (frame[HOSTILE] == "b")).to_numpy(copy=True)
    return {"truth": Poisson(torch.from_numpy(truth)), "constant": Poisson(torch.tensor(float(y.mean())).double())}


@pytest.fixture(scope="session")
def gathered(fitted, data, baselines) -> Evidence:
    return gather(fitted, *data, None, None, baselines, lambda stage: None)


@pytest.fixture(scope="session")
def evidence(gathered) -> Evidence:
    """Of the small ensemble; files that look at other evidence have a fixture of this name themselves."""
    return gathered


@pytest.fixture(scope="session")
def made(gathered) -> Callable[..., Evidence]:
    """Evidence of laws of our own for counts of our own."""

    def make(law: Any, y: Any, weight: Any = None, baselines: Any = None, **more: Any) -> Evidence:
        counts = torch.as_tensor(np.asarray(y, dtype=float))
        mine = judged(law, counts)
        rows = len(counts)
        changed = {
            "rows": np.arange(rows),
            "total": rows,
            "columns": [],
            "y": counts.numpy(),
            "weight": np.ones(rows) if weight is None else np.asarray(weight, dtype=float),
            "weighted": weight is not None,
            "model": mine,
            "aleatoric": mine.variance,
            "epistemic": np.zeros(rows),
            "baselines": {name: judged(other, counts) for name, other in (baselines or {}).items()},
        }
        return gathered._replace(**changed | more)

    return make


@pytest.fixture(scope="session")
def written(tmp_path_factory, fitted, data, baselines) -> Path:
    """A whole report, with hostile words wherever a user's may stand."""
    frame, y = data
    task = {
        "target": HOSTILE,
        "command": f"ddpn fit {HOSTILE}",
        "split": {"train": 500, "test": 300},
        HOSTILE: [HOSTILE],
    }
    laws = {HOSTILE: baselines["truth"], "constant": baselines["constant"]}
    path = tmp_path_factory.mktemp("report") / "report.html"
    return write_report(path, model=fitted, X=frame, y=y, baselines=laws, task=task)
