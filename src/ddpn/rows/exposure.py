"""Rescale exposures, so that fitted rates (counts per unit of exposure) stay in the range that likelihoods allow."""

import numpy as np

from ddpn.rows.count_rows import CountRows

#: Binary logarithms of the count above which rates are rescaled, and of the largest rate afterwards. Heads clip rates
#: at 2^23.
_LARGE_COUNT, _LARGE_RATE = 22.0, 20.0


def choose_exposure_unit(rows: CountRows, is_total: bool) -> float:
    """Choose the number by which members divide the exposures of `rows`: a power of two, so that division is exact.

    It is the power of two nearest to the weighted mean exposure. Without exposures, it is 1. If counts exceed 4
    million, it is smaller, so that rates per unit stay below a million. If `is_total` is True, exposures are the totals
    n of "k of n", which must not be rescaled, and the result is 1.
    """
    if is_total:
        return 1.0
    mean = 1.0 if rows.exposure is None else np.average(rows.exposure, weights=rows.weight)
    largest = np.log2(max(float(rows.y.max(initial=1.0)), 1.0))
    excess = 0.0 if largest <= _LARGE_COUNT else np.ceil(largest) - _LARGE_RATE
    return float(2.0 ** (np.round(np.log2(mean)) - excess))


def divide_exposure(rows: CountRows, unit: float) -> CountRows:
    """Return the rows with their exposures divided by `unit`.

    Rows without exposures get an exposure of 1 / `unit`, or stay unchanged if `unit` is 1.
    """
    if rows.exposure is None and unit == 1.0:
        return rows
    return rows.replace(exposure=rows.exposure_or_ones / unit)
