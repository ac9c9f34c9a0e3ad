"""One trial: the pipeline of `ddpn fit` with some settings, scored on rows that it was not fitted to."""

import json
import time
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple, Self

import numpy as np
import torch

from ddpn.distributions import discretized
from ddpn.members.member import arrays_from_bytes, arrays_to_bytes, json_to_bytes
from ddpn.metrics import crps
from ddpn.predictor import Predictor
from ddpn.runtime.deadlines import Clock, TimeLimitError
from ddpn.runtime.threads import single_thread
from ddpn.sample import Sample
from ddpn.workflow.fitting import train_model
from ddpn.workflow.preparing import Prepared
from ddpn.workflow.tuning.folds import trial_plan
from ddpn.workflow.tuning.space import Settings, with_settings


class Scored(NamedTuple):
    """How settings score on a fold: CRPS per row, and how long it took."""

    scores: np.ndarray
    seconds: float

    def to_files(self) -> dict[str, bytes]:
        """As files, for another process."""
        return {"scores": arrays_to_bytes(crps=self.scores), "seconds": json_to_bytes(self.seconds)}

    @classmethod
    def from_files(cls, files: Mapping[str, bytes]) -> Self:
        """What `to_files` wrote."""
        return cls(arrays_from_bytes(files["scores"])["crps"], json.loads(files["seconds"]))


def fold_job(folds: list[Prepared], number: int, settings: Settings, end: float | None) -> dict[str, bytes]:
    """Score settings on one of the folds, as a job; `end` is when the time is up, as `time.time` counts."""
    # By the clock on the wall, which machines share: a job may begin later.
    clock = Clock(None if end is None else max(0.0, end - time.time()))
    with clock.limit():
        return score_fold(folds[number], settings, clock).to_files()


def score_fold(fold: Prepared, settings: Settings, clock: Clock) -> Scored:
    """Fit the training rows of a fold and score its test rows.

    Parameters
    ----------
    fold : Prepared
        One of `folds_of`.
    settings : dict
        Settings by name; the others are those of the fold's plan.
    clock : Clock
        Ends the fit with a `TimeLimitError`.
    """

    def check_time(step: str = "") -> None:
        if not clock.left:
            raise TimeLimitError("the time is up")

    started = time.monotonic()
    plan = trial_plan(with_settings(fold.plan, settings))
    model = plan.regressor()
    with warnings.catch_warnings():
        # A setting that is tried may converge badly: its score will tell.
        warnings.simplefilter("ignore")
        train_model(model, replace(fold, plan=plan), None, check_time)
        if model.interrupted_:
            raise KeyboardInterrupt
        scores = crps_of(model.predictor_, fold.test)
    check_time()  # a training that ran out of time ends with what it has
    return Scored(scores, time.monotonic() - started)


@torch.no_grad()
def crps_of(predictor: Predictor, sample: Sample) -> np.ndarray:
    """CRPS per row of the mixture. Normals count as rounded."""
    with single_thread():
        parts = [
            crps(discretized(dist), torch.from_numpy(part.y)).double().numpy()
            for dist, part in predictor.recorded_blocks(sample)
        ]
    return np.concatenate(parts)
