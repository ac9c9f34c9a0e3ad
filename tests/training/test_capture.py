"""Which steps are captured as a graph, and what happens where that fails; replaying one takes a GPU."""

import pytest
import torch
from torch import nn

from ddpn.backbones import EfficientNet, Members, Text, ViT
from ddpn.backbones.fine_tuning import Frozen
from ddpn.heads import make_head
from ddpn.model import CountModel
from ddpn.training import Runtime, Sample, TrainingConfig
from ddpn.training.capture import CapturedSteps, _is_foreign
from ddpn.training.loop import Training

TINY = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8}
BERT, VIT = {"model_type": "bert", **TINY}, {"model_type": "vit", "image_size": 16, "patch_size": 8, **TINY}


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


@pytest.mark.parametrize(
    ("make", "captured"),
    [
        (lambda: Text(config=BERT, frozen=-1), True),
        (lambda: Text(config=BERT, frozen=-1, dropout=0.1), False),
        (lambda: Text(config=BERT, frozen=-1, checkpointing=True), False),
        (lambda: Text(config=BERT, frozen="none"), False),  # cuts off padding, by a look at the values
        (lambda: ViT(config=VIT), True),
        (lambda: ViT(config=VIT, dropout=0.1), False),
        (lambda: ViT(config=VIT, checkpointing=True), False),
        (lambda: EfficientNet(pretrained=False), True),
        (lambda: EfficientNet(pretrained=False, drop_connect=0.1), False),
    ],
    ids=["text", "text-dropout", "text-checkpointing", "text-whole", "vit", "vit-dropout", "vit-checkpointing",
         "efficientnet", "efficientnet-drop"],
)  # fmt: skip
def test_what_draws_looks_or_computes_twice_is_not_captured(make, captured):
    assert _is_foreign(make().tail.networks) is not captured


@pytest.fixture
def training():
    networks = Members(lambda: Plain(3, 4), 2)
    networks.output_dim = 4
    model = CountModel(networks, make_head("poisson"), 2)
    model.reset((0, 1))
    config = TrainingConfig(epochs=2, batch_size=4, lr=0.01, seeds=(0, 1))
    return Training(model, Sample(torch.ones(8, 3), torch.ones(8)), None, config, Runtime("cpu"))


def test_nothing_is_captured_on_a_cpu(training):
    assert CapturedSteps.of(training) is None


def test_a_capture_that_fails_is_told_and_steps_go_one_by_one(training, monkeypatch):
    def fails(self):
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    monkeypatch.setattr(CapturedSteps, "_capture", fails)
    training._captured = CapturedSteps(training, training.batches)
    with pytest.warns(RuntimeWarning, match="Steps go one by one, not as a graph: operation not .* capturing$"):
        training.run_epoch()
    assert training._captured is None
    assert training.step == 2
    training.run_epoch()
    assert training.step == 4
