"""Transformer backbones that are fine-tuned: the first blocks can be frozen and shared by all networks."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ddpn.networks.backbones.fine_tuned import FineTuned, NetworkTail
from ddpn.networks.backbones.layers import Frozen
from ddpn.runtime.errors import ConfigError
from ddpn.runtime.validation import check_choice, is_integer

#: Ways to pool the hidden states of a transformer into features.
TOKEN_POOLINGS = ("mean", "cls", "pooler")
#: Names that transformers use for the norm after the last block.
_LAST_NORMS = ("layernorm", "norm", "final_layernorm", "final_layer_norm", "ln_f")


class Pool(nn.Module):
    """Pools the hidden states of all tokens into one feature vector per row. Shape: (B, tokens, width) -> (B, width).

    The module is called with the hidden states and a mask of shape (B, tokens), which is False for padding, or None if
    there is no padding. `pooling` is one of:

    - "mean": the average over all tokens for which the mask is True. If there is no mask, it is the average over all
      tokens but the first, which is the class token;
    - "cls": the hidden state of the first token;
    - "pooler": the output of `pooler`, the pooling layer of the pretrained model.
    """

    def __init__(self, pooling: str, pooler: nn.Module | None) -> None:
        super().__init__()
        check_choice("pooling", pooling, TOKEN_POOLINGS)
        if pooling == "pooler" and pooler is None:
            got = "a model without a pooler"
            raise ConfigError(argument="pooling", must=f'be "mean" or "cls" for {got}', got='"pooler"')
        self.pooling, self.pooler = pooling, pooler if pooling == "pooler" else None

    def forward(self, hidden: Tensor, keep: Tensor | None) -> Tensor:
        if self.pooler is not None:
            return self.pooler(hidden)
        if self.pooling == "cls":
            return hidden[:, 0]
        if keep is None:
            return hidden[:, 1:].mean(1)
        weight = keep.to(hidden.dtype).unsqueeze(-1)
        return (hidden * weight).sum(1) / weight.sum(1).clamp(min=1.0)


class Encoder(nn.Module, ABC):
    """The base class of transformers that map one type of input, such as texts, to features of shape (B, width).

    After a call of `keep_first_blocks`, the encoder returns the hidden states of all tokens instead, with shape (B,
    tokens, width). If `has_mask`, the shape is (B, tokens, width + 1): the last channel is a mask that is 0 for
    padding.

    `model` is a transformer of Hugging Face, and `pooling` is described in `Pool`.

    `input_description` and `states` describe inputs and hidden states in error messages. `capturable` is True if
    training steps can be captured as a CUDA graph. `has_mask` is True if rows may contain padding.
    """

    input_description: ClassVar[str]
    states: ClassVar[str]
    capturable: bool = False
    has_mask: ClassVar[bool] = False

    def __init__(self, model: Any, pooling: str = "mean") -> None:
        super().__init__()
        self.pool = Pool(pooling, getattr(model, "pooler", None))
        if getattr(model, "pooler", None) is not None:
            model.pooler = None  # `pool` has it, if it is needed
        self.model, self.is_cut = model, False

    @abstractmethod
    def make_example(self) -> Tensor:
        """Make a small batch of valid inputs, for a test of the encoder when the backbone is built."""

    @abstractmethod
    def compute_states(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Compute the hidden states (B, tokens, width), and a mask (B, tokens) that is False for padding.

        The mask is None if `has_mask` is False.
        """

    def forward(self, x: Tensor) -> Tensor:
        hidden, keep = self.compute_states(x)
        if not self.is_cut:
            return self.pool(hidden, keep)
        if keep is None:
            return hidden
        with_mask = torch.cat([hidden, keep.unsqueeze(-1).to(hidden.dtype)], dim=-1)
        return nn.functional.pad(with_mask, (0, 0, 0, x.shape[1] - hidden.shape[1]))

    def keep_first_blocks(self, n: int) -> "Encoder":
        """Keep only the first `n` blocks, and remove the final norm as well, in place; return this encoder."""
        holder, name, blocks = find_blocks(self.model)
        setattr(holder, name, nn.ModuleList(list(blocks)[:n]))
        for norm in _LAST_NORMS:
            if hasattr(self.model, norm):
                setattr(self.model, norm, nn.Identity())
        self.is_cut = True
        return self

    def freeze(self, n: int) -> "Encoder":
        """Exclude the embeddings and the first `n` blocks from training; return this encoder.

        Dropout in these blocks stays active.
        """
        norms = [getattr(self.model, name) for name in _LAST_NORMS if hasattr(self.model, name)]
        self.model.requires_grad_(False)
        for module in [*list(find_blocks(self.model)[2])[n:], *norms]:
            module.requires_grad_(True)
        return self


