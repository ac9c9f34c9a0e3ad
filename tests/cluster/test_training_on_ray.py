"""The example of a training in two processes of a Ray cluster: the weights of one process, though one of them dies."""

import importlib.util
import runpy
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(importlib.util.find_spec("accelerate") is None, reason="needs ddpn[distributed]")


@pytest.mark.filterwarnings("ignore")  # on the inner workings of Ray
def test_a_training_survives_a_process(cluster, work, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    example = importlib.import_module("train_on_ray")
    # Workers need not find the example, but are sent it.
    sys.modules["ray.cloudpickle"].register_pickle_by_value(example)
    path, killed = str(ROOT / "tests" / "training" / "one_training.py"), tmp_path / "killed"
    killed.mkdir()
    (tmp_path / "shared").mkdir()
    options = {"processes": 2, "retries": 1, "save_seconds": 0.0}
    model = example.train_on_ray(work.Dying(path, str(killed)), tmp_path / "shared", **options)
    assert len(list(killed.iterdir())) == 1, "a process was killed"
    program = runpy.run_path(path)
    program["trained"](alone := program["network"]())
    for found, expected in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(found, expected, rtol=0.0, atol=1e-6)
