"""The options of a `CountRegressor`, checked when it is fitted and turned into what a training takes."""

import operator
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ddpn.errors import ConfigError
from ddpn.estimators.fitting import ENCODINGS, auto_batch_size, auto_epochs
from ddpn.heads import HEADS, Head, make_head
from ddpn.heads.head import option_names
from ddpn.training import TrainingConfig

if TYPE_CHECKING:
    from ddpn.estimators.regressor import CountRegressor

#: Options of heads, and what they are where nothing is said.
_HEAD_OPTIONS = {"beta": 0.0, "objective": "exact", "gamma": "per_row", "initial_gamma": None}


def head_of(options: "CountRegressor") -> Head:
    """The head, with those of this estimator's options that it has; others must have been left as they were."""
    if options.likelihood not in HEADS:
        listed = ", ".join(HEADS)
        raise ConfigError(f"likelihood must be one of {listed}, got {options.likelihood!r}. Choose one of these.")
    known = option_names(HEADS[options.likelihood])
    for name, usual in _HEAD_OPTIONS.items():
        if name not in known and getattr(options, name) != usual:
            raise ConfigError(
                f'{name} must be left at {usual!r} with likelihood="{options.likelihood}", which has no such option, '
                f"got {getattr(options, name)!r}. Drop it."
            )
    return make_head(options.likelihood, **{name: _plain_number(getattr(options, name)) for name in known})


def widths_of(options: "CountRegressor") -> tuple[int, ...]:
    """The networks' widths."""
    try:
        widths = tuple(operator.index(width) for width in options.hidden)
    except TypeError:
        raise ConfigError(f"hidden must list widths, got {options.hidden!r}. Use for example (128, 64).") from None
    if any(width < 1 for width in widths):
        raise ConfigError(f"hidden must hold widths of at least 1, got {widths}. Use () for a linear model.")
    return widths


def check_numeric(options: "CountRegressor") -> None:
    """An encoding there is, or "auto"."""
    if options.numeric not in ("auto", *ENCODINGS):
        listed = ", ".join(("auto", *ENCODINGS))
        raise ConfigError(f"numeric must be one of {listed}, got {options.numeric!r}. Choose one.")


def validation_share(options: "CountRegressor") -> float | str | None:
    """The share of rows to hold out."""
    share = options.validation
    if share is None or share == "auto":
        return share
    if isinstance(share, bool) or not isinstance(share, Real) or not 0.0 <= share < 1.0:
        raise ConfigError(f'validation must be "auto", None or lie in [0, 1), got {share!r}. Use 0.1 for a tenth.')
    return share


def config_of(options: "CountRegressor", rows: int, random: np.random.RandomState) -> TrainingConfig:
    """How to train on so many rows."""
    if isinstance(options.members, bool) or not isinstance(options.members, int | np.integer) or options.members < 1:
        raise ConfigError(f"members must be a whole number of at least 1, got {options.members!r}. Use 5.")
    if options.score_on not in ("nll", "crps"):
        raise ConfigError(f'score_on must be "nll" or "crps", got {options.score_on!r}. Choose one of the two.')
    batch = auto_batch_size(rows) if options.batch_size == "auto" else _plain_number(options.batch_size)
    config = TrainingConfig(
        epochs=1 if options.epochs == "auto" else _plain_number(options.epochs),
        batch_size=batch,
        lr=_plain_number(options.lr),
        weight_decay=_plain_number(options.weight_decay),
        warmup=_plain_number(options.warmup),
        schedule=options.schedule,  # type: ignore[arg-type]
        clip=_plain_number(options.clip),
        ema=_plain_number(options.ema),
        score=options.score_on,  # type: ignore[arg-type]
        patience=_plain_number(options.patience),
        precision=options.precision,  # type: ignore[arg-type]
        seeds=tuple(int(seed) for seed in random.randint(2**31 - 1, size=options.members)),
    )
    return replace(config, epochs=auto_epochs(rows, config.batch_size)) if options.epochs == "auto" else config


def checkpoint_of(options: "CountRegressor") -> Path | None:
    """The file of an interrupted fit; only one that starts from a fixed seed can go on from it."""
    if options.checkpoint is None:
        return None
    if not isinstance(options.random_state, int | np.integer):
        got = f"got {options.random_state!r}: a fit from other random numbers cannot go on from it"
        raise ConfigError(f"random_state must be a number where there is a checkpoint, {got}. Use 0.")
    return Path(options.checkpoint)


def _plain_number(value: Any) -> Any:
    """A number of numpy's, as a grid of options holds them, as Python's."""
    return value.item() if isinstance(value, np.generic) else value
