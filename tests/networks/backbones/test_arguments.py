"""Bad sizes, rates, seeds and inputs are reported by name."""

import re

import numpy as np
import pytest
import torch
from torch import nn

from ddpn.networks.backbones import MLP, EfficientNet, Identity, Linear, Members
from ddpn.networks.backbones.members import generators
from ddpn.runtime.errors import ConfigError, InputError

ROWS = torch.zeros(5, 4)


def test_sizes_may_be_of_numpy():
    network = MLP(n_in=4, hidden=np.array([6, 3]), members=np.int64(2))
    assert network(ROWS).shape == (5, 2, 3)


@pytest.mark.parametrize("hidden", [16, (8, 0), [8, 2.5], "16", None, ()])
def test_bad_widths(hidden):
    message = f"hidden must list integers of at least 1, such as (128, 64), got {hidden!r}"
    with pytest.raises(ConfigError, match=re.escape(message)):
        MLP(n_in=4, hidden=hidden)


@pytest.mark.parametrize("rate", [-1.0, 1.0, None, "0.1", True, float("nan")])
def test_bad_rates(rate):
    with pytest.raises(ConfigError, match=rf"drop_connect must be a number in \[0, 1\), got {rate!r}"):
        EfficientNet(drop_connect=rate)


@pytest.mark.parametrize("streams", [1, 4])
@pytest.mark.parametrize("network", [Linear(3, 2, 3), Members(lambda: nn.Linear(3, 2), 3)], ids=["linear", "members"])
def test_streams_must_be_one_per_member(network, streams):
    with pytest.raises(ConfigError, match=rf"seeds must have one entry per member \(3\), got {streams}"):
        network.reset(generators(range(streams)))


@pytest.mark.parametrize("seeds", [5, ["a"], [2.5], [2**70]])
def test_bad_seeds(seeds):
    with pytest.raises(ConfigError, match=re.escape(f"seeds must be 64-bit integers, one per member, got {seeds!r}")):
        generators(seeds)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (ROWS.numpy(), "be a tensor with 2 axes, or 3 with rows of each member, got ndarray"),
        (ROWS.tolist(), "be a tensor with 2 axes, .* got list"),
        (ROWS[0], r"be a tensor with 2 axes, .* got shape \(4,\)"),
        (torch.zeros(5, 2, 4), r"have 3 members on its second axis, got shape \(5, 2, 4\)"),
    ],
    ids=["array", "list", "one row", "other members"],
)
@pytest.mark.parametrize(
    "network",
    [Linear(4, 2, 3), MLP(n_in=4, members=3), Identity(n_in=4, members=3), Members(lambda: nn.Linear(4, 2), 3)],
    ids=["linear", "mlp", "identity", "members"],
)
def test_bad_inputs(network, x, message):
    with pytest.raises(InputError, match=f"x must {message}"):
        network(x)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.bfloat16])
def test_inputs_must_have_the_dtype_of_the_weights(dtype):
    with pytest.raises(InputError, match=f"x must be torch.float32 like the weights, got {dtype}"):
        MLP(n_in=4)(ROWS.to(dtype))


def test_weights_of_another_dtype_and_autocast():
    assert MLP(n_in=4).double()(ROWS.double()).dtype == torch.float64
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert MLP(n_in=4)(ROWS.bfloat16()).dtype == torch.bfloat16
