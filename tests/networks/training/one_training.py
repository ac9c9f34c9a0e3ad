"""Define a small training that tests kill or run in several processes.

Tests import it by path, as tests are no package.
"""

import os
from pathlib import Path

import torch

from ddpn.networks.backbones import MLP
from ddpn.networks.heads import make_head
from ddpn.networks.model import CountModel
from ddpn.networks.training import CountRows, History, Runtime, TrainingConfig, fit

#: Two uses of the network per step, three steps per epoch, and one use to validate.
CONFIG = TrainingConfig(epochs=4, batch_size=16, lr=0.01, clip=0.5, ema=0.5, accumulate=2, patience=3, seeds=(3, 8))


def simulate_rows(rows: int, seed: int) -> CountRows:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 3, generator=generator)
    exposure = torch.rand(rows, generator=generator) + 0.5
    y = torch.poisson(exposure * torch.exp(1.0 + 0.6 * x[:, 0]), generator=generator)
    return CountRows(x, y, torch.rand(rows, generator=generator) + 0.5, exposure)


def make_network() -> CountModel:
    model = CountModel(MLP(n_in=3, hidden=(8, 6), n_networks=2), make_head("double_poisson"), 2)
    model.reset(CONFIG.seeds)
    return model


def run_training(model: CountModel, checkpoint: Path | None = None) -> History:
    """Train, and write a checkpoint after every epoch if there is to be one."""
    options = {"runtime": Runtime("cpu"), "checkpoint": checkpoint, "save_seconds": 0.0}
    return fit(model, simulate_rows(50, seed=1), simulate_rows(40, seed=2), CONFIG, **options)


def make_self_ending(model: CountModel, signal: int, at: int) -> CountModel:
    """Return the same network, except that its `at`-th use sends this process a signal."""
    uses, compute = 0, model.raw

    def raw(x: torch.Tensor) -> torch.Tensor:
        nonlocal uses
        uses += 1
        if uses == at:
            os.kill(os.getpid(), signal)
        return compute(x)

    model.raw = raw
    return model
