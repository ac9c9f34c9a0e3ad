"""Token ids: which of them is padding, and bad ones."""

import re

import pytest
import torch

from ddpn.networks.backbones import Text
from ddpn.networks.backbones.members import generators
from ddpn.runtime.errors import ConfigError, InputError

TINY = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8, "vocab_size": 30}
BERT = {"model_type": "bert", "max_position_embeddings": 10, **TINY}
GPT2 = {
    "model_type": "gpt2", "n_embd": 8, "n_layer": 2, "n_head": 2, "n_positions": 10, "vocab_size": 30,
    "bos_token_id": 29, "eos_token_id": 29,
}  # fmt: skip
IDS = torch.tensor([[5, 6, 7], [8, 9, 0]])
FROZEN = ("none", -1, "all")


def built(config=BERT, **options) -> Text:
    network = Text(config=dict(config), hidden=(4,), **options)
    network.reset(generators([0]))
    return network.eval()


def test_a_given_pad_is_the_padding():
    network = built(GPT2, frozen="all", pad=29)
    assert network.pad == 29
    padded = torch.tensor([[5, 0, 29, 29]])
    torch.testing.assert_close(network(padded), network(torch.tensor([[5, 0]])))
    assert not torch.allclose(network(padded), network(torch.tensor([[5]]))), "token 0 is a word like others"


@pytest.mark.parametrize(("config", "pad"), [(GPT2, None), (BERT, 30), (BERT, -1), (BERT, 1.5), (BERT, "[PAD]")])
def test_bad_pads(config, pad):
    message = f"pad must be an id below 30, the model's number of tokens, got {pad!r}. Use pad=tokenizer.pad_token_id"
    with pytest.raises(ConfigError, match=re.escape(message)):
        built(config, pad=pad)


SHAPES = r"be a tensor of token ids \(B, L\), or \(B, M, L\) .*, got"
BAD_IDS = {
    "beyond the words": (torch.tensor([[5, 30]]), "hold token ids from 0 to 29, got 30. Use the tokenizer of this"),
    "negative": (torch.tensor([[5, -1]]), "hold token ids from 0 to 29, got -1"),
    "too long": (torch.ones(2, 11).long(), "hold texts of at most 10 tokens, got 11. Tokenise with max_length=10"),
    "no rows": (IDS[:0], r"hold at least one integer token id, got torch.int64 of shape \(0, 3\)"),
    "one text": (IDS[0], rf"{SHAPES} shape \(3,\)"),
    "array": (IDS.numpy(), rf"{SHAPES} ndarray"),
    "floats": (IDS + 0.7, "hold at least one integer token id, got torch.float32"),
}


@pytest.fixture(scope="module")
def networks() -> dict:
    return {frozen: built(frozen=frozen) for frozen in FROZEN}


@pytest.mark.parametrize("frozen", FROZEN)
def test_bad_ids(frozen, networks):
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
    network = built(BERT | {"model_type": "roberta", "pad_token_id": 1}, frozen="all")
    assert network(torch.full((1, 8), 5)).shape == (1, 1, 4)
    with pytest.raises(InputError, match="x must hold texts of at most 8 tokens, got 9"):
        network(torch.full((1, 9), 5))
