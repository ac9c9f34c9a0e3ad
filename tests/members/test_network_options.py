"""Test options of networks: what follows from the number of rows, and what is refused."""

import json

import numpy as np
import pytest

from ddpn.members.network_options import (
    NetworkOptions,
    check_training_options,
    choose_batch_size,
    choose_epochs,
    choose_numeric_encoding,
    make_large_options,
    make_paper_options,
    make_small_options,
)
from ddpn.runtime.errors import ConfigError


@pytest.mark.parametrize(("rows", "batch"), [(1, 1), (128, 128), (129, 8), (1000, 32), (16_000, 256), (10**6, 256)])
def test_batches_grow_with_the_rows(rows, batch):
    assert choose_batch_size(rows) == batch
    assert rows == batch or rows / batch >= 15


@pytest.mark.parametrize(
    ("rows", "batch", "epochs"), [(5, 5, 300), (16_000, 256, 48), (10**6, 256, 40), (1000, 32, 32)]
)
def test_epochs_shrink_with_the_rows(rows, batch, epochs):
    assert choose_epochs(rows, batch) == epochs


def test_a_configuration_follows_the_rows_and_the_options():
    assert [choose_numeric_encoding(*size) for size in ((5000, 5), (5001, 5), (100, 501))] == [
        "piecewise",
        "steps",
        "standard",
    ]
    config = NetworkOptions().make_config(1000, (1, 2))
    assert (config.batch_size, config.epochs, config.seeds) == (32, 32, (1, 2))
    config = NetworkOptions(epochs=7, batch_size=50, lr=0.5, score="nll").make_config(1000, (1,))
    assert (config.batch_size, config.epochs, config.lr, config.score) == (50, 7, 0.5, "nll")
    assert NetworkOptions(batch_size=100).make_config(1000, (1,)).epochs == choose_epochs(1000, 100)


def test_the_papers_settings_follow_the_rows_except_those_that_are_given():
    simulation, stay = make_paper_options(800), make_paper_options(80_000)
    for options in (simulation, stay):
        assert options.widths == (128, 128, 128, 64)
        assert (options.numeric, options.score, options.start, options.schedule) == (
            "standard", "loss", "random", "cosine",
        )  # fmt: skip
        assert (options.warmup, options.clip, options.ema) == (0.0, None, 0.0)
    assert (simulation.epochs, simulation.batch_size, simulation.lr, simulation.weight_decay) == (200, 32, 1e-3, 1e-5)
    assert (stay.epochs, stay.batch_size, stay.lr, stay.weight_decay) == (15, 128, 1e-4, 1e-4)
    chosen = make_paper_options(800, lr=0.5, epochs=7, hidden=(4,), batch_size="auto")
    assert (chosen.lr, chosen.epochs, chosen.widths, chosen.weight_decay) == (0.5, 7, (4,), 1e-5)
    assert make_paper_options(100, batch_size="auto").epochs == 5000


def test_options_are_plain_values():
    options = NetworkOptions(n_networks=np.int64(3), hidden=[np.int64(4)], lr=np.float32(0.5), bins=np.int64(2))
    assert json.loads(json.dumps(options.as_dict()))["hidden"] == [4]
    assert NetworkOptions(**options.as_dict()) == options


@pytest.mark.parametrize(
    "options",
    [
        {"n_networks": 0},
        {"n_networks": 1.5},
        {"hidden": "wide"},
        {"hidden": (8, 0)},
        {"hidden": 8},
        {"numeric": "raw"},
        {"categorical": "codes"},
        {"score": "mae"},
        {"start": "zero"},
        {"bins": 0},
        {"epochs": 0},
        {"epochs": "many"},
        {"epochs": 2.5},
        {"batch_size": 0},
        {"batch_size": "all"},
    ],
    ids=str,
)
def test_unknown_options_are_refused_by_name(options):
    (name,) = options
    with pytest.raises(ConfigError) as raised:
        NetworkOptions(**options)
    assert name in raised.value.argument
    least = {"n_networks": 1, "hidden": (1,), "bins": 1, "epochs": 1, "batch_size": 1}
    NetworkOptions(**{name: least[name]} if name in least else {})


