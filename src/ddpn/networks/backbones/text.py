"""`Text`, a backbone for texts, based on a pretrained transformer."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ddpn.networks.backbones.pretrained import make_encoder_factory
from ddpn.networks.backbones.transformer import Encoder, Transformer
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.runtime.validation import is_integer

#: Names that transformers use for the embedding of positions.
_POSITIONS = ("position_embeddings", "embed_positions", "wpe")
_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


class Text(Transformer):
    """A backbone of M fine-tuned transformers for texts, each followed by a perceptron.

    Shape: token ids (B, tokens), or (B, M, tokens) with separate texts for each network -> features (B, M, hidden[-1]).
    Short texts are padded with the configuration's pad_token_id. The `trunk` consists of the frozen blocks, so its
    output can be computed in advance. The output of the trunk has shape (B, tokens, width + 1): the hidden states of
    all tokens, and as the last channel a mask that is 0 for padding. With frozen="all", the output of the trunk is the
    pooled features, (B, width).

    Parameters
    ----------
    pretrained : str or None
        A model name of the Hugging Face hub, a folder, or "package:NAME/FOLDER" inside an installed package.
    config : transformers configuration or dict, optional
        The configuration of a model with random weights, used instead of `pretrained`. A dict must have a `model_type`.
    frozen : int, "all" or "none"
        The number of transformer blocks, from the first, that are shared by all networks and not trained, together with
        the embeddings. A negative number counts from the end. Default: all but the last block.
    hidden : sequence of int
        The widths of each perceptron.
    n_networks : int
        M, the number of networks.
    pooling : {"mean", "cls", "pooler"}
        The features of a text: the average hidden state of its tokens, the hidden state of its first token, or the
        output of the model's own pooling layer, if it has one.
    dropout : bool
        Whether to train with the model's dropout, also in frozen blocks. The output of frozen blocks is then random and
        cannot be computed in advance.
    """

    def __init__(
        self,
        *,
        pretrained: str | None = "distilbert-base-cased",
        config: Any = None,
        frozen: int | str | None = -1,
        hidden: Sequence[int] = (384, 256),
        n_networks: int = 1,
        pooling: str = "mean",
        dropout: bool = False,
    ) -> None:
        make = make_encoder_factory(partial(TokenEncoder, pooling=pooling), pretrained, config, dropout)
        super().__init__(make, frozen=frozen, hidden=hidden, n_networks=n_networks, dropout=dropout)


class TokenEncoder(Encoder):
    """An encoder that maps the token ids of texts to features. Shape: (B, tokens) -> (B, width).

    The attribute `vocabulary_size` is the number of token ids, and `pad` is the id of the padding token. `max_tokens`
    is the largest number of tokens of a text, or None if there is no limit.
    """

    input_description = "a tensor of token ids (B, L), or (B, M, L) with ids of each network"
    states = (
        "hidden states (B, L, H + 1), or (B, M, L, H + 1) with states of each network, as backbone.trunk(ids) gives"
    )
    has_mask = True

    def __init__(self, model: Any, pooling: str = "mean") -> None:
        super().__init__(model, pooling)
        try:
            vocabulary_size = getattr(model.get_input_embeddings(), "num_embeddings", None)
        except NotImplementedError:
            vocabulary_size = None
        if vocabulary_size is None:
            raise ConfigError(f"the model must read token ids, got {type(model).__name__}. Use ViT for images.")
        pad = getattr(model.config, "pad_token_id", None)
        if not is_integer(pad) or not 0 <= pad < vocabulary_size:
            limit = f"{vocabulary_size}, the model's number of tokens"
            raise ConfigError(f"pad_token_id of the configuration must be an id below {limit}, got {pad!r}.")
        self.pad, self.vocabulary_size = int(pad), vocabulary_size
        # None if the model uses relative positions.
        self.max_tokens: int | None = None
        for name, module in model.named_modules():
            if isinstance(module, nn.Embedding) and name.rpartition(".")[2] in _POSITIONS:
                # RoBERTa numbers positions from the padding index on.
                reserved_positions = 0 if module.padding_idx is None else module.padding_idx + 1
                self.max_tokens = (
                    int(getattr(model.config, "max_position_embeddings", module.num_embeddings)) - reserved_positions
                )
                break

    def make_example(self) -> Tensor:
        """Make a batch of two short texts, one of them with padding: token ids of shape (2, tokens)."""
        ids = torch.full((2, 6), self.pad)
        ids[0], ids[1, :3] = (1 + self.pad) % self.vocabulary_size, (2 + self.pad) % self.vocabulary_size
        return ids

    def compute_states(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the hidden state of each token, (B, tokens, width), and a mask (B, tokens) that is False for padding.

        `x` has token ids, (B, L). Trailing positions that are padding in all texts are removed first, so the number of
        tokens in the results is at most L.
        """
        ids = self._trim_padding(x)
        keep = ids != self.pad
        return self.model(input_ids=ids.long(), attention_mask=keep.long()).last_hidden_state, keep

    def _trim_padding(self, ids: Tensor) -> Tensor:
        """Validate token ids and remove trailing columns that are padding in all texts; keep at least one column.

        Shape: (B, L) -> (B, tokens), with tokens <= L. Raise an `InputError` for ids outside the vocabulary and for
        texts with more than `max_tokens` tokens.
        """
        if ids.dtype not in _INTEGERS or 0 in ids.shape:
            raise InputError(f"x must hold at least one integer token id, got {ids.dtype} of shape {tuple(ids.shape)}.")
        columns = torch.arange(1, ids.shape[1] + 1, device=ids.device)
        last = ((ids != self.pad).any(0) * columns).max()
        # All values are read at once, so that the host waits for the GPU only once.
        longest, low, high = torch.stack([last, *(extreme.long() for extreme in ids.aminmax())]).tolist()
        if low < 0 or high >= self.vocabulary_size:
            must, got = f"hold token ids from 0 to {self.vocabulary_size - 1}", low if low < 0 else high
            raise InputError(f"x must {must}, got {got}. Use the tokenizer of this model.")
        if self.max_tokens is not None and longest > self.max_tokens:
            most, remedy = f"at most {self.max_tokens} tokens", f"Tokenise with max_length={self.max_tokens}."
            raise InputError(f"x must hold texts of {most}, got {longest}. {remedy}")
        return ids[:, : max(1, longest)]
