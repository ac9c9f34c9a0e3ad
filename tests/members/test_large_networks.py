"""Large networks choose their widths by a short training."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from ddpn.members import large_networks
from ddpn.members.large_networks import LargeNetworks
from ddpn.members.network_options import NetworkOptions
from ddpn.networks.heads import make_head
from ddpn.networks.training import loop
from ddpn.runtime.deadlines import Clock
from ddpn.sample import Sample

# A network without hidden layers cannot learn counts that are high on both sides.
LINEAR = NetworkOptions(hidden=(), members=3, epochs=4, batch_size=32, numeric="standard")
CURVED = replace(LINEAR, hidden=(16,), epochs=3)


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """100 steps tell these networks apart as well as 1000 do."""
    monkeypatch.setattr(large_networks, "_STEPS", 100)


@pytest.fixture(scope="module")
def samples():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(600, 1))
    y = generator.poisson(np.exp(2.0 * np.abs(x[:, 0]) - 1.0)).astype(float)
    return Sample(x[:400], y[:400]), Sample(x[400:], y[400:])


@pytest.mark.parametrize(("options", "others"), [(LINEAR, [CURVED]), (CURVED, [LINEAR])])
def test_the_better_of_two_is_trained_in_full(samples, options, others):
    member = LargeNetworks(make_head("poisson"), options, others=others).fit(*samples, seed=0)
    assert member.options == CURVED
    assert member.model.members == 3
    assert len(member.history.epochs) == CURVED.epochs


def test_the_trial_does_not_change_the_training(samples):
    tried = LargeNetworks(make_head("poisson"), LINEAR, others=[CURVED]).fit(*samples, seed=0)
    alone = LargeNetworks(make_head("poisson"), CURVED).fit(*samples, seed=0)
    assert torch.equal(tried.raw(samples[1].X), alone.raw(samples[1].X))


def test_without_validation_rows_or_with_little_time_the_first_is_used(samples):
    without = LargeNetworks(make_head("poisson"), LINEAR, others=[CURVED]).fit(samples[0], None, seed=0)
    limited = LargeNetworks(make_head("poisson"), LINEAR, others=[CURVED])
    limited.clock = Clock(60.0)
    assert without.options == limited.fit(*samples, seed=0).options == LINEAR


def test_an_interrupted_trial_ends_the_fit(samples, monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(loop.Training, "train_step", interrupt)
    with pytest.raises(KeyboardInterrupt):
        LargeNetworks(make_head("poisson"), LINEAR, others=[CURVED]).fit(*samples, seed=0)
