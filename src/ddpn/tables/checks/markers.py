"""Find numbers that stand for "unknown", such as 999 among counts below 20 or -999 in a column of measurements."""

import numpy as np

#: The fewest rows that must have the value.
_MIN_REPEATS = 3
#: A number in `_CODES` is an outlier if its distance to the next value is at least the range of all other values. Any
#: other number must be this many times as far away, and be repeated this often.
_OTHER_DISTANCE, _OTHER_REPEATS = 20.0, 5
#: A code that is repeated as often is also an outlier if its distance is this many times the largest gap between the
#: other values, such as 99 among ages up to 80.
_MIN_GAPS = 5.0
#: The fewest other distinct values of a column: two or three values may be codes themselves.
_MIN_OTHER_VALUES = 5
#: The fewest distinct values above -1 for which -1 is a code: on a short scale, -1 may be a step.
_MIN_VALUES_ABOVE_MINUS_ONE = 20
#: Numbers that people write for "unknown", by their size: 9, 99, 999, ... and 8, 88, 888, ...
_CODES = frozenset(int(digit * length) for digit in "98" for length in range(1, 8))
#: The largest code that may be an ordinary number although all others are far below.
_SMALL_CODE = 90


def find_marker(values: np.ndarray) -> float | None:
    """Return the number that seems to stand for "unknown", such as 999 or -1, or None if there is none.

    NaN is ignored.

    >>> find_marker(np.array([3.0, 1.0, 999.0, 0.0, 2.0, 999.0, 4.0, 5.0, 999.0]))
    999.0
    """
    values = values[~np.isnan(values)]
    if not len(values):
        return None
    for end in (values.max(), values.min()):
        is_end = values == end
        others, count = values[~is_end], int(is_end.sum())
        if count < _MIN_REPEATS or end == 0.0 or not len(others):
            continue
        low, high = float(others.min()), float(others.max())
        distance, spread = (end - high if end > high else low - end), high - low
        is_code = abs(end) in _CODES and not 0.0 < end < _SMALL_CODE
        is_only_negative = end < 0.0 <= low
        is_often = count >= _OTHER_REPEATS
        is_far = is_often and distance >= _OTHER_DISTANCE * spread
        if not (is_far or is_code or (is_only_negative and end == -1.0)):
            continue
        # Distinct values are counted last, as most columns have no such number at their ends.
        numbers = np.unique(others)
        if len(numbers) < _MIN_OTHER_VALUES:
            continue
        is_minus_one = is_only_negative and end == -1.0 and len(numbers) >= _MIN_VALUES_ABOVE_MINUS_ONE
        is_apart = distance >= spread or (is_often and distance >= _MIN_GAPS * np.diff(numbers).max())
        if is_far or is_minus_one or (is_code and (is_only_negative or is_apart)):
            return float(end)
    return None
