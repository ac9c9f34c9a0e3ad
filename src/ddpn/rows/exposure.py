"""The unit of exposures: members fit rates per unit, which stay where likelihoods do not clamp them."""

import numpy as np

from ddpn.rows.count_rows import CountRows

#: Logarithms to base 2 of the count above which rates are rescaled, and of the largest rate after that. Heads clamp
#: rates at 2^23.
_LARGE_COUNT, _LARGE_RATE = 22.0, 20.0


def choose_exposure_unit(rows: CountRows, is_total: bool) -> float:
    """Choose the power of two by which members divide exposures, which loses no digits.

    It is the one nearest to the mean exposure, or to 1 without exposures. For counts above 4 million it is smaller, so
    that rates per unit stay below a million. For totals (`is_total`) it is 1.
    """
    if is_total:
        return 1.0
    mean = 1.0 if rows.exposure is None else np.average(rows.exposure, weights=rows.weight)
    largest = np.log2(max(float(rows.y.max(initial=1.0)), 1.0))
    excess = 0.0 if largest <= _LARGE_COUNT else np.ceil(largest) - _LARGE_RATE
    return float(2.0 ** (np.round(np.log2(mean)) - excess))


def divide_exposure(rows: CountRows, unit: float) -> CountRows:
    """Return the rows with their exposures divided by `unit`; rows without exposures count as 1.

    Rows without exposures are returned unchanged if the unit is 1.
    """
    if rows.exposure is None and unit == 1.0:
        return rows
    exposure = np.ones(len(rows)) if rows.exposure is None else rows.exposure
    return rows.replace(exposure=exposure / unit)
