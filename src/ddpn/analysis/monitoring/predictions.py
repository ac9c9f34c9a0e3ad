"""Checks of the predictions: the share of out-of-distribution rows and, once counts are known, coverage and PIT."""

from typing import Any

import numpy as np
import torch
from scipy import stats

from ddpn.analysis.leaderboard import COVERAGE, score_rows
from ddpn.analysis.monitoring.result import Check
from ddpn.distributions import discretized
from ddpn.metrics import pit_distance, pit_histogram
from ddpn.predictor import MIXTURE, Predictor
from ddpn.runtime.threads import single_thread
from ddpn.sample import Sample

#: Bins of the PIT histogram.
PIT_BINS = 10


def ood_check(predictor: Predictor, pvalues: np.ndarray) -> Check:
    """The share of rows that are flagged, against what is expected of rows like the calibration rows.

    Among rows like these, the number of flagged ones has a Beta-Binomial distribution: the share that a finite
    calibration set leaves for new rows varies itself.

    Parameters
    ----------
    predictor : Predictor
        The model, with calibrated out-of-distribution scores.
    pvalues : array
        The out-of-distribution p-value of each row.
    """
    ood = predictor.calibrated_ood
    size, rows = len(ood.scores), len(pvalues)
    flagged = int(ood.is_ood(pvalues).sum())
    first = max(1, int(np.floor(ood.alpha * (size + 1) + 1e-9)))
    p_value = float(stats.betabinom.sf(flagged - 1, rows, first, size + 1 - first))
    share = flagged / rows
    words = f"{ood.alpha:.1%} expected", f"{share:.1%} flagged"
    return Check("ood", "out-of-distribution rows", max(0.0, share - ood.alpha), p_value, *words)


def count_checks(predictor: Predictor, sample: Sample) -> tuple[list[Check], dict[str, Any]]:
    """Coverage of the intervals and uniformity of the PIT, and mean scores.

    Parameters
    ----------
    predictor : Predictor
        The model.
    sample : Sample
        Rows with counts that it was not trained on.
    """
    scores = score_rows(predictor, sample)
    checks = [_coverage(predictor, scores.coverage > 0)]
    with torch.no_grad(), single_thread():
        parts = [(discretized(dist), part) for dist, part in predictor.recorded_blocks(sample)]
        dist, y = parts[0][0], torch.from_numpy(parts[0][1].y)
        distance, heights = pit_distance(dist, y), pit_histogram(dist, y, PIT_BINS)
        mean = float(np.concatenate([each.mean.double().numpy() for each, _ in parts]).mean())
    tested = len(parts[0][1])
    p_value = float(stats.kstwobign.sf(distance * np.sqrt(tested)))
    words = "uniform", _shape(heights.numpy())
    checks.append(Check("pit", "PIT of the counts", distance, p_value, *words))
    found = {name: value for name, value in scores.means(None).items() if name in ("crps", "mae", "nll", "coverage")}
    return checks, {**found, "mean_count": float(sample.y.mean()), "mean_prediction": mean, "pit": heights.tolist()}


def _coverage(predictor: Predictor, inside: np.ndarray) -> Check:
    """Whether intervals cover less than asked; that they cover more is no drift of counts, whose intervals do."""
    covered, rows = int(inside.sum()), len(inside)
    levels = predictor.intervals.get(MIXTURE)
    if levels is None:
        p_value = float(stats.binom.cdf(covered, rows, COVERAGE))
    else:
        size = int(levels.rows[0])
        rank = min(size, int(np.ceil(COVERAGE * (size + 1) - 1e-9)))
        p_value = float(stats.betabinom.cdf(covered, rows, rank, size + 1 - rank))
    share = covered / rows
    words = f"{COVERAGE:.0%} asked", f"{share:.1%} covered"
    return Check("coverage", f"coverage of {COVERAGE:.0%} intervals", max(0.0, COVERAGE - share), p_value, *words)


def _shape(heights: np.ndarray) -> str:
    """What a PIT histogram looks like, in a few words."""
    third = len(heights) // 3
    low, middle, high = heights[:third].mean(), heights[third:-third].mean(), heights[-third:].mean()
    if low > 1.1 and high > 1.1 and middle < 1.0:
        return "predictions too narrow"
    if middle > 1.1 and low < 1.0 and high < 1.0:
        return "predictions too wide"
    if abs(high - low) > 0.2:
        return f"counts {'higher' if high > low else 'lower'} than predicted"
    return "nearly uniform"
