"""Which steps are captured as a graph, and what happens where that fails; replaying one takes a GPU."""

import pytest
import torch
from torch import nn

from ddpn.networks.backbones import Members
from ddpn.networks.backbones.members import Frozen
from ddpn.networks.heads import make_head
from ddpn.networks.model import CountModel
from ddpn.networks.training import Runtime, Sample, TrainingConfig
from ddpn.networks.training.capture import CapturedSteps, _is_foreign, can_capture
from ddpn.networks.training.loop import Training


class Plain(nn.Linear):
    capturable = True


def test_networks_are_foreign_unless_all_of_them_say_otherwise():
    assert not _is_foreign(nn.Linear(2, 2))
    assert _is_foreign(Frozen(nn.Linear(2, 2), row_axes=1))
    assert _is_foreign(Members(lambda: nn.Linear(2, 2), 2))
    both = Members(lambda: Plain(2, 2), 2)
    assert not _is_foreign(both)
    both[1].capturable = False
    assert _is_foreign(both)


@pytest.fixture
def training():
    networks = Members(lambda: Plain(3, 4), 2)
    networks.output_dim = 4
    model = CountModel(networks, make_head("poisson"), 2)
    model.reset((0, 1))
    config = TrainingConfig(epochs=2, batch_size=4, lr=0.01, seeds=(0, 1))
    return Training(model, Sample(torch.ones(8, 3), torch.ones(8)), None, config, Runtime("cpu"))


def test_nothing_is_captured_on_a_cpu(training):
    assert not can_capture(training.model, training.batches, training.runtime)
    assert training._captured is None


def test_a_capture_that_fails_warns_and_steps_run_one_by_one(training, monkeypatch):
    def fails(self):
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    monkeypatch.setattr(CapturedSteps, "_capture", fails)
    training._captured = CapturedSteps(training.train_step, training.state, training.batches)
    with pytest.warns(RuntimeWarning, match="not captured as a CUDA graph: operation not .* capturing$"):
        training.run_epoch()
    assert training._captured is None
    assert training.state.step == 2
    training.run_epoch()
    assert training.state.step == 4
