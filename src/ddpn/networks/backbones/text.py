"""Texts: a transformer encoder over token ids, all but its last block frozen (Appendix B)."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ddpn.networks.backbones.transformer import Reader, Transformer, loader
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.runtime.validation import is_integer

_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
#: Names that libraries give to the table of positions.
_POSITIONS = ("position_embeddings", "embed_positions", "wpe")


class Text(Transformer):
    """A pretrained transformer for texts: token ids -> features, for every member.

    Hidden states are averaged over the tokens of the text, which are all but padding.

    Shape: ids (B, L) or (B, M, L), padded with `pad` -> (B, M, hidden[-1]). The trunk gives hidden states with the mask
    as their last channel, (B, L, H + 1); with frozen="all" their average, (B, H).

    Parameters
    ----------
    pretrained : str or None
        A name of the hub, a folder, or "package:NAME/FOLDER" inside an installed package.
    config : transformers configuration or dict, optional
        Gives random weights instead; a dict has a `model_type`.
    frozen : int, "all" or "none"
        So many first blocks, with the embeddings, are shared and not trained. Default: all but the last one.
    hidden : sequence of int
        Widths of the perceptron of each member.
    members : int
        M, the number of members.
    dropout : float
        Dropout rate of the transformer.
    checkpointing : bool
        Compute activations twice instead of keeping them.
    pad : int, optional
        The id that fills short texts. Default: that of the configuration. If a tokenizer pads with another id, use
        pad=tokenizer.pad_token_id.
    """

    def __init__(
        self,
        *,
        pretrained: str | None = "distilbert-base-cased",
        config: Any = None,
        frozen: int | str | None = -1,
        hidden: Sequence[int] = (384, 256),
        members: int = 1,
        dropout: float = 0.0,
        checkpointing: bool = False,
        pad: int | None = None,
    ) -> None:
        make = loader(pretrained, config, dropout)
        reader = TokenReader(make(), pad)
        self.pad = reader.pad
        example = torch.full((2, 6), self.pad)
        example[0], example[1, :3] = (1 + self.pad) % reader.words, (2 + self.pad) % reader.words
        options: dict[str, Any] = {"frozen": frozen, "hidden": hidden, "members": members, "dropout": dropout}
        super().__init__(make, partial(TokenReader, pad=self.pad), example, checkpointing=checkpointing, **options)


class TokenReader(Reader):
    """Reads token ids below `words`; `pad` is the id of padding, `positions` the largest number of tokens, if any."""

    takes = "a tensor of token ids (B, L), or (B, M, L) with ids of each member"
    states = "hidden states (B, L, H + 1), or (B, M, L, H + 1) with states of each member, as backbone.trunk(ids) gives"
    has_mask = True

    def __init__(self, model: Any, pad: int | None) -> None:
        super().__init__()
        try:
            words = getattr(model.get_input_embeddings(), "num_embeddings", None)
        except NotImplementedError:
            words = None
        if words is None:
            raise ConfigError(f"the model must read token ids, got {type(model).__name__}. Use ViT for images.")
        found = getattr(model.config, "pad_token_id", None) if pad is None else pad
        if not is_integer(found) or not 0 <= found < words:
            most = f"{words}, the model's number of tokens"
            raise ConfigError(f"pad must be an id below {most}, got {found!r}. Use pad=tokenizer.pad_token_id.")
        self.pad, self.words, self.positions = int(found), words, _positions(model)

    def read(self, model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
        """Hidden states of the tokens, without the columns at the end that are padding in every row."""
        ids = self._trimmed(x)
        keep = ids != self.pad
        return model(input_ids=ids.long(), attention_mask=keep.long()).last_hidden_state, keep

    @staticmethod
    def pool(hidden: Tensor, keep: Tensor | None) -> Tensor:
        """The mean over the tokens that are kept."""
        assert keep is not None
        return averaged(hidden, keep)

    def _trimmed(self, ids: Tensor) -> Tensor:
        """Without the columns at the end that are padding in every row; at least one is left."""
        if ids.dtype not in _INTEGERS or 0 in ids.shape:
            raise InputError(f"x must hold at least one integer token id, got {ids.dtype} of shape {tuple(ids.shape)}.")
        columns = torch.arange(1, ids.shape[1] + 1, device=ids.device)
        last = ((ids != self.pad).any(0) * columns).max()
        # All values that are read at once: a GPU's host waits only once.
        longest, low, high = torch.stack([last, *(each.long() for each in ids.aminmax())]).tolist()
        if low < 0 or high >= self.words:
            must, got = f"hold token ids from 0 to {self.words - 1}", low if low < 0 else high
            raise InputError(f"x must {must}, got {got}. Use the tokenizer of this model.")
        if self.positions is not None and longest > self.positions:
            most, remedy = f"at most {self.positions} tokens", f"Tokenise with max_length={self.positions}."
            raise InputError(f"x must hold texts of {most}, got {longest}. {remedy}")
        return ids[:, : max(1, longest)]


def _positions(model: Any) -> int | None:
    """How many tokens have a position of their own; None if the model uses relative positions."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding) and name.rpartition(".")[2] in _POSITIONS:
            # If padding has a row of its own, positions begin behind it (RoBERTa).
            taken = 0 if module.padding_idx is None else module.padding_idx + 1
            return int(getattr(model.config, "max_position_embeddings", module.num_embeddings)) - taken
    return None


def averaged(hidden: Tensor, keep: Tensor) -> Tensor:
    """The mean over the tokens that are kept; zeros if there are none. Shape: (B, L, H), (B, L) -> (B, H)."""
    weight = keep.to(hidden.dtype).unsqueeze(-1)
    return (hidden * weight).sum(1) / weight.sum(1).clamp(min=1.0)
