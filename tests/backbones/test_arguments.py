"""What is no size, rate, seed or row is told in one sentence."""

import re

import numpy as np
import pytest
import torch
from torch import nn

from ddpn.backbones import MLP, CountNet3D, EfficientNet, Identity, Linear, Members
from ddpn.backbones.members import generators
from ddpn.errors import ConfigError, InputError

ROWS = torch.zeros(5, 4)


@pytest.mark.parametrize("members", [0, -1, 2.0, True, "2", None])
@pytest.mark.parametrize(
    "make",
    [
        lambda members: Linear(3, 2, members),
        lambda members: Members(lambda: nn.Linear(3, 2), members),
        lambda members: MLP(n_in=3, members=members),
        lambda members: Identity(n_in=3, members=members),
        lambda members: CountNet3D(n_classes=3, members=members),
    ],
    ids=["linear", "members", "mlp", "identity", "countnet3d"],
)
def test_a_number_of_members_that_is_none_is_told(make, members):
    message = f"members must be an integer of at least 1, got {members!r}. Use 1 for a single network."
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        make(members)


def test_sizes_may_be_of_numpy():
    network = MLP(n_in=4, hidden=np.array([6, 3]), members=np.int64(2))
    assert network(ROWS).shape == (5, 2, 3)


@pytest.mark.parametrize(
    ("hidden", "told"),
    [
        (16, r"16\. Use \(16,\) for one layer\."),
        ((8, 0), r"\(8, 0\)\. Use Identity for none\."),
        ([8, 2.5], r"\(8, 2\.5\)\. Use Identity"),
        ("16", r"'16'\. Use Identity"),
        (None, r"None\. Use Identity"),
    ],
)
def test_widths_that_are_none_are_told(hidden, told):
    with pytest.raises(ConfigError, match=rf"^hidden must hold widths of at least 1, got {told}"):
        MLP(n_in=4, hidden=hidden)


@pytest.mark.parametrize("rate", [2.0, -1.0, 1.0, None, "0.1", True, float("nan")])
def test_a_rate_that_is_none_is_told(rate):
    message = f"drop_connect must lie in [0, 1), got {rate!r}. Use 0 for none."
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        EfficientNet(drop_connect=rate)


@pytest.mark.parametrize("streams", [1, 4])
@pytest.mark.parametrize("network", [Linear(3, 2, 3), Members(lambda: nn.Linear(3, 2), 3)], ids=["linear", "members"])
def test_streams_that_are_not_one_a_member_are_told(network, streams):
    with pytest.raises(ConfigError, match=rf"^seeds must be 3, one a member, got {streams}\. Use range\(3\), say\.$"):
        network.reset(generators(range(streams)))


@pytest.mark.parametrize("seeds", [5, ["a"], [2.5], [2**70]])
def test_seeds_that_are_none_are_told(seeds):
    message = f"seeds must be 64-bit integers, one a member, got {seeds!r}. Use range(5), say."
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        generators(seeds)


@pytest.mark.parametrize(
    ("x", "told"),
    [
        (
            ROWS.numpy(),
            r"be a tensor with 2 axes, or 3 with members' own rows, got ndarray\. Use torch\.as_tensor\(x\)\.",
        ),
        (ROWS.tolist(), r"be a tensor with 2 axes, or 3 with members' own rows, got list\. Use x\.unsqueeze\(0\) for"),
        (
            ROWS[0],
            r"be a tensor with 2 axes, or 3 with members' own rows, got shape \(4,\)\. Use x\.unsqueeze\(0\) for",
        ),
        (torch.zeros(5, 2, 4), r"hold rows of 3 members on its second axis, got shape \(5, 2, 4\)\. Give each its own"),
    ],
    ids=["array", "list", "one row", "other members"],
)
@pytest.mark.parametrize(
    "network",
    [Linear(4, 2, 3), MLP(n_in=4, members=3), Identity(n_in=4, members=3), Members(lambda: nn.Linear(4, 2), 3)],
    ids=["linear", "mlp", "identity", "members"],
)
def test_what_are_no_rows_is_told(network, x, told):
    with pytest.raises(InputError, match=rf"^x must {told}"):
        network(x)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.bfloat16])
def test_numbers_of_another_kind_than_the_weights_are_told(dtype):
    message = f"x must be torch.float32 as the weights are, got {dtype}. Use x.to(torch.float32)."
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        MLP(n_in=4)(ROWS.to(dtype))


def test_weights_of_another_kind_take_what_they_are():
    assert MLP(n_in=4).double()(ROWS.double()).dtype == torch.float64
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert MLP(n_in=4)(ROWS.bfloat16()).dtype == torch.bfloat16
