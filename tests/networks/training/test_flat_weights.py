"""One tensor of which all parameters are views."""

import pytest
import torch
from torch import nn

from ddpn.networks.training.weights import FlatWeights
from ddpn.runtime.errors import ConfigError


def test_parameters_are_views_of_it(fresh, flat):
    model = fresh((0, 1))
    before = flat(model)
    kept = FlatWeights(model, members=2)
    assert torch.equal(kept.values, before)
    kept.values[1] += 1.0
    assert torch.equal(flat(model)[0], before[0])
    assert torch.equal(flat(model)[1], before[1] + 1.0)


def test_weights_decay_and_biases_do_not(fresh):
    model = fresh((0, 1))
    expected = [torch.full((p[0].numel(),), float("weight" in name)) for name, p in model.named_parameters()]
    assert torch.equal(FlatWeights(model, 2).decayed, torch.cat(expected))


def test_gradients_replace_or_add(fresh, rows):
    model, x = fresh((0, 1)), rows(5).X
    kept = FlatWeights(model, 2)
    loss = lambda: model.raw(x).square().sum()
    model.zero_grad()
    loss().backward()
    expected = torch.cat([p.grad.reshape(2, -1) for p in model.parameters()], dim=1)
    kept.grad.fill_(7.0)
    kept.add_gradient_of(loss(), fresh=True)
    torch.testing.assert_close(kept.grad, expected)
    kept.add_gradient_of(loss(), fresh=False)
    torch.testing.assert_close(kept.grad, 2.0 * expected)
    torch.testing.assert_close(kept.norms(), 2.0 * expected.square().sum(1).sqrt())


def test_a_list_of_torch_may_hold_members():
    held = nn.ParameterList([nn.Parameter(torch.zeros(2, 3))])
    assert FlatWeights(held, members=2).values.shape == (2, 3)


@pytest.mark.parametrize("shape", [(3, 3), (3, 2)], ids=["of other lengths", "as long by chance"])
def test_a_layer_that_members_share_is_refused(shape):
    with pytest.raises(ConfigError, match=r"^parameters must have the 2 members .*, got weight of shape"):
        FlatWeights(nn.Linear(*shape), members=2)
