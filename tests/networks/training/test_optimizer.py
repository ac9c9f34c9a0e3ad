"""The optimizer step, against torch's own and against its formulas."""

import pytest
import torch
from torch import Tensor

from ddpn.networks.training import TrainingConfig
from ddpn.networks.training.optimizer import Optimizer
from ddpn.networks.training.weights import FlatWeights

FINE = torch.zeros(2)


def gradients(shape: torch.Size, steps: int = 5, size: float = 1.0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [size * torch.randn(shape, generator=generator) for _ in range(steps)]


@pytest.fixture
def optimizer(fresh):
    """Two members under the given settings, without average, decay or clipping where none is asked for."""

    def make(**settings) -> Optimizer:
        plain = {"lr": 0.01, "ema": 0.0, "weight_decay": 0.0, "clip": None, "seeds": (0, 1)}
        return Optimizer(FlatWeights(fresh((0, 1)), 2), TrainingConfig(**plain | settings))

    return make


def apply(optimizer: Optimizer, gradient: Tensor, loss: Tensor = FINE) -> None:
    optimizer.flat.grad.copy_(gradient)
    optimizer.apply(loss)


FAILURES = {
    "gradient": lambda gradient, loss: (gradient.index_fill(1, torch.tensor([2]), torch.nan), loss),
    "infinite gradient": lambda gradient, loss: (gradient.index_fill(1, torch.tensor([2]), torch.inf), loss),
    "loss": lambda gradient, loss: (gradient, torch.full_like(loss, torch.nan)),
}


@pytest.mark.parametrize("kind", FAILURES)
@pytest.mark.parametrize("clip", [None, 0.1])
def test_a_failed_member_stays_where_it_is_and_the_other_does_not_notice(optimizer, kind, clip):
    ours, undisturbed = optimizer(clip=clip, weight_decay=0.1), optimizer(clip=clip, weight_decay=0.1)
    first, second, third = gradients(ours.flat.values.shape, steps=3)
    for each in (ours, undisturbed):
        apply(each, first)
    before = ours.flat.values.clone()
    bad_gradient, bad_loss = FAILURES[kind](second, FINE)
    gradient, loss = second.clone(), FINE.clone()
    gradient[0], loss[0] = bad_gradient[0], bad_loss[0]
    apply(ours, gradient, loss)
    apply(undisturbed, second)
    assert ours.healthy.tolist() == [False, True]
    assert torch.equal(ours.flat.values[0], before[0])
    for each in (ours, undisturbed):
        apply(each, third)
    assert ours.healthy.all()
    assert torch.isfinite(ours.flat.values).all()
    assert torch.equal(ours.flat.values[1], undisturbed.flat.values[1])
