"""Texts: a transformer encoder over token ids, all but its last block frozen (Appendix B)."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ddpn.backbones.encoder import LastBlocks, cut, loader
from ddpn.backbones.tuned import Tuned


class Text(Tuned):
    """Token ids -> features, for every member.

    `pretrained` is a name of the hub, a folder, or "package:NAME/FOLDER" inside an installed package; `config` (a
    transformers configuration, or a dict with its model_type) gives random weights instead. `frozen` first blocks, with
    the embeddings, are shared and learn nothing: all but the last one by default, "all", or "none". Hidden states are
    averaged over the tokens of the text.

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
    ) -> None:
        make = loader(pretrained, config, dropout)
        settings: Any = make().config
        self.pad = int(settings.pad_token_id or 0)
        example = torch.full((2, 6), self.pad)
        example[0], example[1, :3] = 1 + self.pad, 2 + self.pad
        options: dict[str, Any] = {"frozen": frozen, "hidden": hidden, "members": members}
        super().__init__(*cut(make, _Pieces(self.pad), example, checkpointing=checkpointing, **options))
        self.tail.capturable_if(dropout == 0.0 and not checkpointing)


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


def trimmed(ids: Tensor, pad: int) -> Tensor:
    """Without the columns at the end that are padding in every row; one at least is left."""
    longest = int((ids != pad).any(0).nonzero().max()) + 1 if (ids != pad).any() else 1
    return ids[:, :longest]


class Whole(nn.Module):
    """A whole encoder and the average. Shape: ids (B, L) -> (B, H)."""

    def __init__(self, model: nn.Module, pad: int) -> None:
        super().__init__()
        self.model, self.pad = model, pad

    def forward(self, ids: Tensor) -> Tensor:
        ids = trimmed(ids, self.pad)
        keep = ids != self.pad
        states = self.model(input_ids=ids.long(), attention_mask=keep.long()).last_hidden_state
        return averaged(states, keep)


class First(nn.Module):
    """The embeddings and first blocks. Shape: ids (B, L) -> (B, L, H + 1), the mask last."""

    def __init__(self, model: nn.Module, pad: int) -> None:
        super().__init__()
        self.model, self.pad = model, pad

    def forward(self, ids: Tensor) -> Tensor:
        given = ids.shape[1]
        ids = trimmed(ids, self.pad)
        keep = ids != self.pad
        states = self.model(input_ids=ids.long(), attention_mask=keep.long()).last_hidden_state
        with_mask = torch.cat([states, keep.unsqueeze(-1).to(states.dtype)], dim=-1)
        return nn.functional.pad(with_mask, (0, 0, 0, given - ids.shape[1]))


class Last(nn.Module):
    """The last blocks and the average. Shape: (B, L, H + 1) -> (B, H)."""

    capturable = True

    def __init__(self, blocks: LastBlocks) -> None:
        super().__init__()
        self.blocks = blocks

    def forward(self, states: Tensor) -> Tensor:
        keep = states[..., -1]
        # What is kept in half precision is computed with in the weights' own, unless autocast says otherwise.
        dtype = next(self.parameters()).dtype
        return averaged(self.blocks(states[..., :-1].to(dtype), keep), keep)
