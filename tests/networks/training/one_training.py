"""A small training for tests that kill its process or run it in several; imported by path, as tests are no package."""

import os
from pathlib import Path

import torch

from ddpn.networks.backbones import MLP
from ddpn.networks.heads import make_head
from ddpn.networks.model import CountModel
from ddpn.networks.training import CountRows, History, Runtime, TrainingConfig, fit

#: Two uses of the network per step, three steps per epoch, and one use to validate.
CONFIG = TrainingConfig(epochs=4, batch_size=16, lr=0.01, clip=0.5, ema=0.5, accumulate=2, patience=3, seeds=(3, 8))


def simulated(rows: int, seed: int) -> CountRows:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 3, generator=generator)
    exposure = torch.rand(rows, generator=generator) + 0.5
    y = torch.poisson(exposure * torch.exp(1.0 + 0.6 * x[:, 0]), generator=generator)
    return CountRows(x, y, torch.rand(rows, generator=generator) + 0.5, exposure)


def network() -> CountModel:
    model = CountModel(MLP(n_in=3, hidden=(8, 6), n_networks=2), make_head("double_poisson"), 2)
    model.reset(CONFIG.seeds)
    return model


def trained(model: CountModel, checkpoint: Path | None = None) -> History:
    """After every epoch a checkpoint, if there is to be one."""
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
