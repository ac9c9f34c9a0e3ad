"""Transformer encoders cut in two: some first blocks frozen and shared, the rest tuned by each member."""

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ddpn.backbones.encoder import first_line
from ddpn.backbones.tuned import Frozen, Tail
from ddpn.errors import ConfigError

#: Names that libraries give to the norm behind the last block.
_LAST_NORMS = ("layernorm", "norm", "final_layernorm", "final_layer_norm", "ln_f")


def blocks_of(model: nn.Module) -> tuple[nn.Module, str, nn.ModuleList]:
    """The list of blocks, with the module that holds it and its name there."""
    lists = [(name, m) for name, m in model.named_modules() if isinstance(m, nn.ModuleList)]
    if not lists:
        raise ConfigError(
            f"the model must have a list of blocks, got none in {type(model).__name__}. Wrap it as your own module."
        )
    path, blocks = max(lists, key=lambda pair: sum(p.numel() for p in pair[1].parameters()))
    holder, _, name = path.rpartition(".")
    return model.get_submodule(holder), name, blocks


def first_blocks(model: nn.Module, n: int) -> nn.Module:
    """Embeddings and the first `n` blocks, without the norm behind the last."""
    holder, name, blocks = blocks_of(model)
    setattr(holder, name, nn.ModuleList(list(blocks)[:n]))
    for norm in _LAST_NORMS:
        if hasattr(model, norm):
            setattr(model, norm, nn.Identity())
    return model


class LastBlocks(nn.Module):
    """The blocks from the `n`-th on, counted from 0, and the norm behind them.

    Shape: hidden states (B, L, H), keep (B, L) or None: which tokens may be attended to -> (B, L, H).
    """

    def __init__(self, model: nn.Module, n: int, checkpointing: bool = False) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(list(blocks_of(model)[2])[n:])
        norms = [getattr(model, name) for name in _LAST_NORMS if hasattr(model, name)]
        self.norm = norms[0] if norms else nn.Identity()
        self.checkpointing = checkpointing

    def forward(self, hidden: Tensor, keep: Tensor | None = None) -> Tensor:
        mask = () if keep is None else (keep[:, None, None, :].bool(),)
        for block in self.blocks:
            if self.checkpointing and torch.is_grad_enabled():
                hidden = checkpoint(block, hidden, *mask, use_reentrant=False)
            else:
                hidden = block(hidden, *mask)
            # Older releases of transformers put it into a tuple.
            hidden = hidden[0] if isinstance(hidden, tuple) else hidden
        return self.norm(hidden)


class Pieces(Protocol):
    """How a kind of encoder is put together: as a whole, or as what comes before and after a cut between two blocks."""

    def whole(self, model: nn.Module) -> nn.Module:
        """Inputs -> features."""

    def first(self, model: nn.Module) -> nn.Module:
        """Inputs -> hidden states."""

    def last(self, blocks: LastBlocks) -> nn.Module:
        """Hidden states -> features."""


def cut(
    make: Callable[[], nn.Module],
    pieces: Pieces,
    example: Tensor,
    *,
    frozen: int | str | None,
    hidden: Sequence[int],
    members: int,
    checkpointing: bool,
) -> tuple[Frozen | None, Tail]:
    """The shared and the members' own part of an encoder that `make` builds; `example` is a batch of inputs."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # the trunk's, where it is not pretrained
        model = make()
    n, row_axes, whole = _frozen_blocks(frozen, model), example.dim() - 1, pieces.whole(model)
    features = _tried(whole, model, example)
    options: dict[str, Any] = {"width": features.shape[1], "hidden": hidden, "members": members}
    if n is None:
        return None, Tail(partial(_whole, make, pieces, checkpointing), row_axes=row_axes, **options)
    if n == len(blocks_of(model)[2]):
        return Frozen(whole, row_axes), Tail(None, **options)
    trunk = Frozen(pieces.first(first_blocks(copy.deepcopy(model), n)), row_axes)
    _check_cut(features, trunk, pieces.last(LastBlocks(copy.deepcopy(model), n)), example)
    return trunk, Tail(partial(_last, make, pieces, n, checkpointing), row_axes=2, **options)


def _whole(make: Callable[[], nn.Module], pieces: Pieces, checkpointing: bool) -> nn.Module:
    model = make()
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})  # type: ignore[operator]
    return pieces.whole(model)


def _last(make: Callable[[], nn.Module], pieces: Pieces, n: int, checkpointing: bool) -> nn.Module:
    return pieces.last(LastBlocks(make(), n, checkpointing))


@torch.no_grad()
def _tried(whole: nn.Module, model: nn.Module, example: Tensor) -> Tensor:
    """The features of an example: what is no encoder, or one of another kind of input, is told before any training."""
    try:
        return whole.eval()(example)
    except Exception as error:
        raise ConfigError(
            f"the model must give hidden states for its inputs alone, got {type(error).__name__} from "
            f"{type(model).__name__} ({first_line(error)}). Use an encoder such as bert, for pictures vit."
        ) from error


def _frozen_blocks(frozen: int | str | None, model: nn.Module) -> int | None:
    """How many first blocks do not learn, the embeddings with them; None where even those learn."""
    count = len(blocks_of(model)[2])
    if frozen is None or frozen == "none":
        return None
    n = count if frozen == "all" else frozen
    if not isinstance(n, int) or isinstance(n, bool) or not -count <= n <= count:
        raise ConfigError(
            f'frozen must be "all", "none" or a number of blocks up to {count}, got {frozen!r}. Use -1 for all but one.'
        )
    return n + count if n < 0 else n


@torch.no_grad()
def _check_cut(expected: Tensor, first: nn.Module, last: nn.Module, example: Tensor) -> None:
    """Refuse a family of models that is not computed as a row of blocks: its halves would give other numbers."""
    try:
        got = last.eval()(first.eval()(example))
        worst = f"a difference of {float((expected - got).abs().max()):.2g}"
        good = torch.allclose(expected, got, atol=1e-4, rtol=1e-4)
    except Exception as error:  # blocks of other families take and give all sorts of things
        good, worst = False, f"{type(error).__name__}: {first_line(error)}"
    if not good:
        raise ConfigError(
            f"an encoder that is cut between blocks must give the same as before, got {worst}. "
            'Use frozen="none" or "all" with this model.'
        )
