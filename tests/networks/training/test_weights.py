"""What a training changes: all weights as one tensor; networks of a user; and what is refused."""

import pytest
import torch
from torch import nn

from ddpn.networks.backbones import Members
from ddpn.networks.heads import make_head
from ddpn.networks.model import CountModel
from ddpn.networks.training import History, Runtime, TrainingConfig, fit
from ddpn.networks.training.weights import FlatWeights
from ddpn.runtime.errors import ConfigError

CONFIG = TrainingConfig(epochs=6, batch_size=16, lr=0.3, ema=0.0, seeds=(0, 1))


# One tensor of which all parameters are views ------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3, 3), (3, 2)], ids=["of other lengths", "as long by chance"])
def test_a_layer_that_members_share_is_refused(shape):
    with pytest.raises(ConfigError, match=r"^parameters must have the 2 members .*, got weight of shape"):
        FlatWeights(nn.Linear(*shape), members=2)
    held = nn.ParameterList([nn.Parameter(torch.zeros(2, 3))])
    assert FlatWeights(held, members=2).values.shape == (2, 3)


# Networks of a user, without a member axis, with norms and dropout ----------------------------------------------------


class Own(Members):
    output_dim = 4


def normed() -> nn.Module:
    network = nn.Sequential(nn.LayerNorm(3), nn.Linear(3, 4), nn.ReLU())
    network.register_parameter("idle", nn.Parameter(torch.ones(3)))
    return network


def dropped() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5))


def own(network, seeds=CONFIG.seeds) -> CountModel:
    model = CountModel(Own(network, len(seeds)), make_head("poisson"), len(seeds))
    model.reset(seeds)
    return model


def trained(network, rows, **options) -> tuple[CountModel, History]:
    model = own(network)
    history = fit(model, rows(80), rows(40, seed=3), CONFIG, runtime=Runtime("cpu"), **options)
    return model, history


def test_members_in_a_loop_equal_separate_runs(rows):
    together, x = trained(normed, rows)[0].raw(rows(9).X), rows(9).X
    for member, seed in enumerate(CONFIG.seeds):
        alone = own(normed, (seed,))
        config = TrainingConfig(epochs=6, batch_size=16, lr=0.3, ema=0.0, seeds=(seed,))
        fit(alone, rows(80), rows(40, seed=3), config, runtime=Runtime("cpu"))
        torch.testing.assert_close(together[:, member], alone.raw(x)[:, 0], rtol=1e-5, atol=1e-5)


def test_what_is_kept_scores_what_the_best_epoch_did(rows):
    model, history = trained(normed, rows)
    validation = rows(40, seed=3)
    with torch.no_grad():
        scores = -model(validation.X).log_prob(validation.y.unsqueeze(1)).mean(0)
    assert min(history.best_epoch) < CONFIG.epochs
    torch.testing.assert_close(scores, torch.tensor(history.best_score), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("network", [normed, dropped])
def test_a_training_that_goes_on_ends_as_one_that_was_not_stopped(rows, tmp_path, network):
    whole, _ = trained(network, rows)

    def stop(text):
        if text.startswith("epoch 3 "):
            raise KeyboardInterrupt

    assert trained(network, rows, checkpoint=tmp_path / "state", on_epoch=stop)[1].interrupted
    after, _ = trained(network, rows, checkpoint=tmp_path / "state")
    for name, tensor in whole.state_dict().items():
        assert torch.equal(after.state_dict()[name], tensor), name


def test_what_is_drawn_comes_from_the_seeds_and_torchs_stream_is_put_back(rows):
    found = []
    for seed in (7, 8):
        model = own(dropped)
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        fit(model, rows(80), None, CONFIG, runtime=Runtime("cpu"))
        assert torch.equal(torch.get_rng_state(), before)
        found.append(model.raw(rows(5).X))
    assert torch.equal(*found)


def test_running_statistics_are_refused_where_a_training_would_change_them(rows):
    model = own(lambda: nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 4)))
    with pytest.raises(ConfigError, match=r"got BatchNorm1d at backbone\.0\.0\. Use LayerNorm or GroupNorm"):
        fit(model, rows(40), None, CONFIG, runtime=Runtime("cpu"))
