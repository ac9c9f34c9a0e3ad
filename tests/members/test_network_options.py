"""Options of networks: what follows from the number of rows, and what is refused."""

import json

import numpy as np
import pytest

from ddpn.members.network_options import (
    NetworkOptions,
    auto_batch_size,
    auto_epochs,
    auto_numeric,
    paper_options,
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


def test_the_papers_settings_follow_the_rows_except_those_that_are_given():
    simulation, stay = paper_options(800), paper_options(80_000)
    for options in (simulation, stay):
        assert options.widths == (128, 128, 128, 64)
        assert (options.numeric, options.score, options.start, options.schedule) == (
            "standard", "loss", "random", "cosine",
        )  # fmt: skip
        assert (options.warmup, options.clip, options.ema) == (0.0, None, 0.0)
    assert (simulation.epochs, simulation.batch_size, simulation.lr, simulation.weight_decay) == (200, 32, 1e-3, 1e-5)
    assert (stay.epochs, stay.batch_size, stay.lr, stay.weight_decay) == (15, 128, 1e-4, 1e-4)
    given = paper_options(800, lr=0.5, epochs=7, hidden=(4,), batch_size="auto")
    assert (given.lr, given.epochs, given.widths, given.weight_decay) == (0.5, 7, (4,), 1e-5)
    assert paper_options(100, batch_size="auto").epochs == 5000


def test_options_are_plain_values():
    options = NetworkOptions(members=np.int64(3), hidden=[np.int64(4)], lr=np.float32(0.5), bins=np.int64(2))
    assert json.loads(json.dumps(options.as_dict()))["hidden"] == [4]
    assert NetworkOptions(**options.as_dict()) == options
