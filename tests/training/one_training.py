"""A small training as a program of its own, for tests that kill it or run it in several processes.

python one_training.py WEIGHTS CHECKPOINT [SIGNAL STEP]     ends itself by a signal at a step
torchrun --nproc_per_node 2 one_training.py WEIGHTS         every process writes WEIGHTS.<rank>
"""

import os
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from ddpn.backbones import MLP
from ddpn.heads import make_head
from ddpn.model import CountModel
from ddpn.training import History, Runtime, Sample, TrainingConfig, fit

CONFIG = TrainingConfig(epochs=4, batch_size=16, lr=0.01, clip=0.5, ema=0.5, accumulate=2, patience=3, seeds=(3, 8))


def simulated(rows: int, seed: int) -> Sample:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 3, generator=generator)
    exposure = torch.rand(rows, generator=generator) + 0.5
    y = torch.poisson(exposure * torch.exp(1.0 + 0.6 * x[:, 0]), generator=generator)
    return Sample(x, y, torch.rand(rows, generator=generator) + 0.5, exposure)


def network() -> CountModel:
    model = CountModel(MLP(n_in=3, hidden=(8, 6), members=2), make_head("double_poisson"), 2)
    model.reset(CONFIG.seeds)
    return model


def trained(model: CountModel, checkpoint: Path | None = None) -> History:
    """After every epoch a checkpoint, where there is to be one."""
    options = {"runtime": Runtime("cpu"), "checkpoint": checkpoint, "save_seconds": 0.0}
    return fit(model, simulated(50, seed=1), simulated(40, seed=2), CONFIG, **options)


def ending_itself(model: CountModel, signal: int, at: int) -> CountModel:
    """The same network, but its `at`-th use sends this process a signal."""
    uses, compute = 0, model.raw

    def raw(x: torch.Tensor) -> torch.Tensor:
        nonlocal uses
        uses += 1
        if uses == at:
            os.kill(os.getpid(), signal)
        return compute(x)

    model.raw = raw
    return model


def main(weights: str, checkpoint: str = "", signal: str = "0", at: str = "0") -> None:
    model = ending_itself(network(), int(signal), int(at))
    Runtime("cpu", "bf16").wait()  # a program may have runtimes of several precisions
    history = trained(model, Path(checkpoint) if checkpoint else None)
    if history.interrupted:
        sys.exit(130)
    tensors = {name: p.detach().contiguous() for name, p in model.named_parameters()}
    tensors["losses"] = torch.tensor([record["loss"] for record in history.epochs], dtype=torch.float64)
    tensors["scores"] = torch.tensor([record["score"] for record in history.epochs], dtype=torch.float64)
    rank = os.environ.get("RANK")
    save_file(tensors, weights if rank is None else f"{weights}.{rank}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:])
