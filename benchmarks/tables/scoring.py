"""One scorer for all predictions: exact CRPS and log-likelihood, and 90% intervals before and after calibration.

Calibration is the same for all models and needs no training rows: half of the test rows, which no model was fitted to,
determine the probability that the narrowest interval must have to cover 90% (split conformal prediction, never below
90%), the other half is scored with it, and then the reverse. Results are means over three such divisions.
"""

from typing import Any

import numpy as np
import torch

COVERAGE, DIVISIONS = 0.9, 3


def score_rows(dist: Any, y: np.ndarray, has_likelihood: bool = True) -> dict[str, float | None]:
    """Score predictions by means over the rows; `nll` is None if there is no likelihood."""
    from ddpn.calibration.intervals import make_interval, score_counts

    counts = torch.from_numpy(y)
    with torch.no_grad():
        crps = dist.crps(counts).double().numpy()
        nll = -dist.log_prob(counts).double().mean().item() if has_likelihood else None
        median = dist.icdf(torch.tensor(0.5, dtype=torch.float64)).double().numpy()
        row_scores = score_counts(dist, counts, np.random.default_rng(0).random(len(y)))
        low, high = (end.double().numpy() for end in make_interval(dist, COVERAGE)[:2])
        coverage, width = score_calibrated_intervals(row_scores, y, lambda level: make_interval(dist, level)[:2])
    if not np.isfinite(crps).all():
        raise ValueError("The CRPS of some rows is not finite.")
    return {
        "crps": float(crps.mean()),
        "crps_error": float(crps.std(ddof=1) / np.sqrt(len(crps))),
        "nll": nll,
        "mae": float(np.abs(y - median).mean()),
        "own_coverage": float(((low <= y) & (y <= high)).mean()),
        "own_width": float((high - low).mean()),
        "coverage": coverage,
        "width": width,
        "rows": len(y),
    }


def score_calibrated_intervals(row_scores: np.ndarray, y: np.ndarray, interval: Any) -> tuple[float, float]:
    """Return coverage and width of intervals whose level comes from other rows."""
    from ddpn.calibration.intervals import IntervalLevels

    rng, results = np.random.default_rng(0), []
    for _ in range(DIVISIONS):
        order = rng.permutation(len(y))
        halves = order[: len(y) // 2], order[len(y) // 2 :]
        for calibration, test in (halves, halves[::-1]):
            low, high = (
                end.double().numpy()
                for end in interval(IntervalLevels.from_scores(row_scores[calibration]).at(COVERAGE))
            )
            inside = (low[test] <= y[test]) & (y[test] <= high[test])
            results.append((inside.mean(), (high[test] - low[test]).mean()))
    coverage, width = np.mean(results, axis=0)
    return float(coverage), float(width)
