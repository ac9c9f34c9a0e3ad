"""Do counts vary more or less than Poisson's? Of the counts as they are, and around the model's means."""

from typing import NamedTuple

import numpy as np

from ddpn.report.evidence import SEED, Evidence
from ddpn.report.numbers import bootstrap_ratio, mean


class Pearson(NamedTuple):
    """mean((y - m)^2 / m), 1 for Poisson counts with means m, and its 95% bootstrap interval."""

    value: float
    low: float
    high: float

    @property
    def finding(self) -> str:
        """What the interval leaves open."""
        return "over-dispersed" if self.low > 1 else "under-dispersed" if self.high < 1 else "equi-dispersed"


class Dispersion(NamedTuple):
    """Around one rate for all rows, around the model's means, and what the model itself predicts."""

    marginal: Pearson
    conditional: Pearson
    share_below: float


def dispersion(evidence: Evidence) -> Dispersion:
    """`share_below`: rows whose predicted variance lies below their predicted mean."""
    y, weight, model = evidence.y, evidence.weight, evidence.model
    scale = np.ones_like(y) if evidence.exposure is None else evidence.exposure
    constant = scale * (weight @ y) / (weight @ scale)
    return Dispersion(
        pearson(y, constant, weight),
        pearson(y, model.mean, weight),
        mean((model.variance < model.mean).astype(float), weight),
    )


def pearson(y: np.ndarray, m: np.ndarray, weight: np.ndarray) -> Pearson:
    """The statistic and its interval. Rows of mean 0 with a count of 0 say nothing, and count as 0."""
    each = np.square(y - m) / np.maximum(m, np.finfo(float).tiny)
    return Pearson(mean(each, weight), *bootstrap_ratio(each, np.ones_like(each), weight, SEED))
