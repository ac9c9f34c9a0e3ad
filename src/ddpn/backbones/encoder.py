"""Transformer encoders by name, path or configuration, cut in two: some first blocks frozen, the rest tuned."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from typing import Any, Protocol

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ddpn.backbones.tuned import Frozen, Tail
from ddpn.errors import ConfigError

#: Names that libraries give to the norm behind the last block.
_LAST_NORMS = ("layernorm", "norm", "final_layernorm", "final_layer_norm", "ln_f")
#: What transformers raises where there is no model, or none that is whole.
_UNREADABLE = (OSError, ValueError, SafetensorError)
#: A model inside an installed package: "package:NAME/FOLDER".
_PACKAGE = "package:"


def library() -> Any:
    """The transformers package."""
    try:
        import transformers
    except ImportError:
        raise ConfigError(
            "transformers must be installed for text and vit backbones, got none. Install ddpn[text] or ddpn[images]."
        ) from None
    return transformers


def located(pretrained: str) -> str:
    """A hub name or a path as it is; the folder of "package:NAME/FOLDER"."""
    if not pretrained.startswith(_PACKAGE):
        return pretrained
    package, _, folder = pretrained.removeprefix(_PACKAGE).partition("/")
    try:
        return str(files(package) / folder)
    except ModuleNotFoundError:
        install = f"pip install {package.replace('_', '-')}"
        raise ConfigError(f'pretrained must name an installed package, got "{pretrained}". Run: {install}') from None


def loader(pretrained: str | None, config: Any, dropout: float) -> Callable[[], nn.Module]:
    """What builds the encoder anew: from `config` with random weights, else the pretrained ones, read once."""
    transformers = library()
    if not 0.0 <= dropout < 1.0:
        raise ConfigError(f"dropout must lie in [0, 1), got {dropout}. Use 0 for none.")
    if config is not None:
        plain = _configured(transformers, config)
        _set_dropout(plain, dropout)
        return lambda: _without_pooler(_with_attention(transformers.AutoModel.from_config, plain))
    if pretrained is None:
        raise ConfigError("pretrained must be given where config is not, got neither. Name a model or a configuration.")
    where = located(pretrained)
    try:
        with _without_bar(transformers):
            settings = transformers.AutoConfig.from_pretrained(where)
            _set_dropout(settings, dropout)
            found = _with_attention(transformers.AutoModel.from_pretrained, where, config=settings)
    except _UNREADABLE as error:
        raise _not_found(pretrained, error) from error
    # Whatever precision they were stored in: a training in half precision keeps its weights in full.
    template = _without_pooler(found).float()
    return lambda: copy.deepcopy(template)


def tokenizer_of(pretrained: str) -> tuple[Any, int]:
    """The tokenizer that comes with a model, and the id that the model takes for padding."""
    transformers, where = library(), located(pretrained)
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(where)
        return tokenizer, int(transformers.AutoConfig.from_pretrained(where).pad_token_id or 0)
    except _UNREADABLE as error:
        raise _not_found(pretrained, error) from error


def _not_found(pretrained: str, error: Exception) -> ConfigError:
    return ConfigError(
        f'pretrained must name a model of the hub or a folder with one, got "{pretrained}" ({_first(error)}). '
        "Download it to a folder and give its path, or train from a config."
    )


def _configured(transformers: Any, config: Any) -> Any:
    """A configuration of transformers that is nobody else's: rates of dropout are written into it."""
    if isinstance(config, transformers.PretrainedConfig):
        return copy.deepcopy(config)
    kind = config.get("model_type") if isinstance(config, dict) else None
    if kind not in transformers.CONFIG_MAPPING:
        raise ConfigError(
            "config must be a configuration of transformers or a dict with a model_type that it knows, "
            f"got {config!r:.80}. Use {{'model_type': 'bert'}}, say."
        )
    return transformers.AutoConfig.for_model(**config)


def _with_attention(build: Callable[..., nn.Module], *given: Any, **options: Any) -> nn.Module:
    """With torch's fused attention, where the family has it: a mask of yes and no is what it takes."""
    try:
        return build(*given, attn_implementation="sdpa", **options)
    except ValueError as error:
        if "scaled_dot_product" not in str(error):
            raise
        return build(*given, attn_implementation="eager", **options)


@contextmanager
def _without_bar(transformers: Any) -> Iterator[None]:
    """A bar for a second's work would only stand in the way of ours."""
    logging = transformers.utils.logging
    was_on = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_on:
            logging.enable_progress_bar()


def _first(error: Exception) -> str:
    return str(error).strip().splitlines()[0].rstrip(".")


def _set_dropout(config: Any, dropout: float) -> None:
    """Every rate of the configuration, whatever its family calls it."""
    for name, value in vars(config).items():
        is_rate = isinstance(value, float) or (value == 0 and not isinstance(value, bool))
        if "dropout" in name and is_rate:
            setattr(config, name, dropout)


def _without_pooler(model: nn.Module) -> nn.Module:
    """Its last hidden states are what is used."""
    if getattr(model, "pooler", None) is not None:
        model.pooler = None  # type: ignore[assignment]
    return model


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
    n, row_axes = _frozen_blocks(frozen, model), example.dim() - 1
    options: dict[str, Any] = {"width": int(model.config.hidden_size), "hidden": hidden, "members": members}  # type: ignore[union-attr, arg-type]
    if n is None:
        return None, Tail(lambda: pieces.whole(_checkpointed(make(), checkpointing)), row_axes=row_axes, **options)
    if n == len(blocks_of(model)[2]):
        return Frozen(pieces.whole(model), row_axes), Tail(None, **options)

    def last() -> nn.Module:
        return pieces.last(LastBlocks(make(), n, checkpointing))

    trunk = Frozen(pieces.first(first_blocks(copy.deepcopy(model), n)), row_axes)
    _check_cut(pieces.whole(model), trunk, pieces.last(LastBlocks(copy.deepcopy(model), n)), example)
    return trunk, Tail(last, row_axes=2, **options)


def _checkpointed(model: nn.Module, checkpointing: bool) -> nn.Module:
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})  # type: ignore[operator]
    return model


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
def _check_cut(whole: nn.Module, first: nn.Module, last: nn.Module, example: Tensor) -> None:
    """Refuse a family of models that is not computed as a row of blocks: its halves would give other numbers."""
    expected = whole.eval()(example)
    try:
        got = last.eval()(first.eval()(example))
        worst = f"a difference of {float((expected - got).abs().max()):.2g}"
        good = torch.allclose(expected, got, atol=1e-4, rtol=1e-4)
    except (TypeError, ValueError, RuntimeError) as error:
        good, worst = False, f"{type(error).__name__}: {_first(error)}"
    if not good:
        raise ConfigError(
            f"an encoder that is cut between blocks must give the same as before, got {worst}. "
            'Use frozen="none" or "all" with this model.'
        )
