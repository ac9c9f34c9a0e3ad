"""CountRegressor: the scikit-learn face."""

import operator
from collections.abc import Sequence
from dataclasses import replace
from numbers import Real
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, check_random_state
from torch import Tensor

from ddpn.errors import ConfigError, InputError
from ddpn.estimator import saving
from ddpn.estimator.fitting import (
    ENCODINGS,
    FULL_BATCH_ROWS,
    Job,
    auto_batch_size,
    auto_epochs,
    build,
    fit_ensemble,
    held_out,
    used_rows,
)
from ddpn.estimator.inputs import collapsed, exposure_unit, in_units, targets
from ddpn.estimator.predictions import BLOCK, CountPredictions
from ddpn.features import FeatureEncoder, encoder_bytes, encoder_from_bytes
from ddpn.heads import HEADS, Head, make_head
from ddpn.heads.head import option_names
from ddpn.training import History, Runtime, TrainingConfig

#: Options of heads, and what they are where nothing is said.
_HEAD_OPTIONS = {"beta": 0.0, "objective": "exact", "gamma": "per_row", "initial_gamma": None}


class CountRegressor(CountPredictions, BaseEstimator):
    """Counts with honest uncertainty: an ensemble of networks, each predicting a whole distribution.

    `likelihood` names a head of `ddpn.heads` ("double_poisson", "poisson", "negative_binomial", "gaussian",
    "faithful_gaussian", "natural_gaussian"); `beta`, `objective`, `gamma` and `initial_gamma` are its options.
    `members` networks of the `hidden` widths (() for a generalised linear model) are trained together and mixed.
    `numeric` says how numbers are encoded ("standard", "piecewise", "steps"; "auto" tries all three on validation
    rows). `validation` is the share of rows held out to choose each member's best epoch ("auto": a tenth from 200 rows
    on; None: no row), unless `fit` is given rows for it. `epochs` and `batch_size` follow the number of rows where they
    are "auto". `fractional="round"` takes the nearest count where y is not one. With `checkpoint`, a file, and a number
    as `random_state`, an interrupted fit goes on where it stopped.

    >>> X = np.linspace(-2, 2, 200).reshape(-1, 1)
    >>> y = np.random.default_rng(0).poisson(np.exp(1 + X[:, 0]))
    >>> model = CountRegressor(members=2, hidden=(16,), epochs=30, random_state=0).fit(X, y)
    >>> low, high = model.predict_interval([[0.0]], coverage=0.9).T
    >>> bool(low[0] <= model.predict([[0.0]])[0] <= high[0])
    True
    """

    _kind = "CountRegressor"

    def __init__(
        self,
        *,
        likelihood: str = "double_poisson",
        beta: float = 0.0,
        objective: str = "exact",
        gamma: str = "per_row",
        initial_gamma: float | None = None,
        members: int = 5,
        hidden: Sequence[int] = (128, 128, 128, 64),
        activation: str = "relu",
        numeric: str = "auto",
        bins: int | None = None,
        epochs: int | str = "auto",
        batch_size: int | str = "auto",
        lr: float = 4e-3,
        weight_decay: float = 1.0,
        warmup: float = 0.05,
        schedule: str = "cosine",
        clip: float | None = 5.0,
        ema: float = 0.998,
        score_on: str = "crps",
        patience: int | None = None,
        validation: float | str | None = "auto",
        start: bool = True,
        fractional: str = "error",
        precision: str = "float32",
        checkpoint: str | PathLike[str] | None = None,
        random_state: Any = None,
        device: str = "auto",
        verbose: bool = False,
    ) -> None:
        self.likelihood = likelihood
        self.beta = beta
        self.objective = objective
        self.gamma = gamma
        self.initial_gamma = initial_gamma
        self.members = members
        self.hidden = hidden
        self.activation = activation
        self.numeric = numeric
        self.bins = bins
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.weight_decay = weight_decay
        self.warmup = warmup
        self.schedule = schedule
        self.clip = clip
        self.ema = ema
        self.score_on = score_on
        self.patience = patience
        self.validation = validation
        self.start = start
        self.fractional = fractional
        self.precision = precision
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    # Fitting -----------------------------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        exposure: Any = None,
        X_val: Any = None,
        y_val: Any = None,
        exposure_val: Any = None,
    ) -> Self:
        """Train the ensemble.

        `sample_weight` counts a row so many times. `exposure`, the known scale of a row (days observed, area, number
        of customers), multiplies its predicted location; pass it to the predictions too.
        """
        head, runtime = self._head(), Runtime(self.device, self.precision)
        found = targets(X, y, sample_weight, exposure, self.fractional)
        if used_rows(found).sum() <= FULL_BATCH_ROWS:
            X, found = collapsed(X, found)
        random = check_random_state(self.random_state)
        if (X_val is None) != (y_val is None):
            raise InputError("X_val and y_val must be given together, got only one of them. Pass both or none.")
        if X_val is None:
            validation: Any = held_out(found, self._validation_share(), random.randint(2**31 - 1))
            rows = int((used_rows(found) & ~validation).sum())
        else:
            validation = X_val, targets(X_val, y_val, None, exposure_val, self.fractional, "_val")
            rows = int(used_rows(found).sum())
            if (exposure is None) != (exposure_val is None):
                raise InputError("exposure_val must be given if exposure is, got only one of them. Pass both or none.")
        unit = exposure_unit(found)
        found, validation = in_units(found, unit), _each_in_units(validation, unit)
        job = Job(
            head=head,
            hidden=self._hidden(),
            activation=self.activation,
            config=self._config(rows, random),
            runtime=runtime,
            verbose=bool(self.verbose),
            start=self.start,
            checkpoint=self._checkpoint(),
        )
        self._check_numeric()
        fitted = fit_ensemble(X, found, validation, self.numeric, self._encoder, job)
        self._keep(fitted.encoder, fitted.model.double().cpu(), head)
        self.history_, self.numeric_, self.trials_ = fitted.history, fitted.numeric, fitted.trials
        self.n_rows_, self.needs_exposure_, self.exposure_unit_ = rows, exposure is not None, unit
        self.hidden_, self.activation_ = job.hidden, job.activation
        return self

    def _keep(self, encoder: FeatureEncoder, model: Any, head: Head) -> None:
        # Predictions are made in float64: the same for a row alone and among others.
        self.encoder_, self.model_, self.head_ = encoder, model.eval(), head
        self.n_features_in_ = encoder.n_features_in_
        if hasattr(encoder, "feature_names_in_"):
            self.feature_names_in_ = encoder.feature_names_in_
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _head(self) -> Head:
        """The head, with those of this estimator's options that it has; others must have been left as they were."""
        if self.likelihood not in HEADS:
            listed = ", ".join(HEADS)
            raise ConfigError(f"likelihood must be one of {listed}, got {self.likelihood!r}. Choose one of these.")
        known = option_names(HEADS[self.likelihood])
        for name, usual in _HEAD_OPTIONS.items():
            if name not in known and getattr(self, name) != usual:
                raise ConfigError(
                    f'{name} must be left at {usual!r} with likelihood="{self.likelihood}", which has no such option, '
                    f"got {getattr(self, name)!r}. Drop it."
                )
        return make_head(self.likelihood, **{name: _plain_number(getattr(self, name)) for name in known})

    def _hidden(self) -> tuple[int, ...]:
        try:
            widths = tuple(operator.index(width) for width in self.hidden)
        except TypeError:
            raise ConfigError(f"hidden must list widths, got {self.hidden!r}. Use for example (128, 64).") from None
        if any(width < 1 for width in widths):
            raise ConfigError(f"hidden must hold widths of at least 1, got {widths}. Use () for a linear model.")
        return widths

    def _check_numeric(self) -> None:
        if self.numeric not in ("auto", *ENCODINGS):
            listed = ", ".join(("auto", *ENCODINGS))
            raise ConfigError(f"numeric must be one of {listed}, got {self.numeric!r}. Choose one.")

    def _validation_share(self) -> float | str | None:
        share = self.validation
        if share is None or share == "auto":
            return share
        if isinstance(share, bool) or not isinstance(share, Real) or not 0.0 <= share < 1.0:
            raise ConfigError(f'validation must be "auto", None or lie in [0, 1), got {share!r}. Use 0.1 for a tenth.')
        return share

    def _encoder(self, numeric: str) -> FeatureEncoder:
        return FeatureEncoder(numeric=numeric, bins=self.bins)

    def _config(self, rows: int, random: np.random.RandomState) -> TrainingConfig:
        if isinstance(self.members, bool) or not isinstance(self.members, int | np.integer) or self.members < 1:
            raise ConfigError(f"members must be a whole number of at least 1, got {self.members!r}. Use 5.")
        if self.score_on not in ("nll", "crps"):
            raise ConfigError(f'score_on must be "nll" or "crps", got {self.score_on!r}. Choose one of the two.')
        batch = auto_batch_size(rows) if self.batch_size == "auto" else _plain_number(self.batch_size)
        config = TrainingConfig(
            epochs=1 if self.epochs == "auto" else _plain_number(self.epochs),
            batch_size=batch,
            lr=_plain_number(self.lr),
            weight_decay=_plain_number(self.weight_decay),
            warmup=_plain_number(self.warmup),
            schedule=self.schedule,  # type: ignore[arg-type]
            clip=_plain_number(self.clip),
            ema=_plain_number(self.ema),
            score=self.score_on,  # type: ignore[arg-type]
            patience=_plain_number(self.patience),
            precision=self.precision,  # type: ignore[arg-type]
            seeds=tuple(int(seed) for seed in random.randint(2**31 - 1, size=self.members)),
        )
        return replace(config, epochs=auto_epochs(rows, config.batch_size)) if self.epochs == "auto" else config

    def _checkpoint(self) -> Path | None:
        if self.checkpoint is None:
            return None
        if not isinstance(self.random_state, int | np.integer):
            got = f"got {self.random_state!r}: a fit from other random numbers cannot go on from it"
            raise ConfigError(f"random_state must be a number where there is a checkpoint, {got}. Use 0.")
        return Path(self.checkpoint)

    # Predicting --------------------------------------------------------------------------------------------------

    def _outputs(self, X: Any) -> Tensor:
        inputs = torch.from_numpy(self.encoder_.transform(X))
        with torch.no_grad():
            return torch.cat([self.model_.raw(part.double()) for part in inputs.split(BLOCK)])

    # Keeping -----------------------------------------------------------------------------------------------------

    def _saved(self) -> tuple[dict[str, bytes], dict[str, Any]]:
        # Trained in float32, so nothing is lost.
        weights = {name: tensor.float().contiguous() for name, tensor in self.model_.state_dict().items()}
        training = {
            "rows": self.n_rows_,
            "numeric": self.numeric_,
            "trials": self.trials_,
            "history": self.history_.as_dict(),
        }
        about = {
            "members": self.model_.members,
            "hidden": list(self.hidden_),
            "activation": self.activation_,
            "n_inputs": len(self.encoder_.get_feature_names_out()),
            "training": training,
        }
        return {saving.WEIGHTS: save_tensors(weights), saving.ENCODER: encoder_bytes(self.encoder_)}, about

    def _restore(self, files: dict[str, bytes], manifest: dict[str, Any], path: Path) -> None:
        self.hidden_, self.activation_ = tuple(manifest["hidden"]), manifest["activation"]
        job = Job(self.head_, self.hidden_, self.activation_, TrainingConfig(), Runtime("cpu"), False, False)
        network = build(manifest["n_inputs"], job, manifest["members"])
        try:
            network.load_state_dict(load_tensors(files[saving.WEIGHTS]))
        except (RuntimeError, SafetensorError) as error:
            got = f"{path / saving.WEIGHTS} must fit the manifest, got other names or shapes"
            raise InputError(f"{got}. Save the model again.") from error
        self._keep(encoder_from_bytes(files[saving.ENCODER], str(path / saving.ENCODER)), network.double(), self.head_)
        training = manifest["training"]
        self.history_ = History(**training["history"])
        self.numeric_, self.trials_, self.n_rows_ = training["numeric"], training["trials"], training["rows"]

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.target_tags.positive_only = True
        return tags


def _plain_number(value: Any) -> Any:
    """A number of numpy's, as a grid of options holds them, as Python's."""
    return value.item() if isinstance(value, np.generic) else value


def _each_in_units(validation: Any, unit: float) -> Any:
    """The validation set with its exposures in `unit`; a mask of rows has none of its own."""
    return (validation[0], in_units(validation[1], unit)) if isinstance(validation, tuple) else validation
