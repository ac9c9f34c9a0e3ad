"""Transformer encoders: where they come from, where they are split, and which of their weights are trained."""

import copy
import functools
import sys
from collections.abc import Callable

import pytest
import torch

from ddpn.networks.backbones import Text, ViT
from ddpn.networks.backbones.members import generators
from ddpn.networks.backbones.transformer import tokenizer_of
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
GPT2 = {
    "model_type": "gpt2", "n_embd": 8, "n_layer": 2, "n_head": 2, "vocab_size": 40, "pad_token_id": 39,
    "bos_token_id": 39, "eos_token_id": 39,
}  # fmt: skip
T5 = {"model_type": "t5", "d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 2, "num_heads": 2, "vocab_size": 40}
MODERN = {**BERT, "model_type": "modernbert", "pad_token_id": 0}
MODERN |= {f"{special}_token_id": 1 for special in ("eos", "bos", "cls", "sep")}
KINDS = {"bert": (Text, BERT, IDS), "distilbert": (Text, DISTIL, IDS), "vit": (ViT, VIT, IMAGES)}


def built(kind, **options):
    make, config, x = KINDS[kind]
    network = make(config=dict(config), hidden=(8, 4), **options)
    network.reset(generators(range(len(network.tail.perceptron.layers[0].weight))))
    return network, x


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


def test_a_missing_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ConfigError, match=r"pip install 'ddpn\[text\]'"):
        Text()


@pytest.mark.parametrize(
    "config",
    [MODERN, GPT2, BERT | {"model_type": "albert", "embedding_size": 8}],
    ids=["modernbert", "gpt2", "albert"],
)
def test_a_family_that_is_no_chain_of_equal_blocks_is_not_split(config):
    with pytest.raises(ConfigError, match=r"split between blocks must .*, got .+\. Use frozen='none' or"):
        Text(config=config, frozen=-1)
    assert Text(config=config, frozen="all", hidden=(4,))(IDS).shape == (4, 1, 4)


def test_a_users_configuration_stays_as_it_is():
    from transformers import BertConfig

    config = BertConfig(**{k: v for k, v in BERT.items() if k != "model_type"})
    rates = config.hidden_dropout_prob, config.attention_probs_dropout_prob
    network = Text(config=config, hidden=(4,), dropout=0.3)
    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == rates
    assert {m.p for m in network.tail.modules() if isinstance(m, torch.nn.Dropout)} == {0.3}


def damaged(folder) -> str:
    """A folder with weights of which the end is missing."""
    from transformers import AutoModel, BertConfig

    AutoModel.from_config(BertConfig(**{k: v for k, v in BERT.items() if k != "model_type"})).save_pretrained(folder)
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-64])
    return str(folder)


REFUSED: dict[str, tuple[Callable, str]] = {
    "too many blocks": (lambda _: Text(config=BERT, frozen=7), "frozen must "),
    "no number of blocks": (lambda _: Text(config=BERT, frozen=1.5), "frozen must "),
    "an empty folder": (lambda folder: Text(pretrained=str(folder)), "pretrained must name a model"),
    "no tokenizer": (lambda folder: tokenizer_of(str(folder)), "pretrained must name a model"),
    "damaged weights": (lambda folder: Text(pretrained=damaged(folder)), "pretrained must name a model"),
    "a missing package": (lambda _: Text(pretrained="package:no_such/x"), "no_such is not installed"),
    "no package": (lambda _: ViT(pretrained="package:../x"), "pretrained must be"),
    "no name": (lambda _: Text(pretrained=None), "pretrained must be"),
    "a number": (lambda _: ViT(pretrained=3), "pretrained must be"),
    "no kind": (lambda _: Text(config={"vocab_size": 40}), "config must be a configuration"),
    "an unknown kind": (lambda _: Text(config={"model_type": "nope"}), "config must be a configuration"),
    "heads that do not divide": (lambda _: Text(config=BERT | {"num_attention_heads": 3}), "config must be one that"),
    "no width": (lambda _: Text(config=BERT | {"hidden_size": "wide"}), "config must be one that"),
    "a rate": (lambda _: Text(config=BERT, dropout=1.5), "dropout must be"),
    "a decoder": (lambda _: Text(config=T5, frozen="none"), "the model must return hidden states"),
    "images for texts": (lambda _: Text(config=VIT), "the model must read token ids"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case, tmp_path):
    call, message = REFUSED[case]
    with pytest.raises(ConfigError, match=f"^{message}"):
        call(tmp_path)
