"""P-values of several tests."""

from collections.abc import Sequence

import numpy as np


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values adjusted for several tests by Holm's method.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p_values, kind="stable")
    factors = np.arange(len(p_values), 0, -1)
    adjusted = np.maximum.accumulate(np.asarray(p_values)[order] * factors)
    back = np.empty(len(p_values))
    back[order] = np.minimum(adjusted, 1.0)
    return [float(value) for value in back]
