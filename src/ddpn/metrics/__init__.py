"""Scores of a predictive distribution against the observed value: f(dist, y) -> one value per row, never reduced.

`evaluate` averages them. Metrics that are defined only on a whole set (`pit_histogram`, `coverage_curve`, ..., `auroc`)
return one value or curve.
"""

from ddpn.metrics.calibration import covered, expected_coverage, pit, pit_bounds, pit_cdf, precision, width
from ddpn.metrics.detection import aupr, auroc, fpr80, fpr_at
from ddpn.metrics.ood import OOD_SCORES, ood_score
from ddpn.metrics.reliability import (
    CoverageCurve,
    coverage_curve,
    median_precision,
    pit_distance,
    pit_histogram,
)
from ddpn.metrics.scores import (
    absolute_error,
    crps,
    crps_scorer,
    dawid_sebastiani,
    nll,
    point,
    ranked_probability,
    register_crps,
    squared_error,
)
from ddpn.metrics.summary import evaluate

__all__ = [
    "OOD_SCORES",
    "CoverageCurve",
    "absolute_error",
    "aupr",
    "auroc",
    "coverage_curve",
    "covered",
    "crps",
    "crps_scorer",
    "dawid_sebastiani",
    "evaluate",
    "expected_coverage",
    "fpr80",
    "fpr_at",
    "median_precision",
    "nll",
    "ood_score",
    "pit",
    "pit_bounds",
    "pit_cdf",
    "pit_distance",
    "pit_histogram",
    "point",
    "precision",
    "ranked_probability",
    "register_crps",
    "squared_error",
    "width",
]
