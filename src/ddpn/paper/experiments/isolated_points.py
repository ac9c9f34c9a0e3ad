"""Measure how well networks fit an isolated point, at several epochs of the training (Figures 6, 8 and 9).

An isolated point is a training row that a simulation adds far from all other rows.
"""

from typing import NamedTuple

import numpy as np

from ddpn.paper.datasets import SIMULATIONS
from ddpn.paper.experiments.runs import FinishedRun

#: A network fits the point if its mu is at most this far from the truth. The authors' networks end either within .3 or
#: beyond 11, and a count with mean 10 and the true gamma of 3 has a standard deviation of 1.8.
MAX_MU_ERROR = 2.0


class IsolatedPointFit(NamedTuple):
    """The mu that each network predicts at the rightmost isolated point, at several epochs of the training.

    An isolated point is a training row that the simulation adds far from all other rows.

    - `x` is the input of the point, and `truth` its count, which mu should equal.
    - `epochs` are the numbers of the epochs. The last entry stands for the end of the training.
    - `snapshots` has the name of the weights at each epoch, as in `FinishedRun.predict`. None means the end of the
      training.
    - `mu` has the predictions, with shape (epochs, networks).
    """

    x: float
    truth: float
    epochs: list[int]
    snapshots: list[int | None]
    mu: np.ndarray

    @property
    def shares(self) -> list[float]:
        """For each epoch, the share of networks that fit the point: their mu is within 2 counts of `truth`."""
        return [float(share) for share in (np.abs(self.mu - self.truth) < MAX_MU_ERROR).mean(axis=1)]


def measure_isolated_point(run: FinishedRun) -> IsolatedPointFit:
    """Predict mu at the rightmost isolated point with every network of a run, at every saved epoch and at the end.

    Only snapshots of numbered epochs are used, not those that were chosen by a validation score. The simulation of the
    run must have isolated points, and its predicted distributions must have a parameter mu.
    """
    process = SIMULATIONS[(run.experiment.simulation or {})["name"]]
    x, count = max(process.added_points)
    snapshots = [name for name in run.training.snapshots if isinstance(name, int)]
    states: list[int | None] = [*snapshots, None]
    mu = np.stack([run.predict(np.array([x]), state).mu[0].numpy() for state in states])
    return IsolatedPointFit(x, float(count), [*snapshots, run.training.epochs or 0], states, mu)
