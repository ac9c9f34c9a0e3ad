"""What estimators do around the fits of members: read their arguments, hold out rows, merge equal ones."""

from typing import Any

import numpy as np

from ddpn.networks.heads import Head
from ddpn.sample import Sample
from ddpn.tables.count_range import CountRange
from ddpn.tables.splits import held_out_rows

#: With fewer rows none are held out: they are needed for fitting, and would score too noisily.
MIN_SPLIT_ROWS = 200


def range_of(model: Any, head: Head, upper: Any, censored: Any) -> CountRange:
    """The range of counts that an estimator's arguments describe; a `ConfigError` if its likelihood cannot have it.

    The upper bound of a likelihood of counts of a known total is that total.
    """
    is_total = head.exposure_is_total and (upper is not None or model.upper is not None)
    counts = CountRange(model.lower, model.upper, model.censored_above, upper is not None, is_total)
    if not counts.is_plain or censored is not None:
        head.check_bounds()
    return counts


def held_out(sample: Sample, share: float | str | None, seed: int) -> np.ndarray:
    """Mask of the rows that are kept for validation: by default a tenth, where there are enough rows."""
    if share == "auto":
        share = 0.1 if len(sample) >= MIN_SPLIT_ROWS else 0.0
    groups = len(sample) if sample.group is None else len(np.unique(sample.group))
    if not share or groups < 2:
        return np.zeros(len(sample), dtype=bool)
    return held_out_rows(len(sample), float(share), seed, sample.group)


def merge_equal_rows(sample: Sample) -> Sample:
    """Merge equal rows into one with the sum of their weights, drop rows of weight 0, and sort the rest.

    For small numeric arrays and sparse matrices only, others stay as they are: a fit with integer weights and one with
    repeated rows are then the same computation, not merely the same expectation.
    """
    from scipy import sparse  # slow to import

    X = sample.X.toarray() if sparse.issparse(sample.X) else sample.X
    if not isinstance(X, np.ndarray) or X.ndim != 2 or X.dtype.kind not in "buif" or not np.isfinite(X).all():
        return sample
    kept, weight = sample.is_used, sample.weight_or_ones
    extra = [part for name, part in sample.parts.items() if name not in ("X", "weight")]
    unique, inverse = np.unique(np.column_stack([X, *extra])[kept], axis=0, return_inverse=True)
    first = np.full(len(unique), len(X))
    np.minimum.at(first, inverse.ravel(), np.flatnonzero(kept))
    total = np.bincount(inverse.ravel(), weights=weight[kept], minlength=len(unique))
    return sample.rows(first).replace(weight=total)
