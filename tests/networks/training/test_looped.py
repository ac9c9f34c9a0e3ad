"""Networks without a member axis: trained in a loop they are what each would be alone."""

import torch
from torch import nn

from ddpn.networks.backbones import Members
from ddpn.networks.heads import make_head
from ddpn.networks.model import CountModel
from ddpn.networks.training import Runtime, Sample, TrainingConfig, fit
from ddpn.networks.training.weights import FlatWeights


class Own(Members):
    """A user's module: a convolution over images of one channel, with a weight that nothing uses."""

    output_dim = 6

    def __init__(self, members: int) -> None:
        super().__init__(_network, members, row_axes=2)


def _network() -> nn.Module:
    network = nn.Sequential(nn.Unflatten(1, (1, 4)), nn.Conv2d(1, 2, 3), nn.LayerNorm(2), nn.Flatten(), nn.Linear(8, 6))
    network.register_parameter("idle", nn.Parameter(torch.ones(3)))
    return network


def images(n: int = 24) -> Sample:
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(n, 4, 4, generator=generator)
    return Sample(x, torch.poisson(x.mean((1, 2)).mul(3.0).exp(), generator=generator))


def trained(seeds: tuple[int, ...]) -> CountModel:
    model = CountModel(Own(len(seeds)), make_head("double_poisson"), len(seeds))
    model.reset(seeds)
    config = TrainingConfig(epochs=3, batch_size=8, lr=1e-2, clip=0.5, seeds=seeds)
    fit(model, images(), images(9), config, runtime=Runtime("cpu"))
    return model


def test_members_in_a_loop_equal_separate_runs():
    together = trained((3, 8))
    for member, seed in enumerate((3, 8)):
        alone = trained((seed,))
        x = images().X
        torch.testing.assert_close(together.raw(x)[:, member], alone.raw(x)[:, 0], rtol=1e-6, atol=1e-6)
    assert not torch.equal(together.backbone[0][1].weight, together.backbone[1][1].weight)


def test_an_idle_weight_gets_no_gradient():
    model = CountModel(Own(2), make_head("poisson"), 2)
    model.reset((0, 1))
    kept = FlatWeights(model, 2)
    kept.add_gradient_of(model.raw(images().X).square().sum(), fresh=True)
    assert kept.grad.isfinite().all()
    assert (kept.grad != 0).any(1).all()
