"""Test that settings of a training are validated when made, and that several processes compute what one does."""

import importlib.util
import json
import math
import multiprocessing
import os
import runpy
import socket
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from ddpn.networks.training import Runtime, TrainingConfig, config
from ddpn.networks.training.config import WHOLE_BATCH, WorkerShard, pick_device
from ddpn.networks.training.loop import Training
from ddpn.runtime.errors import ConfigError

BAD = {
    "epochs": ("an integer of at least 1", [0, -1, 1.5, "10", None, True]),
    "batch_size": ("an integer of at least 1", [0, 2.0, None, False]),
    "accumulate": ("an integer of at least 1", [0, 0.5]),
    "patience": ("an integer of at least 1", [0, 1.5, "never", True]),
    "lr": ("finite and positive", [0.0, -1e-3, math.inf, math.nan, "fast", None, True]),
    "weight_decay": ("finite and at least 0", [-0.1, math.inf, math.nan, None]),
    "clip": ("None or finite and positive", [0.0, -1.0, math.inf, math.nan, "5"]),
    "warmup": (r"in \[0, 1\)", [-0.1, 1.0, math.nan, None]),
    "ema": (r"in \[0, 1\)", [-0.1, 1.0, 2, math.nan, None]),
    "schedule": ("'cosine' or 'constant'", ["linear", None, ["cosine"]]),
    "score": ("one of nll, crps, loss", ["mae", None]),
    "precision": ("'float32' or 'bf16'", ["fp16", None]),
    "seeds": ("a tuple of one integer", [(), 3, None, "ab", [0, 1], (0.5,), (True,)]),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_values_are_refused(name):
    condition, values = BAD[name]
    for value in values:
        with pytest.raises(ConfigError, match=f"^{name} must be {condition}.*, got ") as caught:
            TrainingConfig(**{name: value})
        assert f"got {value!r}." in str(caught.value)


def test_every_setting_has_a_bad_value_here():
    assert set(BAD) == set(TrainingConfig().as_dict())


def test_settings_survive_json():
    config = TrainingConfig(epochs=np.int64(7), lr=0.1 + 0.2, clip=None, patience=3, score="crps", seeds=(4, 2**31 - 2))
    values = json.loads(json.dumps(config.as_dict()))
    assert TrainingConfig(**values | {"seeds": tuple(values["seeds"])}) == config


def test_the_rate_rises_evenly_and_falls_along_a_cosine_to_nearly_nothing():
    steady, falling = (TrainingConfig(lr=1.0, warmup=0.2, schedule=schedule) for schedule in ("constant", "cosine"))
    constant, cosine = ([config.lr_at(step, 50) for step in range(50)] for config in (steady, falling))
    assert constant == pytest.approx([step / 11 for step in range(1, 11)] + [1.0] * 40)
    assert cosine == pytest.approx(constant[:10] + [0.5 * (1 + math.cos(math.pi * step / 40)) for step in range(40)])


# Devices and processes ------------------------------------------------------------------------------------------------


PROGRAM = runpy.run_path(str(Path(__file__).with_name("one_training.py")))


def test_auto_is_a_gpu_where_there_is_one(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert pick_device("auto") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert pick_device("auto") == torch.device("cuda")
    assert pick_device(torch.device("cuda:1")) == torch.device("cuda:1")
    assert pick_device("cpu") == torch.device("cpu")


def test_devices_that_do_not_exist_are_refused(fresh, rows, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for device in ("abacus", "cuda"):
        with pytest.raises(ConfigError, match=f"^device must .*, got '{device}'"):
            Runtime(device)
    many = Runtime("cpu")
    many.shard = WorkerShard(rank=1, world_size=5)
    with pytest.raises(ConfigError, match=r"^batch_size must be at least the number of processes, 5"):
        Training(fresh((0,)), rows(20), None, TrainingConfig(batch_size=4), many)
    monkeypatch.setitem(sys.modules, "accelerate", None)
    assert Runtime("cpu").shard == WHOLE_BATCH, "one process does without accelerate"
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match=r"pip install 'ddpn\[distributed\]'"):
        Runtime("cpu")


def find_free_port() -> int | None:
    try:
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            one.listen()
            return one.getsockname()[1]
    except OSError:
        return None


def run_process(rank: int, port: int, folder: Path) -> None:
    """Run what torchrun would start as process `rank` of two."""
    torch.set_num_threads(1)  # threads of the parent are not there in a fork
    environment = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ |= {name: str(value) for name, value in environment.items()}
    runtime = Runtime("cpu")
    assert runtime.shard == WorkerShard(rank, 2)
    runtime.wait()
    save_file(collect_outcome(), folder / f"weights.{rank}")
    config._leave_process_group()


def collect_outcome() -> dict[str, torch.Tensor]:
    model = PROGRAM["make_network"]()
    epochs = PROGRAM["run_training"](model).epochs
    tensors = {name: p.detach().contiguous() for name, p in model.named_parameters()}
    return tensors | {
        name: torch.tensor([record[name] for record in epochs], dtype=torch.float64) for name in ("loss", "score")
    }


@pytest.mark.skipif(find_free_port() is None, reason="processes cannot communicate: no port can be opened here")
@pytest.mark.skipif(importlib.util.find_spec("accelerate") is None, reason="needs ddpn[distributed]")
def test_two_processes_compute_what_one_does(tmp_path):
    import accelerate  # noqa: F401  (once, and not in every process)

    fork, port = multiprocessing.get_context("fork"), find_free_port()
    processes = [fork.Process(target=run_process, args=(rank, port, tmp_path)) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0]
    alone, first, second = collect_outcome(), load_file(tmp_path / "weights.0"), load_file(tmp_path / "weights.1")
    for name, tensor in alone.items():
        torch.testing.assert_close(first[name], tensor, rtol=1e-5, atol=1e-5)
        assert torch.equal(first[name], second[name]), "the processes have drifted apart"
