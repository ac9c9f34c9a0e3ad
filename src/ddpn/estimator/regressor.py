"""CountRegressor: the scikit-learn face."""

from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ddpn.distributions import CountDistribution, UniformMixture, discretized
from ddpn.errors import ConfigError, InputError
from ddpn.estimator import saving
from ddpn.estimator.fitting import (
    ENCODINGS,
    FULL_BATCH_ROWS,
    Job,
    auto_batch_size,
    auto_epochs,
    fit_ensemble,
    held_out,
)
from ddpn.estimator.inputs import Targets, collapsed, counts, row_count, targets, vector
from ddpn.features import FeatureEncoder
from ddpn.heads import HEADS, Head, make_head
from ddpn.heads.head import option_names
from ddpn.metrics import crps, nll, point
from ddpn.training import Runtime, TrainingConfig

#: Rows predicted at a time: bounds memory, whatever the table's length.
_BLOCK = 65536


class CountRegressor(RegressorMixin, BaseEstimator):
    """Counts with honest uncertainty: an ensemble of networks, each predicting a whole distribution.

    `likelihood` names a head of `ddpn.heads` ("double_poisson", "poisson", "negative_binomial", "gaussian",
    "faithful_gaussian", "natural_gaussian"); `beta`, `objective`, `gamma` and `initial_gamma` are its options.
    `members` networks of the `hidden` widths (() for a generalised linear model) are trained together and mixed.
    `numeric` says how numbers are encoded ("standard", "piecewise", "steps"; "auto" tries all three on validation
    rows). `validation` is the share of rows held out to choose each member's best epoch ("auto": a tenth from 200 rows
    on; None: no row), unless `fit` is given rows for it. `epochs` and `batch_size` follow the number of rows where they
    are "auto". `fractional="round"` takes the nearest count where y is not one. With `checkpoint`, a file, an
    interrupted fit goes on where it stopped.

    >>> X = np.linspace(-2, 2, 200).reshape(-1, 1)
    >>> y = np.random.default_rng(0).poisson(np.exp(1 + X[:, 0]))
    >>> model = CountRegressor(members=2, hidden=(16,), epochs=30, random_state=0).fit(X, y)
    >>> low, high = model.predict_interval([[0.0]], coverage=0.9).T
    >>> bool(low[0] <= model.predict([[0.0]])[0] <= high[0])
    True
    """

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
        lr: float = 2e-3,
        weight_decay: float = 1.0,
        warmup: float = 0.05,
        schedule: str = "cosine",
        clip: float | None = 5.0,
        ema: float = 0.998,
        score_on: str = "nll",
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
        if len(found.y) <= FULL_BATCH_ROWS:
            X, found = collapsed(X, found)
        random = check_random_state(self.random_state)
        if (X_val is None) != (y_val is None):
            raise InputError("X_val and y_val must be given together, got only one of them. Pass both or none.")
        if X_val is None:
            validation: Any = held_out(found, self._validation_share(), random.randint(2**31 - 1))
            rows = len(found.y) - int(validation.sum())
        else:
            validation = X_val, targets(X_val, y_val, None, exposure_val, self.fractional, "_val")
            rows = len(found.y)
            if (exposure is None) != (exposure_val is None):
                raise InputError("exposure_val must be given if exposure is, got only one of them. Pass both or none.")
        job = Job(
            head=head,
            hidden=self._hidden(),
            activation=self.activation,
            config=self._config(rows, random),
            runtime=runtime,
            verbose=bool(self.verbose),
            start=self.start,
            checkpoint=None if self.checkpoint is None else Path(self.checkpoint),
        )
        self._check_numeric()
        fitted = fit_ensemble(X, found, validation, self.numeric, self._encoder, job)
        self._keep(fitted.encoder, fitted.model.double().cpu(), head)
        self.history_, self.numeric_, self.trials_ = fitted.history, fitted.numeric, fitted.trials
        self.n_rows_, self.needs_exposure_ = rows, exposure is not None
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
            return make_head(self.likelihood)
        options = {name: getattr(self, name) for name in option_names(HEADS[self.likelihood])}
        return make_head(self.likelihood, **options)

    def _hidden(self) -> tuple[int, ...]:
        try:
            widths = tuple(int(width) for width in self.hidden)
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
        if isinstance(share, str | bool) or not 0.0 <= share < 1.0:
            raise ConfigError(f'validation must be "auto", None or lie in [0, 1), got {share!r}. Use 0.1 for a tenth.')
        return share

    def _encoder(self, numeric: str) -> FeatureEncoder:
        return FeatureEncoder(numeric=numeric, bins=self.bins)

    def _config(self, rows: int, random: np.random.RandomState) -> TrainingConfig:
        if not isinstance(self.members, int | np.integer) or self.members < 1:
            raise ConfigError(f"members must be a whole number of at least 1, got {self.members!r}. Use 5.")
        batch = auto_batch_size(rows) if self.batch_size == "auto" else self.batch_size
        return TrainingConfig(
            epochs=auto_epochs(rows, batch) if self.epochs == "auto" else self.epochs,  # type: ignore[arg-type]
            batch_size=batch,  # type: ignore[arg-type]
            lr=self.lr,
            weight_decay=self.weight_decay,
            warmup=self.warmup,
            schedule=self.schedule,  # type: ignore[arg-type]
            clip=self.clip,
            ema=self.ema,
            score=self.score_on,  # type: ignore[arg-type]
            patience=self.patience,
            precision=self.precision,  # type: ignore[arg-type]
            seeds=tuple(int(seed) for seed in random.randint(2**31 - 1, size=self.members)),
        )

    # Predicting --------------------------------------------------------------------------------------------------

    def _raw(self, X: Any, exposure: Any) -> tuple[Tensor, Tensor | None]:
        """Every member's raw outputs (rows, M, P), and exposures (rows, 1)."""
        check_is_fitted(self)
        inputs = torch.from_numpy(self.encoder_.transform(X))
        known = vector("exposure", exposure, len(inputs), zero=False)
        if self.needs_exposure_ and known is None:
            raise InputError("exposure must be given as in fit, got None. Pass exposure=1 for the rate per unit.")
        with torch.no_grad():
            raw = torch.cat([self.model_.raw(part.double()) for part in inputs.split(_BLOCK)])
        return raw, None if known is None else torch.from_numpy(known).unsqueeze(1)

    def _blocks(self, X: Any, exposure: Any) -> Iterator[UniformMixture]:
        """The laws of `_BLOCK` rows at a time."""
        raw, scale = self._raw(X, exposure)
        for first in range(0, len(raw), _BLOCK):
            part = slice(first, first + _BLOCK)
            yield UniformMixture(self.head_(raw[part], None if scale is None else scale[part]))

    def predict_distribution(self, X: Any, exposure: Any = None) -> UniformMixture:
        """The whole predictive law of every row, with its `aleatoric` and `epistemic` variance."""
        return UniformMixture(self.head_(*self._raw(X, exposure)))

    def predict(self, X: Any, exposure: Any = None, statistic: str = "mean") -> np.ndarray:
        """A single number a row: the predictive "mean", "median" or "mode"."""
        return _joined([point(block, statistic) for block in self._blocks(X, exposure)])

    def predict_interval(
        self, X: Any, coverage: float = 0.9, exposure: Any = None, kind: str = "central"
    ) -> np.ndarray:
        """Counts (low, high), both included, that hold at least `coverage`. Shape: (rows, 2)."""
        return _joined([_interval(block, coverage, kind) for block in self._blocks(X, exposure)]).astype(np.int64)

    def predict_quantiles(self, X: Any, q: Any, exposure: Any = None) -> np.ndarray:
        """Quantiles at every level of `q`. Shape: (rows, len(q))."""
        levels = torch.as_tensor(np.atleast_1d(np.asarray(q, dtype=np.float64)))
        return _joined([torch.stack([b.icdf(level) for level in levels], dim=1) for b in self._blocks(X, exposure)])

    def predict_uncertainty(self, X: Any, exposure: Any = None) -> dict[str, np.ndarray]:
        """Variance of every row, and its parts: what more data would not remove, and what it would."""
        blocks = [(b.aleatoric, b.epistemic) for b in self._blocks(X, exposure)]
        aleatoric, epistemic = (_joined(list(column)) for column in zip(*blocks, strict=True))
        return {"aleatoric": aleatoric, "epistemic": epistemic, "total": aleatoric + epistemic}

    def predict_proba_of(self, X: Any, counts: Any, exposure: Any = None) -> np.ndarray:
        """Probability of each of `counts`; for Gaussians that of rounding to it. Shape: (rows, counts)."""
        values = torch.from_numpy(_listed_counts(counts))
        laws = (_as_counts(block) for block in self._blocks(X, exposure))
        return _joined([torch.stack([law.log_prob(v) for v in values], dim=1).exp() for law in laws])

    # Judging -----------------------------------------------------------------------------------------------------

    def score(self, X: Any, y: Any, sample_weight: Any = None, exposure: Any = None) -> float:
        """D^2, the share of the Poisson deviance that the predicted means explain; 1 is best, 0 a constant's."""
        found = targets(X, y, sample_weight, exposure, self.fractional)
        mean = np.maximum(self.predict(X, exposure), np.finfo(np.float64).tiny)
        scale = np.ones_like(mean) if found.exposure is None else found.exposure
        weight = np.ones_like(mean) if found.weight is None else found.weight
        constant = (weight @ found.y) / (weight @ scale) * scale
        null = weight @ _deviance(found.y, constant)
        explained = weight @ _deviance(found.y, mean)
        return float(1.0 - explained / null) if null > 0 else float(explained < 1e-6)

    def crps(self, X: Any, y: Any, sample_weight: Any = None, exposure: Any = None) -> float:
        """Mean continuous ranked probability score; smaller is better."""
        return self._mean_of(crps, X, y, sample_weight, exposure)

    def nll(self, X: Any, y: Any, sample_weight: Any = None, exposure: Any = None) -> float:
        """Mean negative log-likelihood; smaller is better."""
        return self._mean_of(nll, X, y, sample_weight, exposure)

    def _mean_of(self, score: Any, X: Any, y: Any, sample_weight: Any, exposure: Any) -> float:
        found: Targets = targets(X, y, sample_weight, exposure, self.fractional)
        observed = torch.from_numpy(found.y).split(_BLOCK)
        each = _joined([score(b, part) for b, part in zip(self._blocks(X, exposure), observed, strict=True)])
        return float(np.average(each, weights=found.weight))

    # Keeping -----------------------------------------------------------------------------------------------------

    def save(self, path: str | PathLike[str], overwrite: bool = False) -> None:
        """Write the fitted model to a folder: weights, encoder and a manifest; whole or not at all."""
        check_is_fitted(self)
        saving.save(self, Path(path), overwrite)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """The model that `save` wrote; nothing in its files is executed, and a damaged one is refused."""
        return saving.load(cls, Path(path))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.target_tags.positive_only = True
        return tags


def _as_counts(law: UniformMixture) -> UniformMixture:
    return law if isinstance(law.members, CountDistribution) else discretized(law)


def _joined(parts: list[Tensor]) -> np.ndarray:
    return torch.cat(parts).double().numpy()


def _interval(law: Any, coverage: float, kind: str) -> Tensor:
    """Counts; the ends of a law on the line are rounded outward, and none lies below 0."""
    low, high = law.interval(coverage, kind=kind)
    return torch.stack([low.floor().clamp(min=0.0), high.ceil().clamp(min=0.0)], dim=1)


def _deviance(y: np.ndarray, mean: np.ndarray) -> np.ndarray:
    return 2.0 * (mean - y + np.where(y > 0, y * (np.log(np.maximum(y, 1.0)) - np.log(mean)), 0.0))


def _listed_counts(values: Any) -> np.ndarray:
    plain = np.atleast_1d(np.asarray(values))
    return counts(plain, row_count(plain), name="counts")
