"""Load or build the transformers of `Text` and `ViT`, and load tokenizers."""

import copy
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

from safetensors import SafetensorError
from torch import nn

from ddpn.networks.backbones.layers import DeepCopyFactory
from ddpn.networks.backbones.transformer import Encoder, get_first_line
from ddpn.runtime.errors import ConfigError
from ddpn.runtime.extras import import_extra, locate

#: Messages about invalid configurations and about invalid names or folders; and the errors that reading them raises.
_UNBUILDABLE = "config must be one that transformers can build, got {}"
_UNREADABLE = 'pretrained must name a model of the hub or a folder with one, got "{}"'
_READ_ERRORS = (OSError, ValueError, SafetensorError)


def make_encoder_factory(
    make_encoder: Callable[[nn.Module], Encoder],
    pretrained: str | os.PathLike[str] | None,
    config: Any,
    dropout: bool = False,
) -> Callable[[], Encoder]:
    """Return a function without arguments that builds encoders.

    `make_encoder` wraps a transformer in an encoder. If `config` is given, it is the configuration of transformers with
    random weights. Otherwise, the transformers have the weights of the model `pretrained`, which is read only once.
    Without `dropout`, all dropout rates are set to 0.
    """
    transformers = import_extra("transformers", "text")
    if config is not None:
        return partial(_build_encoder, make_encoder, _set_dropout(_copy_config(config), dropout), dropout)
    where = _locate_model(pretrained)
    with _raise_config_errors(_UNREADABLE.format(pretrained), *_READ_ERRORS):
        settings = _set_dropout(transformers.AutoConfig.from_pretrained(where), dropout)
        model = transformers.AutoModel.from_pretrained(where, config=settings)
    # In float32, whatever precision they were stored in: even bf16 training keeps its weights in float32.
    return cast(Callable[[], Encoder], DeepCopyFactory(_wrap_model(make_encoder, model.float(), dropout)))


def _build_encoder(make_encoder: Callable[[nn.Module], Encoder], config: Any, dropout: bool) -> Encoder:
    """Build a transformer with random weights from its configuration, and wrap it by `make_encoder`."""
    with _raise_config_errors(_UNBUILDABLE.format(config.model_type), Exception):
        model = import_extra("transformers", "text").AutoModel.from_config(config)
    return _wrap_model(make_encoder, model, dropout)


def _wrap_model(make_encoder: Callable[[nn.Module], Encoder], model: nn.Module, dropout: bool) -> Encoder:
    """Wrap a transformer in an encoder by `make_encoder`.

    With `dropout`, the encoder is marked as not capturable, because training steps with dropout cannot be captured as a
    CUDA graph here.
    """
    encoder = make_encoder(model)
    if dropout:
        encoder.capturable = False
    return encoder


def load_tokenizer(pretrained: str | os.PathLike[str]) -> tuple[Any, int]:
    """Load the tokenizer of a pretrained model; return it and the id of the padding token in the model's configuration.

    `pretrained` is a model name of the Hugging Face hub, a folder, or "package:NAME/FOLDER" inside an installed
    package. The id is 0 if the configuration has none. If the model cannot be read, a `ConfigError` is raised.
    """
    transformers, where = import_extra("transformers", "text"), _locate_model(pretrained)
    with _raise_config_errors(_UNREADABLE.format(pretrained), *_READ_ERRORS):
        tokenizer = transformers.AutoTokenizer.from_pretrained(where)
        return tokenizer, int(getattr(transformers.AutoConfig.from_pretrained(where), "pad_token_id", None) or 0)


def _locate_model(pretrained: Any) -> str:
    """Return the folder of a model given as "package:NAME/FOLDER"; return a hub name or a path unchanged, as text.

    Anything but text or a path raises a `ConfigError`.
    """
    if not isinstance(pretrained, str | os.PathLike):
        raise ConfigError(f"pretrained must be a name of the hub, a folder or package:NAME/FOLDER, got {pretrained!r}.")
    return locate(pretrained, "pretrained")


def _copy_config(config: Any) -> Any:
    """Return a transformers configuration that can be modified without changing the caller's `config`.

    A dictionary is converted to the configuration class of its `model_type`. If transformers does not know this type, a
    `ConfigError` is raised.
    """
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
    """Convert `errors` of another library in a `with` block to a `ConfigError`.

    The new message is `message`, followed by the first line of the error.
    """
    try:
        yield
    except errors as error:
        raise ConfigError(f"{message} ({get_first_line(error)}).") from error


def _set_dropout(config: Any, dropout: bool) -> Any:
    """Set every dropout rate of the configuration to 0 in place, unless `dropout` is True; return the configuration."""
    for name, value in vars(config).items():
        if not dropout and "dropout" in name and isinstance(value, float):
            setattr(config, name, 0.0)
    return config
