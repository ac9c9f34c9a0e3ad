"""Share a small table, a small ensemble, and a training from its seeds."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from ddpn.networks.backbones import MLP
from ddpn.networks.heads import make_head
from ddpn.networks.model import CountModel
from ddpn.networks.training import CountRows, History, Runtime, TrainingConfig, fit

COLUMNS = 3


def draw_rows(rows: int, seed: int = 0, weight: bool = False, exposure: bool = False) -> CountRows:
    """Draw Poisson counts whose log mean follows the first column and, where there is one, the exposure."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, COLUMNS, generator=generator)
    scale = torch.rand(rows, generator=generator) + 0.5 if exposure else None
    mean = torch.exp(1.0 + 0.6 * x[:, 0]) * (1.0 if scale is None else scale)
    weights = torch.rand(rows, generator=generator) + 0.5 if weight else None
    return CountRows(x, torch.poisson(mean, generator=generator), weights, scale)


def make_ensemble(seeds: Sequence[int], head: str = "double_poisson", **options: Any) -> CountModel:
    """Make fresh networks, one per seed."""
    model = CountModel(MLP(n_in=COLUMNS, hidden=(8, 6), n_networks=len(seeds)), make_head(head, **options), len(seeds))
    model.reset(seeds)
    return model


def flatten_weights(model: CountModel) -> torch.Tensor:
    """Return the weights of networks in shape (M, D)."""
    return torch.cat([p.detach().reshape(model.n_networks, -1) for p in model.parameters()], dim=1)


class UseCounter:
    """A counter of the uses of a model, which it interrupts at one of them."""

    def __init__(self, model: CountModel, interrupt_at: int = 0) -> None:
        self.count, self._at, self._compute = 0, interrupt_at, model.raw
        model.raw = self

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        if self.count == self._at:
            raise KeyboardInterrupt
        return self._compute(x)


@pytest.fixture(scope="session")
def use_counter() -> type[UseCounter]:
    return UseCounter


@pytest.fixture(scope="session")
def rows() -> Callable[..., CountRows]:
    return draw_rows


@pytest.fixture(scope="session")
def fresh() -> Callable[..., CountModel]:
    return make_ensemble


@pytest.fixture(scope="session")
def flat() -> Callable[[CountModel], torch.Tensor]:
    return flatten_weights


@pytest.fixture(scope="session")
def train() -> Callable[..., tuple[torch.Tensor, History]]:
    """Train fresh networks on the CPU, and return their weights and history."""

    def train_fresh(
        data: Any,
        validation: Any = None,
        *,
        head: str = "double_poisson",
        head_options: dict[str, Any] | None = None,
        model: CountModel | None = None,
        fit_options: dict[str, Any] | None = None,
        **settings: Any,
    ) -> tuple[torch.Tensor, History]:
        config = TrainingConfig(**{"epochs": 3, "batch_size": 16, "lr": 0.01} | settings)
        model = model or make_ensemble(config.seeds, head, **head_options or {})
        history = fit(model, data, validation, config, runtime=Runtime("cpu"), **fit_options or {})
        return flatten_weights(model), history

    return train_fresh
