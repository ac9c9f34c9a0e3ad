"""From a table and its counts to a trained ensemble: which rows judge, which encoding, how long."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.model_selection import train_test_split

from ddpn.backbones import MLP, Identity
from ddpn.estimators.inputs import Targets
from ddpn.features import FeatureEncoder
from ddpn.heads import Head
from ddpn.model import CountModel
from ddpn.sample import Sample
from ddpn.threads import single_thread
from ddpn.training import History, Runtime, TrainingConfig, fit

#: Encodings that numeric="auto" tries, in the order a tie is decided.
ENCODINGS = ("standard", "piecewise", "steps")
#: A trial of an encoding: this share of the epochs, so many members.
_TRIAL_SHARE, _TRIAL_MEMBERS = 0.25, 2
#: Fewer rows are not split: what would be held out is needed for fitting, and would judge too noisily.
_MIN_SPLIT_ROWS = 200
#: Up to so many rows, all rows are one batch.
FULL_BATCH_ROWS = 128


class Fitted(NamedTuple):
    """A trained ensemble and the encoder of its inputs; `interrupted` where Ctrl-C ended the fit."""

    encoder: FeatureEncoder
    model: CountModel
    history: History
    numeric: str
    trials: dict[str, float]
    interrupted: bool = False

    @property
    def has_epochs(self) -> bool:
        """Whether at least one epoch was completed."""
        return bool(self.history.epochs)


class Job(NamedTuple):
    """All a training needs besides its rows."""

    head: Head
    hidden: tuple[int, ...]
    activation: str
    config: TrainingConfig
    runtime: Runtime
    verbose: bool
    start: bool
    checkpoint: Path | None = None


def auto_batch_size(rows: int) -> int:
    """All rows where they are few; else a power of two that leaves at least 16 steps an epoch, at most 256."""
    return rows if rows <= FULL_BATCH_ROWS else min(256, 2 ** int(math.log2(rows / 16)))


def auto_epochs(rows: int, batch_size: int) -> int:
    """About 3,000 steps, but at least 40 looks at every row and at most 300."""
    return int(np.clip(3000 // max(1, rows // batch_size), 40, 300))


def used_rows(found: Targets) -> np.ndarray:
    """Which rows count at all, as a mask: those with a weight above 0."""
    return np.ones(len(found.y), dtype=bool) if found.weight is None else found.weight > 0


def held_out(found: Targets, share: float | str | None, seed: int) -> np.ndarray:
    """Which rows are kept for validation, as a mask: a tenth where nothing else is said and there are enough."""
    mask = np.zeros(len(found.y), dtype=bool)
    usable = np.flatnonzero(used_rows(found))
    if share == "auto":
        share = 0.1 if len(usable) >= _MIN_SPLIT_ROWS else 0.0
    if share and len(usable) >= 2:
        size = min(len(usable) - 1, max(1, round(float(share) * len(usable))))
        mask[train_test_split(usable, test_size=size, random_state=seed)[1]] = True
    return mask


def rows_of(inputs: np.ndarray, found: Targets) -> Sample:
    """Encoded inputs and targets as float32 tensors (float64 where counts need it), weights with mean 1."""
    dtype = torch.float32 if found.y.max(initial=0.0) < 2**24 else torch.float64
    weight = None if found.weight is None else torch.from_numpy(found.weight / found.weight.mean()).float()
    exposure = None if found.exposure is None else torch.from_numpy(found.exposure).float()
    return Sample(torch.from_numpy(inputs), torch.from_numpy(found.y).to(dtype), weight, exposure)


def build(n_in: int, job: Job, members: int) -> CountModel:
    """The network that these inputs need."""
    backbone = (
        MLP(n_in=n_in, hidden=job.hidden, members=members, activation=job.activation)
        if job.hidden
        else Identity(n_in=n_in, members=members)
    )
    return CountModel(backbone, job.head, members)


def train(
    encoder: FeatureEncoder, train_rows: Sample, validation: Sample | None, job: Job, title: str = "Training"
) -> Fitted:
    """One ensemble, from fresh weights."""
    model = build(train_rows.X.shape[1], job, job.config.members)
    exact = train_rows.map(torch.Tensor.double)
    with single_thread():
        start = job.head.start(exact.y, exact.weight, exact.exposure) if job.start else None
    model.reset(job.config.seeds, start)
    options: dict[str, Any] = {"runtime": job.runtime, "verbose": job.verbose, "checkpoint": job.checkpoint}
    history = fit(model, train_rows, validation, job.config, title=title, **options)
    return Fitted(encoder, model, history, encoder.numeric, {}, history.interrupted)


def fit_ensemble(
    X: Any,
    found: Targets,
    validation: tuple[Any, Targets] | np.ndarray,
    numeric: str,
    encoder: Callable[[str], FeatureEncoder],
    job: Job,
) -> Fitted:
    """Encode, train, and for numeric="auto" find out first which encoding does best on validation rows.

    `validation` is a table of its own, or a mask of rows of X. An encoder is fitted to training rows alone.
    """
    names = ENCODINGS if numeric == "auto" else (numeric,)
    prepared = {name: _prepare(X, found, validation, encoder(name)) for name in names}
    if prepared[names[0]][2] is None or len(names) == 1:
        return train(*prepared[names[0]], job)
    tried = _trials(prepared, job)
    best = min(tried.values(), key=_score)
    if any(fitted.interrupted for fitted in tried.values()):
        return best._replace(interrupted=True)
    scores = {name: _score(fitted) for name, fitted in tried.items()}
    fitted = train(*prepared[best.numeric], job)._replace(trials=scores)
    # After its first epochs an interrupted ensemble may still be worse than the trial was.
    is_worse = job.config.score == "crps" and _score(fitted) > _score(best)
    if fitted.interrupted and (is_worse or not fitted.has_epochs):
        return best._replace(trials=scores, interrupted=True)
    return fitted


def _trials(prepared: dict[str, tuple[FeatureEncoder, Sample, Sample | None]], job: Job) -> dict[str, Fitted]:
    """A short training with each encoding, scored by validation CRPS; an interrupted one is the last."""
    epochs = max(5, round(_TRIAL_SHARE * job.config.epochs))
    config = replace(job.config, epochs=epochs, seeds=job.config.seeds[:_TRIAL_MEMBERS], score="crps")
    short, done = job._replace(config=config, checkpoint=None), {}
    for name, parts in prepared.items():
        done[name] = train(*parts, short, title=f"Trying {name}")
        if done[name].interrupted:
            break
    return done


def _score(fitted: Fitted) -> float:
    """The mean of the members' best."""
    return float(np.mean(fitted.history.best_score))


def _prepare(
    X: Any, found: Targets, validation: tuple[Any, Targets] | np.ndarray, encoder: FeatureEncoder
) -> tuple[FeatureEncoder, Sample, Sample | None]:
    weight = np.ones(len(found.y)) if found.weight is None else found.weight
    # A weight of 0 keeps a row out of the encoder and out of training.
    weight = weight if isinstance(validation, tuple) else weight * ~validation
    encoder.fit(X, found.y, weight)
    inputs = encoder.transform(X)
    train_rows = rows_of(inputs[weight > 0], found.rows(weight > 0))
    if isinstance(validation, tuple):
        return encoder, train_rows, rows_of(encoder.transform(validation[0]), validation[1])
    return encoder, train_rows, rows_of(inputs[validation], found.rows(validation)) if validation.any() else None
