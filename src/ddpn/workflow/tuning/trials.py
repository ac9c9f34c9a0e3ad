"""One trial: the pipeline of `ddpn fit` with some settings, scored on rows that it was not fitted to."""

import json
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple, Self

import numpy as np
import torch

from ddpn.distributions import discretized
from ddpn.members.member import arrays_from_bytes, arrays_to_bytes, json_to_bytes
from ddpn.metrics import crps
from ddpn.networks.training.monitoring import EpochReport, monitored
from ddpn.predictor import Predictor
from ddpn.runtime.threads import single_thread
from ddpn.sample import Sample
from ddpn.workflow.fitting import train_model
from ddpn.workflow.preparing import Prepared
from ddpn.workflow.tuning.folds import trial_plan
from ddpn.workflow.tuning.space import Settings, with_settings


class Fold(NamedTuple):
    """A trial's outcome on one fold: CRPS per scored row, and how long it took."""

    scores: np.ndarray
    seconds: float


class Scored(NamedTuple):
    """How a trial scores on a fold: CRPS per row, seconds, scores of networks by step, and why it was dropped."""

    scores: np.ndarray
    seconds: float
    networks: dict[int, float]
    dropped: str

    def to_files(self) -> dict[str, bytes]:
        """As files, for another process."""
        facts = {"seconds": self.seconds, "networks": [*self.networks.items()], "dropped": self.dropped}
        return {"scores": arrays_to_bytes(crps=self.scores), "facts": json_to_bytes(facts)}

    @classmethod
    def from_files(cls, files: Mapping[str, bytes]) -> Self:
        """What `to_files` wrote."""
        facts = json.loads(files["facts"])
        networks = {int(step): float(value) for step, value in facts["networks"]}
        return cls(arrays_from_bytes(files["scores"])["crps"], facts["seconds"], networks, facts["dropped"])


def run_fold(fold: Prepared, settings: Settings, on_epoch: Callable[[EpochReport], object]) -> Fold:
    """Fit the training rows of a fold and score its test rows.

    Parameters
    ----------
    fold : Prepared
        One of `folds_of`.
    settings : dict
        Settings by name; the others are those of the fold's plan.
    on_epoch : callable
        Called after every epoch of a training; what it raises ends the trial.
    """
    started = time.monotonic()
    plan = trial_plan(with_settings(fold.plan, settings))
    model = plan.regressor()
    with warnings.catch_warnings(), monitored(on_epoch):
        # A setting that is tried may converge badly: its score will tell.
        warnings.simplefilter("ignore")
        train_model(model, replace(fold, plan=plan), None, lambda step: None)
        if model.interrupted_:
            raise KeyboardInterrupt
        scores = crps_of(model.predictor_, fold.test)
    return Fold(scores, time.monotonic() - started)


@torch.no_grad()
def crps_of(predictor: Predictor, sample: Sample) -> np.ndarray:
    """CRPS per row of the mixture. Normals count as rounded."""
    with single_thread():
        parts = [
            crps(discretized(dist), torch.from_numpy(part.y)).double().numpy()
            for dist, part in predictor.recorded_blocks(sample)
        ]
    return np.concatenate(parts)