class LastBlocks(nn.Module):
    """The last part of an encoder: all blocks from index `n` (counted from 0), the final norm and the pooling.

    `make` builds the whole encoder. Shape: hidden states (B, tokens, width) -> features (B, width). If the encoder has
    `has_mask`, the input has shape (B, tokens, width + 1), and its last channel is a mask that is 0 for padding.
    """

    capturable = True

    def __init__(self, make: Callable[[], Encoder], n: int) -> None:
        super().__init__()
        encoder = make()
        self.blocks = nn.ModuleList(list(find_blocks(encoder.model)[2])[n:])
        norms = [getattr(encoder.model, name) for name in _LAST_NORMS if hasattr(encoder.model, name)]
        self.norm = norms[0] if norms else nn.Identity()
        self.has_mask, self.pool, self.input_description = encoder.has_mask, encoder.pool, encoder.states

    def forward(self, states: Tensor) -> Tensor:
        # Hidden states may be stored in half precision.
        hidden, keep = states.to(next(self.parameters()).dtype), None
        mask: tuple[Tensor, ...] = ()
        if self.has_mask:
            hidden, keep = hidden[..., :-1], hidden[..., -1]
            mask = (keep[:, None, None, :].bool(),)
        for block in self.blocks:
            hidden = block(hidden, *mask)
            # Older releases of transformers return a tuple.
            hidden = hidden[0] if isinstance(hidden, tuple) else hidden
        return self.pool(self.norm(hidden), keep)


def _build_and_freeze(make: Callable[[], Encoder], n: int) -> Encoder:
    """Build an encoder with `make`, and freeze its embeddings and its first `n` blocks."""
    return make().freeze(n)


class Transformer(FineTuned):
    """The base class of transformer backbones, whose first blocks can be frozen.

    All networks share the frozen blocks, and each network trains its own copy of the other blocks. With `dropout`, each
    network also has its own copy of the frozen blocks, because their output is random. `make` builds a whole encoder.
    The other arguments are those of `ddpn.networks.backbones.Text`.
    """

    def __init__(
        self,
        make: Callable[[], Encoder],
        *,
        frozen: int | str | None,
        hidden: Sequence[int],
        n_networks: int,
        dropout: bool = False,
    ) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)  # for the trunk, if it has random weights
            whole = make()
        count, example = len(find_blocks(whole.model)[2]), whole.make_example()
        n: Any = count if frozen == "all" else frozen
        tunes_all = n is None or n == "none"
        if not tunes_all and not (is_integer(n) and -count <= n <= count):
            numbers = f"a number of blocks up to {count} (-1: all but one)"
            raise ConfigError(f"frozen must be 'all', 'none' or {numbers}, got {frozen!r}.")
        features, row_axes = _encode_example(whole, example), example.dim() - 1
        options: dict[str, Any] = {"width": features.shape[1], "hidden": hidden, "n_networks": n_networks}
        if tunes_all:
            super().__init__(None, NetworkTail(make, row_axes=row_axes, **options))
            return
        first = n + count if isinstance(n, int) and n < 0 else n
        if dropout:
            super().__init__(None, NetworkTail(partial(_build_and_freeze, make, first), row_axes=row_axes, **options))
        elif n == count:
            super().__init__(Frozen(whole, row_axes), NetworkTail(None, **options))
        else:
            last = LastBlocks(lambda: whole, first)  # only for the check; made before the model is cut
            trunk = Frozen(whole.keep_first_blocks(first), row_axes)
            _check_split(features, trunk, last, example)
            super().__init__(trunk, NetworkTail(partial(LastBlocks, make, first), row_axes=2, **options))


def find_blocks(model: nn.Module) -> tuple[nn.Module, str, nn.ModuleList]:
    """Find the list of transformer blocks of a model.

    Return the module that has this list as an attribute, the name of the attribute, and the list. If there are several
    lists of modules, it is the one with the most weights; if there is none, a `ConfigError` is raised.
    """
    lists = [(name, m) for name, m in model.named_modules() if isinstance(m, nn.ModuleList)]
    if not lists:
        raise ConfigError(f"{type(model).__name__} has no list of blocks. Use a transformer such as bert or vit.")
    path, blocks = max(lists, key=lambda pair: sum(p.numel() for p in pair[1].parameters()))
    holder, _, name = path.rpartition(".")
    return model.get_submodule(holder), name, blocks


@torch.no_grad()
def _encode_example(whole: Encoder, example: Tensor) -> Tensor:
    """Compute the features of an example batch, of shape (B, width).

    Raise a `ConfigError` if the model cannot be used as an encoder.
    """
    try:
        return whole.eval()(example)
    except Exception as error:
        got = f"{type(error).__name__} from {type(whole.model).__name__} ({get_first_line(error)})"
        must, remedy = "return hidden states", "Use an encoder such as bert for texts or vit for images."
        raise ConfigError(f"the model must {must}, got {got}. {remedy}") from error


@torch.no_grad()
def _check_split(expected: Tensor, first: nn.Module, last: nn.Module, example: Tensor) -> None:
    """Raise a `ConfigError` if the two parts of a split encoder do not compute the `expected` features together.

    `first` has the first blocks and `last` the other ones. `expected` has the features that the whole encoder computes
    from the batch `example`, of shape (B, width).
    """
    try:
        got = last.eval()(first.eval()(example))
        worst = f"a difference of {float((expected - got).abs().max()):.2g}"
        good = torch.allclose(expected, got, atol=1e-4, rtol=1e-4)
    except Exception as error:  # blocks of some models have other arguments and results
        good, worst = False, f"{type(error).__name__}: {get_first_line(error)}"
    if not good:
        remedy = "Use frozen='none' or frozen='all' with this model."
        raise ConfigError(f"The model cannot be split between blocks, because its features change ({worst}). {remedy}")


def get_first_line(error: Exception) -> str:
    """Return the first line of an error's message, or the error's class name if the message is empty."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".:") if lines else type(error).__name__
