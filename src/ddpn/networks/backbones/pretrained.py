"""Build the transformers of `Text` and `ViT` from names, folders or configurations, and load tokenizers."""

import copy
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

from safetensors import SafetensorError
from torch import nn

from ddpn.networks.backbones.members import DeepCopyFactory
from ddpn.networks.backbones.transformer import Encoder, first_line
from ddpn.runtime.errors import ConfigError
from ddpn.runtime.extras import import_extra, locate

#: Messages about invalid configurations and about invalid names or folders; and the errors that reading them raises.
_UNBUILDABLE = "config must be one that transformers can build, got {}"
_UNREADABLE = 'pretrained must name a model of the hub or a folder with one, got "{}"'
_READ_ERRORS = (OSError, ValueError, SafetensorError)


def make_loader(
    kind: Callable[[nn.Module], Encoder],
    pretrained: str | os.PathLike[str] | None,
    config: Any,
    dropout: bool = False,
) -> Callable[[], Encoder]:
    """Return a function without arguments that builds encoders of this kind.

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
    """Build an encoder of this kind with random weights from a configuration."""
    with _raise_config_errors(_UNBUILDABLE.format(config.model_type), Exception):
        model = import_extra("transformers", "text").AutoModel.from_config(config)
    return _wrap_model(kind, model, dropout)


def _wrap_model(kind: Callable[[nn.Module], Encoder], model: nn.Module, dropout: bool) -> Encoder:
    """Wrap a transformer in an encoder of this kind.

    With `dropout`, training steps are random and cannot be captured as a CUDA graph.
    """
    encoder = kind(model)
    if dropout:
        encoder.capturable = False
    return encoder


def load_tokenizer(pretrained: str | os.PathLike[str]) -> tuple[Any, int]:
    """Load the tokenizer of a pretrained model; return it with the token id of padding."""
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
    """Copy a transformers configuration, so that the caller's stays unchanged when dropout rates are set."""
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
    """Replace errors of another library by a `ConfigError`; the first line of the error completes `message`."""
    try:
        yield
    except errors as error:
        raise ConfigError(f"{message} ({first_line(error)}).") from error


def _with_dropout(config: Any, dropout: bool) -> Any:
    """Set every dropout rate of the configuration to 0, unless `dropout` is True; return the configuration."""
    for name, value in vars(config).items():
        if not dropout and "dropout" in name and isinstance(value, float):
            setattr(config, name, 0.0)
    return config
