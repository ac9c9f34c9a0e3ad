"""Running statistics go with the weights: kept with the best epoch, rolled back, and there when a training goes on."""

import pytest
import torch
from torch import nn

from ddpn.networks.backbones import Members
from ddpn.networks.heads import make_head
from ddpn.networks.model import CountModel
from ddpn.networks.training import History, Runtime, TrainingConfig, fit
from ddpn.networks.training.loop import Training
from ddpn.networks.training.weights import Buffers

CONFIG = TrainingConfig(epochs=6, batch_size=16, lr=0.3, ema=0.0, seeds=(0, 1))


class Own(Members):
    output_dim = 4


class Stacked(nn.Module):
    """A user's module whose members' statistics are one buffer, beside a constant that all share."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("means", torch.tensor([[1.0], [2.0]]))
        self.register_buffer("constant", torch.tensor([1.0, 2.0, 3.0]))
        self.register_buffer("passing", torch.zeros(2), persistent=False)


def normed() -> nn.Module:
    return nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 4), nn.ReLU())


def dropped() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5))


def fresh(network) -> CountModel:
    model = CountModel(Own(network, 2), make_head("poisson"), 2)
    model.reset(CONFIG.seeds)
    return model


def trained(network, rows, **options) -> tuple[CountModel, History]:
    model = fresh(network)
    history = fit(model, rows(80), rows(40, seed=3), CONFIG, runtime=Runtime("cpu"), **options)
    return model, history


def test_what_is_kept_scores_what_the_best_epoch_did(rows):
    model, history = trained(normed, rows)
    validation = rows(40, seed=3)
    with torch.no_grad():
        scores = -model(validation.X).log_prob(validation.y.unsqueeze(1)).mean(0)
    assert min(history.best_epoch) < CONFIG.epochs
    torch.testing.assert_close(scores, torch.tensor(history.best_score), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("network", [normed, dropped])
def test_a_training_that_goes_on_ends_as_one_that_was_not_stopped(rows, tmp_path, monkeypatch, network):
    whole, _ = trained(network, rows)
    usual = Training.run_epoch

    def stopped(self):
        if self.epoch == 3:
            raise KeyboardInterrupt
        return usual(self)

    with monkeypatch.context() as patch:
        patch.setattr(Training, "run_epoch", stopped)
        assert trained(network, rows, checkpoint=tmp_path / "state")[1].interrupted
    after, _ = trained(network, rows, checkpoint=tmp_path / "state")
    for name, tensor in whole.state_dict().items():
        assert torch.equal(after.state_dict()[name], tensor), name


def test_what_is_drawn_comes_from_the_seeds_and_torchs_stream_is_put_back(rows):
    found = []
    for seed in (7, 8):
        model = fresh(dropped)
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        fit(model, rows(80), None, CONFIG, runtime=Runtime("cpu"))
        assert torch.equal(torch.get_rng_state(), before)
        found.append(model.raw(rows(5).X))
    assert torch.equal(*found)


def test_a_member_that_is_rolled_back_has_its_statistics_again(rows):
    training = Training(fresh(normed), rows(40), None, CONFIG, Runtime("cpu"))
    statistics = [network[0].running_mean for network in training.model.backbone]
    for mean in statistics:
        mean.fill_(torch.nan)
    with pytest.warns(RuntimeWarning, match="member 1"):
        training.state.recover(torch.tensor([True, False]), lambda member: [])
    assert statistics[0].isnan().all()
    assert torch.equal(statistics[1], torch.zeros(3))


def test_each_member_has_its_own_and_constants_are_shared():
    model = Stacked()
    buffers = Buffers(model, members=2)
    before = buffers.copied()
    assert sorted(before) == ["constant", "means"]
    model.means.fill_(9.0)
    buffers.load(before, member=1)
    assert model.means.flatten().tolist() == [9.0, 2.0]
    buffers.copy_member(before, member=0)
    assert before["means"].flatten().tolist() == [9.0, 2.0]
    model.means.zero_()
    buffers.load(before)
    assert model.means.flatten().tolist() == [9.0, 2.0]
