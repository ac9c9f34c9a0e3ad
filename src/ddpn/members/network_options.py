"""Options of networks, which are validated before any training starts. This module does not import torch."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ddpn.networks.optimizer_options import OptimizerOptions
from ddpn.rows.splits import SMALL_TABLE_ROWS
from ddpn.runtime.errors import ConfigError
from ddpn.runtime.validation import check_choice, check_integer, check_keys, is_integer, refuse_old_names
from ddpn.storage.contents import JsonObject

if TYPE_CHECKING:
    from torch import nn

    from ddpn.networks.training import TrainingConfig

#: Encodings of numeric columns.
ENCODINGS = ("standard", "piecewise", "steps")
#: Encodings of categorical columns.
CATEGORICAL = ("auto", "one-hot", "effects")
#: The most columns of a table whose numbers are encoded rather than only standardised; and the smallest batch size of
#: wider tables.
MAX_ENCODED_COLUMNS, _MIN_WIDE_BATCH = 500, 128
#: The most rows that are put into a single batch.
FULL_BATCH_ROWS = 128
#: Training steps of networks in a mixture, for small and for large tables.
_MIXTURE_STEPS = 500, 2000
#: Layer widths and steps of the large networks, for small and for large tables. A narrow first layer computes a few
#: sums of all inputs, in which later layers find thresholds.
_LARGE_WIDTHS_AND_STEPS = ((128, 128), 2000), ((32, 128, 128, 64), 10_000)
#: The patience of networks in a mixture, as a share of all epochs.
_PATIENCE_SHARE = 0.1
#: Neither weight decay is better on all tables. Networks on large tables and large networks on small tables have this
#: weaker one; the others have the default.
_WEAK_DECAY = 0.3

#: The paper's networks and training (Appendix B.3): AdamW and a cosine schedule from random weights, without additions.
_PAPER: JsonObject = {"hidden": (128, 128, 128, 64), "numeric": "standard", "warmup": 0.0, "clip": None, "ema": 0.0}
_PAPER |= {"score": "loss", "start": "random"}
#: The paper's settings and steps for simulations (200 epochs of 800 rows) and for length of stay (15 epochs of 80,000
#: rows).
_PAPER_SMALL = {"batch_size": 32, "lr": 1e-3, "weight_decay": 1e-5}, 5000
_PAPER_LARGE = {"batch_size": 128, "lr": 1e-4, "weight_decay": 1e-4}, 9375


@refuse_old_names(members="n_networks")
@dataclass(frozen=True, kw_only=True)
class NetworkOptions(OptimizerOptions):
    """How an ensemble of networks is built and trained.

    Parameters
    ----------
    n_networks : int
        The number of networks in the ensemble.
    hidden : sequence of int or "auto"
        The widths of the hidden layers; () for a linear model. "auto" depends on the number of rows.
    activation : str
        The function after each hidden layer: "relu", "gelu", "silu" or "tanh".
    backbone : str or callable
        The layers from inputs to features. "mlp" is a multilayer perceptron with the layers of `hidden` and
        `activation`. Alternatives are another name in `ddpn.networks.backbones.BACKBONES`, or a function
        ``backbone(n_in=..., n_networks=...)`` that returns a module with all networks.
    numeric : {"auto", "standard", "piecewise", "steps"}
        The encoding of numeric columns, see `FeatureEncoder`. "standard" only standardises numbers, "piecewise" adds
        piecewise-linear bins, and "steps" adds indicators of x > t for several thresholds t. "auto" depends on the
        numbers of rows and columns (`choose_numeric_encoding`).
    bins : int, optional
        The number of bins or thresholds of a numeric column. Default: the default of `FeatureEncoder`.
    categorical : {"auto", "one-hot", "effects"}
        The encoding of categorical columns, see `FeatureEncoder`. "auto" adds level effects (target encoding) for
        columns with more than 50 levels.
    score : {"auto", "crps", "nll", "loss"}
        The validation score that selects each network's best epoch. "auto" is CRPS for most likelihoods. For mixtures
        ("mixed"), it is NLL, which is several times faster. "loss" is the training objective, as in the paper.
    start : {"intercept", "random"}
        Whether training starts from an intercept-only fit of the likelihood, or from random weights, as in the paper.
    epochs : int or "auto"
        The number of passes over the training rows. "auto" depends on the number of rows.
    batch_size : int or "auto"
        The number of rows per step. "auto" depends on the number of rows.
    lr : float
        The highest learning rate.
    weight_decay : float
        Decoupled weight decay, as in AdamW.
    warmup : float
        The share of all steps in which the learning rate rises from near 0 to `lr`.
    schedule : {"cosine", "constant"}
        Whether the learning rate then falls along a cosine or stays constant.
    clip : float or None
        The largest gradient norm of each network. Longer gradients are scaled down. None for no limit.
    ema : float
        If above 0, weights are averaged over about 1 / (1 - ema) steps. Validation and predictions use the average.
    patience : int, optional
        A network stops if its validation score has not improved for this many epochs. None: it trains for all epochs.
    precision : {"float32", "bf16"}
        The precision in which networks are computed.
    """

    n_networks: int = 5
    hidden: Sequence[int] | str = "auto"
    activation: str = "relu"
    backbone: "str | Callable[..., nn.Module]" = "mlp"
    numeric: str = "auto"
    bins: int | None = None
    categorical: str = "auto"
    epochs: int | str = "auto"
    batch_size: int | str = "auto"
    lr: float = 4e-3
    weight_decay: float = 1.0
    score: str = "auto"
    start: str = "intercept"

    def __post_init__(self) -> None:
        for name in (field.name for field in fields(self)):
            object.__setattr__(self, name, to_python_scalar(getattr(self, name)))
        super().__post_init__()
        check_integer("n_networks", self.n_networks, 1)
        if not isinstance(self.hidden, str) and isinstance(self.hidden, Sequence | np.ndarray):
            widths = tuple(check_integer("a width in hidden", width, 1) for width in self.hidden)
            object.__setattr__(self, "hidden", widths)
        elif self.hidden != "auto":
            must = 'be "auto" or the widths of layers, such as (128, 64)'
            raise ConfigError(argument="hidden", must=must, got=repr(self.hidden))
        if self.backbone != "mlp":
            from ddpn.networks.backbones import check_table_backbone

            check_table_backbone(self.backbone)
        check_choice("numeric", self.numeric, ("auto", *ENCODINGS))
        check_choice("categorical", self.categorical, CATEGORICAL)
        check_choice("score", self.score, ("auto", "nll", "crps", "loss"))
        check_choice("start", self.start, ("intercept", "random"))
        if self.bins is not None:
            check_integer("bins", self.bins, 1)
        for name in ("epochs", "batch_size"):
            value = getattr(self, name)
            if value != "auto" and not (is_integer(value) and value >= 1):
                raise ConfigError(argument=name, must='be "auto" or an integer of at least 1', got=repr(value))

    def with_widths(self, rows: int) -> "NetworkOptions":
        """Return the options with `hidden="auto"` replaced by layer widths for this number of training rows."""
        if self.hidden != "auto":
            return self
        # For few rows, larger networks predict no better and cost more (network_defaults.md).
        return replace(self, hidden=(64, 64) if rows <= SMALL_TABLE_ROWS else (128, 128, 128, 64))

    @property
    def widths(self) -> tuple[int, ...]:
        """The widths of the hidden layers. Call `with_widths` first if `hidden` is "auto"."""
        assert not isinstance(self.hidden, str)
        return tuple(self.hidden)

    def make_config(self, rows: int, seeds: tuple[int, ...], score: str = "crps", columns: int = 1) -> "TrainingConfig":
        """Create the training settings for a table with this many training rows and columns, and one network per seed.

        `score` is the validation score to use if the option `score` is "auto".
        """
        from ddpn.networks.backbones.layers import ACTIVATIONS
        from ddpn.networks.training.config import TrainingConfig

        check_choice("activation", self.activation, ACTIVATIONS)
        names = {field.name for field in fields(TrainingConfig)}
        settings = {name: value for name, value in asdict(self).items() if name in names}
        settings["score"] = score if self.score == "auto" else self.score
        settings["batch_size"] = choose_batch_size(rows) if self.batch_size == "auto" else self.batch_size
        config = TrainingConfig(**(settings | {"epochs": 1 if self.epochs == "auto" else self.epochs, "seeds": seeds}))
        if self.epochs == "auto":
            config = replace(config, epochs=choose_epochs(rows, config.batch_size))
        if self.batch_size == "auto" and columns > MAX_ENCODED_COLUMNS:
            # Fewer steps, because the cost of a step grows with the width of the first layer.
            config = replace(config, batch_size=min(rows, max(config.batch_size, _MIN_WIDE_BATCH)))
        return config

    def as_dict(self) -> JsonObject:
        """Return the options as a dictionary that can be written as JSON.

        Raise a `ConfigError` if the backbone is a function.
        """
        if not isinstance(self.backbone, str):
            raise ConfigError(
                "A model whose `backbone` is a function cannot be saved. Register the function before the fit, "
                'ddpn.networks.backbones.BACKBONES["my_network"] = ..., and pass this name.'
            )
        return asdict(self) | {"hidden": self.hidden if isinstance(self.hidden, str) else list(self.hidden)}


#: Keys of an estimator's `training_options`: all fields that are not arguments of the estimator.
TRAINING_OPTIONS = tuple(
    field.name
    for field in fields(NetworkOptions)
    if field.name not in ("n_networks", "hidden", "backbone", "numeric", "epochs")
)


def check_training_options(options: Mapping[str, Any] | None) -> JsonObject:
    """Validate the `training_options` argument of an estimator, and return it as a new dictionary.

    Raise a `ConfigError` for unknown keys.
    """
    if options is not None and not isinstance(options, Mapping):
        must, got = 'be a dictionary such as {"lr": 0.002}', f"{options!r:.60}"
        raise ConfigError(argument="training_options", must=must, got=got)
    check_keys(options or {}, TRAINING_OPTIONS, "training_options")
    return dict(options or {})


def make_small_options(options: NetworkOptions, rows: int) -> NetworkOptions:
    """Return a copy of the options with the defaults for the networks of a mixture. Options that the user set are kept.

    The networks are trained for about 500 steps or, with more than 5,000 training rows, 2,000. These are fewer steps
    than networks without other members get. The batch size and the patience are set to match. With more than 5,000
    rows, the default weight decay is replaced by a weaker one. `rows` is the number of training rows.
    """
    filled = _set_epochs(options, rows, _MIXTURE_STEPS[rows > SMALL_TABLE_ROWS])
    return _weaken_decay(filled) if rows > SMALL_TABLE_ROWS else filled


def make_large_options(options: NetworkOptions, rows: int) -> NetworkOptions:
    """Return a copy of the options for the large networks of a mixture: wider or more layers, and more training steps.

    The networks are trained for about 2,000 steps or, with more than 5,000 training rows, 10,000. Layer widths are
    replaced, and the encoding of numeric columns becomes "steps", which encodes a number by indicators of x > t for
    several thresholds t. Up to 5,000 rows, the default weight decay is replaced by a weaker one. Other options that the
    user has set are kept. `rows` is the number of training rows.
    """
    widths, steps = _LARGE_WIDTHS_AND_STEPS[rows > SMALL_TABLE_ROWS]
    filled = replace(_set_epochs(options, rows, steps), numeric="steps", hidden=widths)
    return _weaken_decay(filled) if rows <= SMALL_TABLE_ROWS else filled


def _weaken_decay(options: NetworkOptions) -> NetworkOptions:
    is_default = options.weight_decay == NetworkOptions().weight_decay
    return replace(options, weight_decay=_WEAK_DECAY) if is_default else options


def _set_epochs(options: NetworkOptions, rows: int, steps: int) -> NetworkOptions:
    """Return a copy of the options with a number of epochs, 5 to 300, for a total of about `steps` training steps.

    `rows` is the number of training rows. The batch size (see `choose_batch_size`) and the patience (a tenth of the
    epochs, at least 3) are set as well, unless the user has set them. If the user has set `epochs`, the options are
    returned unchanged.
    """
    if options.epochs != "auto":
        return options
    size = choose_batch_size(rows) if options.batch_size == "auto" else int(options.batch_size)
    epochs = int(np.clip(steps * size // rows, 5, 300))
    patience = max(3, round(_PATIENCE_SHARE * epochs)) if options.patience is None else options.patience
    return replace(options, batch_size=size, epochs=epochs, patience=patience)


def make_paper_options(rows: int, **overrides: Any) -> NetworkOptions:
    """Create options with the paper's training settings for this number of rows.

    Up to 5,000 rows, the settings are those of the paper's simulations. For more rows, they are those of its
    length-of-stay data. The number of epochs is chosen so that training takes as many steps as in the paper. Keyword
    arguments in `overrides` replace these options.
    """
    settings, steps = _PAPER_LARGE if rows > SMALL_TABLE_ROWS else _PAPER_SMALL
    options = NetworkOptions(**(_PAPER | settings | overrides))
    if options.epochs != "auto":
        return options
    batch = choose_batch_size(rows) if options.batch_size == "auto" else min(int(options.batch_size), rows)
    return replace(options, epochs=max(1, round(steps / max(1, rows // batch))))


def choose_numeric_encoding(rows: int, columns: int) -> str:
    """Choose the encoding of numeric columns by the numbers of rows and columns.

    - "standard" (numbers are only standardised) for more than 500 columns;
    - "piecewise" (piecewise-linear bins) up to 5,000 rows;
    - "steps" (indicators of x > t for several thresholds t) for more rows.

    On the development tables, "piecewise" and "steps" are equally good on average. But with few rows "steps" follows
    smooth effects less well, and with many rows it finds thresholds that "piecewise" blurs.
    """
    return "standard" if columns > MAX_ENCODED_COLUMNS else "piecewise" if rows <= SMALL_TABLE_ROWS else "steps"


def choose_batch_size(rows: int) -> int:
    """Choose a batch size: all rows of a table with at most 128 rows, else a power of two.

    The power of two is at most 256, and small enough for at least 16 steps per epoch.
    """
    return rows if rows <= FULL_BATCH_ROWS else min(256, 2 ** int(math.log2(rows / 16)))


def choose_epochs(rows: int, batch_size: int) -> int:
    """Choose the number of epochs for about 1,000 training steps, or 3,000 if there are more than 5,000 rows.

    An epoch has about `rows` / `batch_size` steps. The result is at most 300, and at least 40 for more than 5,000 rows.
    On small development tables, more steps did not help.
    """
    steps, least = (1000, 1) if rows <= SMALL_TABLE_ROWS else (3000, 40)
    return int(np.clip(steps // max(1, rows // batch_size), least, 300))


def to_python_scalar(value: Any) -> Any:
    """Convert a NumPy scalar to a Python scalar; return any other value unchanged."""
    return value.item() if isinstance(value, np.generic) else value
