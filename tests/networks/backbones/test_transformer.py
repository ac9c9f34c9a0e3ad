"""Encoders split between blocks: what cannot be split, or is no encoder, is refused; the parts can be pickled."""

import copy

import pytest
import torch

from ddpn.networks.backbones import Text
from ddpn.networks.backbones.members import generators
from ddpn.runtime.errors import ConfigError

BERT = {
    "model_type": "bert", "vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2,
    "intermediate_size": 24,
}  # fmt: skip
GPT2 = {"model_type": "gpt2", "n_embd": 8, "n_layer": 2, "n_head": 2, "vocab_size": 40, "pad_token_id": 39}
T5 = {"model_type": "t5", "d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 2, "num_heads": 2, "vocab_size": 40}
VIT = {k: v for k, v in BERT.items() if k != "vocab_size"} | {"model_type": "vit", "image_size": 16, "patch_size": 8}
IDS = torch.tensor([[5, 6, 7, 0, 0], [8, 9, 0, 0, 0], [1, 2, 3, 4, 5], [3, 0, 0, 0, 0]])
IMAGES = torch.randint(256, (2, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("frozen", [7, -4, "some", 1.5, True])
def test_bad_frozen(frozen):
    with pytest.raises(ConfigError, match=r"frozen must be 'all', 'none' or a number of blocks up to 3 .*, got "):
        Text(config=BERT, frozen=frozen)


def test_a_family_that_is_no_chain_of_blocks_is_refused():
    config = {**BERT, "model_type": "modernbert", "pad_token_id": 0}
    for special in ("eos", "bos", "cls", "sep"):
        config[f"{special}_token_id"] = 1
    with pytest.raises(ConfigError, match="split between blocks must give the same features as before, got "):
        Text(config=config, frozen=-1)
    assert Text(config=config, frozen="all", hidden=(4,))(IDS).shape == (4, 1, 4)


@pytest.mark.parametrize(
    "config",
    [GPT2 | {"bos_token_id": 39, "eos_token_id": 39}, BERT | {"model_type": "albert", "embedding_size": 8},
     BERT | {"model_type": "longformer", "attention_window": 4}],
    ids=["gpt2", "albert", "longformer"],
)  # fmt: skip
def test_a_family_whose_blocks_have_other_arguments_is_refused(config):
    with pytest.raises(ConfigError, match=r"split between blocks .*, got \w+Error: .+\. Use frozen='none' or"):
        Text(config=config, frozen=-1)
    assert Text(config=config, frozen="all", hidden=(4,))(IDS).shape == (4, 1, 4)


@pytest.mark.parametrize("frozen", ["none", -1])
@pytest.mark.parametrize(
    ("config", "message"),
    [
        (T5, r"return hidden states for its inputs alone, got ValueError from T5Model \(.+\)\. Use an encoder"),
        (VIT, r"read token ids, got ViTModel\. Use ViT for images"),
    ],
    ids=["t5", "vit"],
)
def test_models_that_encode_no_texts_are_refused(config, message, frozen):
    with pytest.raises(ConfigError, match=f"the model must {message}"):
        Text(config=config, frozen=frozen)


def saved(tmp_path, config) -> str:
    from transformers import AutoConfig, AutoModel

    AutoModel.from_config(AutoConfig.for_model(**config)).save_pretrained(tmp_path)
    return str(tmp_path)


def test_a_copy_of_a_pretrained_network_keeps_no_second_one_to_copy_from(tmp_path):
    network = Text(pretrained=saved(tmp_path, BERT), frozen="none", hidden=(4,), members=2)
    network.reset(generators((0, 1)))
    again = copy.deepcopy(network)
    assert again.tail.networks._make.args[0] is network.tail.networks._make.args[0]
    assert not {id(p) for p in again.parameters()} & {id(p) for p in network.parameters()}