def test_widths_are_those_that_are_given_or_follow_the_rows():
    assert NetworkOptions().with_widths(5000).widths == (64, 64)
    assert NetworkOptions().with_widths(5001).widths == (128, 128, 128, 64)
    assert NetworkOptions(hidden=(3,)).with_widths(5001).widths == (3,)


@pytest.mark.parametrize(("rows", "steps"), [(300, 1000), (5000, 1000), (5001, 3000), (18_000, 3000)])
def test_a_training_has_about_as_many_steps_as_rows_allow(rows, steps):
    batch = choose_batch_size(rows)
    epochs = choose_epochs(rows, batch)
    assert epochs == 300 or abs(epochs * (rows // batch) - steps) <= rows // batch
    assert choose_epochs(1, 1) == 300
    assert choose_epochs(10**7, 256) == 40
    assert choose_epochs(5000, 1) == 1


@pytest.mark.parametrize("make", [make_small_options, make_large_options])
@pytest.mark.parametrize("rows", [1000, 20_000, 10**6])
def test_networks_of_a_mixture_are_trained_for_as_many_steps_as_their_rows_get(make, rows):
    """Train five epochs at least and 300 at most; options that are given stay."""
    options = make(NetworkOptions(), rows)
    assert options.batch_size == choose_batch_size(rows)
    assert 5 <= options.epochs <= 300
    twice = make(NetworkOptions(), 2 * rows)
    steps, more = (one.epochs * size / one.batch_size for one, size in ((options, rows), (twice, 2 * rows)))
    is_limited = {options.epochs, twice.epochs} & {5, 300} or rows <= 5000 < 2 * rows
    assert is_limited or more == pytest.approx(steps, rel=0.1)
    assert 3 <= options.patience <= options.epochs
    chosen = make(NetworkOptions(epochs=7, weight_decay=0.5, batch_size=50), rows)
    assert (chosen.epochs, chosen.weight_decay, chosen.batch_size, chosen.patience) == (7, 0.5, 50, None)
    halved = make(NetworkOptions(batch_size=choose_batch_size(rows) // 2, patience=4), rows)
    assert halved.patience == 4
    assert halved.epochs == pytest.approx(options.epochs / 2, abs=1) or {options.epochs, halved.epochs} & {5, 300}


def test_large_networks_have_steps_as_inputs_and_more_training():
    for rows in (1000, 20_000):
        small, large = (make(NetworkOptions(), rows) for make in (make_small_options, make_large_options))
        assert (large.numeric, small.numeric) == ("steps", "auto")
        assert large.epochs > small.epochs
    decay = NetworkOptions().weight_decay
    assert (
        make_small_options(NetworkOptions(), 1000).weight_decay
        == decay
        > make_small_options(NetworkOptions(), 9000).weight_decay
    )
    assert (
        make_large_options(NetworkOptions(), 9000).weight_decay
        == decay
        > make_large_options(NetworkOptions(), 1000).weight_decay
    )


def test_wide_tables_have_fewer_and_larger_steps():
    narrow, wide = (NetworkOptions().make_config(2000, (1,), columns=columns) for columns in (500, 501))
    assert wide.batch_size > narrow.batch_size == choose_batch_size(2000)
    assert wide.epochs == narrow.epochs == choose_epochs(2000, narrow.batch_size)
    assert NetworkOptions().make_config(100, (1,), columns=501).batch_size == 100
    assert NetworkOptions(batch_size=16).make_config(2000, (1,), columns=501).batch_size == 16
    assert (NetworkOptions().make_config(9, (1,), "nll").score, NetworkOptions().make_config(9, (1,)).score) == (
        "nll",
        "crps",
    )


def test_training_options_are_those_that_an_estimator_does_not_have():
    assert check_training_options(None) == {}
    assert check_training_options({"lr": 0.1, "ema": 0.5}) == {"lr": 0.1, "ema": 0.5}
    for options in ([("lr", 0.1)], {"hidden": (4,)}, {"rate": 0.1}):
        with pytest.raises(ConfigError, match="training_options"):
            check_training_options(options)
