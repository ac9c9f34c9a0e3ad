"""Test backbone, projection and head together."""

import pytest
import torch
from torch import nn

from ddpn.networks.backbones import MLP, FineTuned, NetworkList
from ddpn.networks.backbones.fine_tuned import NetworkTail
from ddpn.networks.backbones.layers import Frozen, make_generators
from ddpn.networks.heads import make_head
from ddpn.networks.model import CountModel, Projection
from ddpn.runtime.errors import ConfigError


def draw_features(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(5))


def make_projection(*inputs: str) -> Projection:
    layer = Projection(4, inputs, n_networks=3)
    layer.reset(make_generators(range(3)))
    return layer


def test_detached_learns_from_the_features_but_sends_them_no_gradient():
    layer, x = make_projection("features", "detached"), draw_features(5, 3, 4).requires_grad_()
    by_first, by_second = (torch.autograd.grad(layer(x)[..., p].sum(), [x, layer.weight]) for p in (0, 1))
    torch.testing.assert_close(by_first[0], layer.weight[..., 0].expand(5, -1, -1))
    assert torch.equal(by_second[0], torch.zeros_like(x))
    # d sum_b x_bf w_fp / d w_fp = sum_b x_bf.
    torch.testing.assert_close(by_second[1][..., 1], x.detach().sum(0))


def test_a_constant_output_is_its_bias_and_teaches_the_features_nothing():
    layer, x = make_projection("features", "constant"), draw_features(5, 3, 4).requires_grad_()
    raw = layer(x)
    assert torch.equal(raw[..., 1], layer.bias[:, 0, 1].expand(5, 3))
    assert torch.equal(raw[..., 0], make_projection("features", "features")(x)[..., 0])
    raw[..., 1].sum().backward()
    assert not x.grad.any()
    assert not layer.weight.grad[..., 1].any()
    assert layer.bias.grad[..., 1].eq(5.0).all()


@pytest.mark.parametrize("backbone", [MLP(n_in=4, hidden=(6,), n_networks=2), MLP(n_in=4, hidden=(), n_networks=2)])
def test_start_is_the_first_prediction_at_zero_features(backbone):
    head = make_head("poisson")
    model = CountModel(backbone, head, 2)
    model.reset([0, 1])
    fresh = model.projection.weight.detach().clone()
    model.reset([0, 1], head.start(torch.tensor([2.0, 4.0])))
    torch.testing.assert_close(model.projection.weight.detach(), 0.1 * fresh)
    zero = torch.zeros(1, 2, model.projection.weight.shape[1])
    torch.testing.assert_close(head(model.projection(zero)).mean, torch.full((1, 2), 3.0))


TWO = {
    "mlp": lambda: MLP(n_in=4, hidden=(6,), n_networks=2),
    "tuned": lambda: FineTuned(
        Frozen(nn.Linear(4, 8), row_axes=1), NetworkTail(lambda: nn.Linear(8, 4), width=4, n_networks=2)
    ),
}


class UserNetwork(nn.Module):
    """A user's network with these attributes."""

    def __init__(self, **attributes: object) -> None:
        super().__init__()
        self.networks = NetworkList(lambda: nn.Linear(4, 8), n_networks=2)
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.networks(x)


class ResettableNetwork(UserNetwork):
    def reset(self, generators: list[torch.Generator]) -> None:
        self.networks.reset(generators)


def run_wrong_width() -> None:
    CountModel(ResettableNetwork(output_dim=5), make_head("poisson"), n_networks=2).raw(draw_features(3, 4))


REFUSED = {
    "too few networks": (
        lambda: CountModel(TWO["mlp"](), make_head("poisson"), 1),
        "must be 2 as in the backbone, got 1",
    ),
    "too many networks": (
        lambda: CountModel(TWO["tuned"](), make_head("poisson"), 3),
        "must be 2 as in the backbone, got 3",
    ),
    "too few seeds": (lambda: CountModel(TWO["tuned"](), make_head("poisson"), 2).reset((0,)), "seeds must .*2.*got 1"),
    "no networks": (lambda: CountModel(TWO["mlp"](), make_head("poisson"), 0), "n_networks must be an integer"),
    "no width": (
        lambda: CountModel(ResettableNetwork(), make_head("poisson"), 2),
        "output_dim of backbone ResettableNetwork",
    ),
    "a text": (
        lambda: CountModel(ResettableNetwork(output_dim="8"), make_head("poisson"), 2),
        "output_dim of backbone ResettableNetwork",
    ),
    "another width": (run_wrong_width, r"features of shape \(B, 2, 5\) .*, got \(3, 2, 8\)"),
    "no reset": (lambda: CountModel(UserNetwork(output_dim=8), make_head("poisson"), 2), "must have a method reset"),
    "no head": (lambda: CountModel(TWO["mlp"](), "poisson", 2), "head must be a Head"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_networks_that_do_not_fit_are_refused(case):
    call, message = REFUSED[case]
    with pytest.raises(ConfigError, match=message):
        call()


def test_the_old_name_of_projection_inputs_is_refused():
    with pytest.raises(TypeError, match=r"no argument 'sees'\. Use 'projection_inputs'"):
        CountModel(TWO["mlp"](), make_head("poisson"), 2, sees=("features",))
