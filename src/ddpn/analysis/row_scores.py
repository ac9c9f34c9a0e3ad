"""Scores of every row by its predicted distribution: absolute error, CRPS, NLL, and coverage of its interval."""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from ddpn.distributions import CountDistribution
from ddpn.distributions.limits import censor_rows
from ddpn.distributions.summaries import Interval
from ddpn.metrics import absolute_error, crps, nll
from ddpn.prediction.prediction import Prediction
from ddpn.predictor import MIXTURE, Predictor
from ddpn.rows.count_rows import CountRows
from ddpn.runtime.threads import single_thread

#: The nominal coverage of the intervals that are scored.
COVERAGE = 0.9
#: The scores of a leaderboard.
SCORES = ("mae", "crps", "nll", "coverage", "expected", "width")


class RowScores(NamedTuple):
    """Scores of predictions, with one value per row.

    Attributes
    ----------
    mae : array
        The absolute error of the median.
    crps : array
        The continuous ranked probability score.
    nll : array
        The negative log-likelihood.
    coverage : array
        1 if the interval contains the count, else 0.
    expected : array
        The probability of the interval by the predicted distribution.
    width : array
        The width of the interval: its highest count minus its lowest.
    """

    mae: np.ndarray
    crps: np.ndarray
    nll: np.ndarray
    coverage: np.ndarray
    expected: np.ndarray
    width: np.ndarray

    def means(self, weight: np.ndarray | None) -> dict[str, float | None]:
        """Return the weighted mean of each score by name; None weights all rows equally.

        A mean that is infinite, such as the mean NLL if a count has probability 0, is returned as None, because JSON
        has no infinite numbers.
        """
        means = {name: float(np.average(getattr(self, name), weights=weight)) for name in SCORES}
        return {name: value if np.isfinite(value) else None for name, value in means.items()}


def score_rows(predictor: Predictor, sample: CountRows, member: str = MIXTURE) -> RowScores:
    """Predict the rows of `sample`, and score the distributions and calibrated intervals by the observed counts.

    `member` is the name of the model in the mixture that predicts, or "mixture" for the whole mixture. If the
    predictions are Normals, the distributions of their rounded values are scored.
    """
    return score_predictions(predictor.predict_rows(sample, member))


def score_predictions(predictions: Iterable[tuple[Prediction, CountRows]]) -> RowScores:
    """Score rows that were predicted in blocks. A block is a pair of a prediction and its rows with counts."""
    with single_thread(), torch.no_grad():
        blocks = [score_prediction(prediction, rows) for prediction, rows in predictions]
    return RowScores(*map(np.concatenate, zip(*blocks, strict=True)))


def score_prediction(prediction: Prediction, rows: CountRows) -> RowScores:
    """Score the observed counts of rows by their predicted distributions and calibrated intervals.

    If counts are censored at a recording limit, the distributions of the recorded counts are scored.
    """
    recorded = censor_rows(prediction.counts, rows.limit)
    interval = replace(prediction, distribution=recorded).interval_with_probability(COVERAGE)
    return score_distribution(recorded, rows.y, interval)


@torch.no_grad()
def score_distribution(dist: CountDistribution, y: np.ndarray, interval: Interval) -> RowScores:
    """Score the counts `y`, shape (rows,), by their predicted distributions and their intervals.

    `dist` has one distribution per row. `interval` has the lowest count, the highest count and the probability of each
    row's interval.
    """
    (low, high, expected), counts = interval, torch.from_numpy(y)
    inside = (low <= counts) & (counts <= high)
    scores = absolute_error(dist, counts), crps(dist, counts), nll(dist, counts), inside, expected, high - low
    return RowScores(*(values.double().numpy() for values in scores))
