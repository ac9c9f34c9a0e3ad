"""Metrics that compare predicted distributions with observed counts.

Scores such as `crps` return one value per row, and `evaluate` returns averages of scores over the rows.
`pit_histogram`, `coverage_curve`, `auroc` and others describe a whole set of rows by one value or one curve.
"""

from ddpn.metrics.calibration import (
    CoverageCurve,
    coverage_curve,
    expected_coverage,
    is_covered,
    median_precision,
    pit_bounds,
    pit_distance,
    pit_histogram,
)
from ddpn.metrics.ood import aupr, auroc, fpr80, ood_score
from ddpn.metrics.scores import (
    absolute_error,
    crps,
    nll,
    point,
)
from ddpn.metrics.summary import evaluate
from ddpn.runtime.extras import import_on_use

# They import scikit-learn.
__getattr__ = import_on_use(__name__, dict.fromkeys(("CRPSScorer", "crps_scorer"), f"{__name__}.scorer"))

__all__ = [
    "CRPSScorer",
    "CoverageCurve",
    "absolute_error",
    "aupr",
    "auroc",
    "coverage_curve",
    "crps",
    "crps_scorer",
    "evaluate",
    "expected_coverage",
    "fpr80",
    "is_covered",
    "median_precision",
    "nll",
    "ood_score",
    "pit_bounds",
    "pit_distance",
    "pit_histogram",
    "point",
]
