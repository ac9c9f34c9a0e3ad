"""Transformer encoders by name, path or configuration."""

import copy
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

from safetensors import SafetensorError
from torch import nn

from ddpn.networks.backbones.arguments import check_rate
from ddpn.networks.backbones.members import Copies
from ddpn.runtime.errors import ConfigError
from ddpn.runtime.extras import import_extra, locate


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
