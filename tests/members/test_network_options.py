"""Options of networks: what follows from the number of rows, and what is refused."""

import json

import numpy as np
import pytest

from ddpn.members.network_options import (
    NetworkOptions,
    auto_batch_size,
    auto_epochs,
    auto_numeric,
)


@pytest.mark.parametrize(("rows", "batch"), [(1, 1), (128, 128), (129, 8), (1000, 32), (16_000, 256), (10**6, 256)])
def test_batches_grow_with_the_rows(rows, batch):
    assert auto_batch_size(rows) == batch
    assert rows == batch or rows / batch >= 15


@pytest.mark.parametrize(
    ("rows", "batch", "epochs"), [(5, 5, 300), (16_000, 256, 48), (10**6, 256, 40), (1000, 32, 32)]
)
def test_epochs_shrink_with_the_rows(rows, batch, epochs):
    assert auto_epochs(rows, batch) == epochs


def test_a_configuration_follows_the_rows_and_the_options():
    assert [auto_numeric(*size) for size in ((5000, 5), (5001, 5), (100, 501))] == ["piecewise", "steps", "standard"]
    config = NetworkOptions().config(1000, (1, 2))
    assert (config.batch_size, config.epochs, config.seeds) == (32, 32, (1, 2))
    config = NetworkOptions(epochs=7, batch_size=50, lr=0.5, score="nll").config(1000, (1,))
    assert (config.batch_size, config.epochs, config.lr, config.score) == (50, 7, 0.5, "nll")
    assert NetworkOptions(batch_size=100).config(1000, (1,)).epochs == auto_epochs(1000, 100)


def test_options_are_plain_values():
    options = NetworkOptions(members=np.int64(3), hidden=[np.int64(4)], lr=np.float32(0.5), bins=np.int64(2))
    assert json.loads(json.dumps(options.as_dict()))["hidden"] == [4]
    assert NetworkOptions(**options.as_dict()) == options
