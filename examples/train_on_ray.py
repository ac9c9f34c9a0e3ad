"""Train one model in several processes on a Ray cluster, with Ray Train.

Run `python examples/train_on_ray.py /shared/folder` on a machine of the cluster, with a folder that all machines share.
It needs `pip install 'ddpn[cluster,distributed]'`. The processes share each batch, so that the weights equal those of a
training in one process, up to rounding. If a process or its machine fails, Ray restarts all processes, and `fit`
continues from the checkpoint in that folder. If this program is killed, start it again: it continues there, too.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer
from safetensors.torch import load_file, save_file

from ddpn.networks.backbones import MLP
from ddpn.networks.heads import make_head
from ddpn.networks.model import CountModel
from ddpn.networks.training import Runtime, TrainingConfig, fit
from ddpn.rows.count_rows import CountRows

#: What `build` returns: a model, training rows, validation rows, and how to train it.
Work = tuple[CountModel, CountRows, CountRows, TrainingConfig]


def build() -> Work:
    """Make two networks for simulated counts; put your own model and rows here."""
    config = TrainingConfig(epochs=20, batch_size=256, lr=0.01, seeds=(0, 1))
    model = CountModel(MLP(n_in=3, hidden=(64, 64), n_networks=2), make_head("double_poisson"), n_networks=2)
    model.reset(config.seeds)
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(20_000, 3)).astype(np.float32))
    y = torch.poisson(torch.exp(1.0 + 0.6 * x[:, 0]), generator=torch.Generator().manual_seed(0))
    return model, CountRows(x[:18_000], y[:18_000]), CountRows(x[18_000:], y[18_000:]), config


def train(settings: dict[str, Any]) -> None:
    """Train the model: every process runs this function."""
    model, rows, validation, config = settings["build"]()
    runtime, folder = Runtime("cuda" if settings["gpus"] else "cpu"), Path(settings["folder"])
    save_seconds = settings["save_seconds"]
    fit(model, rows, validation, config, runtime=runtime, checkpoint=folder / "state", save_seconds=save_seconds)
    if runtime.is_main:
        weights = {name: value.cpu().contiguous() for name, value in model.state_dict().items()}
        save_file(weights, folder / "weights.safetensors")


def train_on_ray(
    build: Callable[[], Work],
    folder: Path,
    processes: int = 2,
    gpus: bool = False,
    retries: int = 3,
    save_seconds: float = 30.0,
) -> CountModel:
    """Train a model in several processes on Ray, and return it."""
    settings = {"build": build, "folder": str(folder), "gpus": gpus, "save_seconds": save_seconds}
    TorchTrainer(
        train,
        train_loop_config=settings,
        torch_config=TorchConfig(backend="nccl" if gpus else "gloo"),
        scaling_config=ScalingConfig(num_workers=processes, use_gpu=gpus),
        run_config=RunConfig(storage_path=str(folder), failure_config=FailureConfig(max_failures=retries)),
    ).fit()
    model = build()[0]
    model.load_state_dict(load_file(folder / "weights.safetensors"))
    return model.eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a folder that all nodes share")
    parser.add_argument("--address", default="auto", help="address of the cluster")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--gpus", action="store_true", help="a GPU for each process")
    args = parser.parse_args()
    ray.init(args.address)
    args.folder.mkdir(parents=True, exist_ok=True)
    train_on_ray(build, args.folder.absolute(), args.processes, args.gpus)
    print(f"Weights: {args.folder / 'weights.safetensors'}")


if __name__ == "__main__":
    main()
