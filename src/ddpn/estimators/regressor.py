"""CountRegressor: the scikit-learn face."""

from collections.abc import Sequence
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

from ddpn.errors import InputError
from ddpn.estimators import saving
from ddpn.estimators.fitting import (
    FULL_BATCH_ROWS,
    Fitted,
    Job,
    build,
    fit_ensemble,
    held_out,
    used_rows,
)
from ddpn.estimators.inputs import Targets, collapsed, exposure_unit, in_units, targets
from ddpn.estimators.linear import LinearMembers, check_linear, copies_allowed, fit_linear, restored
from ddpn.estimators.options import check_numeric, checkpoint_of, config_of, head_of, validation_share, widths_of
from ddpn.estimators.predictions import BLOCK, CountPredictions
from ddpn.features import FeatureEncoder, encoder_bytes, encoder_from_bytes
from ddpn.heads import Head
from ddpn.training import History, Runtime, TrainingConfig


class CountRegressor(CountPredictions, BaseEstimator):
    """Counts with honest uncertainty: an ensemble of networks, each predicting a whole distribution.

    `likelihood` names a head of `ddpn.heads` ("double_poisson", "poisson", "negative_binomial", "gaussian",
    "faithful_gaussian", "natural_gaussian"); `beta`, `objective`, `gamma` and `initial_gamma` are its options.
    `members` networks of the `hidden` widths (() for a generalised linear model) are trained together and mixed.
    `numeric` says how numbers are encoded ("standard", "piecewise", "steps"; "auto" tries all three on validation
    rows). `validation` is the share of rows held out to choose each member's best epoch ("auto": a tenth from 200 rows
    on; None: no row), unless `fit` is given rows for it. `epochs` and `batch_size` follow the number of rows where they
    are "auto". `with_glm` mixes the exact GLM of the same likelihood in, as further members, as many as are not clearly
    worse than none on validation rows: up to half of the mixture. `fractional="round"` takes the nearest count where y
    is not one. With `checkpoint`, a file, and a number as `random_state`, an interrupted fit goes on where it stopped.

    >>> import numpy as np
    >>> X = np.linspace(-2, 2, 200).reshape(-1, 1)
    >>> y = np.random.default_rng(0).poisson(np.exp(1 + X[:, 0]))
    >>> model = CountRegressor(members=2, hidden=(16,), epochs=30, random_state=0).fit(X, y)
    >>> low, high = model.predict_interval([[0.0]], coverage=0.9).T
    >>> bool(low[0] <= model.predict([[0.0]])[0] <= high[0])
    True
    """

    _kind = "CountRegressor"
    linear_: LinearMembers | None = None

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
        with_glm: bool = False,
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
        self.start, self.with_glm = start, with_glm
        self.fractional = fractional
        self.precision = precision
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.device, self.verbose = device, verbose

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
        of customers), multiplies its predicted location; pass it to the predictions too. Ctrl-C after an epoch or more
        ends the training: the model has the best ensemble until then, and `interrupted_` is true. Before that it raises
        KeyboardInterrupt, as there is nothing to keep.
        """
        head, runtime = head_of(self), Runtime(self.device, self.precision)
        found = targets(X, y, sample_weight, exposure, self.fractional)
        if used_rows(found).sum() <= FULL_BATCH_ROWS:
            X, found = collapsed(X, found)
        random = check_random_state(self.random_state)
        if (X_val is None) != (y_val is None):
            raise InputError("X_val and y_val must be given together, got only one of them. Pass both or none.")
        if X_val is None:
            validation: Any = held_out(found, validation_share(self), random.randint(2**31 - 1))
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
            hidden=widths_of(self),
            activation=self.activation,
            config=config_of(self, rows, random),
            runtime=runtime,
            verbose=bool(self.verbose),
            start=self.start,
            checkpoint=checkpoint_of(self),
        )
        check_numeric(self)
        if self.with_glm:
            check_linear(job.head.name, job.hidden)
        known = rows, exposure is not None, unit
        fitted = fit_ensemble(X, found, validation, self.numeric, self._encoder, job)
        if not fitted.has_epochs:
            raise KeyboardInterrupt
        self._take(fitted, job, known)
        if self.with_glm and not self.interrupted_:
            self._add_linear(X, found, validation)
        return self

    def _take(self, fitted: Fitted, job: Job, known: tuple[int, bool, float]) -> None:
        self._keep(fitted.encoder, fitted.model.double().cpu(), job.head)
        self.history_, self.numeric_, self.trials_ = fitted.history, fitted.numeric, fitted.trials
        self.n_rows_, self.needs_exposure_, self.exposure_unit_ = known
        self.interrupted_ = fitted.interrupted
        self.hidden_, self.activation_ = job.hidden, job.activation

    def _add_linear(self, X: Any, found: Targets, validation: Any) -> None:
        """Linear members, where there are validation rows to choose their number by and these want any."""
        apart = isinstance(validation, tuple)
        judged = validation[1] if apart else found.rows(validation)
        used = used_rows(found) if apart else used_rows(found) & ~validation
        linear = fit_linear(X, found, used, self.head_, self._encoder("standard")) if len(judged.y) else None
        if linear is None:
            return

        def inputs(encoder: FeatureEncoder) -> Any:
            return encoder.transform(validation[0]) if apart else encoder.transform(X)[validation]

        networks = self._networks(inputs(self.encoder_))
        copies = copies_allowed(networks, linear.one(inputs(linear.encoder)), self.head_, judged)
        self.linear_ = linear._replace(copies=copies) if copies else None

    def _keep(self, encoder: FeatureEncoder, model: Any, head: Head) -> None:
        self._forget_calibration()
        # Predictions are made in float64: the same for a row alone and among others.
        self.encoder_, self.model_, self.head_ = encoder, model.eval(), head
        self.linear_ = None
        self.n_features_in_ = encoder.n_features_in_
        if hasattr(encoder, "feature_names_in_"):
            self.feature_names_in_ = encoder.feature_names_in_
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _encoder(self, numeric: str) -> FeatureEncoder:
        return FeatureEncoder(numeric=numeric, bins=self.bins)

    # Predicting --------------------------------------------------------------------------------------------------

    def _outputs(self, X: Any) -> Tensor:
        networks = self._networks(self.encoder_.transform(X))
        return networks if self.linear_ is None else torch.cat([networks, self.linear_.raw(X)], dim=1)

    def _networks(self, inputs: np.ndarray) -> Tensor:
        with torch.no_grad():
            return torch.cat([self.model_.raw(part.double()) for part in torch.from_numpy(inputs).split(BLOCK)])

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
        files = {saving.WEIGHTS: save_tensors(weights), saving.ENCODER: encoder_bytes(self.encoder_)}
        return files | ({} if self.linear_ is None else self.linear_.files()), about

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
        self.linear_ = restored(files, path)
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


def _each_in_units(validation: Any, unit: float) -> Any:
    """The validation set with its exposures in `unit`; a mask of rows has none of its own."""
    return (validation[0], in_units(validation[1], unit)) if isinstance(validation, tuple) else validation
