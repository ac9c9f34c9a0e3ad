"""Texts: a transformer encoder over token ids, all but its last block frozen (Appendix B)."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ddpn.backbones.arguments import Takes
from ddpn.backbones.cut import LastBlocks, cut
from ddpn.backbones.encoder import loader
from ddpn.backbones.tuned import Tuned
from ddpn.errors import ConfigError, InputError
from ddpn.validation import is_integer

_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_IDS = Takes(
    "token ids (B, L), or (B, M, L) with members' own", "Use ddpn.inputs.tokenize, or x.unsqueeze(0) for one text."
)
#: Names that libraries give to the table of positions.
_POSITIONS = ("position_embeddings", "embed_positions", "wpe")
_STATES = Takes("hidden states (B, L, H + 1), or (B, M, L, H + 1) with members' own", "Use backbone.trunk(ids).")


class Text(Tuned):
    """Token ids -> features, for every member.

    `pretrained` is a name of the hub, a folder, or "package:NAME/FOLDER" inside an installed package; `config` (a
    transformers configuration, or a dict with its model_type) gives random weights instead. `frozen` first blocks, with
    the embeddings, are shared and learn nothing: all but the last one by default, "all", or "none". Hidden states are
    averaged over the tokens of the text, which are all but `pad`: the id that fills short texts, the configuration's
    unless given. A tokenizer that was told another one pads with pad=tokenizer.pad_token_id.

    Shape: ids (B, L) or (B, M, L), padded with `pad` -> (B, M, hidden[-1]). The trunk gives hidden states with the mask
    as their last channel, (B, L, H + 1); with frozen="all" their average, (B, H).
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
        limits = Limits.of(make(), pad)
        self.pad = limits.pad
        example = torch.full((2, 6), self.pad)
        example[0], example[1, :3] = (1 + self.pad) % limits.words, (2 + self.pad) % limits.words
        options: dict[str, Any] = {"frozen": frozen, "hidden": hidden, "members": members}
        super().__init__(*cut(make, _Pieces(self.pad), example, checkpointing=checkpointing, **options))
        self.tail.capturable_if(dropout == 0.0 and not checkpointing)


class Limits(NamedTuple):
    """What a model can read: ids below `words`, of which `pad` is none, and so many `positions`, if it counts them."""

    pad: int
    words: int
    positions: int | None

    @classmethod
    def of(cls, model: Any, pad: int | None) -> "Limits":
        """Those of a model; its configuration's pad where none is given."""
        try:
            words = getattr(model.get_input_embeddings(), "num_embeddings", None)
        except NotImplementedError:
            words = None
        if words is None:
            raise ConfigError(
                f"the model must read token ids, got {type(model).__name__}. Use ddpn.backbones.ViT for pictures."
            )
        found = getattr(model.config, "pad_token_id", None) if pad is None else pad
        if not is_integer(found) or not 0 <= int(found) < words:
            whose = "in its configuration" if pad is None else "as given"
            raise ConfigError(
                f"pad must be an id of the model's {words} tokens, got {found!r} {whose}. "
                "Use pad=tokenizer.pad_token_id, the one that fills short texts."
            )
        return cls(int(found), words, _positions(model))

    def trimmed(self, ids: Tensor) -> Tensor:
        """Without the columns at the end that are padding in every row; one at least is left."""
        if ids.dtype not in _INTEGERS:
            raise InputError(f"x must be integer token ids, got {ids.dtype}. Use ddpn.inputs.tokenize.")
        if 0 in ids.shape:
            raise InputError(f"x must hold a text and a token at least, got shape {tuple(ids.shape)}. Leave it out.")
        columns = torch.arange(1, ids.shape[1] + 1, device=ids.device)
        last = ((ids != self.pad).any(0) * columns).max()
        # All that is looked at together: a GPU's host waits once.
        longest, low, high = torch.stack([last, *(each.long() for each in ids.aminmax())]).tolist()
        if low < 0 or high >= self.words:
            raise InputError(
                f"x must hold token ids from 0 to {self.words - 1}, got {low if low < 0 else high}. "
                "Use the tokenizer of this model."
            )
        if self.positions is not None and longest > self.positions:
            raise InputError(
                f"x must hold texts of at most {self.positions} tokens, got {longest}. "
                f"Use tokenize(..., max_length={self.positions})."
            )
        return ids[:, : max(1, longest)]


def _positions(model: Any) -> int | None:
    """How many tokens have a position of their own; None where distances are what the model knows."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding) and name.rpartition(".")[2] in _POSITIONS:
            # Where padding has a row of its own, positions begin behind it (RoBERTa).
            taken = 0 if module.padding_idx is None else module.padding_idx + 1
            return int(getattr(model.config, "max_position_embeddings", module.num_embeddings)) - taken
    return None


class _Pieces:
    def __init__(self, pad: int) -> None:
        self.pad = pad

    def whole(self, model: nn.Module) -> nn.Module:
        return Whole(model, self.pad)

    def first(self, model: nn.Module) -> nn.Module:
        return First(model, self.pad)

    def last(self, blocks: LastBlocks) -> nn.Module:
        return Last(blocks)


def averaged(hidden: Tensor, keep: Tensor) -> Tensor:
    """The mean over the tokens that are kept; zeros where there is none. Shape: (B, L, H), (B, L) -> (B, H)."""
    weight = keep.to(hidden.dtype).unsqueeze(-1)
    return (hidden * weight).sum(1) / weight.sum(1).clamp(min=1.0)


class Whole(nn.Module):
    """A whole encoder and the average. Shape: ids (B, L) -> (B, H)."""

    takes = _IDS

    def __init__(self, model: nn.Module, pad: int) -> None:
        super().__init__()
        self.model, self.limits = model, Limits.of(model, pad)

    def forward(self, ids: Tensor) -> Tensor:
        ids = self.limits.trimmed(ids)
        keep = ids != self.limits.pad
        states = self.model(input_ids=ids.long(), attention_mask=keep.long()).last_hidden_state
        return averaged(states, keep)


class First(nn.Module):
    """The embeddings and first blocks. Shape: ids (B, L) -> (B, L, H + 1), the mask last."""

    takes = _IDS

    def __init__(self, model: nn.Module, pad: int) -> None:
        super().__init__()
        self.model, self.limits = model, Limits.of(model, pad)

    def forward(self, ids: Tensor) -> Tensor:
        given = ids.shape[1]
        ids = self.limits.trimmed(ids)
        keep = ids != self.limits.pad
        states = self.model(input_ids=ids.long(), attention_mask=keep.long()).last_hidden_state
        with_mask = torch.cat([states, keep.unsqueeze(-1).to(states.dtype)], dim=-1)
        return nn.functional.pad(with_mask, (0, 0, 0, given - ids.shape[1]))


class Last(nn.Module):
    """The last blocks and the average. Shape: (B, L, H + 1) -> (B, H)."""

    capturable, takes = True, _STATES

    def __init__(self, blocks: LastBlocks) -> None:
        super().__init__()
        self.blocks = blocks

    def forward(self, states: Tensor) -> Tensor:
        keep = states[..., -1]
        # What is kept in half precision is computed with in the weights' own, unless autocast says otherwise.
        dtype = next(self.parameters()).dtype
        return averaged(self.blocks(states[..., :-1].to(dtype), keep), keep)
