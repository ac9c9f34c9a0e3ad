"""One training in two processes of a Ray cluster: the weights of one process, whatever dies meanwhile."""

import importlib.util
import runpy
from pathlib import Path

import pytest
import torch

from ddpn.cluster import fit_on_ray
from ddpn.cluster.training import _identity, _result
from ddpn.executors import JobError
from ddpn.runtime.errors import ConfigError, InputError

PROGRAM = Path(__file__).resolve().parents[1] / "training" / "one_training.py"

pytestmark = pytest.mark.skipif(importlib.util.find_spec("accelerate") is None, reason="needs ddpn[distributed]")


def test_a_training_survives_a_process_and_continues_by_its_name(cluster, executor, work, tmp_path):
    program, killed = runpy.run_path(str(PROGRAM)), tmp_path / "killed"
    killed.mkdir()
    make, config = work.Networks(str(PROGRAM), str(killed), kills=1), program["CONFIG"]
    train, validation = program["simulated"](50, seed=1), program["simulated"](40, seed=2)
    options = {"storage": tmp_path / "storage", "name": "one", "address": cluster.address, "save_seconds": 0.0}
    with pytest.raises(JobError, match="The training one failed: "):
        fit_on_ray(make, train, validation, config, retries=0, **options)
    assert len(list(killed.iterdir())) == 1
    assert list((tmp_path / "storage" / "one").glob("checkpoint_*/training.state")), "there is one to resume from"
    model, history = fit_on_ray(make, train, validation, config, retries=0, **options)
    assert len(history.epochs) == config.epochs
    alone = program["network"]()
    program["trained"](alone)
    for found, expected in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(found, expected, rtol=0.0, atol=1e-6)
    (path,) = (tmp_path / "storage" / "one").glob("checkpoint_*/model.safetensors")
    with pytest.raises(InputError, match="comes from a training with another training data"):
        _result(model, _identity(validation, validation, config), path)


def test_an_invalid_name_is_refused(rows):
    with pytest.raises(ConfigError, match="name must be the name of a folder, got 'a/b'"):
        fit_on_ray(None, None, None, None, storage="x", name="a/b")
