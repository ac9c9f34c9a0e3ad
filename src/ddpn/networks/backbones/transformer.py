"""Transformer encoders in two parts: some first blocks frozen and shared, the rest tuned by each member."""

import copy
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, ClassVar

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ddpn.networks.backbones.fine_tuning import Frozen, Tail, Tuned
from ddpn.networks.backbones.members import Copies, check_rate
from ddpn.runtime.errors import ConfigError
from ddpn.runtime.extras import import_extra, locate
from ddpn.runtime.validation import is_integer

#: Names that libraries give to the norm behind the last block.
_LAST_NORMS = ("layernorm", "norm", "final_layernorm", "final_layer_norm", "ln_f")


class Reader(nn.Module, ABC):
    """How an encoder reads one kind of input, and how its hidden states become features."""

    takes: ClassVar[str]  # the inputs, in words
    states: ClassVar[str]  # the hidden states, in words
    capturable: ClassVar[bool] = False
    has_mask: ClassVar[bool] = False

    @abstractmethod
    def read(self, model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Hidden states (B, L, H), and which of them are tokens of the input, (B, L), if `has_mask`."""

    @staticmethod
    @abstractmethod
    def pool(hidden: Tensor, keep: Tensor | None) -> Tensor:
        """Hidden states -> features (B, H)."""


class Whole(nn.Module):
    """A whole encoder and the average of its hidden states. Shape: inputs -> (B, H)."""

    def __init__(self, model: nn.Module, reader: Reader) -> None:
        super().__init__()
        self.model, self.reader = model, reader
        self.takes, self.capturable = reader.takes, reader.capturable

    def forward(self, x: Tensor) -> Tensor:
        return self.reader.pool(*self.reader.read(self.model, x))


class First(Whole):
    """Embeddings and first blocks. Shape: inputs -> (B, L, H), or (B, L, H + 1) with the mask as the last channel."""

    def forward(self, x: Tensor) -> Tensor:
        hidden, keep = self.reader.read(self.model, x)
        if keep is None:
            return hidden
        with_mask = torch.cat([hidden, keep.unsqueeze(-1).to(hidden.dtype)], dim=-1)
        return nn.functional.pad(with_mask, (0, 0, 0, x.shape[1] - hidden.shape[1]))


class Last(nn.Module):
    """The blocks from the `n`-th on, counted from 0, their norm and the average. Shape: as `First` gives -> (B, H)."""

    capturable = True

    def __init__(self, model: nn.Module, n: int, reader: type[Reader], checkpointing: bool = False) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(list(blocks_of(model)[2])[n:])
        norms = [getattr(model, name) for name in _LAST_NORMS if hasattr(model, name)]
        self.norm = norms[0] if norms else nn.Identity()
        self.reader, self.takes, self.checkpointing = reader, reader.states, checkpointing

    def forward(self, states: Tensor) -> Tensor:
        # States stored in half precision are computed with in the weights' precision, except under autocast.
        hidden, keep = states.to(next(self.parameters()).dtype), None
        mask: tuple[Tensor, ...] = ()
        if self.reader.has_mask:
            hidden, keep = hidden[..., :-1], hidden[..., -1]
            mask = (keep[:, None, None, :].bool(),)
        for block in self.blocks:
            if self.checkpointing and torch.is_grad_enabled():
                hidden = checkpoint(block, hidden, *mask, use_reentrant=False)
            else:
                hidden = block(hidden, *mask)
            # Older releases of transformers return a tuple.
            hidden = hidden[0] if isinstance(hidden, tuple) else hidden
        return self.reader.pool(self.norm(hidden), keep)


class Transformer(Tuned):
    """An encoder that `make` builds, in two parts. `reader` makes the `Reader` of a model; `example` is a batch."""

    def __init__(
        self,
        make: Callable[[], nn.Module],
        reader: Callable[[nn.Module], Reader],
        example: Tensor,
        *,
        frozen: int | str | None,
        hidden: Sequence[int],
        members: int,
        dropout: float,
        checkpointing: bool,
    ) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)  # of the trunk, if it is not pretrained
            model = make()
        n, row_axes, whole = _frozen_blocks(frozen, model), example.dim() - 1, Whole(model, reader(model))
        features = _features(whole, example)
        options: dict[str, Any] = {"width": features.shape[1], "hidden": hidden, "members": members}
        if n is None:
            super().__init__(None, Tail(partial(_whole, make, reader, checkpointing), row_axes=row_axes, **options))
        elif n == len(blocks_of(model)[2]):
            super().__init__(Frozen(whole, row_axes), Tail(None, **options))
        else:
            kind = type(whole.reader)
            last = Last(model, n, kind)  # for the check alone; taken before the model is cut
            trunk = Frozen(First(_first_blocks(model, n), whole.reader), row_axes)
            _check_split(features, trunk, last, example)
            super().__init__(trunk, Tail(partial(_last, make, kind, n, checkpointing), row_axes=2, **options))
        self.tail.capturable_if(dropout == 0.0 and not checkpointing)


def blocks_of(model: nn.Module) -> tuple[nn.Module, str, nn.ModuleList]:
    """The list of blocks, with the module that holds it and its name there."""
    lists = [(name, m) for name, m in model.named_modules() if isinstance(m, nn.ModuleList)]
    if not lists:
        raise ConfigError(f"the model must have a list of blocks, got none in {type(model).__name__}.")
    path, blocks = max(lists, key=lambda pair: sum(p.numel() for p in pair[1].parameters()))
    holder, _, name = path.rpartition(".")
    return model.get_submodule(holder), name, blocks


def _first_blocks(model: nn.Module, n: int) -> nn.Module:
    """`model` with its embeddings and first `n` blocks only, without the norm behind the last."""
    holder, name, blocks = blocks_of(model)
    setattr(holder, name, nn.ModuleList(list(blocks)[:n]))
    for norm in _LAST_NORMS:
        if hasattr(model, norm):
            setattr(model, norm, nn.Identity())
    return model


def _whole(make: Callable[[], nn.Module], reader: Callable[[nn.Module], Reader], checkpointing: bool) -> nn.Module:
    model = make()
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})  # type: ignore[operator]
    return Whole(model, reader(model))


def _last(make: Callable[[], nn.Module], reader: type[Reader], n: int, checkpointing: bool) -> nn.Module:
    return Last(make(), n, reader, checkpointing)


@torch.no_grad()
def _features(whole: Whole, example: Tensor) -> Tensor:
    """The features of an example; raises a `ConfigError` before any training if the model is no encoder for it."""
    try:
        return whole.eval()(example)
    except Exception as error:
        got = f"{type(error).__name__} from {type(whole.model).__name__} ({first_line(error)})"
        must, remedy = "return hidden states for its inputs alone", "Use an encoder such as bert, for images vit."
        raise ConfigError(f"the model must {must}, got {got}. {remedy}") from error


def _frozen_blocks(frozen: int | str | None, model: nn.Module) -> int | None:
    """How many first blocks are frozen, with the embeddings; None if even those are trained."""
    count = len(blocks_of(model)[2])
    if frozen is None or frozen == "none":
        return None
    n = count if frozen == "all" else frozen
    if not is_integer(n) or not -count <= n <= count:
        numbers = f"a number of blocks up to {count} (-1: all but one)"
        raise ConfigError(f"frozen must be 'all', 'none' or {numbers}, got {frozen!r}.")
    return n + count if n < 0 else n


@torch.no_grad()
def _check_split(expected: Tensor, first: nn.Module, last: nn.Module, example: Tensor) -> None:
    """Raise a `ConfigError` if both parts give other features than the whole: not every model is a chain of blocks."""
    try:
        got = last.eval()(first.eval()(example))
        worst = f"a difference of {float((expected - got).abs().max()):.2g}"
        good = torch.allclose(expected, got, atol=1e-4, rtol=1e-4)
    except Exception as error:  # blocks of other families have other arguments and results
        good, worst = False, f"{type(error).__name__}: {first_line(error)}"
    if not good:
        must, remedy = "give the same features as before", "Use frozen='none' or frozen='all' with this model."
        raise ConfigError(f"a model that is split between blocks must {must}, got {worst}. {remedy}")


# Encoders by name, path or configuration ------------------------------------------------------------------------------


def loader(pretrained: str | os.PathLike[str] | None, config: Any, dropout: float) -> Callable[[], nn.Module]:
    """A function that builds the encoder: from `config` with random weights, else with pretrained ones, read once."""
    transformers = _transformers()
    check_rate("dropout", dropout)
    if config is not None:
        plain = _configured(config)
        _set_dropout(plain, dropout)
        return partial(_drawn, plain)
    where = _located(pretrained)
    with _readable(pretrained), _without_bar(transformers):
        settings = transformers.AutoConfig.from_pretrained(where)
        _set_dropout(settings, dropout)
        found = transformers.AutoModel.from_pretrained(where, config=settings)
    # Whatever precision they were stored in: training in half precision keeps its weights in float32.
    return Copies(_without_pooler(found).float())


def tokenizer_of(pretrained: str) -> tuple[Any, int]:
    """The tokenizer that comes with a model, and the id that the model takes for padding."""
    transformers, where = _transformers(), _located(pretrained)
    with _readable(pretrained):
        tokenizer = transformers.AutoTokenizer.from_pretrained(where)
        return tokenizer, int(getattr(transformers.AutoConfig.from_pretrained(where), "pad_token_id", None) or 0)


def _transformers() -> Any:
    return import_extra("transformers", "text")


def _located(pretrained: Any) -> str:
    """A hub name or a path unchanged; the folder of "package:NAME/FOLDER"."""
    if not isinstance(pretrained, str | os.PathLike):
        raise ConfigError(f"pretrained must be a name of the hub, a folder or package:NAME/FOLDER, got {pretrained!r}.")
    return locate(pretrained, "pretrained")


def _drawn(config: Any) -> nn.Module:
    """A model with random weights."""
    with _buildable(config.model_type):
        return _without_pooler(_transformers().AutoModel.from_config(config))


def _configured(config: Any) -> Any:
    """A copy of a transformers configuration: rates of dropout are written into it."""
    transformers = _transformers()
    if isinstance(config, transformers.PretrainedConfig):
        return copy.deepcopy(config)
    kind = config.get("model_type") if isinstance(config, dict) else None
    if kind not in transformers.CONFIG_MAPPING:
        known = "a configuration of transformers or a dict with a model_type that it knows"
        raise ConfigError(f"config must be {known}, such as {{'model_type': 'bert'}}, got {config!r:.80}.")
    with _buildable(kind):
        return transformers.AutoConfig.for_model(**config)


@contextmanager
def _reported(message: str, *errors: type[Exception]) -> Iterator[None]:
    """Raise an error of another library as a `ConfigError`."""
    try:
        yield
    except errors as error:
        raise ConfigError(f"{message} ({first_line(error)}).") from error


def _buildable(kind: Any) -> AbstractContextManager[None]:
    return _reported(f"config must be one that transformers can build, got {kind}", Exception)


def _readable(pretrained: Any) -> AbstractContextManager[None]:
    must = "pretrained must name a model of the hub or a folder with one"
    return _reported(f'{must}, got "{pretrained}"', OSError, ValueError, SafetensorError)


@contextmanager
def _without_bar(transformers: Any) -> Iterator[None]:
    """Without the progress bar of transformers."""
    logging = transformers.utils.logging
    was_on = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_on:
            logging.enable_progress_bar()


def first_line(error: Exception) -> str:
    """The first line of an error of another library."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".:") if lines else type(error).__name__


def _set_dropout(config: Any, dropout: float) -> None:
    """Set every dropout rate of the configuration, whatever its name."""
    for name, value in vars(config).items():
        is_rate = isinstance(value, float) or (value == 0 and not isinstance(value, bool))
        if "dropout" in name and is_rate:
            setattr(config, name, dropout)


def _without_pooler(model: nn.Module) -> nn.Module:
    """The model without its pooler: only hidden states are used."""
    if getattr(model, "pooler", None) is not None:
        model.pooler = None  # type: ignore[assignment]
    return model
