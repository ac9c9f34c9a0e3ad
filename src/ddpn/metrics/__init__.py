"""Scores of a predictive distribution against the observed value: f(dist, y) -> one value per row, never reduced.

`evaluate` averages them. Metrics that are defined only on a whole set (`pit_histogram`, `coverage_curve`, ..., `auroc`)
return one value or curve.
"""

from ddpn.metrics.calibration import (
    CoverageCurve,
    coverage_curve,
    covered,
    expected_coverage,
    median_precision,
    pit_bounds,
    pit_distance,
    pit_histogram,
)
from ddpn.metrics.ood import aupr, auroc, fpr80, ood_score
from ddpn.metrics.scores import (
    absolute_error,
    crps,
    crps_scorer,
    nll,
    point,
    squared_error,
)
from ddpn.metrics.summary import evaluate

__all__ = [
    "CoverageCurve",
    "absolute_error",
    "aupr",
    "auroc",
    "coverage_curve",
    "covered",
    "crps",
    "crps_scorer",
    "evaluate",
    "expected_coverage",
    "fpr80",
    "median_precision",
    "nll",
    "ood_score",
    "pit_bounds",
    "pit_distance",
    "pit_histogram",
    "point",
    "squared_error",
]
