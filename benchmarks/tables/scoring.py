"""One scorer for all predictions: exact CRPS and log-likelihood, and 90% intervals before and after calibration.

Calibration is the same for all models and needs no training rows: half of the test rows, which no model was fitted to,
determine the probability that the narrowest interval must have to cover 90% (split conformal prediction, never below
90%), the other half is scored with it, and then the reverse. Results are means over three such divisions.
"""

from typing import Any

import numpy as np
import torch

COVERAGE, DIVISIONS = 0.9, 3


def scores(dist: Any, y: np.ndarray, has_likelihood: bool = True) -> dict[str, float | None]:
    """Means over the rows; `nll` is None where there is no likelihood."""
    from ddpn.calibration.intervals import make_interval, score_counts

    counts = torch.from_numpy(y)
    with torch.no_grad():
        crps = dist.crps(counts).double().numpy()
        nll = -dist.log_prob(counts).double().mean().item() if has_likelihood else None
        median = dist.icdf(torch.tensor(0.5, dtype=torch.float64)).double().numpy()
        row_scores = score_counts(dist, counts, np.random.default_rng(0).random(len(y)))
        low, high = (end.double().numpy() for end in make_interval(dist, COVERAGE)[:2])
        coverage, width = calibrated(row_scores, y, lambda level: make_interval(dist, level)[:2])
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


def calibrated(row_scores: np.ndarray, y: np.ndarray, interval: Any) -> tuple[float, float]:
    """Coverage and width of intervals whose level comes from other rows."""
    from ddpn.calibration.intervals import IntervalLevels

    rng, found = np.random.default_rng(0), []
    for _ in range(DIVISIONS):
        order = rng.permutation(len(y))
        halves = order[: len(y) // 2], order[len(y) // 2 :]
        for known, rest in (halves, halves[::-1]):
            low, high = (
                end.double().numpy() for end in interval(IntervalLevels.from_scores(row_scores[known]).at(COVERAGE))
            )
            inside = (low[rest] <= y[rest]) & (y[rest] <= high[rest])
            found.append((inside.mean(), (high[rest] - low[rest]).mean()))
    coverage, width = np.mean(found, axis=0)
    return float(coverage), float(width)
